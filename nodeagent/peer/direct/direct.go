// Package direct determines which nodes of a cluster exchange the packets of other clusters without
// VXLAN. For each pair of a node and a gateway, each end sends test packets over the VXLAN that the
// other end forwards back over the plain network. They have the source addresses of real traffic, so
// filters of the network, masquerading and rp_filter affect them like packets of pods. Each end
// reports to the other whether its test packets return; the other end then sends directly. The
// package has no I/O: package transport sends and receives.
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
	// firstHold is the time without a lost test packet after which a pair becomes direct. Each failure
	// doubles it up to longestHold, and forgiveTime without a failure resets it.
	firstHold   = 3 * time.Second
	longestHold = 5 * time.Minute
	forgiveTime = 10 * time.Minute
	// idleInterval is the time between two test packets of a pair that has no traffic, or over which no
	// test packet has returned for giveUpTime.
	idleInterval = 5 * time.Second
	giveUpTime   = 10 * time.Second
	// portTime is the time after which test packets get a new source port. A new port is a new flow, to
	// which translation rules apply that were added since.
	portTime = 10 * time.Second
	// firstPort is the lowest source port of test packets.
	firstPort = 49152
)

// Pair is this node and another node of the cluster, one of which is a gateway, in one family.
type Pair struct {
	Node   string     // name of the other node
	Local  netip.Addr // this node's address
	Remote netip.Addr // the other node's address
	Device string     // this node's device with Local
	MAC    string     // of Device
	// VXLAN addresses the frames to the other node on desired.NodeDevice.
	VXLAN VXLAN
	// Source is the source address of test packets: an address of this cluster's pods if this node is the
	// gateway, otherwise one of another cluster.
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
	Gateway bool   // this node is a gateway, and the other nodes report the traffic
	Pairs   []Pair
	// Interval is the time between two test packets of a pair with traffic, and Misses the number of lost
	// ones after which the pair uses the VXLAN.
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
	// Sends reports whether this node sends directly: the other end receives its packets.
	Sends bool
	// Receives reports whether this node receives the other end's packets directly.
	Receives bool
}

// Config is the fixed configuration of a Checker.
type Config struct {
	Port     uint16 // UDP, of both ends; desired.ProbePort
	Log      *slog.Logger
	Wake     trigger.Trigger
	OnChange func() // Sends or MAC of a pair changed; must not block
}

// Checker tests pairs of nodes. It implements transport.Protocol and is safe for concurrent use.
type Checker struct {
	config Config
	random func() uint64

	mu       sync.Mutex
	spec     Spec
	self     uint64 // hash of the name of this node
	pairs    map[pairKey]*pair
	queue    timerqueue.Queue[*pair]
	byNonce  map[uint64]*pair // pairs whose test packet has not returned
	accepted map[string]bool  // hardware addresses from which the kernel accepts packets
	states   []State          // of all pairs, sorted; nil after a change
	moved    bool

	traffic   bool // packets of this node to other clusters leave directly
	trafficAt time.Time
}

type pairKey struct{ local, remote netip.Addr }

// pair is the state of a Pair.
type pair struct {
	Pair
	timerqueue.Entry
	id   uint64    // hash of the other node's name
	next time.Time // of the next test packet
	idle bool      // the time until next is idleInterval

	nonce    uint64
	port     uint16        // source port of test packets
	portAt   time.Time     // when port was selected
	lost     time.Time     // first test packet after the last returned one; zero = none
	returned time.Time     // last returned test packet; at first the time of the first test packet
	since    time.Time     // first returned test packet without a loss since; zero = none
	holdTime time.Duration // without a loss until the pair is direct
	failed   time.Time     // last failure
	receives bool

	mac       string
	reported  time.Time // last report of the other end; zero = none, or too old
	peerHears bool      // the other end receives this node's packets directly
	traffic   bool      // the other end sends packets to other clusters
}

// New returns a Checker without pairs.
func New(config Config) *Checker {
	return &Checker{config: config, random: rand.Uint64, pairs: map[pairKey]*pair{}, byNonce: map[uint64]*pair{}}
}

// Set replaces the pairs. Pairs in both sets keep their state.
func (c *Checker) Set(spec Spec) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if spec.Equal(c.spec) {
		return
	}
	c.spec, c.self, c.moved = spec, wire.HashID("node/"+spec.Node), true
	c.traffic = c.traffic && !spec.Gateway
	before := c.pairs
	c.pairs, c.states = make(map[pairKey]*pair, len(spec.Pairs)), nil
	for _, p := range spec.Pairs {
		key := pairKey{p.Local, p.Remote}
		if old := before[key]; old != nil && old.Pair == p {
			c.pairs[key] = old
			delete(before, key)
			continue
		}
		c.pairs[key] = &pair{Pair: p, id: wire.HashID("node/" + p.Node), holdTime: firstHold}
		c.queue.Schedule(c.pairs[key], time.Time{})
	}
	for _, p := range before {
		delete(c.byNonce, p.nonce)
		c.queue.Remove(p)
	}
	c.config.Wake.Fire()
}

