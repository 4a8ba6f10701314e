// Package direct determines which nodes of a cluster exchange the packets of other clusters without
// VXLAN. Each end of a pair of node and gateway sends test packets over the VXLAN. The other end
// forwards them back over the node network. They have the source addresses of real traffic, so
// network filters, masquerading and rp_filter affect them like packets of pods. Each end reports
// whether its test packets return. If they do, the other end sends directly. The package has no
// I/O: package transport sends and receives.
package direct

import (
	"cmp"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"hawser.dev/hawser/internal/socket"
	"hawser.dev/hawser/internal/timerqueue"
	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/peer/endpointprobe"
	"hawser.dev/hawser/nodeagent/peer/transport"
	"hawser.dev/hawser/nodeagent/peer/wire"
)

const (
	// minHoldTime is the time without a lost test packet after which a pair becomes direct.
	// Each failure doubles the time, up to maxHoldTime. It is reset after holdResetTime without
	// a failure.
	minHoldTime   = 3 * time.Second
	maxHoldTime   = 5 * time.Minute
	holdResetTime = 10 * time.Minute
	// idleInterval is the time between two test packets of a pair without traffic. It also
	// applies to a pair whose test packets have not returned for unreachableTime.
	idleInterval    = 5 * time.Second
	unreachableTime = 10 * time.Second
	// portLifetime is the time after which test packets get a new source port. The new flow is
	// subject to NAT rules that were added since.
	portLifetime = 10 * time.Second
	// minSourcePort is the lowest source port of test packets: the first dynamic port (RFC
	// 6335).
	minSourcePort = 49152
)

// Pair is this node and another node of the cluster in one address family. One of the nodes is a
// gateway.
type Pair struct {
	Node   string     // name of the other node
	Local  netip.Addr // this node's address
	Remote netip.Addr // the other node's address
	Device string     // this node's device with Local
	MAC    string     // of Device
	// VXLAN has the addresses of the VXLAN between the two nodes.
	VXLAN VXLAN
	// Source is the source address of test packets. If this node is the gateway, it belongs to
	// pods of this cluster. Otherwise it belongs to another cluster.
	Source netip.Addr
}

// VXLAN has the addresses of the two ends of desired.NodeDevice.
type VXLAN struct {
	Local     netip.Addr
	Remote    netip.Addr
	LocalMAC  string
	RemoteMAC string
}

// Spec configures a Checker.
type Spec struct {
	Node    string // name of this node
	Gateway bool   // this node is a gateway; the other nodes report whether they have traffic
	Pairs   []Pair
	// Interval is the time between two test packets of a pair with traffic. The pair uses the
	// VXLAN after Misses consecutive test packets are lost.
	Interval time.Duration
	Misses   int
}

// Equal reports whether two Specs have the same values.
func (s Spec) Equal(o Spec) bool {
	return s.Node == o.Node && s.Gateway == o.Gateway && s.Interval == o.Interval && s.Misses == o.Misses && slices.Equal(s.Pairs, o.Pairs)
}

// State is the state of a pair.
type State struct {
	Node   string
	Local  netip.Addr
	Remote netip.Addr
	Device string
	MAC    string `json:",omitempty"` // of the other node; empty before its first report
	// Sends reports whether this node sends directly, because the other end receives its
	// packets.
	Sends bool
	// Receives reports whether this node receives the other end's packets directly.
	Receives bool
}

// Saved is the state of a pair for the next agent on this node.
type Saved struct {
	Pair
	PeerMAC  string
	Sends    bool
	Receives bool
}

// Config is the fixed configuration of a Checker. Its functions must not block.
type Config struct {
	Port     uint16 // UDP, of both ends; desired.ProbePort
	Log      *slog.Logger
	Wake     trigger.Trigger
	OnChange func() // Sends or MAC of a pair changed
	OnState  func() // the result of Saved may have changed
	// Restored has the pairs of the previous agent, whose routes and rules the kernel still
	// has. The pairs of the first Spec that are among them continue in this state.
	Restored []Saved
}

