package hardening_test

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/internal/hardening"
)

// TestCloseOnExec checks that started programs do not inherit a lock file of the caller.
func TestCloseOnExec(t *testing.T) {
	inherited, err := unix.Open(filepath.Join(t.TempDir(), "lock"), unix.O_CREAT|unix.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(inherited) })
	inherits := func() bool {
		out, err := exec.Command("sh", "-c", "ls -l /proc/self/fd").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return bytes.Contains(out, []byte("/lock\n"))
	}
	if !inherits() {
		t.Fatal("a child does not inherit the descriptor before CloseOnExec")
	}
	if err := hardening.CloseOnExec(); err != nil {
		t.Fatal(err)
	}
	if inherits() {
		t.Error("a child inherits the descriptor")
	}
}
