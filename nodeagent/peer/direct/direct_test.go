package direct

import (
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	"hawser.dev/hawser/internal/socket"
	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/peer/transport"
	"hawser.dev/hawser/nodeagent/peer/wire"
)

const (
	port     = 4804
	interval = 100 * time.Millisecond
	misses   = 5
)

// end is one node of the simulated pair.
type end struct {
	*Checker
	node    string
	addr    netip.Addr
	source  netip.Addr // of its test packets
	changes int
	sent    int // packets
}

// simulation is a worker and a gateway, and the network between them. Its clock is simulated.
type simulation struct {
	t               *testing.T
	now             time.Time
	worker, gateway *end
	// drops reports whether the network drops a test packet that a node forwards, and may alter
	// it.
	drops func(from *end, in *transport.Packet) bool
	// cut drops all packets in VXLAN.
	cut bool
}

func mac(last byte) string { return net.HardwareAddr{2, 0, 0, 0, 0, last}.String() }

// newSimulation returns a pair with traffic.
func newSimulation(t *testing.T) *simulation {
	w := newIdleSimulation(t)
	w.worker.SetTraffic(true, w.now)
	return w
}

func newIdleSimulation(t *testing.T) *simulation {
	w := &simulation{t: t, now: time.Unix(1e9, 0), drops: func(*end, *transport.Packet) bool { return false }}
	w.worker = w.end("w1", "172.18.0.3", "242.2.255.254")
	w.gateway = w.end("gw", "172.18.0.2", "10.7.1.254")
	for i, e := range []*end{w.worker, w.gateway} {
		other := w.peer(e)
		e.Set(Spec{Node: e.node, Gateway: e == w.gateway, Interval: interval, Misses: misses, Pairs: []Pair{{
			Node: other.node, Local: e.addr, Remote: other.addr, Device: "eth0", MAC: mac(byte(i + 1)), Source: e.source,
			VXLAN: VXLAN{Local: e.addr, Remote: other.addr, LocalMAC: mac(11), RemoteMAC: mac(12)},
		}}}, w.now)
		other.SetAcceptedMACs(map[string]bool{mac(byte(i + 1)): true})
	}
	return w
}

func (s *simulation) end(node, addr, source string, restored ...Saved) *end {
	e := &end{node: node, addr: netip.MustParseAddr(addr), source: netip.MustParseAddr(source)}
	e.Checker = New(Config{Port: port, Log: slog.New(slog.DiscardHandler), Wake: trigger.New(), OnChange: func() { e.changes++ }, OnState: func() {}, Restored: restored})
	return e
}

func (s *simulation) peer(e *end) *end {
	if e == s.worker {
		return s.gateway
	}
	return s.worker
}

// run simulates a time in steps of 10 ms.
func (s *simulation) run(d time.Duration) {
	for until := s.now.Add(d); s.now.Before(until); s.now = s.now.Add(10 * time.Millisecond) {
		for _, e := range []*end{s.worker, s.gateway} {
			out, _ := e.Tick(s.now)
			e.sent += len(out)
			for _, d := range out {
				s.deliver(e, d)
			}
		}
	}
}

func (s *simulation) deliver(from *end, d socket.Datagram) {
	if s.cut {
		return
	}
	to := s.peer(from)
	if d.To.Port() == port { // a report
		m, err := wire.Decode(d.Raw)
		if err != nil {
			s.t.Fatal(err)
		}
		to.Receive(s.now, transport.Packet{
			Local: socket.Bind{Addr: to.addr, Device: desired.NodeDevice}, From: netip.AddrPortFrom(from.addr, port), Message: m,
		})
		return
	}
	if want := netip.AddrPortFrom(to.addr, desired.VXLANPort); d.To != want || d.From != (socket.Bind{Addr: from.addr, Device: "eth0"}) {
		s.t.Fatalf("test packet from %v to %s, want to %s", d.From, d.To, want)
	}
	// The other node forwards the inner packet.
	const inner = 8 + 14
	source, sourcePort := netip.AddrFrom4([4]byte(d.Raw[inner+12:])), uint16(d.Raw[inner+20])<<8|uint16(d.Raw[inner+21])
	m, err := wire.Decode(d.Raw[inner+20+8:])
	if err != nil {
		s.t.Fatal(err)
	}
	in := transport.Packet{Local: socket.Bind{Addr: from.addr, Device: "eth0"}, From: netip.AddrPortFrom(source, sourcePort), Message: m}
	if !s.drops(to, &in) {
		from.Receive(s.now, in)
	}
}