// Checker tests pairs of nodes. It implements transport.Protocol and is safe for concurrent use.
type Checker struct {
	config Config
	random func() uint64

	mu           sync.Mutex
	spec         Spec
	self         uint64 // hash of the name of this node
	pairs        map[pairKey]*pair
	queue        timerqueue.Queue[*pair]
	byNonce      map[uint64]*pair // pairs whose test packet has not returned
	acceptedMACs map[string]bool  // senders whose direct packets the kernel accepts; nil = unknown
	states       []State          // of all pairs, sorted; nil after a change
	restored     map[Pair]Saved   // nil after the first Spec
	rebind       bool
	missing      int // IPv4 test packets that have not returned, since the start

	traffic      bool // this node sends packets to other clusters directly
	trafficSince time.Time
}

type pairKey struct{ local, remote netip.Addr }

// pair is the state of a Pair.
type pair struct {
	Pair
	timerqueue.Entry
	remoteID uint64    // hash of the other node's name
	next     time.Time // of the next test packet
	idle     bool      // the time until next is idleInterval

	nonce            uint64
	port             uint16        // source port of test packets
	portSince        time.Time     // when port was selected
	outstandingSince time.Time     // first test packet without a return since; zero = none
	lastReturned     time.Time     // when the last test packet returned; at first, when the first one was sent
	passesSince      time.Time     // start of returns without a loss; zero = none
	holdTime         time.Duration // time without a loss after which the pair becomes direct
	lastFailure      time.Time     // last failure
	receives         bool

	mac        string
	lastReport time.Time // last report of the other end; zero = none, or too old
	sends      bool      // the other end receives this node's packets directly
	traffic    bool      // the other end sends packets to other clusters
}

// New returns a Checker without pairs.
func New(config Config) *Checker {
	c := &Checker{config: config, random: rand.Uint64, pairs: map[pairKey]*pair{}, byNonce: map[uint64]*pair{}, restored: map[Pair]Saved{}}
	for _, s := range config.Restored {
		c.restored[s.Pair] = s
	}
	return c
}

// Set replaces the pairs. Pairs in both sets keep their state.
func (c *Checker) Set(spec Spec, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if spec.Equal(c.spec) {
		return
	}
	c.spec, c.self, c.rebind = spec, wire.HashID("node/"+spec.Node), true
	c.traffic = c.traffic && !spec.Gateway
	before := c.pairs
	c.pairs = make(map[pairKey]*pair, len(spec.Pairs))
	c.stateChanged()
	for _, p := range spec.Pairs {
		key := pairKey{p.Local, p.Remote}
		if old := before[key]; old != nil && old.Pair == p {
			c.pairs[key] = old
			delete(before, key)
			continue
		}
		c.pairs[key] = &pair{Pair: p, remoteID: wire.HashID("node/" + p.Node), holdTime: minHoldTime}
		if s, found := c.restored[p]; found {
			c.pairs[key].restore(s, now)
		}
		c.queue.Schedule(c.pairs[key], time.Time{})
	}
	c.restored = nil
	for _, p := range before {
		delete(c.byNonce, p.nonce)
		c.queue.Remove(p)
	}
	c.config.Wake.Fire()
}

// restore sets the state of the previous agent. It ends as after a last test packet and report now.
func (p *pair) restore(s Saved, now time.Time) {
	p.mac, p.sends, p.receives = s.PeerMAC, s.Sends, s.Receives
	if s.Sends {
		p.lastReport = now
	}
	if s.Receives {
		p.passesSince = now
	}
}

// stateChanged handles a change of the state of a pair.
func (c *Checker) stateChanged() {
	c.states = nil
	c.config.OnState()
}

// SetAcceptedMACs sets the hardware addresses from which this node accepts direct packets. A report
// to any other node says that this node does not receive its packets.
func (c *Checker) SetAcceptedMACs(macs map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.acceptedMACs != nil && maps.Equal(macs, c.acceptedMACs) {
		return
	}
	before := c.acceptedMACs
	c.acceptedMACs = macs
	for _, p := range c.pairs {
		if macs[p.mac] != before[p.mac] {
			c.expedite(p)
		}
	}
}

