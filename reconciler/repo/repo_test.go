package repo_test

import (
	"context"
	"errors"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/reconciler/repo"
)

var when = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// git runs the real git, so that what the package writes is judged by it.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@t", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@t")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func workTree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	git(t, dir, "init", "-q", "-b", "main")
	return dir
}

func put(t *testing.T, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func commitFile(t *testing.T, dir, name, content string) string {
	t.Helper()
	put(t, dir, name, content)
	git(t, dir, "add", name)
	git(t, dir, "commit", "-q", "-m", "change "+name)
	return git(t, dir, "rev-parse", "HEAD")
}

func open(t *testing.T, url string) *repo.Store {
	t.Helper()
	s, err := repo.Open(repo.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func sync(t *testing.T, s *repo.Store, branches ...string) {
	t.Helper()
	if err := s.Sync(t.Context(), branches...); err != nil {
		t.Fatal(err)
	}
}

func head(t *testing.T, s *repo.Store, branch string) repo.Hash {
	t.Helper()
	hash, err := s.Head(branch)
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

// serve gives the HTTP address of a bare repository, through git's own server.
func serve(t *testing.T) (dir, url string) {
	t.Helper()
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	dir = filepath.Join(root, "set.git")
	git(t, root, "init", "-q", "--bare", "-b", "main", dir)
	git(t, dir, "config", "http.receivepack", "true")
	srv := httptest.NewServer(&cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1"},
	})
	t.Cleanup(srv.Close)
	return dir, srv.URL + "/set.git"
}

// eachKind runs a test on a work tree, a bare repository and one over HTTP. push
// carries commits of the work tree to the repository under test.
func eachKind(t *testing.T, run func(t *testing.T, work, url string, push func(args ...string))) {
	t.Run("work tree", func(t *testing.T) {
		t.Parallel()
		work := workTree(t)
		run(t, work, work, func(...string) {})
	})
	t.Run("bare", func(t *testing.T) {
		t.Parallel()
		work, bare := workTree(t), t.TempDir()
		git(t, bare, "init", "-q", "--bare", "-b", "main")
		run(t, work, bare, func(args ...string) { git(t, work, append([]string{"push", "-q", bare}, args...)...) })
	})
	t.Run("http", func(t *testing.T) {
		t.Parallel()
		work := workTree(t)
		dir, url := serve(t)
		run(t, work, url, func(args ...string) { git(t, work, append([]string{"push", "-q", dir}, args...)...) })
	})
}

func TestReadAndPublish(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, work, url string, push func(...string)) {
		s := open(t, url)
		sync(t, s, "main", "rendered")
		if _, err := s.Head("main"); !errors.Is(err, repo.ErrNoBranch) {
			t.Fatalf("head of an empty repository: %v", err)
		}
		want := commitFile(t, work, "net/clusterset.yaml", "one")
		push("main")
		sync(t, s, "main", "rendered")
		if have := head(t, s, "main").String(); have != want {
			t.Fatalf("head %s, want %s", have, want)
		}
		raw, err := s.File(head(t, s, "main"), "net/clusterset.yaml")
		if err != nil || string(raw) != "one" {
			t.Fatalf("file %q, %v", raw, err)
		}
		if _, err := s.File(head(t, s, "main"), "net/missing"); !errors.Is(err, repo.ErrNoFile) {
			t.Fatalf("missing file: %v", err)
		}
		first := publish(t, s, repo.Hash{}, map[string][]byte{"a/x": []byte("1"), "a.b": []byte("2")})
		second := publish(t, s, first, map[string][]byte{"a/x": []byte("1"), "c": []byte("3")})
		checkPublished(t, url, second)
		if err := s.Advance(t.Context(), "rendered", first, second); !errors.Is(err, repo.ErrMoved) {
			t.Fatalf("advance from a stale commit: %v", err)
		}
	})
}

func publish(t *testing.T, s *repo.Store, parent repo.Hash, files map[string][]byte) repo.Hash {
	t.Helper()
	hash, err := s.Write(repo.Commit{
		Parent: parent, Files: files, Name: "n", Email: "e@e", When: when,
		Message: "publish\n\nSource-Commit: abc\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Advance(t.Context(), "rendered", parent, hash); err != nil {
		t.Fatal(err)
	}
	return hash
}

func checkPublished(t *testing.T, url string, head repo.Hash) {
	t.Helper()
	clone := filepath.Join(t.TempDir(), "clone")
	git(t, t.TempDir(), "clone", "-q", "-b", "rendered", url, clone)
	git(t, clone, "fsck", "--strict")
	if have := git(t, clone, "rev-parse", "HEAD"); have != head.String() {
		t.Errorf("published %s, want %s", have, head)
	}
	if have := git(t, clone, "ls-files"); have != "a/x\nc" {
		t.Errorf("published files %q", have)
	}
	if have := git(t, clone, "log", "-1", "--format=%(trailers:key=Source-Commit,valueonly)"); have != "abc" {
		t.Errorf("trailer %q", have)
	}
}

func TestRewrittenHistory(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, work, url string, push func(...string)) {
		s := open(t, url)
		commitFile(t, work, "f", "one")
		commitFile(t, work, "f", "two")
		push("main")
		sync(t, s, "main")
		before := head(t, s, "main")
		git(t, work, "reset", "-q", "--hard", "HEAD~1")
		want := commitFile(t, work, "f", "three")
		push("-f", "main")
		sync(t, s, "main")
		after := head(t, s, "main")
		if after.String() != want {
			t.Fatalf("head %s, want %s", after, want)
		}
		if descends, err := s.Descends(before, after); err != nil || descends {
			t.Errorf("descends %v, %v; want false", descends, err)
		}
	})
}

