package unixsocket_test

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"hawser.dev/hawser/internal/unixsocket"
)

// TestClient checks requests to a server with a short socket path, and with a path that is longer
// than a socket address.
func TestClient(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"s", strings.Repeat("deep/", 40) + "s"} {
		if len(name) > 100 && runtime.GOOS != "linux" {
			continue
		}
		short, err := os.MkdirTemp("", "u")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(short) })
		listener, err := net.Listen("unix", filepath.Join(short, "s"))
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) })}
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(func() { _ = server.Close() })
		path := filepath.Join(t.TempDir(), name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(short, "s"), path); err != nil {
			t.Fatal(err)
		}
		resp, err := unixsocket.Client(path).Get("http://server/asked")
		if err != nil {
			t.Fatal(err)
		}
		raw, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if string(raw) != "/asked" {
			t.Errorf("%d characters: %q", len(path), raw)
		}
	}
}