// SetAccepted sets the hardware addresses from which the rules of this node accept direct packets. A
// report to a node without such an address says that this node does not receive its packets.
func (c *Checker) SetAccepted(macs map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if maps.Equal(macs, c.accepted) {
		return
	}
	before := c.accepted
	c.accepted = macs
	for _, p := range c.pairs {
		if macs[p.mac] != before[p.mac] {
			c.expedite(p)
		}
	}
}

// SetTraffic sets whether packets of this node to other clusters leave directly. Their pairs are tested
// more often, at both ends.
func (c *Checker) SetTraffic(traffic bool, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.spec.Gateway || traffic == c.traffic {
		return
	}
	c.traffic, c.trafficAt = traffic, now
	for _, p := range c.pairs {
		c.expedite(p)
	}
}

// expedite sends the next test packet and report of a pair at once.
func (c *Checker) expedite(p *pair) {
	p.next = time.Time{}
	c.queue.Schedule(p, p.next)
	c.config.Wake.Fire()
}

// Snapshot returns the state of all pairs, sorted by node and address. It returns the same slice until a
// state changes; the caller must not change it.
func (c *Checker) Snapshot() []State {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.states != nil {
		return c.states
	}
	out := make([]State, 0, len(c.pairs))
	for _, p := range c.pairs {
		out = append(out, State{
			Node: p.Node, Local: p.Local, Remote: p.Remote, Device: p.Device, MAC: p.mac, Sends: p.peerHears, Receives: p.receives,
		})
	}
	slices.SortFunc(out, func(a, b State) int { return cmp.Or(cmp.Compare(a.Node, b.Node), a.Remote.Compare(b.Remote)) })
	c.states = out
	return out
}

// Sockets implements transport.Protocol.
func (c *Checker) Sockets(all bool) map[socket.Bind]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !all && !c.moved {
		return nil
	}
	c.moved = false
	places := map[socket.Bind]bool{}
	for _, p := range c.pairs {
		places[socket.Bind{Addr: p.Local, Device: p.Device}] = true
		places[socket.Bind{Addr: p.VXLAN.Local, Device: p.Device}] = true
		places[socket.Bind{Addr: p.Local, Device: desired.NodeDevice}] = true
	}
	return places
}

// silence returns the time without a report after which a pair with traffic uses the VXLAN.
func (c *Checker) silence() time.Duration {
	return c.spec.Interval*time.Duration(max(c.spec.Misses, 1)) + c.spec.Interval/4
}

// lossTime returns the time after the first lost test packet at which all later ones count as lost, too.
func (c *Checker) lossTime() time.Duration { return c.silence() - c.spec.Interval }

// Tick implements transport.Protocol. It sends a test packet and a report for each pair that is due.
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
			out = append(out, c.test(p, now), c.report(p))
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
	for _, at := range []time.Time{c.lostAt(p), c.silentAt(p)} {
		if !at.IsZero() && at.Before(due) {
			due = at
		}
	}
	c.queue.Schedule(p, due)
}

// setNext sets the time of the next test packet. While one has not returned, a pair is tested as often as
// with traffic.
func (c *Checker) setNext(p *pair, now time.Time) {
	interval := c.spec.Interval
	switch {
	case p.receives:
		p.idle = p.lost.IsZero() && !c.hasTraffic(p)
	case p.since.IsZero():
		p.idle = now.Sub(p.returned) >= giveUpTime && !(p.peerHears && c.hasTraffic(p))
	default:
		p.idle = false
	}
	p.next = now.Add(interval - rand.N(interval/20+1))
	if p.idle {
		interval = max(interval, idleInterval)
		p.next = now.Add(interval - rand.N(interval/4)) // pairs that began together spread
	}
}

// hasTraffic reports whether a pair has traffic. A node does not count its packets in VXLAN, so it
// assumes traffic from a gateway that does not receive them directly.
func (c *Checker) hasTraffic(p *pair) bool {
	return c.traffic || p.traffic || !c.spec.Gateway && !p.peerHears
}

// lostAt returns when all test packets since the last returned one count as lost; zero if none is.
func (c *Checker) lostAt(p *pair) time.Time {
	if p.since.IsZero() || p.lost.IsZero() {
		return time.Time{}
	}
	return p.lost.Add(c.lossTime())
}