func TestModesAndKeep(t *testing.T) {
	t.Parallel()
	work := workTree(t)
	put(t, work, "run.sh", "#!/bin/sh")
	if err := os.Chmod(filepath.Join(work, "run.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("run.sh", filepath.Join(work, "link")); err != nil {
		t.Fatal(err)
	}
	commitFile(t, work, "plain", "p")
	git(t, work, "add", ".")
	git(t, work, "commit", "-q", "-m", "all")
	s := open(t, work)
	sync(t, s)
	parent := head(t, s, "main")
	files, err := s.Tree(parent)
	if err != nil {
		t.Fatal(err)
	}
	same, err := s.Write(repo.Commit{Parent: parent, Files: files, Name: "n", Email: "e", When: when, Message: "m"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := git(t, work, "diff", "--stat", parent.String(), same.String()); diff != "" {
		t.Errorf("rewriting the same files changed\n%s", diff)
	}
	edit := map[string][]byte{"run.sh": []byte("new")}
	kept, err := s.Write(repo.Commit{Parent: parent, Files: edit, Keep: true, Name: "n", Email: "e", When: when, Message: "m"})
	if err != nil {
		t.Fatal(err)
	}
	want := "120000 link\n100644 plain\n100755 run.sh"
	if have := git(t, work, "ls-tree", "--format=%(objectmode) %(path)", kept.String()); have != want {
		t.Errorf("modes (-want +got):\n%s", cmp.Diff(want, have))
	}
}

func TestWriteRefusesBadPaths(t *testing.T) {
	t.Parallel()
	work := workTree(t)
	s := open(t, work)
	sync(t, s)
	tests := []struct {
		name  string
		files []string
	}{
		{"leaves the tree", []string{"../x"}},
		{"git folder", []string{"a/.git/config"}},
		{"absolute", []string{"/etc/passwd"}},
		{"file and folder", []string{"a", "a/b"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			files := map[string][]byte{}
			for _, f := range tt.files {
				files[f] = nil
			}
			if hash, err := s.Write(repo.Commit{Files: files, When: when}); err == nil {
				t.Errorf("wrote %s with %v", hash, tt.files)
			}
		})
	}
}

func TestWorkTreeUntouched(t *testing.T) {
	t.Parallel()
	work := workTree(t)
	commitFile(t, work, "f", "one")
	put(t, work, "f", "edited")
	before := git(t, work, "status", "--porcelain")
	s := open(t, filepath.Join(work))
	sync(t, s, "main")
	publish(t, s, repo.Hash{}, map[string][]byte{"x": nil})
	if diff := cmp.Diff(before, git(t, work, "status", "--porcelain")); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestCheckedOut(t *testing.T) {
	t.Parallel()
	work := workTree(t)
	commitFile(t, work, "f", "one")
	git(t, work, "branch", "free")
	git(t, work, "worktree", "add", "-q", "-b", "linked", filepath.Join(t.TempDir(), "w"))
	bare := t.TempDir()
	git(t, bare, "init", "-q", "--bare", "-b", "main")
	tests := []struct {
		path, branch string
		want         bool
	}{
		{work, "main", true},
		{work, "linked", true},
		{work, "free", false},
		{bare, "main", false},
	}
	for _, tt := range tests {
		s := open(t, tt.path)
		sync(t, s)
		if have, err := s.CheckedOut(tt.branch); err != nil || have != tt.want {
			t.Errorf("%s of %s: %v, %v; want %v", tt.branch, tt.path, have, err, tt.want)
		}
	}
}

func TestLinkedWorkTree(t *testing.T) {
	t.Parallel()
	work := workTree(t)
	want := commitFile(t, work, "dir/f", "one")
	linked := filepath.Join(t.TempDir(), "w")
	git(t, work, "worktree", "add", "-q", "-b", "linked", linked)
	s := open(t, filepath.Join(linked, "dir"))
	sync(t, s)
	if have := head(t, s, "linked").String(); have != want {
		t.Errorf("head %s, want %s", have, want)
	}
}

func TestFindInClone(t *testing.T) {
	t.Parallel()
	work, clone := workTree(t), filepath.Join(t.TempDir(), "clone")
	want := commitFile(t, work, "f", "one")
	git(t, work, "branch", "rendered")
	git(t, work, "clone", "-q", work, clone)
	s := open(t, clone)
	sync(t, s)
	for _, name := range []string{"main", "rendered", "origin/rendered"} {
		if have, err := s.Find(name); err != nil || have.String() != want {
			t.Errorf("%s: %s, %v; want %s", name, have, err, want)
		}
	}
	if _, err := s.Find("nothing"); !errors.Is(err, repo.ErrNoBranch) {
		t.Errorf("nothing: %v", err)
	}
}

func TestWatchSeesCommit(t *testing.T) {
	t.Parallel()
	work := workTree(t)
	commitFile(t, work, "f", "one")
	s := open(t, work)
	ctx, cancel := context.WithCancel(t.Context())
	changed := make(chan struct{}, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- s.Watch(ctx, func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	}()
	<-changed // the watch stands
	commitFile(t, work, "f", "two")
	wait(t, changed, "a commit")
	git(t, work, "branch", "-f", "deep/er/branch")
	wait(t, changed, "a branch in a new folder")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func wait(t *testing.T, changed <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-changed:
	case <-time.After(10 * time.Second):
		t.Fatalf("%s was not noticed", what)
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(nil)
	srv.Close()
	for _, url := range []string{filepath.Join(t.TempDir(), "none"), srv.URL + "/x.git"} {
		s := open(t, url)
		if err := s.Sync(t.Context(), "main"); err == nil {
			t.Errorf("sync of %s gave no error", url)
		}
		if _, err := s.Head("main"); !errors.Is(err, repo.ErrNoBranch) {
			t.Errorf("head of %s: %v", url, err)
		}
	}
}

func TestMirrorOnDiskSurvives(t *testing.T) {
	t.Parallel()
	work := workTree(t)
	dir, url := serve(t)
	want := commitFile(t, work, "f", "one")
	git(t, work, "push", "-q", dir, "main")
	cfg := repo.Config{URL: url, Cache: filepath.Join(t.TempDir(), "cache")}
	for range 2 {
		s, err := repo.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		sync(t, s, "main")
		if have := head(t, s, "main").String(); have != want {
			t.Errorf("head %s, want %s", have, want)
		}
	}
}

func TestBranchNames(t *testing.T) {
	t.Parallel()
	tests := []struct {
		text, want string
		bad        bool
	}{
		{text: "main", want: "main"},
		{text: "refs/heads/a/b", want: "a/b"},
		{text: "", bad: true},
		{text: "../../x", bad: true},
		{text: "a..b", bad: true},
		{text: "x.lock", bad: true},
		{text: "a b", bad: true},
	}
	for _, tt := range tests {
		have, err := repo.Branch(tt.text)
		if (err != nil) != tt.bad || (err == nil && have != tt.want) {
			t.Errorf("%q gives %q, %v", tt.text, have, err)
		}
	}
}

func TestRedact(t *testing.T) {
	t.Parallel()
	if have := repo.Redact("https://me:secret@example.com/r.git"); strings.Contains(have, "secret") {
		t.Errorf("password shows: %s", have)
	}
}