func (s *simulation) expectSends(worker, gateway bool) {
	s.t.Helper()
	if have := s.worker.Snapshot()[0].Sends; have != worker {
		s.t.Errorf("worker sends directly: %t", have)
	}
	if have := s.gateway.Snapshot()[0].Sends; have != gateway {
		s.t.Errorf("gateway sends directly: %t", have)
	}
}

func TestPairBecomesDirectAfterHold(t *testing.T) {
	t.Parallel()
	w := newSimulation(t)
	w.run(minHoldTime - 200*time.Millisecond)
	w.expectSends(false, false)
	w.run(time.Second)
	w.expectSends(true, true)
	if s := w.gateway.Snapshot()[0]; s.MAC != mac(1) || !s.Receives || s.Node != "w1" || s.Device != "eth0" {
		t.Errorf("state of the gateway is %+v", s)
	}
}

func TestOneDirectionFails(t *testing.T) {
	t.Parallel()
	w := newSimulation(t)
	w.run(5 * time.Second)
	w.drops = func(from *end, _ *transport.Packet) bool { return from == w.gateway } // to the worker
	w.run(misses*interval + 200*time.Millisecond)
	w.expectSends(true, false)
	changes := w.gateway.changes
	// It returns after a longer time than at first.
	w.drops = func(*end, *transport.Packet) bool { return false }
	w.run(minHoldTime + time.Second)
	w.expectSends(true, false)
	w.run(minHoldTime)
	w.expectSends(true, true)
	if w.gateway.changes != changes+1 {
		t.Errorf("%d changes", w.gateway.changes-changes)
	}
}

// TestHoldGrows checks that a pair that fails again and again stays on VXLAN longer each time.
func TestHoldGrows(t *testing.T) {
	t.Parallel()
	w := newSimulation(t)
	var last time.Duration
	for range 5 {
		start := w.now
		for !w.worker.Snapshot()[0].Sends {
			w.run(interval)
		}
		took := w.now.Sub(start)
		if took <= last {
			t.Errorf("direct again after %s, before after %s", took, last)
		}
		last = took
		w.drops = func(from *end, _ *transport.Packet) bool { return from == w.worker }
		w.run(2 * time.Second)
		w.expectSends(false, true)
		w.drops = func(*end, *transport.Packet) bool { return false }
	}
}

// TestChangedPackets checks that a pair whose test packets arrive changed does not become direct.
// The network would change packets of pods, too.
func TestChangedPackets(t *testing.T) {
	t.Parallel()
	for name, alter := range map[string]func(*transport.Packet){
		"masqueraded address": func(in *transport.Packet) {
			in.From = netip.AddrPortFrom(netip.MustParseAddr("172.18.0.3"), in.From.Port())
		},
		"masqueraded port": func(in *transport.Packet) { in.From = netip.AddrPortFrom(in.From.Addr(), in.From.Port()^1) },
		"in VXLAN":         func(in *transport.Packet) { in.Local.Device = desired.NodeDevice },
		"other nonce":      func(in *transport.Packet) { m := *in.Message; m.Direct = &wire.Direct{Nonce: 7}; in.Message = &m },
		"other sender":     func(in *transport.Packet) { m := *in.Message; m.From++; in.Message = &m },
	} {
		w := newSimulation(t)
		w.drops = func(_ *end, in *transport.Packet) bool { alter(in); return false }
		w.run(10 * time.Second)
		if w.worker.Snapshot()[0].Sends || w.gateway.Snapshot()[0].Sends {
			t.Errorf("%s: the pair is direct", name)
		}
	}
}

