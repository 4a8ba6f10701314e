//go:build kube

package api

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// output collects the output of a program.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (o *output) Write(raw []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(raw)
}

// String returns the whole output.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// CoreDNS starts a CoreDNS with a Corefile, like a pod of the cluster's DNS. It reports whether
// CoreDNS serves, and returns its output.
func CoreDNS(t testing.TB, corefile string) (bool, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "Corefile")
	if err := os.WriteFile(file, []byte(corefile), 0o600); err != nil {
		t.Fatal(err)
	}
	said := &output{}
	cmd := exec.Command(filepath.Join(Programs(t, "setup-kube.sh"), "coredns"), "-conf", file)
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }() // killed, or the output has the error
	defer func() { _ = cmd.Process.Kill(); <-ended }()
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		select {
		case <-ended:
			return false, said.String()
		default:
		}
		if strings.Contains(said.String(), "CoreDNS-") {
			return true, said.String()
		}
	}
	t.Fatalf("within %s CoreDNS neither serves nor ends: %s", limit, said)
	return false, ""
}
