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
	"reflect"
	"slices"
	"sync"
	"time"

	"hawser.dev/hawser/internal/socket"
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

func (p Pair) equal(o Pair) bool { return reflect.DeepEqual(p, o) }

// Spec configures a Checker.
type Spec struct {
	Node  string // name of this node
	Pairs []Pair
	// Interval is the time between two test packets, and Misses the number of lost ones after which
	// the pair uses the VXLAN.
	Interval time.Duration
	Misses   int
}

// Equal reports whether two Specs have the same values.
func (s Spec) Equal(o Spec) bool {
	return s.Node == o.Node && s.Interval == o.Interval && s.Misses == o.Misses && slices.EqualFunc(s.Pairs, o.Pairs, Pair.equal)
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
	byNonce  map[uint64]*pair // pairs whose test packet has not returned
	accepted map[string]bool  // hardware addresses from which the kernel accepts packets
	moved    bool
}

type pairKey struct{ local, remote netip.Addr }

// pair is the state of a Pair.
type pair struct {
	Pair
	id   uint64    // hash of the other node's name
	next time.Time // of the next test packet

	nonce    uint64
	port     uint16        // source port of test packets
	portAt   time.Time     // when port was selected
	returned time.Time     // last returned test packet; zero = none
	since    time.Time     // first returned test packet without a loss since; zero = none
	holdTime time.Duration // without a loss until the pair is direct
	failed   time.Time     // last failure
	receives bool

	mac       string
	reported  time.Time // last report of the other end
	peerHears bool      // the other end receives this node's packets directly
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
	before := c.pairs
	c.pairs, c.byNonce = make(map[pairKey]*pair, len(spec.Pairs)), map[uint64]*pair{}
	for _, p := range spec.Pairs {
		key := pairKey{p.Local, p.Remote}
		if old := before[key]; old != nil && old.equal(p) {
			c.pairs[key] = old
			continue
		}
		c.pairs[key] = &pair{Pair: p, id: wire.HashID("node/" + p.Node), holdTime: firstHold}
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
	c.accepted = macs
	for _, p := range c.pairs {
		p.next = time.Time{}
	}
	c.config.Wake.Fire()
}

// Snapshot returns the state of all pairs, sorted by node and address.
func (c *Checker) Snapshot() []State {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]State, 0, len(c.pairs))
	for _, p := range c.pairs {
		out = append(out, State{
			Node: p.Node, Local: p.Local, Remote: p.Remote, Device: p.Device, MAC: p.mac, Sends: p.peerHears, Receives: p.receives,
		})
	}
	slices.SortFunc(out, func(a, b State) int { return cmp.Or(cmp.Compare(a.Node, b.Node), a.Remote.Compare(b.Remote)) })
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

// silence returns the time without a packet after which a pair uses the VXLAN.
func (c *Checker) silence() time.Duration {
	return c.spec.Interval*time.Duration(max(c.spec.Misses, 1)) + c.spec.Interval/4
}

// Tick implements transport.Protocol. It sends a test packet and a report for each pair that is due.
func (c *Checker) Tick(now time.Time) ([]socket.Datagram, time.Duration) {
	c.mu.Lock()
	var out []socket.Datagram
	changed, wait := false, time.Hour
	for _, p := range c.pairs {
		changed = c.expire(p, now) || changed
		if !p.next.After(now) {
			out = append(out, c.test(p, now), c.report(p))
			p.next = now.Add(c.spec.Interval - rand.N(c.spec.Interval/20+1))
		}
		wait = min(wait, p.next.Sub(now))
		if p.receives {
			wait = min(wait, p.returned.Add(c.silence()).Sub(now))
		}
		if p.peerHears {
			wait = min(wait, p.reported.Add(c.silence()).Sub(now))
		}
	}
	c.mu.Unlock()
	if changed {
		c.config.OnChange()
	}
	return out, max(wait, time.Millisecond)
}

// expire ends states whose packets are overdue. It reports whether Sends changed.
func (c *Checker) expire(p *pair, now time.Time) bool {
	if !p.since.IsZero() && now.Sub(p.returned) >= c.silence() {
		if p.receives {
			p.receives, p.failed, p.next = false, now, now // report at once
			p.holdTime = min(2*p.holdTime, longestHold)
		}
		p.since = time.Time{}
	}
	if p.peerHears && now.Sub(p.reported) >= c.silence() {
		p.peerHears = false
		c.log(p, "no report of the other node")
		return true
	}
	return false
}

// test returns a test packet: over the VXLAN to the other node, and from there directly to this node.
func (c *Checker) test(p *pair, now time.Time) socket.Datagram {
	if p.port == 0 || now.Sub(p.portAt) >= portTime {
		p.port, p.portAt = firstPort+uint16(c.random()%(1<<16-firstPort)), now
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
	r := wire.Direct{Report: true, Receives: p.receives && c.accepted[p.mac]}
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
	if in.Direct.Receives != p.peerHears {
		p.peerHears = in.Direct.Receives
		c.log(p, "report of the other node")
	}
	p.mac, p.peerHears, p.reported = mac, in.Direct.Receives, now
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
	p.returned = now
	if p.since.IsZero() {
		p.since = now
	}
	if now.Sub(p.failed) >= forgiveTime {
		p.holdTime = firstHold
	}
	if !p.receives && now.Sub(p.since) >= p.holdTime {
		p.receives, p.next = true, now
		c.config.Wake.Fire()
	}
}
