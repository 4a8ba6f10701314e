//go:build kube

package gitops

import (
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"hawser.dev/hawser/e2e/kube/api"
)

// Definitions returns the files with the definitions of flux or argo.
func Definitions(t testing.TB, of string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(api.Programs(t, "setup-gitops.sh", of), "..", "crds", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no definitions of %s: %v", of, err)
	}
	return files
}

// Serve serves a git repository over HTTP, like a forge, until the test ends, and returns its URL.
func Serve(t testing.TB, dir string) string {
	t.Helper()
	server := httptest.NewServer(Forge(t, dir))
	t.Cleanup(server.Close)
	return server.URL + "/" + filepath.Base(dir)
}

// Forge returns the HTTP handler of a git repository, which runs git http-backend.
func Forge(t testing.TB, dir string) http.Handler {
	t.Helper()
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatalf("ask git for its programs: %v", err)
	}
	return &cgi.Handler{
		Path:   filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"),
		Env:    []string{"GIT_PROJECT_ROOT=" + filepath.Dir(dir), "GIT_HTTP_EXPORT_ALL=1"},
		Stderr: os.Stderr,
	}
}

// Documented returns the code block of a documentation page that contains a text.
func Documented(t testing.TB, page, text string) string {
	t.Helper()
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var block strings.Builder
	for line := range strings.Lines(string(raw) + "end\n") {
		if code, ok := strings.CutPrefix(line, "    "); ok {
			block.WriteString(code)
			continue
		}
		if strings.Contains(block.String(), text) {
			return block.String()
		}
		block.Reset()
	}
	t.Fatalf("%s has no block with %q", page, text)
	return ""
}
