package feed

import (
	"bytes"
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/nodeagent/project"
	"hawser.dev/hawser/schema/fabric"
)

var byValue = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

// fast are times for tests: quick, yet slow enough for a busy machine.
var fast = Timing{
	Heartbeat: 20 * time.Millisecond, Silence: 2 * time.Second, Stale: time.Minute,
	BackoffMin: 10 * time.Millisecond, BackoffMax: 50 * time.Millisecond, Handshake: 5 * time.Second,
}

// logs is a log that can be read while it is written.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(raw []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(raw)
}

func (l *logs) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), part)
}

// pairOfKeys makes a tunnel key.
func pairOfKeys(t *testing.T) (fabric.Secret, PublicKey) {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return fabric.Secret(key.Bytes()), PublicKey(key.PublicKey().Bytes())
}

// gateway is one gateway's identity and how others know it.
type gateway struct {
	id   Identity
	peer Peer
}

func newGateway(t *testing.T, cluster string, epochs ...int) *gateway {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().(*net.TCPAddr).AddrPort()
	_ = listener.Close()
	g := &gateway{
		id:   Identity{Cluster: cluster, Gateway: cluster + "-a", Node: cluster + "-node", Keys: map[int]fabric.Secret{}},
		peer: Peer{Cluster: cluster, Gateway: cluster + "-a", Keys: map[int]PublicKey{}, Addr: addr},
	}
	if len(epochs) == 0 {
		epochs = []int{1}
	}
	for _, epoch := range epochs {
		g.id.Keys[epoch], g.peer.Keys[epoch] = pairOfKeys(t)
	}
	return g
}

// running starts something and gives what stops it.
func running(t *testing.T, run func(context.Context) error) (stop func()) {
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
			t.Error("Run does not end")
		}
	})
	t.Cleanup(stop)
	return stop
}

type testServer struct {
	*Server
	*logs
	stop func()
}

func startServer(t *testing.T, g *gateway, device string, peers ...Peer) *testServer {
	t.Helper()
	return startTimed(t, fast, g, device, peers...)
}

func startTimed(t *testing.T, timing Timing, g *gateway, device string, peers ...Peer) *testServer {
	t.Helper()
	s := &testServer{logs: &logs{}}
	s.Server = NewServer(Config{Timing: timing, Log: slog.New(slog.NewTextHandler(s.logs, nil))})
	s.SetIdentity(g.id)
	s.SetPeers(peers)
	s.SetListen([]Listen{{Addr: g.peer.Addr, Device: device}})
	s.stop = running(t, s.Run)
	return s
}

type testClient struct {
	*Client
	*logs
	changes chan struct{}
	stop    func()
}

func startClient(t *testing.T, id Identity, timing Timing, peers ...Peer) *testClient {
	t.Helper()
	c := &testClient{logs: &logs{}, changes: make(chan struct{}, 1)}
	c.Client = NewClient(Config{Timing: timing, Log: slog.New(slog.NewTextHandler(c.logs, nil)), OnChange: func() { poke(c.changes) }})
	c.SetIdentity(id)
	c.SetPeers(peers)
	c.stop = running(t, c.Run)
	return c
}

// await waits for a condition.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s does not come", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func (c *testClient) awaitLive(t *testing.T, want project.Live) {
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

func live(cluster string, exports ...project.LiveExport) project.Live {
	return project.Live{Cluster: cluster, Exports: append([]project.LiveExport{}, exports...)}
}

func ready(name string, hosts ...project.LiveHost) project.LiveExport {
	return project.LiveExport{Namespace: "sample", Name: name, Ready: true, Hosts: hosts}
}

func publish(t *testing.T, s *testServer, state project.Live) {
	t.Helper()
	if err := s.SetLive(state); err != nil {
		t.Fatal(err)
	}
}

func TestPropagation(t *testing.T) {
	t.Parallel()
	a, b := newGateway(t, "a"), newGateway(t, "b")
	s := startServer(t, b, "", a.peer)
	c := startClient(t, a.id, fast, b.peer)
	host := project.LiveHost{Name: "web-0", IPs: []netip.Addr{netip.MustParseAddr("242.2.0.5"), netip.MustParseAddr("fd42::5")}}
	for _, state := range []project.Live{
		live("b"), live("b", ready("one")), live("b", ready("one", host), ready("two")),
		live("b", project.LiveExport{Namespace: "sample", Name: "one"}, ready("two")), live("b", ready("two")), live("b"),
	} {
		publish(t, s, state)
		c.awaitLive(t, state)
	}
	if relay := c.Relay(); len(relay) != 1 || relay["b"].Stale {
		t.Errorf("relay is %v", relay)
	}
	if n := c.count("feed connected"); n != 1 {
		t.Errorf("connected %d times for one server", n)
	}
	c.SetPeers(nil)
	if have := c.Snapshot(); len(have) != 0 {
		t.Errorf("after the peer is gone: %v", have)
	}
}

