package vm

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestResult(t *testing.T) {
	t.Parallel()
	tests := []struct {
		console, text string
		code          int
		wrong         string
	}{
		{"booting\r\nhawser-vm: begin\r\nhello\r\nhawser-vm: exit 3\r\n", "hello\n", 3, ""},
		{"hawser-vm: begin\nhawser-vm: exit 0\n", "", 0, ""},
		{"panic\n", "", 0, "did not come to the script"},
		{"hawser-vm: exit 125\n", "", 0, "did not come to the script"},
		{"hawser-vm: begin\nhello\n", "hello\n", 0, "ended within the script"},
	}
	for _, tt := range tests {
		text, code, err := result(tt.console)
		switch {
		case tt.wrong != "" && (err == nil || !strings.Contains(err.Error(), tt.wrong)):
			t.Errorf("%q: error %v, want %s", tt.console, err, tt.wrong)
		case tt.wrong == "" && (err != nil || text != tt.text || code != tt.code):
			t.Errorf("%q: %q, %d, %v", tt.console, text, code, err)
		}
	}
}

// TestFind tests that the error names the missing files and the script that installs them.
func TestFind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	here := func(name string) (string, error) { return "/bin/" + name, nil }
	nowhere := func(string) (string, error) { return "", exec.ErrNotFound }
	if _, err := Find(dir, here); err == nil || !strings.Contains(err.Error(), "kernel in "+dir+" (hack/setup-vm.sh)") {
		t.Errorf("no kernel: %v", err)
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "boot"), 0o700), os.WriteFile(filepath.Join(dir, "boot/vmlinuz-6"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := Find(dir, nowhere); err == nil || !strings.Contains(err.Error(), "qemu-system-x86_64") {
		t.Errorf("no programs: %v", err)
	}
	m, err := Find(dir, here)
	if err != nil || m.QEMU != "/bin/qemu-system-x86_64" || m.Kernel != filepath.Join(dir, "boot/vmlinuz-6") {
		t.Errorf("%+v, %v", m, err)
	}
}

// TestArchive tests that cpio(1) extracts an archive.
func TestArchive(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("cpio"); err != nil {
		t.Skip("needs cpio")
	}
	var a archive
	a.add("dir", 0o040755, nil)
	a.add("dir/file", 0o100644, []byte("content"))
	cmd := exec.Command("cpio", "-i", "--quiet")
	cmd.Dir, cmd.Stdin = t.TempDir(), strings.NewReader(string(a.end()))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if raw, err := os.ReadFile(filepath.Join(cmd.Dir, "dir/file")); err != nil || string(raw) != "content" {
		t.Errorf("%q, %v", raw, err)
	}
}

// TestMissing tests that jobs are skipped without the files of setup-vm.sh, and fail with
// REQUIRE_KERNEL=1.
func TestMissing(t *testing.T) {
	t.Parallel()
	for require, want := range map[string]string{"": "--- SKIP: TestModules", "1": "--- FAIL: TestModules"} {
		cmd := exec.Command("go", "test", "-tags", "vm", "-count=1", "-run", "^TestModules$", "-v", ".")
		dir := t.TempDir()
		cmd.Env = append(os.Environ(), "HAWSER_VM_DIR="+dir, "REQUIRE_KERNEL="+require)
		out, err := cmd.CombinedOutput()
		if (err != nil) != (require == "1") || !strings.Contains(string(out), want) || !strings.Contains(string(out), "needs one kernel in "+dir) {
			t.Errorf("REQUIRE_KERNEL=%s: %v\n%s", require, err, out)
		}
	}
}
