package atomicfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"hawser.dev/hawser/internal/atomicfile"
)

func TestWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, content := range []string{"old", "new"} {
		if err := atomicfile.Write(path, []byte(content), 0o640); err != nil {
			t.Fatal(err)
		}
		have, err := os.ReadFile(path)
		if err != nil || string(have) != content {
			t.Errorf("have %q, %v; want %q", have, err, content)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode: %v, %v", info.Mode(), err)
	}
	taken := filepath.Join(dir, "directory")
	if err := os.MkdirAll(filepath.Join(taken, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Write(taken, nil, 0o600); err == nil {
		t.Error("a directory was replaced")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestRewriteKeepsModeOwnerAndLink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(path, 0o640), os.Symlink("file", link)); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		if err := os.Chown(path, 12, 34); err != nil {
			t.Fatal(err)
		}
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Rewrite(link, []byte("new")); err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	was, is := before.Sys().(*syscall.Stat_t), after.Sys().(*syscall.Stat_t)
	if before.Mode() != after.Mode() || was.Uid != is.Uid || was.Gid != is.Gid {
		t.Errorf("have %v of %d:%d, had %v of %d:%d", after.Mode(), is.Uid, is.Gid, before.Mode(), was.Uid, was.Gid)
	}
	if have, err := os.ReadFile(path); err != nil || string(have) != "new" {
		t.Errorf("have %q, %v", have, err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link: %v, %v", info, err)
	}
	if err := atomicfile.Rewrite(filepath.Join(dir, "none"), nil); err == nil {
		t.Error("a file was made")
	}
}

func TestFillThatFailsChangesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	broken := errors.New("broken")
	err := atomicfile.WriteFunc(filepath.Join(dir, "file"), func(f *os.File) error {
		_, err := f.WriteString("half")
		return errors.Join(err, broken)
	})
	if left, _ := os.ReadDir(dir); !errors.Is(err, broken) || len(left) != 0 {
		t.Errorf("have %v, left %v", err, left)
	}
}