// TestLargeState needs several frames and the deltas between them.
func TestLargeState(t *testing.T) {
	t.Parallel()
	a, b := newGateway(t, "a"), newGateway(t, "b")
	s := startServer(t, b, "", a.peer)
	c := startClient(t, a.id, fast, b.peer)
	var exports []project.LiveExport
	for i := range 5000 {
		name := "svc-" + string(rune('a'+i/676)) + string(rune('a'+i/26%26)) + string(rune('a'+i%26))
		exports = append(exports, ready(name, project.LiveHost{Name: strings.Repeat("h", 60), IPs: []netip.Addr{netip.AddrFrom4([4]byte{242, 2, byte(i >> 8), byte(i)})}}))
	}
	publish(t, s, live("b", exports...))
	edition, _ := s.own.load()
	if frames, err := edition.snapshot(); err != nil || len(frames) < 2 {
		t.Fatalf("%d frames, %v", len(frames), err)
	}
	c.awaitLive(t, live("b", exports...))
	publish(t, s, live("b", exports[2500:]...))
	c.awaitLive(t, live("b", exports[2500:]...))
}

func TestReconnectAndAge(t *testing.T) {
	t.Parallel()
	a, b := newGateway(t, "a"), newGateway(t, "b")
	s := startServer(t, b, "", a.peer)
	timing := fast
	timing.Stale = 500 * time.Millisecond
	c := startClient(t, a.id, timing, b.peer)
	publish(t, s, live("b", ready("one")))
	c.awaitLive(t, live("b", ready("one")))
	s.stop()
	await(t, "the loss", func() bool { return c.Relay()["b"].Stale || len(c.Relay()) == 0 })
	await(t, "the end of the old state", func() bool { return len(c.Snapshot()) == 0 })
	if c.count("feed lost") == 0 {
		t.Error("the loss was not logged")
	}
	s = startServer(t, b, "", a.peer)
	publish(t, s, live("b", ready("two")))
	c.awaitLive(t, live("b", ready("two")))
	if state := c.States()[0]; !state.Connected || state.Err != "" {
		t.Errorf("state is %+v", state)
	}
}

// TestSilentFeedIsDropped: the server says nothing after the snapshot.
func TestSilentFeedIsDropped(t *testing.T) {
	t.Parallel()
	a, b := newGateway(t, "a"), newGateway(t, "b")
	timing := fast
	timing.Silence = 200 * time.Millisecond
	slow := NewServer(Config{Timing: Timing{Heartbeat: time.Hour, Silence: time.Hour}, Log: slog.New(slog.DiscardHandler)})
	slow.SetIdentity(b.id)
	slow.SetPeers([]Peer{a.peer})
	slow.SetListen([]Listen{{Addr: b.peer.Addr}})
	running(t, slow.Run)
	c := startClient(t, a.id, timing, b.peer)
	await(t, "a second connection", func() bool { return c.count("feed connected") > 1 })
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	a, b, stranger := newGateway(t, "a"), newGateway(t, "b"), newGateway(t, "x")
	wrongKey := newGateway(t, "a")
	old := newGateway(t, "a")
	old.id.Keys = map[int]fabric.Secret{9: a.id.Keys[1]}
	node := a.id
	node.Gateway = ""
	anotherB := b.peer
	anotherB.Keys = map[int]PublicKey{1: wrongKey.peer.Keys[1]}
	renamed := b.peer
	renamed.Gateway = "b-other"
	tests := []struct {
		name string
		id   Identity
		peer Peer
		why  string // in the client's state
	}{
		{"gateway that is not in the fabric", stranger.id, b.peer, "refused"},
		{"wrong private key", wrongKey.id, b.peer, "refused"},
		{"no epoch in common", old.id, b.peer, "no key epoch"},
		{"server with another key", a.id, anotherB, "refused"},
		{"server with another name", a.id, renamed, "refused"},
		{"node on the tunnel address", node, b.peer, "refused"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			mine := *b
			mine.peer = tt.peer
			mine.peer.Addr = newGateway(t, "b").peer.Addr
			s := startServer(t, &gateway{id: b.id, peer: mine.peer}, "", a.peer)
			publish(t, s, live("b", ready("one")))
			c := startClient(t, tt.id, fast, mine.peer)
			await(t, "a refusal", func() bool { return strings.Contains(c.States()[0].Err, tt.why) })
			if have := c.Snapshot(); len(have) != 0 {
				t.Errorf("data came through: %v", have)
			}
			if c.count("feed lost") > 3 {
				t.Error("the same refusal is logged again and again")
			}
		})
	}
}