// SetTraffic sets whether this node sends packets to other clusters directly. Both ends test pairs
// with traffic more often.
func (c *Checker) SetTraffic(traffic bool, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.spec.Gateway || traffic == c.traffic {
		return
	}
	c.traffic, c.trafficSince = traffic, now
	for _, p := range c.pairs {
		c.expedite(p)
	}
}

// expedite makes the next test packet and report of a pair due now.
func (c *Checker) expedite(p *pair) {
	p.next = time.Time{}
	c.queue.Schedule(p, p.next)
	c.config.Wake.Fire()
}

// Snapshot returns the state of all pairs, sorted by node and address. It returns the same slice
// until a state changes. The caller must not change the slice.
func (c *Checker) Snapshot() []State {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.states != nil {
		return c.states
	}
	out := make([]State, 0, len(c.pairs))
	for _, p := range c.pairs {
		out = append(out, State{
			Node: p.Node, Local: p.Local, Remote: p.Remote, Device: p.Device, MAC: p.mac, Sends: p.sends, Receives: p.receives,
		})
	}
	slices.SortFunc(out, func(a, b State) int { return cmp.Or(cmp.Compare(a.Node, b.Node), a.Remote.Compare(b.Remote)) })
	c.states = out
	return out
}

// MissingIPv4 returns the number of IPv4 test packets that have not returned since the start.
func (c *Checker) MissingIPv4() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.missing
}

// Saved returns the pairs of which a report arrived, sorted by node and address.
func (c *Checker) Saved() []Saved {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]Saved, 0, len(c.pairs))
	for _, p := range c.pairs {
		if p.mac != "" {
			out = append(out, Saved{Pair: p.Pair, PeerMAC: p.mac, Sends: p.sends, Receives: p.receives})
		}
	}
	slices.SortFunc(out, func(a, b Saved) int { return cmp.Or(cmp.Compare(a.Node, b.Node), a.Remote.Compare(b.Remote)) })
	return out
}

// Sockets implements transport.Protocol.
func (c *Checker) Sockets(all bool) map[socket.Bind]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !all && !c.rebind {
		return nil
	}
	c.rebind = false
	binds := map[socket.Bind]bool{}
	for _, p := range c.pairs {
		binds[socket.Bind{Addr: p.Local, Device: p.Device}] = true
		binds[socket.Bind{Addr: p.VXLAN.Local, Device: p.Device}] = true
		binds[socket.Bind{Addr: p.Local, Device: desired.NodeDevice}] = true
	}
	return binds
}

// reportTimeout is the time without a report after which a pair with traffic uses the VXLAN.
func (c *Checker) reportTimeout() time.Duration {
	return c.spec.Interval*time.Duration(max(c.spec.Misses, 1)) + c.spec.Interval/4
}

// lossTimeout is the time after the first unreturned test packet after which all of them count as
// lost.
func (c *Checker) lossTimeout() time.Duration { return c.reportTimeout() - c.spec.Interval }

// Tick implements transport.Protocol. It sends a test packet and a report for each pair that is
// due.
func (c *Checker) Tick(now time.Time) ([]socket.Datagram, time.Duration) {
	c.mu.Lock()
	var out []socket.Datagram
	changed := false
	for {
		p, ok := c.queue.Next(now)
		if !ok {
			break
		}
		changed = c.expire(p, now) || changed
		if !p.next.After(now) {
			out = append(out, c.testPacket(p, now))
			// Whether the kernel accepts packets of a restored pair is unknown until
			// the first complete pass. No report is better than a wrong one, after
			// which the other end would use the VXLAN.
			if c.acceptedMACs != nil || !p.receives {
				out = append(out, c.report(p))
			}
			c.setNext(p, now)
		}
		c.schedule(p)
	}
	wait := c.queue.UntilNext(now, time.Hour)
	c.mu.Unlock()
	if changed {
		c.config.OnChange()
	}
	return out, max(wait, time.Millisecond)
}

// schedule sets the time at which Tick handles a pair.
func (c *Checker) schedule(p *pair) {
	due := p.next
	for _, deadline := range []time.Time{c.lossDeadline(p), c.reportDeadline(p)} {
		if !deadline.IsZero() && deadline.Before(due) {
			due = deadline
		}
	}
	c.queue.Schedule(p, due)
}

