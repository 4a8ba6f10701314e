package gitrepo_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hawser.dev/hawser/reconciler/gitrepo"
)

// TestDiscovery checks that a path resolves to the repository that git finds, and never to a
// repository that a commit can contain.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	top := workTree(t)
	commitFile(t, top, "net/envs/clusterset.yaml", "honest")
	commitFile(t, top, "data/file", "honest")
	evil := filepath.Join(t.TempDir(), "evil")
	git(t, filepath.Dir(evil), "clone", "-q", "--bare", top, evil)
	forge := func(dir string) { // writes a repository with another head
		t.Helper()
		if err := os.CopyFS(filepath.Join(top, dir), os.DirFS(evil)); err != nil {
			t.Fatal(err)
		}
		git(t, filepath.Join(top, dir), "--git-dir=.", "update-ref", "refs/heads/main", git(t, top, "rev-parse", "HEAD~1"))
	}
	honest := git(t, top, "rev-parse", "HEAD")
	finds := func(path string, named bool, want string) {
		t.Helper()
		s, err := gitrepo.Open(gitrepo.Config{URL: path, ExplicitURL: named})
		if err != nil {
			t.Fatal(err)
		}
		sync(t, s)
		if have := head(t, s, "main").String(); have != want {
			t.Errorf("%s finds %s, want %s", path, have, want)
		}
	}
	refuses := func(path string, named bool, want string) {
		t.Helper()
		s, err := gitrepo.Open(gitrepo.Config{URL: path, ExplicitURL: named})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Fetch(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
	// The top directory, the directory of the topology, and a directory between them.
	for _, dir := range []string{"", "net/envs", "net"} {
		forge(dir)
	}
	finds(top, false, honest)
	finds(top, true, honest)
	finds(filepath.Join(top, "net/envs"), false, honest)
	finds(filepath.Join(top, ".git"), true, honest)
	git(t, top, "worktree", "add", "-q", filepath.Join(t.TempDir(), "linked"), "-b", "linked")
	// A user can name a bare repository inside a work tree.
	finds(filepath.Join(top, "net"), true, git(t, top, "rev-parse", "HEAD~1"))

	// A file .git can only refer to a repository outside of a work tree.
	put(t, top, "data/.git", "gitdir: ../net\n")
	refuses(filepath.Join(top, "data"), false, "inside the work tree")
	refuses(filepath.Join(top, "data"), true, "inside the work tree")
	// A directory .git is refused if the outer repository has committed its parent directory.
	if err := errors.Join(os.Remove(filepath.Join(top, "data/.git")), os.CopyFS(filepath.Join(top, "data/.git"), os.DirFS(evil))); err != nil {
		t.Fatal(err)
	}
	refuses(filepath.Join(top, "data"), false, "remove it")
	// A clone in a work tree, a submodule and a separate git directory are supported, as in
	// git.
	clone := filepath.Join(top, "clone")
	git(t, top, "clone", "-q", evil, clone)
	finds(clone, false, honest)
	git(t, top, "-c", "protocol.file.allow=always", "submodule", "add", "-q", evil, "module")
	git(t, top, "commit", "-q", "-m", "submodule")
	finds(filepath.Join(top, "module"), false, honest)
	gitDirParent := t.TempDir()
	git(t, gitDirParent, "clone", "-q", "--separate-git-dir", filepath.Join(gitDirParent, "git"), evil, filepath.Join(gitDirParent, "work"))
	finds(filepath.Join(gitDirParent, "work"), false, honest)
	// Without a .git, only a named path is a bare repository.
	refuses(evil, false, "not in a git repository")
	finds(evil, true, honest)
	refuses(filepath.Join(evil, "refs"), true, "not in a git repository")
}

// TestDefaultNamesNothing checks that ".", the default of --repo, is not a bare repository inside a
// work tree.
func TestDefaultNamesNothing(t *testing.T) {
	top := workTree(t)
	honest := commitFile(t, top, "net/clusterset.yaml", "honest")
	git(t, top, "clone", "-q", "--bare", top, filepath.Join(top, "net/bare"))
	if err := os.CopyFS(filepath.Join(top, "net"), os.DirFS(filepath.Join(top, "net/bare"))); err != nil {
		t.Fatal(err)
	}
	git(t, top, "commit", "-q", "--allow-empty", "-m", "two")
	t.Chdir(filepath.Join(top, "net"))
	s := open(t, ".")
	sync(t, s)
	if have := head(t, s, "main").String(); have == honest {
		t.Error("a repository in the work tree was used")
	}
}
