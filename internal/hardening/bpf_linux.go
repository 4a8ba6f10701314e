package hardening

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data (linux/seccomp.h). The first argument is the lower half of a
// little-endian 64-bit number.
const (
	seccompNumber = 0
	seccompArch   = 4
	seccompArg0   = 16
)

// x32Bit marks system calls of the x32 ABI, which have the architecture of amd64.
const x32Bit = 0x40000000

// RestrictBPF makes bpf(2) fail with EPERM in this process and its children, except for listing
// programs. Container runtimes allow bpf(2) only together with CAP_BPF, which would also permit
// loading programs into the kernel. It changes nothing without CAP_BPF, and cannot be undone.
func RestrictBPF() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&header, &caps[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	if caps[unix.CAP_BPF/32].Permitted&(1<<(unix.CAP_BPF%32)) == 0 {
		return nil
	}
	arch := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]
	if arch == 0 {
		return fmt.Errorf("forbid bpf(2): no filter for %s", runtime.GOARCH)
	}
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	jump := func(operator uint16, k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | operator | unix.BPF_K, Jt: yes, Jf: no, K: k}
	}
	filter := []unix.SockFilter{
		load(seccompArch),
		jump(unix.BPF_JEQ, arch, 0, 5), // system calls of another architecture have other numbers
		load(seccompNumber),
		jump(unix.BPF_JGE, x32Bit, 3, 0),
		jump(unix.BPF_JEQ, unix.SYS_BPF, 0, 3),
		load(seccompArg0),
		jump(unix.BPF_JEQ, unix.BPF_PROG_QUERY, 1, 0), // lists the programs at an attach point
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	// A thread without CAP_SYS_ADMIN needs no_new_privs. TSYNC copies both to all threads.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	failed, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(filter)
	switch {
	case errno != 0:
		return fmt.Errorf("forbid bpf(2) except queries: %w", errno)
	case failed != 0: // TSYNC returns the thread that has another filter
		return fmt.Errorf("forbid bpf(2) except queries: thread %d has another seccomp filter", failed)
	}
	return nil
}
