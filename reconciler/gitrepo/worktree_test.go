package gitrepo_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCleanWorkTree checks that a clean work tree has no uncommitted files, even if git converts
// files at checkout. A changed file is listed.
func TestCleanWorkTree(t *testing.T) {
	t.Parallel()
	const name, other = "net/clusterset.yaml", "apps/other.yaml"
	tests := []struct {
		name       string
		config     []string // of the clone
		attributes string   // .gitattributes at the top
		committed  string
		checkedOut string // start of the file in the work tree
	}{
		{name: "LF", committed: "a: 1\nb: 2\n", checkedOut: "a: 1\n"},
		{name: "core.autocrlf", config: []string{"core.autocrlf=true"}, committed: "a: 1\nb: 2\n", checkedOut: "a: 1\r\n"},
		{name: "core.eol", config: []string{"core.eol=crlf"}, attributes: "* text\n", committed: "a: 1\nb: 2\n", checkedOut: "a: 1\r\n"},
		{name: "text=auto eol=crlf", attributes: "* text=auto eol=crlf\n", committed: "a: 1\nb: 2\n", checkedOut: "a: 1\r\n"},
		{name: "eol=lf", config: []string{"core.autocrlf=true"}, attributes: "*.yaml eol=lf\n", committed: "a: 1\nb: 2\n", checkedOut: "a: 1\n"},
		{name: "-text, LF", config: []string{"core.autocrlf=true"}, attributes: "* -text\n", committed: "a: 1\nb: 2\n", checkedOut: "a: 1\n"},
		{name: "-text, CRLF", attributes: "* -text\n", committed: "a: 1\r\nb: 2\r\n", checkedOut: "a: 1\r\n"},
		{name: "CRLF committed", committed: "a: 1\r\nb: 2\r\n", checkedOut: "a: 1\r\n"},
		{name: "mixed", config: []string{"core.autocrlf=true"}, committed: "a: 1\r\nb: 2\n", checkedOut: "a: 1\r\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			origin := workTree(t)
			git(t, origin, "config", "core.autocrlf", "false")
			commitFile(t, origin, other, "x: 1\n")
			commitFile(t, origin, name, tt.committed)
			clone := filepath.Join(t.TempDir(), "clone")
			put(t, origin, ".gitattributes", tt.attributes)
			git(t, origin, "add", ".gitattributes")
			git(t, origin, "commit", "-q", "-m", "attributes")
			args := []string{"clone", "-q"}
			for _, c := range tt.config {
				args = append(args, "-c", c)
			}
			git(t, filepath.Dir(clone), append(args, origin, clone)...)
			raw, err := os.ReadFile(filepath.Join(clone, name))
			if err != nil || !strings.HasPrefix(string(raw), tt.checkedOut) {
				t.Fatalf("git checked out %q: %v", raw, err)
			}
			if status := git(t, clone, "status", "--porcelain"); status != "" {
				t.Fatalf("git status: %s", status)
			}
			checkUncommitted(t, clone, []string{name, other})
			put(t, clone, name, strings.Replace(string(raw), "b: 2", "b: 3", 1))
			checkUncommitted(t, clone, []string{name, other}, name)
		})
	}
}

// TestSparseWorkTree checks that files excluded by a sparse checkout are not changes, and that
// deleted files are.
func TestSparseWorkTree(t *testing.T) {
	t.Parallel()
	work := workTree(t)
	commitFile(t, work, "apps/other.yaml", "x: 1\n")
	commitFile(t, work, "net/clusterset.yaml", "a: 1\n")
	git(t, work, "sparse-checkout", "set", "--cone", "net")
	files := []string{"net/clusterset.yaml", "apps/other.yaml"}
	checkUncommitted(t, work, files)
	if err := os.Remove(filepath.Join(work, "net/clusterset.yaml")); err != nil {
		t.Fatal(err)
	}
	checkUncommitted(t, work, files, "net/clusterset.yaml")
	put(t, work, "net/clusterset.yaml", "a: 1\n")
	git(t, work, "sparse-checkout", "reapply", "--sparse-index")
	s := open(t, work)
	sync(t, s)
	w, _, err := s.WorkTree()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Uncommitted(w, w.Head, files...); err == nil || !strings.Contains(err.Error(), "--no-sparse-index") {
		t.Errorf("with a sparse index: %v", err)
	}
	checkUncommitted(t, work, files[:1])
}

// TestUncommittedIsBounded checks files that a work tree can contain, but a commit cannot.
func TestUncommittedIsBounded(t *testing.T) {
	t.Parallel()
	work := workTree(t)
	commitFile(t, work, "clusterset.yaml", "a: 1\n")
	s := open(t, work)
	sync(t, s)
	w, _, err := s.WorkTree()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(work, "clusterset.yaml")
	for what, spoil := range map[string]func() error{
		"symbolic link":      func() error { return os.Symlink("/dev/zero", path) },
		"FIFO":               func() error { return syscall.Mkfifo(path, 0o600) },
		"larger than 32 MiB": func() error { return os.WriteFile(path, make([]byte, 33<<20), 0o600) },
	} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Uncommitted(w, w.Head, "clusterset.yaml"); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// checkUncommitted compares the uncommitted files of a work tree.
func checkUncommitted(t *testing.T, work string, files []string, want ...string) {
	t.Helper()
	s := open(t, work)
	sync(t, s)
	w, here, err := s.WorkTree()
	if err != nil || !here {
		t.Fatalf("work tree: %v, %v", here, err)
	}
	have, err := s.Uncommitted(w, w.Head, files...)
	if diff := cmp.Diff(want, have); err != nil || diff != "" {
		t.Errorf("uncommitted: %v (-want +got)\n%s", err, diff)
	}
}
