package feed

import (
	"bytes"
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"log/slog"
	mathrand "math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/schema/fabric"
)

var byValue = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
}

// testTiming has timings for tests: short, but long enough for a busy machine.
var testTiming = Timing{
	Heartbeat: 20 * time.Millisecond, FrameTimeout: 2 * time.Second, StaleAfter: time.Minute,
	BackoffMin: 10 * time.Millisecond, BackoffMax: 50 * time.Millisecond, Handshake: 5 * time.Second,
}

// testClusters are the clusters of the fabric.
var testClusters = []string{"a", "b", "c"}

// logBuffer is a log that can be read while it is written.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBuffer) Write(raw []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(raw)
}

func (l *logBuffer) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), part)
}

// newKeyPair returns a tunnel key.
func newKeyPair(t testing.TB) (fabric.Secret, PublicKey) {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return fabric.Secret(key.Bytes()), PublicKey(key.PublicKey().Bytes())
}

// gateway is the identity of a gateway, and the peer that others configure for it.
type gateway struct {
	id   Identity
	peer Peer
}

func newGateway(t testing.TB, cluster string, epochs ...int) *gateway {
	t.Helper()
	// An own address, and a port outside the ephemeral range.
	own := netip.AddrFrom4([4]byte{127, 80, byte(mathrand.N(255)), byte(1 + mathrand.N(254))})
	addr := netip.AddrPortFrom(own, 4805)
	g := &gateway{
		id:   Identity{Cluster: cluster, Gateway: cluster + "-a", Node: cluster + "-node", Keys: map[int]fabric.Secret{}},
		peer: Peer{Cluster: cluster, Gateway: cluster + "-a", Keys: map[int]PublicKey{}, Addr: addr},
	}
	if len(epochs) == 0 {
		epochs = []int{1}
	}
	for _, epoch := range epochs {
		g.id.Keys[epoch], g.peer.Keys[epoch] = newKeyPair(t)
	}
	return g
}

// runInBackground starts run and returns a function that stops it.
func runInBackground(t *testing.T, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Error("Run does not return")
		}
	})
	t.Cleanup(stop)
	return stop
}

type testServer struct {
	*Server
	*logBuffer
	stop func()
}

func startServer(t *testing.T, g *gateway, device string, peers ...Peer) *testServer {
	t.Helper()
	return startServerTiming(t, testTiming, g, device, peers...)
}

func startServerTiming(
	t *testing.T, timing Timing, g *gateway, device string, peers ...Peer,
) *testServer {
	t.Helper()
	s := &testServer{logBuffer: &logBuffer{}}
	s.Server = NewServer(Config{Timing: timing, Log: slog.New(slog.NewTextHandler(s.logBuffer, nil))})
	s.SetIdentity(g.id)
	s.SetPeers(peers)
	s.SetListen([]Listen{{Addr: g.peer.Addr, Device: device}})
	s.stop = runInBackground(t, s.Run)
	return s
}

type testClient struct {
	*Client
	*logBuffer
	changes trigger.Trigger
	stop    func()
}

func startClient(t *testing.T, id Identity, timing Timing, peers ...Peer) *testClient {
	t.Helper()
	c := &testClient{logBuffer: &logBuffer{}, changes: trigger.New()}
	c.Client = NewClient(Config{Timing: timing, Log: slog.New(slog.NewTextHandler(c.logBuffer, nil)), OnChange: c.changes.Fire})
	c.SetIdentity(id)
	c.SetPeers(peers, testClusters)
	c.stop = runInBackground(t, c.Run)
	return c
}

// await waits for a condition.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("timeout: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func (c *testClient) awaitState(t *testing.T, want model.ClusterState) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		have, known := c.Snapshot()[want.Cluster]
		if known && cmp.Equal(want, have, byValue) {
			return
		}
		select {
		case <-c.changes:
		case <-deadline:
			t.Fatalf("(-want +got):\n%s\nstates %+v", cmp.Diff(want, have, byValue), c.States())
		}
	}
}

func stateOf(cluster string, exports ...model.ExportState) model.ClusterState {
	return model.ClusterState{Cluster: cluster, Exports: append([]model.ExportState{}, exports...)}
}

func ready(name string, hosts ...model.ExportHost) model.ExportState {
	return model.ExportState{Namespace: "sample", Name: name, Ready: true, Hosts: hosts}
}

func publish(t *testing.T, s *testServer, state model.ClusterState) {
	t.Helper()
	if err := s.Publish(state); err != nil {
		t.Fatal(err)
	}
}
