package control

import (
	"os"
	"path/filepath"
	"testing"
)

// TestSocketMode checks that only root can open the socket, even if a killed agent left a file with
// a wider mode.
func TestSocketMode(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "agent.sock")
	if err := os.WriteFile(socket, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	listener, err := New(Config{Socket: socket}).Listen()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	info, err := os.Stat(socket)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode(); mode.Type() != os.ModeSocket || mode.Perm() != 0o600 {
		t.Errorf("mode %s, want a socket with 0600", mode)
	}
}
