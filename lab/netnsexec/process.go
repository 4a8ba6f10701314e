package netnsexec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Process identifies a process. The kernel may reuse a PID, but not with the same start time.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks since boot (proc_pid_stat(5), field 22)
}

// Find looks up a running process.
func Find(pid int) (Process, error) {
	_, start, err := stat(pid)
	if err != nil {
		return Process{}, err
	}
	return Process{PID: pid, Start: start}, nil
}

// Alive reports whether the process runs. A zombie counts as running only if other threads run and
// keep its files open.
func (p Process) Alive() bool {
	if p.PID <= 0 {
		return false
	}
	state, start, err := stat(p.PID)
	if err != nil || start != p.Start {
		return false
	}
	if state != 'Z' && state != 'X' {
		return true
	}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.PID))
	return err == nil && len(threads) > 1
}

func stat(pid int) (state byte, start uint64, err error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("read process %d: %w", pid, err)
	}
	// The second field is the name in parentheses and may contain any character.
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) < 20 {
		return 0, 0, fmt.Errorf("read process %d: short stat", pid)
	}
	start, err = strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("read process %d: %w", pid, err)
	}
	return fields[0][0], start, nil
}

// Processes returns the processes in any of the namespaces (by inode), and the processes with mark,
// such as NAME=value, in their environment. An empty mark matches no process. It omits the calling
// process and its ancestors.
func Processes(inodes map[uint64]bool, mark string) []Process {
	excluded := map[int]bool{}
	for pid := os.Getpid(); pid > 0 && !excluded[pid]; {
		excluded[pid] = true
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			break
		}
		fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
		if len(fields) < 2 {
			break
		}
		pid, _ = strconv.Atoi(fields[1])
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []Process
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || excluded[pid] {
			continue
		}
		if !inNamespaces(pid, inodes) && !hasMark(pid, mark) {
			continue
		}
		if p, err := Find(pid); err == nil && p.Alive() {
			found = append(found, p)
		}
	}
	return found
}

func inNamespaces(pid int, inodes map[uint64]bool) bool {
	if len(inodes) == 0 {
		return false
	}
	info, err := os.Stat(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return false
	}
	sys, ok := info.Sys().(*syscall.Stat_t)
	return ok && inodes[sys.Ino]
}

func hasMark(pid int, mark string) bool {
	if mark == "" {
		return false
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err == nil && bytes.Contains(append([]byte{0}, raw...), []byte("\x00"+mark+"\x00"))
}

// Kill sends SIGKILL to the processes and waits for their exit.
func Kill(ctx context.Context, processes []Process) error {
	var errs []error
	for _, p := range processes {
		errs = append(errs, p.Signal(unix.SIGKILL))
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for _, p := range processes {
		for p.Alive() {
			select {
			case <-ctx.Done():
				return errors.Join(append(errs, fmt.Errorf("end process %d: %w", p.PID, ctx.Err()))...)
			case <-tick.C:
			}
		}
	}
	return errors.Join(errs...)
}

// Signal sends a signal, unless the process has exited. It uses a pidfd, so the PID cannot be
// reused between the check of the start time and the signal.
func (p Process) Signal(sig unix.Signal) error {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil && !p.Alive() {
		return nil // the PID may now belong to another process's thread
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", p.PID, err)
	}
	defer unix.Close(fd)
	if !p.Alive() {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("send %s to process %d: %w", sig, p.PID, err)
	}
	return nil
}

// Frozen reports whether the process is stopped by SIGSTOP.
func (p Process) Frozen() bool {
	if p.PID <= 0 {
		return false
	}
	state, start, err := stat(p.PID)
	return err == nil && start == p.Start && state == 'T'
}

// Inodes returns the inodes of the namespaces pinned in dir.
func Inodes(dir string) map[uint64]bool {
	inodes := map[uint64]bool{}
	paths, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, path := range paths {
		var fs unix.Statfs_t
		// A plain file is a former mount point.
		if unix.Statfs(path, &fs) != nil || fs.Type != unix.NSFS_MAGIC {
			continue
		}
		if inode, err := Inode(path); err == nil {
			inodes[inode] = true
		}
	}
	return inodes
}