func TestEpochsRotate(t *testing.T) {
	t.Parallel()
	a, b := newGateway(t, "a", 1, 2), newGateway(t, "b", 1, 2)
	// b's fabric is one step behind: it knows a's key of epoch 1 only.
	behind := a.peer
	behind.Keys = map[int]PublicKey{1: a.peer.Keys[1]}
	s := startServer(t, b, "", behind)
	publish(t, s, live("b", ready("one")))
	c := startClient(t, a.id, fast, b.peer)
	c.awaitLive(t, live("b", ready("one")))
	// Epoch 1 ends: the connection that stands on it is cut, the next takes 2.
	ahead := a.peer
	ahead.Keys = map[int]PublicKey{2: a.peer.Keys[2]}
	s.SetPeers([]Peer{ahead})
	await(t, "a second connection", func() bool { return c.count("feed connected") == 2 })
	s.SetPeers(nil)
	await(t, "the end", func() bool { return !c.States()[0].Connected })
}

// TestMachineInTheMiddle: somebody ends both TLS connections and passes on all
// that the two ends say inside them.
func TestMachineInTheMiddle(t *testing.T) {
	t.Parallel()
	a, b := newGateway(t, "a"), newGateway(t, "b")
	s := startServer(t, b, "", a.peer)
	publish(t, s, live("b", ready("one")))
	straight := startClient(t, a.id, fast, b.peer)
	straight.awaitLive(t, live("b", ready("one")))
	straight.stop()

	secure, err := serverTLS()
	if err != nil {
		t.Fatal(err)
	}
	middle, err := tls.Listen("tcp4", "127.0.0.1:0", secure)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = middle.Close() }()
	var passed logs
	go func() {
		for {
			in, err := middle.Accept()
			if err != nil {
				return
			}
			go relayBytes(in, b.peer.Addr.String(), &passed)
		}
	}()
	through := b.peer
	through.Addr = middle.Addr().(*net.TCPAddr).AddrPort()
	c := startClient(t, a.id, fast, through)
	await(t, "a refusal", func() bool { return strings.Contains(c.States()[0].Err, "refused") })
	if passed.count(`"server":"b/b-a"`) == 0 {
		t.Error("the hello did not go through the middle, so the test shows nothing")
	}
	if passed.count("sample") > 0 || len(c.Snapshot()) > 0 {
		t.Error("data went through the middle")
	}
}

func relayBytes(in net.Conn, to string, seen io.Writer) {
	defer func() { _ = in.Close() }()
	out, err := tls.Dial("tcp4", to, clientTLS())
	if err != nil {
		return
	}
	defer func() { _ = out.Close() }()
	go func() { _, _ = io.Copy(io.MultiWriter(out, seen), in) }()
	_, _ = io.Copy(io.MultiWriter(in, seen), out)
}

func TestForgedClusterIsRefused(t *testing.T) {
	t.Parallel()
	a, b := newGateway(t, "a"), newGateway(t, "b")
	b.peer.Blocks = []netip.Prefix{netip.MustParsePrefix("242.2.0.0/24")}
	s := startServer(t, b, "", a.peer)
	inside := project.LiveHost{IPs: []netip.Addr{netip.MustParseAddr("242.2.0.5")}}
	outside := project.LiveHost{IPs: []netip.Addr{netip.MustParseAddr("242.3.0.5")}}
	view := map[string]Heard{"b": {Live: live("b", ready("one", outside, inside))}, "c": {Live: live("c", ready("one"))}}
	if err := s.own.publish(view); err != nil {
		t.Fatal(err)
	}
	c := startClient(t, a.id, fast, b.peer)
	c.awaitLive(t, live("b", ready("one", inside)))
	view["c"] = Heard{Live: live("c", ready("two"))}
	view["b"] = Heard{Live: live("b", ready("one", inside), ready("two", outside))}
	if err := s.own.publish(view); err != nil {
		t.Fatal(err)
	}
	c.awaitLive(t, live("b", ready("one", inside), ready("two")))
	if _, forged := c.Snapshot()["c"]; forged {
		t.Error("b spoke for c")
	}
	if n := c.count("another cluster"); n != 1 {
		t.Errorf("logged %d times, want once", n)
	}
}

