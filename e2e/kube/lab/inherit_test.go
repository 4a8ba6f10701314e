package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestInheritedFiles: a lock that the caller of kubelab holds on a descriptor of its own does
// not reach the programs that kubelab starts.
func TestInheritedFiles(t *testing.T) {
	inherited, err := unix.Open(filepath.Join(t.TempDir(), "lock"), unix.O_CREAT|unix.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(inherited) })
	sees := func() bool {
		out, err := exec.Command("sh", "-c", "ls -l /proc/self/fd").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return bytes.Contains(out, []byte("/lock\n"))
	}
	if !sees() {
		t.Fatal("a child does not see the descriptor: the test tests nothing")
	}
	if err := closeOnExec(); err != nil {
		t.Fatal(err)
	}
	if sees() {
		t.Error("a child sees the descriptor")
	}
}