// TestReplayedTest checks that a test packet counts once, so a host that records one cannot keep a
// pair direct.
func TestReplayedTest(t *testing.T) {
	t.Parallel()
	w := newSimulation(t)
	w.run(5 * time.Second)
	var recorded []transport.Packet
	w.drops = func(from *end, in *transport.Packet) bool {
		if from == w.worker {
			recorded = append(recorded, *in)
		}
		return from == w.worker
	}
	w.run(interval + 50*time.Millisecond)
	for range 20 {
		for _, in := range recorded[:1] {
			w.gateway.Receive(w.now, in)
		}
		w.run(interval)
	}
	w.expectSends(false, true)
}

// TestForeignReports checks that only the other node's agent reports, over VXLAN from its own
// address.
func TestForeignReports(t *testing.T) {
	t.Parallel()
	w := newSimulation(t)
	w.drops = func(*end, *transport.Packet) bool { return true }
	w.run(time.Second)
	report := wire.Message{From: wire.HashID("node/gw"), To: wire.HashID("node/w1"), Direct: &wire.Direct{Report: true, Receives: true, MAC: [6]byte{2, 9}}}
	right := transport.Packet{
		Local: socket.Bind{Addr: w.worker.addr, Device: desired.NodeDevice}, From: netip.AddrPortFrom(w.gateway.addr, port), Message: &report,
	}
	for name, alter := range map[string]func(*transport.Packet){
		"outside of VXLAN": func(in *transport.Packet) { in.Local.Device = "eth0" },
		"of another node":  func(in *transport.Packet) { in.From = netip.MustParseAddrPort("172.18.0.9:4804") },
		"other port":       func(in *transport.Packet) { in.From = netip.AddrPortFrom(in.From.Addr(), 4805) },
		"for another node": func(in *transport.Packet) { m := *in.Message; m.To++; in.Message = &m },
		"other name":       func(in *transport.Packet) { m := *in.Message; m.From++; in.Message = &m },
	} {
		in := right
		alter(&in)
		w.worker.Receive(w.now, in)
		if w.worker.Snapshot()[0].Sends {
			t.Errorf("%s: the report counts", name)
		}
	}
	w.worker.Receive(w.now, right)
	w.expectSends(true, false)
}

// TestReportsStop checks that without reports of the other node this node uses VXLAN.
func TestReportsStop(t *testing.T) {
	t.Parallel()
	w := newSimulation(t)
	w.run(5 * time.Second)
	w.cut = true
	w.run(misses*interval + 100*time.Millisecond)
	w.expectSends(false, true)
	w.run(idleInterval)
	w.expectSends(false, false)
}

// TestNotAccepted checks that a node sends directly only after the rules of the gateway accept its
// packets.
func TestNotAccepted(t *testing.T) {
	t.Parallel()
	w := newSimulation(t)
	w.gateway.SetAcceptedMACs(map[string]bool{})
	w.run(5 * time.Second)
	w.expectSends(false, true)
	w.gateway.SetAcceptedMACs(map[string]bool{mac(1): true})
	w.run(interval)
	w.expectSends(true, true)
}

// TestSetKeepsState checks that an unchanged pair keeps its state, and a removed one sends nothing.
func TestSetKeepsState(t *testing.T) {
	t.Parallel()
	w := newSimulation(t)
	w.run(5 * time.Second)
	spec := w.worker.spec
	spec.Misses++
	w.worker.Set(spec, w.now)
	w.expectSends(true, true)
	w.worker.Set(Spec{Node: "w1", Interval: interval, Misses: misses}, w.now)
	if out, _ := w.worker.Tick(w.now); len(out) != 0 || len(w.worker.Snapshot()) != 0 || len(w.worker.Sockets(true)) != 0 {
		t.Errorf("without pairs: %d packets", len(out))
	}
	w.run(idleInterval + 2*time.Second)
	if w.gateway.Snapshot()[0].Sends {
		t.Error("the gateway still sends directly")
	}
}

