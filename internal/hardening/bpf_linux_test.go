package hardening_test

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/internal/hardening"
)

// bpfChildEnv makes TestRestrictBPF run its checks in a process of its own: the filter stays.
const bpfChildEnv = "HAWSER_TEST_BPF_CHILD"

// bpf calls bpf(2) with an attribute of zeros.
func bpf(command uintptr) error {
	var attr [128]byte
	_, _, errno := unix.Syscall(unix.SYS_BPF, command, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	runtime.KeepAlive(&attr)
	if errno != 0 {
		return errno
	}
	return nil
}

// TestRestrictBPF: with CAP_BPF all threads and children may list programs, and may not create maps
// or load programs.
func TestRestrictBPF(t *testing.T) {
	if os.Getenv(bpfChildEnv) == "" {
		t.Parallel()
		if os.Getuid() != 0 {
			t.Skip("it needs CAP_BPF")
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestRestrictBPF$", "-test.v")
		cmd.Env = append(os.Environ(), bpfChildEnv+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	const mapCreate, progLoad, progQuery = 0, 5, unix.BPF_PROG_QUERY
	if err := bpf(mapCreate); errors.Is(err, unix.EPERM) {
		t.Skip("this process may not call bpf(2)")
	}
	// Threads that exist before the filter.
	ready, restricted := make(chan bool), make(chan bool)
	var threads sync.WaitGroup
	for range 4 {
		threads.Go(func() {
			runtime.LockOSThread()
			ready <- true
			<-restricted
			for _, command := range []uintptr{mapCreate, progLoad} {
				if err := bpf(command); !errors.Is(err, unix.EPERM) {
					t.Errorf("command %d: %v, want EPERM", command, err)
				}
			}
			if err := bpf(progQuery); errors.Is(err, unix.EPERM) {
				t.Error("a query is denied")
			}
		})
	}
	for range 4 {
		<-ready
	}
	if err := hardening.RestrictBPF(); err != nil {
		t.Fatal(err)
	}
	close(restricted)
	threads.Wait()
	out, err := exec.Command("grep", "-E", "^(NoNewPrivs|Seccomp):", "/proc/self/status").Output()
	if have := strings.Join(strings.Fields(string(out)), " "); err != nil || have != "NoNewPrivs: 1 Seccomp: 2" {
		t.Errorf("a child has %q, %v", have, err)
	}
}
