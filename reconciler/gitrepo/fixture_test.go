package gitrepo_test

import (
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/reconciler/gitrepo"
)

var when = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// git runs the git program, and returns its output.
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

func open(t *testing.T, url string) *gitrepo.Store {
	t.Helper()
	s, err := gitrepo.Open(gitrepo.Config{URL: url, ExplicitURL: true})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func sync(t *testing.T, s *gitrepo.Store, branches ...string) {
	t.Helper()
	if err := s.Fetch(t.Context(), branches...); err != nil {
		t.Fatal(err)
	}
}

func head(t *testing.T, s *gitrepo.Store, branch string) gitrepo.Hash {
	t.Helper()
	hash, err := s.Head(branch)
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

// serve creates a bare repository. It returns the path and the HTTP address.
func serve(t *testing.T) (dir, url string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "set.git")
	git(t, filepath.Dir(dir), "init", "-q", "--bare", "-b", "main", dir)
	git(t, dir, "config", "http.receivepack", "true")
	return dir, serveAt(t, dir)
}

// serveAt serves a git directory over HTTP with git http-backend, and returns the URL.
func serveAt(t *testing.T, dir string) (url string) {
	t.Helper()
	srv := httptest.NewServer(&cgi.Handler{
		Path: filepath.Join(git(t, dir, "--exec-path"), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + filepath.Dir(dir), "GIT_HTTP_EXPORT_ALL=1"},
	})
	t.Cleanup(srv.Close)
	return srv.URL + "/" + filepath.Base(dir)
}

// eachKind runs a test on a work tree, a bare repository and a repository over HTTP. push pushes
// commits of the work tree to the repository under test.
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

func publish(t *testing.T, s *gitrepo.Store, parent gitrepo.Hash, files map[string][]byte) gitrepo.Hash {
	t.Helper()
	hash, err := s.Write(gitrepo.Commit{
		Parent: parent, Files: files, Name: "n", Email: "e@e", When: when,
		Message: "publish\n\nSource-Commit: abc\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.FastForward(t.Context(), "rendered", parent, hash); err != nil {
		t.Fatal(err)
	}
	return hash
}

func wait(t *testing.T, changed <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-changed:
	case <-time.After(60 * time.Second):
		t.Fatalf("%s was not noticed", what)
	}
}