// TestMissingIPv4 checks that only test packets that the network drops count.
func TestMissingIPv4(t *testing.T) {
	t.Parallel()
	w := newSimulation(t)
	w.run(5 * time.Second)
	if n := w.worker.MissingIPv4(); n != 0 {
		t.Errorf("%d packets missing", n)
	}
	w.drops = func(from *end, _ *transport.Packet) bool { return from == w.gateway } // to the worker
	w.run(time.Second)
	if n := w.worker.MissingIPv4(); n < 9 || n > 11 || w.gateway.MissingIPv4() != 0 {
		t.Errorf("%d packets of the worker and %d of the gateway missing", n, w.gateway.MissingIPv4())
	}
}

// restart replaces the agent of an end by an agent without a completed pass. The kernel is
// unchanged.
func (s *simulation) restart(of *end) *end {
	next := s.end(of.node, of.addr.String(), of.source.String(), of.Saved()...)
	if of == s.worker {
		s.worker = next
	} else {
		s.gateway = next
	}
	next.Set(of.spec, s.now)
	return next
}

// TestRestart checks that the pairs of an agent that starts stay direct, at both ends, without a
// change.
func TestRestart(t *testing.T) {
	t.Parallel()
	for _, node := range []string{"w1", "gw"} {
		w := newIdleSimulation(t)
		w.run(10 * time.Second)
		before, other := w.worker, w.gateway
		if node == "gw" {
			before, other = other, before
		}
		changes, want, accepted := other.changes, before.Snapshot(), before.acceptedMACs
		after := w.restart(before)
		if have := after.Snapshot(); !slices.Equal(have, want) {
			t.Errorf("%s: have %v, want %v", node, have, want)
		}
		w.run(time.Second) // of the first pass
		after.SetAcceptedMACs(accepted)
		w.run(2 * idleInterval)
		w.expectSends(true, true)
		if after.changes != 0 || other.changes != changes {
			t.Errorf("%s: %d changes, %d of the other end", node, after.changes, other.changes-changes)
		}
	}
}

// TestRestartInChangedNetwork checks that test packets and reports end the restored state within
// the usual time.
func TestRestartInChangedNetwork(t *testing.T) {
	t.Parallel()
	w := newIdleSimulation(t)
	w.run(10 * time.Second)
	accepted := w.worker.acceptedMACs
	w.drops = func(from *end, _ *transport.Packet) bool { return from == w.gateway } // to the worker
	w.restart(w.worker).SetAcceptedMACs(accepted)
	w.run(misses*interval + 100*time.Millisecond)
	w.expectSends(true, false)
	w.cut = true
	w.run(100 * time.Millisecond)
	w.restart(w.worker)
	w.run(idleInterval + (misses+1)*interval)
	w.expectSends(false, false)
}

// TestRestartWithOtherPairs checks that only the first Spec restores pairs, and only equal pairs.
func TestRestartWithOtherPairs(t *testing.T) {
	t.Parallel()
	w := newIdleSimulation(t)
	w.run(10 * time.Second)
	spec := w.worker.spec
	saved := w.worker.Saved()
	for name, alter := range map[string]func(*Pair){
		"other device":           func(p *Pair) { p.Device = "eth1" },
		"other hardware address": func(p *Pair) { p.MAC = mac(7) },
		"no longer a gateway":    func(p *Pair) { p.Source = netip.MustParseAddr("10.7.3.254") },
	} {
		changed := spec
		changed.Pairs = slices.Clone(spec.Pairs)
		alter(&changed.Pairs[0])
		for _, first := range []Spec{changed, {Node: "w1"}} {
			e := w.end("w1", "172.18.0.3", "242.2.255.254", saved...)
			e.Set(first, w.now)
			e.Set(spec, w.now)
			if s := e.Snapshot()[0]; s.Sends || s.Receives || s.MAC != "" {
				t.Errorf("%s: have %+v", name, s)
			}
		}
	}
}

