package health

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/nodeagent/peer/transport"
	"hawser.dev/hawser/nodeagent/status"
)

// testProber is the prober of one agent at its own loopback address.
type testProber struct {
	*Prober
	addr    netip.Addr
	changes chan struct{}
	stop    func()

	transport *transport.Transport
}

// newTransport returns a transport of one prober.
func newTransport(p *Prober) *transport.Transport {
	return transport.New(transport.Config{
		Port: p.config.Port, Log: slog.New(slog.DiscardHandler), Wake: p.wake, Protocols: []transport.Protocol{p},
	})
}

// start runs a prober. Its settings are fast, but slow enough for a busy machine.
func start(t *testing.T, cluster, gateway string, addr netip.Addr, port uint16) *testProber {
	t.Helper()
	r := &testProber{addr: addr, changes: make(chan struct{}, 1)}
	r.Prober = New(Config{
		Cluster: cluster, Gateway: gateway, Port: port, Wake: trigger.New(),
		Settings: Settings{Interval: 20 * time.Millisecond, Misses: 5},
		OnChange: func() {
			select {
			case r.changes <- struct{}{}:
			default:
			}
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	r.transport = newTransport(r.Prober)
	go func() { done <- r.transport.Run(ctx) }()
	stopped := false
	r.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	t.Cleanup(r.stop)
	r.SetListen([]Listen{{Addr: addr}})
	r.SetReady(true)
	return r
}

// await waits for a condition of the snapshot.
func (r *testProber) await(t *testing.T, what string, ok func(Snapshot) bool) Snapshot {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	for {
		s := r.Snapshot()
		if ok(s) {
			return s
		}
		select {
		case <-r.changes:
		case <-time.After(20 * time.Millisecond): // counters change without a notification
		case <-deadline:
			t.Fatalf("timeout: %s: %.2000s", what, fmt.Sprintf("%+v", s))
		}
	}
}

func state(want string) func(Snapshot) bool {
	return func(s Snapshot) bool { return len(s.Links) > 0 && s.Links[0].State() == want }
}

func loopback(last byte) netip.Addr { return netip.AddrFrom4([4]byte{127, 73, 1, last}) }

// port returns a UDP port that is free at all loopback addresses used here.
func port(t *testing.T) uint16 {
	t.Helper()
	conn, err := net.ListenUDP("udp4", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	return uint16(conn.LocalAddr().(*net.UDPAddr).Port)
}

func targetTo(from, peer *testProber, name GatewayID) Target {
	return Target{Peer: name, Source: from.addr, Addr: peer.addr}
}

func TestProberLinkState(t *testing.T) {
	t.Parallel()
	p := port(t)
	a, b := start(t, "a", "a1", loopback(1), p), start(t, "b", "b1", loopback(2), p)
	target := targetTo(a, b, GatewayID{"b", "b1"})
	a.SetTargets([]Target{target})
	s := a.await(t, "the connection", state(status.Connected))
	if link := s.Links[0]; link.RTT == nil || link.RTT.Min <= 0 && link.RTT.Max <= 0 || link.Since.IsZero() {
		t.Errorf("link is %+v", link)
	}
	if s.Rank("a1", GatewayID{"b", "b1"}) == Down || s.Rank("a1", GatewayID{"b", "b2"}) > Down || s.Rank("a2", GatewayID{"b", "b1"}) > Down {
		t.Error("the ranks of the snapshot are wrong")
	}
	a.SetTargets([]Target{target})
	if again := a.Snapshot().Links[0]; again.State() != status.Connected || again.Since != s.Links[0].Since {
		t.Errorf("setting the same targets changed the link to %+v", again)
	}
	b.stop()
	s = a.await(t, "the loss", state(status.Disconnected))
	if s.Rank("a1", GatewayID{"b", "b1"}) > Down {
		t.Error("a dead link is alive")
	}
	start(t, "b", "b1", loopback(2), p)
	a.await(t, "the recovery", state(status.Connected))
	// A probe is lost after Misses intervals, which may be later than the recovery.
	a.await(t, "the count of lost probes", func(s Snapshot) bool { return s.Links[0].Loss > 0 })
	a.SetTargets(nil)
	if have := a.Snapshot().Links; len(have) != 0 {
		t.Errorf("links without targets: %v", have)
	}
}

func TestProberFirstAndLaterTargets(t *testing.T) {
	t.Parallel()
	p := port(t)
	a := start(t, "a", "a1", loopback(11), p)
	first := Target{Peer: GatewayID{"b", "b1"}, Source: a.addr, Addr: loopback(12)}
	later := Target{Peer: GatewayID{"c", "c1"}, Source: a.addr, Addr: loopback(13)}
	a.SetTargets([]Target{first})
	if a.Snapshot().Rank("a1", first.Peer) == Down {
		t.Error("a link of the first set must count as alive until it is dead")
	}
	a.SetTargets([]Target{first, later})
	if a.Snapshot().Rank("a1", later.Peer) > Down {
		t.Error("a later link needs a reply to be alive")
	}
	a.await(t, "the loss of the first", func(s Snapshot) bool { return s.Rank("a1", first.Peer) == Down })
}

func TestProberIgnoresUnknownSenders(t *testing.T) {
	t.Parallel()
	p := port(t)
	a, b := start(t, "a", "a1", loopback(21), p), start(t, "b", "b1", loopback(22), p)
	// b has another name than a expects, so it must not reply.
	a.SetTargets([]Target{targetTo(a, b, GatewayID{"b", "b2"})})
	a.await(t, "the loss", state(status.Disconnected))
	b.await(t, "the count of foreign probes", func(s Snapshot) bool { return s.Stats.Foreign > 0 && s.Stats.Replied == 0 })
	conn, err := net.Dial("udp4", netip.AddrPortFrom(b.addr, p).String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	a.SetTargets(nil)
	before := b.Snapshot().Stats.Foreign
	unexpectedReply := message{reply: true, sequence: 1, from: GatewayID{"a", "a1"}.hash(), to: GatewayID{"b", "b1"}.hash()}
	if _, err := conn.Write(unexpectedReply.encode()); err != nil {
		t.Fatal(err)
	}
	b.await(t, "the counts of malformed and foreign packets", func(s Snapshot) bool { return b.transport.Malformed() > 0 && s.Stats.Foreign > before })
}

func TestReplyRateIsBounded(t *testing.T) {
	t.Parallel()
	p := New(Config{})
	now := time.Now()
	allowed, bucket := 0, &p.unknownSenderLimit
	for range 3 * replyRate {
		if p.allow(bucket, now) {
			allowed++
		}
	}
	if allowed != replyRate || p.stats.Limited != 2*replyRate {
		t.Errorf("%d allowed, %d limited", allowed, p.stats.Limited)
	}
	if p.allow(bucket, now.Add(-time.Hour)) || p.allow(bucket, now) {
		t.Error("a time in the past filled the bucket")
	}
	if !p.allow(bucket, now.Add(time.Second)) {
		t.Error("the bucket does not fill again")
	}
}

func TestThousandTargets(t *testing.T) {
	t.Parallel()
	p := port(t)
	a, b := start(t, "a", "a1", loopback(31), p), start(t, "b", "b1", loopback(32), p)
	a.SetSettings(Settings{Interval: 600 * time.Millisecond, Misses: 3}) // b has no target for a, so a's probes share the limit of unknown senders
	var listen []Listen
	var targets []Target
	// Twenty sources and fifty addresses of one gateway make a thousand targets.
	for i := range 50 {
		listen = append(listen, Listen{Addr: netip.AddrFrom4([4]byte{127, 73, 2, byte(i + 1)})})
	}
	b.SetListen(listen)
	for _, bind := range listen {
		for i := range 20 {
			source := netip.AddrFrom4([4]byte{127, 73, 3, byte(i)})
			targets = append(targets, Target{Peer: GatewayID{"b", "b1"}, Source: source, Addr: bind.Addr})
		}
	}
	a.SetTargets(targets)
	a.await(t, "all connections", func(s Snapshot) bool {
		connected := 0
		for _, link := range s.Links {
			if link.State() == status.Connected {
				connected++
			}
		}
		return connected == 1000
	})
}