// setNext sets the time of the next test packet. While a test packet is outstanding, the pair is
// tested as often as with traffic.
func (c *Checker) setNext(p *pair, now time.Time) {
	interval := c.spec.Interval
	switch {
	case p.receives:
		p.idle = p.outstandingSince.IsZero() && !c.hasTraffic(p)
	case p.passesSince.IsZero():
		p.idle = now.Sub(p.lastReturned) >= unreachableTime && !(p.sends && c.hasTraffic(p))
	default:
		p.idle = false
	}
	p.next = now.Add(interval - rand.N(interval/20+1))
	if p.idle {
		interval = max(interval, idleInterval)
		// Spread pairs that started together.
		p.next = now.Add(interval - rand.N(interval/4))
	}
}

// hasTraffic reports whether a pair has traffic. A node does not count the packets that it sends
// over VXLAN. It therefore assumes traffic on a pair that it does not send over directly.
func (c *Checker) hasTraffic(p *pair) bool {
	return c.traffic || p.traffic || !c.spec.Gateway && !p.sends
}

// lossDeadline returns when all test packets since the last returned one count as lost. It is zero
// if none is outstanding.
func (c *Checker) lossDeadline(p *pair) time.Time {
	if p.passesSince.IsZero() || p.outstandingSince.IsZero() {
		return time.Time{}
	}
	return p.outstandingSince.Add(c.lossTimeout())
}

// reportDeadline returns when the last report of the other end becomes too old. It is zero before a
// report. If this node has traffic, the other end reports more often.
func (c *Checker) reportDeadline(p *pair) time.Time {
	switch {
	case p.lastReport.IsZero():
		return time.Time{}
	case !c.traffic:
		return p.lastReport.Add(max(idleInterval, c.spec.Interval) + c.reportTimeout())
	case p.lastReport.Before(c.trafficSince):
		return c.trafficSince.Add(c.reportTimeout())
	}
	return p.lastReport.Add(c.reportTimeout())
}

// expire resets states whose test packets or reports are overdue. It reports whether Sends changed.
func (c *Checker) expire(p *pair, now time.Time) bool {
	if deadline := c.lossDeadline(p); !deadline.IsZero() && !deadline.After(now) {
		if p.receives {
			p.receives, p.lastFailure, p.next = false, now, now // report at once
			c.stateChanged()
			p.holdTime = min(2*p.holdTime, maxHoldTime)
		}
		p.passesSince, p.outstandingSince = time.Time{}, time.Time{}
	}
	if deadline := c.reportDeadline(p); !deadline.IsZero() && !deadline.After(now) {
		p.lastReport, p.traffic = time.Time{}, false
		if p.sends {
			p.sends = false
			c.stateChanged()
			c.logPath(p, "no report of the other node")
			return true
		}
	}
	return false
}

// testPacket returns a test packet. The other node receives it over the VXLAN and forwards it
// directly to this node.
func (c *Checker) testPacket(p *pair, now time.Time) socket.Datagram {
	if p.port == 0 || now.Sub(p.portSince) >= portLifetime {
		p.port, p.portSince = minSourcePort+uint16(c.random()%(1<<16-minSourcePort)), now
	}
	if p.lastReturned.IsZero() {
		p.lastReturned = now
	}
	if p.outstandingSince.IsZero() {
		p.outstandingSince = now
	}
	delete(c.byNonce, p.nonce)
	p.nonce = max(c.random(), 1)
	c.byNonce[p.nonce] = p
	if p.Local.Is4() {
		c.missing++
	}
	m := wire.Message{From: c.self, To: c.self, Direct: &wire.Direct{Nonce: p.nonce}}
	frame := endpointprobe.Frame{
		VNI: desired.NodeVNI, From: parseMAC(p.VXLAN.LocalMAC), To: parseMAC(p.VXLAN.RemoteMAC),
		Source: p.Source, Addr: p.Local, SourcePort: p.port, Port: c.config.Port,
	}
	return socket.Datagram{
		From: socket.Bind{Addr: p.VXLAN.Local, Device: p.Device},
		To:   netip.AddrPortFrom(p.VXLAN.Remote, desired.VXLANPort), Raw: frame.Wrap(m.Encode()),
	}
}