// packets returns the number of packets that both ends send in a period.
func (s *simulation) packets(d time.Duration) int {
	before := s.worker.sent + s.gateway.sent
	s.run(d)
	return s.worker.sent + s.gateway.sent - before
}

// TestIdlePair checks that a pair without traffic sends fewer packets. If the network drops them,
// it uses VXLAN within idleInterval and the time of the lost packets.
func TestIdlePair(t *testing.T) {
	t.Parallel()
	w := newIdleSimulation(t)
	w.run(10 * time.Second)
	w.expectSends(true, true)
	if n := w.packets(time.Minute); n > 2*2*20 {
		t.Errorf("%d packets in a minute", n)
	}
	w.expectSends(true, true)
	w.drops = func(from *end, _ *transport.Packet) bool { return from == w.worker }
	w.run(idleInterval + misses*interval)
	w.expectSends(false, true)
	// A pair over which nothing passes is not tested often, even with traffic.
	w.worker.SetTraffic(true, w.now)
	w.drops = func(*end, *transport.Packet) bool { return true }
	w.run(2 * unreachableTime)
	w.expectSends(false, false)
	if n := w.packets(time.Minute); n > 2*2*20 {
		t.Errorf("%d packets in a minute, without a returned one", n)
	}
	// It becomes direct after the usual time.
	w.drops = func(*end, *transport.Packet) bool { return false }
	w.run(idleInterval + 2*minHoldTime + time.Second)
	w.expectSends(true, true)
}

// TestTrafficBegins checks that both directions of a pair are tested at once when traffic begins.
func TestTrafficBegins(t *testing.T) {
	t.Parallel()
	for _, direction := range []string{"worker", "gateway"} {
		w := newIdleSimulation(t)
		w.run(10 * time.Second)
		// Directly after a test packet.
		for sent := w.gateway.sent; sent == w.gateway.sent; {
			w.run(10 * time.Millisecond)
		}
		for sent := w.worker.sent; sent == w.worker.sent; {
			w.run(10 * time.Millisecond)
		}
		w.drops = func(from *end, _ *transport.Packet) bool { return from.node == "w1" == (direction == "worker") }
		w.worker.SetTraffic(true, w.now)
		w.run(misses * interval)
		w.expectSends(direction != "worker", direction != "gateway")
	}
}

// TestTrafficEnds checks that after traffic both ends return to the longer interval. The pair stays
// direct even if the report about that is lost.
func TestTrafficEnds(t *testing.T) {
	t.Parallel()
	w := newSimulation(t)
	w.run(10 * time.Second)
	if n := w.packets(10 * time.Second); n < 2*2*95 {
		t.Errorf("%d packets with traffic", n)
	}
	w.worker.SetTraffic(false, w.now)
	w.cut = true
	w.run(10 * time.Millisecond)
	w.cut = false
	w.run(2 * idleInterval)
	w.expectSends(true, true)
	changes := w.worker.changes + w.gateway.changes
	if n := w.packets(time.Minute); n > 2*2*20 {
		t.Errorf("%d packets in a minute after the traffic", n)
	}
	if n := w.worker.changes + w.gateway.changes - changes; n != 0 {
		t.Errorf("%d changes", n)
	}
}

// TestOtherEndSilent checks that with traffic, a node that gets no report from an agent uses VXLAN
// soon.
func TestOtherEndSilent(t *testing.T) {
	t.Parallel()
	w := newIdleSimulation(t)
	w.run(10 * time.Second)
	w.gateway.Set(Spec{Node: "gw", Gateway: true, Interval: interval, Misses: misses}, w.now)
	w.worker.SetTraffic(true, w.now)
	w.run(misses*interval + 50*time.Millisecond)
	if w.worker.Snapshot()[0].Sends {
		t.Error("the worker sends directly to a silent gateway")
	}
}