func TestRelayInsideACluster(t *testing.T) {
	t.Parallel()
	own := newGateway(t, "a")
	if _, err := net.InterfaceByName("lo"); err != nil {
		t.Skip("needs a loopback interface")
	}
	own.peer.Device = "lo" // stands for the link between the nodes
	s := startServer(t, own, "lo")
	view := map[string]Heard{"b": {Live: live("b", ready("one"))}, "c": {Live: live("c"), Stale: true}}
	if err := s.SetRelay(view); err != nil {
		t.Fatal(err)
	}
	publish(t, s, live("a", ready("own")))
	node := Identity{Cluster: "a", Node: "a-w1"}
	c := startClient(t, node, fast, own.peer)
	c.awaitLive(t, live("b", ready("one")))
	c.awaitLive(t, live("c"))
	if _, own := c.Snapshot()["a"]; own {
		t.Error("the relay speaks of the own cluster")
	}
	if relay := c.Relay(); len(relay) != 0 {
		t.Errorf("what was relayed would be relayed again: %v", relay)
	}
	if err := s.SetRelay(map[string]Heard{"c": {Live: live("c", ready("new"))}}); err != nil {
		t.Fatal(err)
	}
	c.awaitLive(t, live("c", ready("new")))
	if _, there := c.Snapshot()["b"]; there {
		t.Error("a cluster that is gone from the relay is still there")
	}
	for name, id := range map[string]Identity{"another cluster": {Cluster: "b", Node: "x"}, "no name": {Cluster: "a"}} {
		refused := startClient(t, id, fast, own.peer)
		await(t, "the refusal of "+name, func() bool { return strings.Contains(refused.States()[0].Err, "refused") })
	}
	impostor := newGateway(t, "a")
	impostor.peer.Device, impostor.peer.Addr = "lo", own.peer.Addr
	fooled := startClient(t, node, fast, impostor.peer)
	await(t, "the refusal of a server without the key", func() bool { return strings.Contains(fooled.States()[0].Err, "does not hold the key") })
}

func TestFreshFeedIsBelievedFirst(t *testing.T) {
	t.Parallel()
	c := NewClient(Config{Timing: fast})
	heard := func(name string, stale bool) map[string]Heard {
		return map[string]Heard{"z": {Live: live("z", ready(name)), Stale: stale}}
	}
	add := func(gateway, device string, connected, stale bool) {
		c.feeds[feedKey{"q", gateway, device}] = &feed{
			peer: Peer{Gateway: gateway, Device: device}, connected: connected, since: time.Now(), heard: heard(gateway+device, stale),
		}
	}
	steps := []struct {
		gateway, device  string
		connected, stale bool
		want             string
	}{
		{"e", "", false, false, "e"},    // lost, but all there is
		{"d", "hw", true, true, "e"},    // relayed and stale itself: first hand wins
		{"f", "hw", true, false, "fhw"}, // fresh wins
		{"g", "", true, false, "g"},     // first hand wins
		{"b", "", true, false, "b"},     // by name
		{"c", "", true, false, "b"},
		{"a", "", false, false, "b"},
	}
	for _, step := range steps {
		add(step.gateway, step.device, step.connected, step.stale)
		for range 20 { // maps are walked in a random order
			if have := c.Snapshot()["z"].Exports[0].Name; have != step.want {
				t.Fatalf("after %+v: believes %q", step, have)
			}
		}
	}
}

// dialAs connects and greets by hand.
func dialAs(t *testing.T, g *gateway, peer Peer) *tls.Conn {
	t.Helper()
	client := NewClient(Config{Timing: fast, Log: slog.New(slog.DiscardHandler)})
	var conn *tls.Conn
	await(t, "a connection", func() bool {
		var err error
		conn, err = client.connect(context.Background(), peer, func(conn *tls.Conn) error { return greet(conn, g.id, peer, 1) })
		return err == nil
	})
	t.Cleanup(func() { _ = conn.NetConn().Close() })
	return conn
}

