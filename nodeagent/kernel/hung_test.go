package kernel

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/kernel/userspacewg"
)

// TestHungTunnel stops the process of one of two devices, like a deadlock.
func TestHungTunnel(t *testing.T) {
	t.Parallel()
	w := newTestNode(t)
	hung, fine := tunnelLink(), tunnelLink()
	w.createDevices(t, hung, fine)
	if mustLink(t, w, hung.Name).Type() == desired.DeviceWireguard {
		t.Skip("needs a kernel without WireGuard")
	}
	pid := pidOf(t, hung.Name)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// No pass waits long for the hung device, the second pass not at all. The other device is
	// configured.
	want := append(manyPeers(t, hung.Name, 1), manyPeers(t, fine.Name, 1)...)
	const patience, waits = 10, 5 * time.Second // ten times the limit of one read
	w.ns.wg.TimeoutFactor = patience
	e := peerEngine(w)
	startedAt := time.Now()
	r := e.Once(t.Context(), want, "")
	if took := time.Since(startedAt); took > 3*waits {
		t.Errorf("the pass took %v", took)
	}
	var blocked converge.ErrBlocked
	if len(r.Changed) != 1 || !strings.HasPrefix(r.Changed[0].Key, fine.Name) || len(r.Failed) > 0 ||
		len(r.Blocked) != 1 || !errors.As(r.Blocked[0].Err, &blocked) || !strings.Contains(blocked.On, hung.Name) {
		t.Errorf("changed %v, blocked %v, failed %v", r.Changed, r.Blocked, r.Failed)
	}
	startedAt = time.Now()
	e.Once(t.Context(), want, "")
	if took := time.Since(startedAt); took > waits {
		t.Errorf("the next pass took %v", took)
	}

	var log buffer
	seen, replaced := make(chan string, 10), make(chan string, 10)
	watch := &userspacewg.Supervisor{
		Devices:  func() []string { return []string{hung.Name, fine.Name} },
		Log:      slog.New(slog.NewTextHandler(&log, nil)),
		Appeared: func(name string) { seen <- name },
		Replaced: func(name string) { replaced <- name },
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- watch.Run(ctx) }()
	await(t, "the end of the process that hangs", func() bool { return isGone(linkError(w, hung.Name)) })
	w.createDevices(t, hung, fine)
	select {
	case name := <-replaced:
		if name != hung.Name || !strings.Contains(log.String(), `msg="tunnel replaced" device=`+hung.Name+` cause="no reply for 3`) {
			t.Errorf("replaced %s, log:\n%s", name, log.String())
		}
	case <-time.After(10 * time.Second):
		t.Errorf("the new process is not logged, log:\n%s", log.String())
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(seen) != 2 { // a replaced process is not reported again
		t.Errorf("%d processes were seen", len(seen))
	}
	if again := pidOf(t, hung.Name); again == 0 || again == pid {
		t.Errorf("process %d after %d", again, pid)
	}
	if r := e.Once(t.Context(), want, ""); !r.Clean() || len(r.Changed) != 1 {
		t.Errorf("changed %v, blocked %v, failed %v", r.Changed, r.Blocked, r.Failed)
	}
}

// buffer is safe for concurrent use.
type buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