// TestSnapshotIsShared checks that the states are built again only after a change.
func TestSnapshotIsShared(t *testing.T) {
	t.Parallel()
	w := newSimulation(t)
	w.run(5 * time.Second)
	if first := w.worker.Snapshot(); &first[0] != &w.worker.Snapshot()[0] {
		t.Error("two snapshots without a change")
	}
	before := w.worker.Snapshot()
	w.run(time.Second)
	if &before[0] != &w.worker.Snapshot()[0] {
		t.Error("another snapshot after packets that changed nothing")
	}
	w.drops = func(*end, *transport.Packet) bool { return true }
	w.run(time.Second)
	if !before[0].Sends || w.worker.Snapshot()[0].Sends {
		t.Error("a change altered the old snapshot, or no new one")
	}
}

// manyPairs returns a gateway with direct pairs.
func manyPairs(count int) (*Checker, time.Time) {
	now := time.Unix(1e9, 0)
	c := New(Config{Port: port, Log: slog.New(slog.DiscardHandler), Wake: trigger.New(), OnChange: func() {}, OnState: func() {}})
	spec := Spec{Node: "gw", Gateway: true, Interval: interval, Misses: misses}
	for i := range count {
		spec.Pairs = append(spec.Pairs, Pair{
			Node: "w" + strconv.Itoa(i), Local: netip.MustParseAddr("10.0.0.1"), Remote: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}),
			Device: "eth0", MAC: mac(1), Source: netip.MustParseAddr("10.7.1.254"),
		})
	}
	c.Set(spec, now)
	c.SetAcceptedMACs(map[string]bool{})
	for _, p := range c.pairs {
		p.receives, p.passesSince = true, now
		p.next = now.Add(time.Duration(c.random() % uint64(idleInterval)))
		c.schedule(p)
	}
	return c, now
}

// BenchmarkTick measures one Tick in which a single pair is due: the time must not grow with the
// pairs.
func BenchmarkTick(b *testing.B) {
	for _, count := range []int{5, 50, 500} {
		b.Run(strconv.Itoa(count), func(b *testing.B) {
			c, _ := manyPairs(count)
			for b.Loop() {
				p, _ := c.queue.First()
				now := p.Due()
				if out, _ := c.Tick(now); len(out) != 2 {
					b.Fatalf("%d packets", len(out))
				}
				c.onReturn(now, transport.Packet{
					Local: socket.Bind{Addr: p.Local, Device: p.Device}, From: netip.AddrPortFrom(p.Source, p.port),
					Message: &wire.Message{From: c.self, Direct: &wire.Direct{Nonce: p.nonce}},
				})
			}
		})
	}
}

// TestManyIdlePairs checks that a gateway of 500 idle nodes sends two packets per node and
// idleInterval. Each Tick handles only pairs that are due: there are not more ticks than packets
// and returned packets.
func TestManyIdlePairs(t *testing.T) {
	t.Parallel()
	const count = 500
	c, now := manyPairs(count)
	sent, ticks := 0, 0
	for end := now.Add(4 * idleInterval); now.Before(end); ticks++ {
		out, wait := c.Tick(now)
		sent += len(out)
		for nonce, p := range maps.Clone(c.byNonce) {
			c.onReturn(now, transport.Packet{
				Local: socket.Bind{Addr: p.Local, Device: p.Device}, From: netip.AddrPortFrom(p.Source, p.port),
				Message: &wire.Message{From: c.self, Direct: &wire.Direct{Nonce: nonce}},
			})
		}
		now = now.Add(wait)
	}
	if sent < 3*2*count || sent > 6*2*count || ticks > sent {
		t.Errorf("%d packets in %d ticks", sent, ticks)
	}
}