func TestServerDropsBadSubscribers(t *testing.T) {
	t.Parallel()
	a, b := newGateway(t, "a"), newGateway(t, "b")
	patient := fast
	patient.Silence = time.Hour // so that only what is tested ends a session
	s := startTimed(t, patient, b, "", a.peer)
	sessions := func() int {
		s.Server.mu.Lock()
		defer s.Server.mu.Unlock()
		return len(s.sessions)
	}
	oversized := dialAs(t, a, b.peer)
	if _, err := oversized.Write(binary.BigEndian.AppendUint32(nil, maxHello+1)); err != nil {
		t.Fatal(err)
	}
	awaitClosed(t, oversized)
	talker := dialAs(t, a, b.peer)
	raw, _ := pack(frame{Kind: kindSnapshot, Clusters: []update{{Cluster: "a"}}})
	if _, err := talker.Write(raw); err != nil {
		t.Fatal(err)
	}
	awaitClosed(t, talker)
	await(t, "the end of all sessions", func() bool { return sessions() == 0 })
	var conns []*tls.Conn
	for range maxPerClient + 1 {
		conns = append(conns, dialAs(t, a, b.peer))
	}
	awaitClosed(t, conns[0])
	if n := sessions(); n > maxPerClient {
		t.Errorf("%d sessions of one client", n)
	}
}

func TestServerDropsMuteSubscriber(t *testing.T) {
	t.Parallel()
	a, b := newGateway(t, "a"), newGateway(t, "b")
	timing := fast
	timing.Silence = 200 * time.Millisecond
	startTimed(t, timing, b, "", a.peer)
	awaitClosed(t, dialAs(t, a, b.peer)) // it sends no heartbeat
}

// awaitClosed reads until the server hangs up.
func awaitClosed(t *testing.T, conn *tls.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	_, err := io.Copy(io.Discard, conn)
	if timeout, is := err.(net.Error); is && timeout.Timeout() {
		t.Fatal("the server keeps the connection")
	}
}

func TestSlowSubscriberIsDropped(t *testing.T) {
	t.Parallel()
	a, b := newGateway(t, "a"), newGateway(t, "b")
	timing := fast
	timing.Silence = 300 * time.Millisecond
	s := startTimed(t, timing, b, "", a.peer)
	conn := dialAs(t, a, b.peer)
	stop := make(chan struct{})
	defer close(stop)
	go func() { // alive, but it reads nothing
		raw, _ := pack(frame{Kind: kindHeartbeat})
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				if _, err := conn.Write(raw); err != nil {
					return
				}
			}
		}
	}()
	await(t, "the session", func() bool { s.Server.mu.Lock(); defer s.Server.mu.Unlock(); return len(s.sessions) == 1 })
	for i := 0; ; i++ {
		// Random, so that every state is all new.
		var hosts []project.LiveHost
		for range 20000 {
			var raw [16]byte
			_, _ = rand.Read(raw[:])
			hosts = append(hosts, project.LiveHost{IPs: []netip.Addr{netip.AddrFrom16(raw)}})
		}
		var exports []project.LiveExport
		for n := range 5 {
			exports = append(exports, ready("e"+string(rune('a'+n)), hosts[n*4000:(n+1)*4000]...))
		}
		publish(t, s, live("b", exports...))
		s.Server.mu.Lock()
		open := len(s.sessions)
		s.Server.mu.Unlock()
		if open == 0 {
			return
		}
		if i > 300 {
			t.Fatal("a subscriber that reads nothing is kept")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestOversizedExportIsRefusedAtTheSource(t *testing.T) {
	t.Parallel()
	s := NewServer(Config{Timing: fast, Log: slog.New(slog.DiscardHandler)})
	good := live("b", ready("one"))
	if err := s.SetLive(good); err != nil {
		t.Fatal(err)
	}
	before, _ := s.own.load()
	huge := ready("huge")
	for range 100000 {
		huge.Hosts = append(huge.Hosts, project.LiveHost{IPs: []netip.Addr{netip.MustParseAddr("242.2.0.5")}})
	}
	if err := s.SetLive(live("b", huge)); err == nil || !strings.Contains(err.Error(), "sample/huge") {
		t.Errorf("got %v", err)
	}
	if after, _ := s.own.load(); after != before {
		t.Error("the state before did not stay")
	}
	if err := s.SetLive(good); err != nil {
		t.Fatal(err)
	}
	if after, _ := s.own.load(); after != before {
		t.Error("the same state made a new edition")
	}
}

func TestPublicKeys(t *testing.T) {
	t.Parallel()
	_, public := pairOfKeys(t)
	good := fabric.Key{Epoch: 2, Public: base64.StdEncoding.EncodeToString(public[:])}
	if have, err := PublicKeys([]fabric.Key{good}); err != nil || have[2] != public {
		t.Errorf("got %v, %v", have, err)
	}
	if _, err := PublicKeys([]fabric.Key{good, {Epoch: 3, Public: "AAAA"}}); err == nil {
		t.Error("a short key was taken")
	}
}
