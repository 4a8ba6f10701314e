// Package inotifytest runs tests in a user namespace with its own inotify limits, and uses up these
// limits (inotify(7), max_user_instances).
package inotifytest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// envVar is the environment variable that marks a test process in its own user namespace.
const envVar = "HAWSER_TEST_INOTIFY"

// RunIsolated reports whether the test runs in its own user namespace, which has its own inotify
// limits. Otherwise it runs the test again in a new user namespace. Without user namespaces the
// test is skipped, or fails if REQUIRE_KERNEL=1.
func RunIsolated(t *testing.T) bool {
	t.Helper()
	if os.Getenv(envVar) != "" {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), envVar+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
	case errors.As(err, new(*exec.ExitError)):
		t.Errorf("%v\n%s", err, out)
	case os.Getenv("REQUIRE_KERNEL") == "1":
		t.Fatalf("needs user namespaces: %v", err)
	default:
		t.Skipf("needs user namespaces: %v", err)
	}
	return false
}

// Exhaust creates all inotify instances that the user namespace allows. release closes them.
func Exhaust(t *testing.T) (release func()) {
	t.Helper()
	const limit = 4
	if err := os.WriteFile("/proc/sys/user/max_inotify_instances", []byte(fmt.Sprint(limit)), 0o600); err != nil {
		t.Fatal(err)
	}
	var used []int
	for len(used) < limit {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
		switch {
		case err == nil:
			used = append(used, fd)
		case errors.Is(err, unix.EMFILE): // the host's limit, which other processes may have reached
			time.Sleep(10 * time.Millisecond)
		default:
			t.Fatal(err)
		}
	}
	return func() {
		for _, fd := range used {
			_ = unix.Close(fd)
		}
	}
}

// Instances returns the number of inotify instances of this process.
func Instances(t *testing.T) int {
	t.Helper()
	files, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, file := range files {
		if target, err := os.Readlink(file); err == nil && target == "anon_inode:inotify" {
			count++
		}
	}
	return count
}
