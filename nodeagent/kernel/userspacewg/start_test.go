package userspacewg

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMain runs as a wireguard process that ends at once. Tests of package kernel start real
// ones.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "wireguard" {
		fmt.Fprintln(os.Stderr, "no device for", os.Args[2])
		os.Exit(3)
	}
	os.Exit(m.Run())
}

func randomName() string {
	raw := make([]byte, 4)
	_, _ = rand.Read(raw)
	return "hw-wg" + hex.EncodeToString(raw)
}

func TestStartOfAProcessThatEnds(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, dir, words string }{
		{name: "with log", dir: t.TempDir(), words: "no device for "},
		{name: "without log", words: "no log"},
		{name: "log that cannot be written", dir: "/proc/nowhere", words: "no log"},
	}
	for _, tt := range tests {
		name := randomName()
		err := Launcher{LogDir: tt.dir}.Start(t.Context(), name)
		if err == nil || !strings.Contains(err.Error(), tt.words) || !strings.Contains(err.Error(), "exit status 3") {
			t.Errorf("%s: error %v, want exit status and %q", tt.name, err, tt.words)
		}
		if (Launcher{}).Alive(name) {
			t.Errorf("%s: alive", tt.name)
		}
	}
}

// TestStartWhileServed checks that Start fails while another process serves the socket.
func TestStartWhileServed(t *testing.T) {
	t.Parallel()
	name := randomName()
	if err := os.MkdirAll(socketDir, 0o755); err != nil {
		t.Skip("needs root")
	}
	l, err := net.Listen("unix", filepath.Join(socketDir, name+".sock"))
	if err != nil {
		t.Skip("needs root")
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err = Launcher{}.Start(ctx, name)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "another process serves") {
		t.Errorf("error %v", err)
	}
}
