package sniff

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/lab/netnsexec"
)

// TestCapture tests that a capture finds a datagram on a link of a namespace, once.
func TestCapture(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root for network namespaces")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "space")
	if err := netnsexec.Prepare(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netnsexec.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := netnsexec.Create(path); err != nil {
		t.Fatal(err)
	}
	findings := make(chan Finding, 100)
	check := func(_ string, frame []byte) string {
		if strings.Contains(string(frame), "watched payload") {
			return Describe(frame)
		}
		return ""
	}
	c, err := Start(path, check, func(f Finding) { findings <- f })
	if err != nil {
		t.Fatal(err)
	}
	sent := time.Now()
	err = netnsexec.Do(path, func() error {
		conn, err := net.Dial("udp", "127.0.0.1:9999")
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.Write([]byte("watched payload"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case f := <-findings:
		if f.Link != "lo" || !strings.Contains(f.Text, "127.0.0.1 > 127.0.0.1 proto 17") {
			t.Errorf("found %+v", f)
		}
		// The kernel's clock may be some milliseconds behind.
		if f.At.Before(sent.Add(-time.Second)) || f.At.After(time.Now()) || f.From != (HardwareAddr{}) {
			t.Errorf("arrived at %v from %x, want a time after %v and the address of lo", f.At, f.From, sent)
		}
	case <-time.After(10 * time.Second):
		t.Error("the datagram was not seen")
	}
	if lost, err := c.Lost(); err != nil || lost != 0 {
		t.Errorf("lost %d frames: %v", lost, err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	// The ICMP error that quotes the datagram is another frame.
	if n := len(findings); n > 1 {
		t.Errorf("%d more findings", n)
	}
}