// silentAt returns when the last report of the other end is too old; zero before a report. With traffic
// of this node, the other end reports more often.
func (c *Checker) silentAt(p *pair) time.Time {
	switch {
	case p.reported.IsZero():
		return time.Time{}
	case !c.traffic:
		return p.reported.Add(max(idleInterval, c.spec.Interval) + c.silence())
	case p.reported.Before(c.trafficAt):
		return c.trafficAt.Add(c.silence())
	}
	return p.reported.Add(c.silence())
}

// expire ends states whose packets are overdue. It reports whether Sends changed.
func (c *Checker) expire(p *pair, now time.Time) bool {
	if at := c.lostAt(p); !at.IsZero() && !at.After(now) {
		if p.receives {
			p.receives, p.failed, p.next, c.states = false, now, now, nil // report at once
			p.holdTime = min(2*p.holdTime, longestHold)
		}
		p.since, p.lost = time.Time{}, time.Time{}
	}
	if at := c.silentAt(p); !at.IsZero() && !at.After(now) {
		p.reported, p.traffic = time.Time{}, false
		if p.peerHears {
			p.peerHears, c.states = false, nil
			c.log(p, "no report of the other node")
			return true
		}
	}
	return false
}

// test returns a test packet: over the VXLAN to the other node, and from there directly to this node.
func (c *Checker) test(p *pair, now time.Time) socket.Datagram {
	if p.port == 0 || now.Sub(p.portAt) >= portTime {
		p.port, p.portAt = firstPort+uint16(c.random()%(1<<16-firstPort)), now
	}
	if p.returned.IsZero() {
		p.returned = now
	}
	if p.lost.IsZero() {
		p.lost = now
	}
	delete(c.byNonce, p.nonce)
	p.nonce = max(c.random(), 1)
	c.byNonce[p.nonce] = p
	m := wire.Message{From: c.self, To: c.self, Direct: &wire.Direct{Nonce: p.nonce}}
	frame := endpointprobe.Frame{
		VNI: desired.VXLANID, From: parseMAC(p.VXLAN.LocalMAC), To: parseMAC(p.VXLAN.RemoteMAC),
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
	r := wire.Direct{Report: true, Receives: p.receives && c.accepted[p.mac], Traffic: c.traffic}
	copy(r.MAC[:], parseMAC(p.MAC))
	m := wire.Message{From: c.self, To: p.id, Direct: &r}
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

// onReport handles a report of the other end. The rules of the VXLAN prove the sender's address. It
// reports whether Sends or MAC changed.
func (c *Checker) onReport(now time.Time, in transport.Packet) bool {
	p := c.pairs[pairKey{in.At.Addr, in.From.Addr()}]
	if p == nil || in.At.Device != desired.NodeDevice || in.From.Port() != c.config.Port || in.Message.From != p.id || in.To != c.self {
		return false
	}
	mac := net.HardwareAddr(in.Direct.MAC[:]).String()
	changed := in.Direct.Receives != p.peerHears || mac != p.mac
	if changed {
		c.states = nil
	}
	if in.Direct.Receives != p.peerHears {
		p.peerHears = in.Direct.Receives
		c.log(p, "report of the other node")
	}
	began := in.Direct.Traffic && !p.traffic && c.spec.Gateway
	p.mac, p.reported, p.traffic = mac, now, in.Direct.Traffic && c.spec.Gateway
	if began {
		c.expedite(p)
	} else {
		c.schedule(p)
	}
	return changed
}

// log logs that this node sends directly to a node, or no longer does.
func (c *Checker) log(p *pair, reason string) {
	path := "vxlan"
	if p.peerHears {
		path = "direct"
	}
	c.config.Log.Info("path to node changed", "node", p.Node, "addr", p.Remote, "device", p.Device, "path", path, "reason", reason)
}

// onReturn handles a returned test packet. It counts only unchanged, from the device of the pair.
func (c *Checker) onReturn(now time.Time, in transport.Packet) {
	p := c.byNonce[in.Direct.Nonce]
	if p == nil || in.At != (socket.Bind{Addr: p.Local, Device: p.Device}) || in.From != netip.AddrPortFrom(p.Source, p.port) ||
		in.Message.From != c.self {
		return
	}
	delete(c.byNonce, p.nonce)
	p.returned, p.lost = now, time.Time{}
	if now.Sub(p.failed) >= forgiveTime {
		p.holdTime = firstHold
	}
	switch {
	case p.since.IsZero():
		p.since = now
		if p.idle {
			c.expedite(p)
		}
	case !p.receives && now.Sub(p.since) >= p.holdTime:
		p.receives, c.states = true, nil
		c.expedite(p)
	case p.receives && !c.hasTraffic(p):
		c.setNext(p, now)
		c.schedule(p)
	default:
		c.schedule(p)
	}
}