// parseMAC returns a hardware address of 6 bytes; zeros if the text is malformed.
func parseMAC(text string) net.HardwareAddr {
	mac, err := net.ParseMAC(text)
	if err != nil || len(mac) != 6 {
		return make(net.HardwareAddr, 6)
	}
	return mac
}

// report returns the report to the other end, over the VXLAN.
func (c *Checker) report(p *pair) socket.Datagram {
	r := wire.Direct{Report: true, Receives: p.receives && c.acceptedMACs[p.mac], Traffic: c.traffic}
	copy(r.MAC[:], parseMAC(p.MAC))
	m := wire.Message{From: c.self, To: p.remoteID, Direct: &r}
	return socket.Datagram{
		From: socket.Bind{Addr: p.Local, Device: desired.NodeDevice}, To: netip.AddrPortFrom(p.Remote, c.config.Port), Raw: m.Encode(),
	}
}

// Sent implements transport.Protocol.
func (c *Checker) Sent(uint64, uint64) {}

// Receive implements transport.Protocol.
func (c *Checker) Receive(now time.Time, in transport.Packet) []socket.Datagram {
	if in.Direct == nil {
		return nil
	}
	c.mu.Lock()
	changed := false
	if in.Direct.Report {
		changed = c.onReport(now, in)
	} else {
		c.onReturn(now, in)
	}
	c.mu.Unlock()
	if changed {
		c.config.OnChange()
	}
	return nil
}

// onReport handles a report of the other end. The rules of the VXLAN verify the address of the
// sender. It reports whether Sends or MAC changed.
func (c *Checker) onReport(now time.Time, in transport.Packet) bool {
	p := c.pairs[pairKey{in.Local.Addr, in.From.Addr()}]
	if p == nil || in.Local.Device != desired.NodeDevice || in.From.Port() != c.config.Port || in.Message.From != p.remoteID || in.To != c.self {
		return false
	}
	mac := net.HardwareAddr(in.Direct.MAC[:]).String()
	changed := in.Direct.Receives != p.sends || mac != p.mac
	if in.Direct.Receives != p.sends {
		p.sends = in.Direct.Receives
		c.logPath(p, "report of the other node")
	}
	trafficBegan := in.Direct.Traffic && !p.traffic && c.spec.Gateway
	p.mac, p.lastReport, p.traffic = mac, now, in.Direct.Traffic && c.spec.Gateway
	if changed {
		c.stateChanged()
	}
	if trafficBegan {
		c.expedite(p)
	} else {
		c.schedule(p)
	}
	return changed
}

// logPath logs that this node sends directly to a node, or no longer does.
func (c *Checker) logPath(p *pair, reason string) {
	path := "vxlan"
	if p.sends {
		path = "direct"
	}
	c.config.Log.Info("path to node changed", "node", p.Node, "addr", p.Remote, "device", p.Device, "path", path, "reason", reason)
}

// onReturn handles a returned test packet. The packet counts only if it is unchanged and arrived at
// the device of the pair.
func (c *Checker) onReturn(now time.Time, in transport.Packet) {
	p := c.byNonce[in.Direct.Nonce]
	if p == nil || in.Local != (socket.Bind{Addr: p.Local, Device: p.Device}) || in.From != netip.AddrPortFrom(p.Source, p.port) ||
		in.Message.From != c.self {
		return
	}
	delete(c.byNonce, p.nonce)
	if p.Local.Is4() {
		c.missing--
	}
	p.lastReturned, p.outstandingSince = now, time.Time{}
	if now.Sub(p.lastFailure) >= holdResetTime {
		p.holdTime = minHoldTime
	}
	switch {
	case p.passesSince.IsZero():
		p.passesSince = now
		if p.idle {
			c.expedite(p)
		}
	case !p.receives && now.Sub(p.passesSince) >= p.holdTime:
		p.receives = true
		c.stateChanged()
		c.expedite(p)
	case p.receives && !c.hasTraffic(p):
		c.setNext(p, now)
		c.schedule(p)
	default:
		c.schedule(p)
	}
}
