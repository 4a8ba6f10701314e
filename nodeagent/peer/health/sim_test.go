package health

import (
	"cmp"
	"container/heap"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/peer/transport"
	"hawser.dev/hawser/nodeagent/peer/wire"
	"hawser.dev/hawser/schema/fabric"
)

// sim runs the probers of a whole clusterset in one goroutine in simulated time. Packets take
// delay. Agents react to changes at once.
type sim struct {
	t             *testing.T
	now           time.Time
	fabric        *fabric.Fabric
	table         *Preferences
	delay         time.Duration
	nodes         []*simNode
	byAddr        map[netip.Addr]*simNode
	inFlight      packetHeap
	sent          int
	withoutTokens *simNode // agent without tokens
	// lost reports whether a packet is lost; nil = never.
	lost func(from, to *simNode, tunnel bool) bool
	// idle means that pods send nothing. Otherwise each gateway forwards packets over its
	// active links.
	idle bool
}

// simNode is one agent.
type simNode struct {
	*Prober
	name        GatewayID // gateway or name of the node
	tunnel      netip.Addr
	addr        netip.Addr
	next        time.Time
	stopped     bool
	changed     bool
	paths       map[string]ActiveLink
	pathChanges []pathChange
}

// pathChange is one change of the path of a node.
type pathChange struct {
	at      time.Time
	cluster string
	link    ActiveLink
}

type packet struct {
	at  time.Time
	seq int
	outgoing
}

type packetHeap []packet

func (h packetHeap) Len() int { return len(h) }
func (h packetHeap) Less(i, j int) bool {
	return cmp.Or(h[i].at.Compare(h[j].at), cmp.Compare(h[i].seq, h[j].seq)) < 0
}
func (h packetHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *packetHeap) Push(x any)   { *h = append(*h, x.(packet)) }
func (h *packetHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}

const vxlan = "hw-vx0"

// newSim returns clusters a, b, c and so on, each with the given number of gateways and one worker,
// and runs them until they are stable.
func newSim(t *testing.T, s Settings, gateways ...int) *sim {
	t.Helper()
	m := &sim{t: t, now: epoch, fabric: &fabric.Fabric{}, byAddr: map[netip.Addr]*simNode{}, delay: time.Millisecond}
	for i, n := range gateways {
		m.fabric.Clusters = append(m.fabric.Clusters, clusterOf(string(rune('a'+i)), n))
	}
	m.table = NewPreferences(m.fabric, nil)
	for i, c := range m.fabric.Clusters {
		for j := range len(c.Gateways) + 1 {
			n := &simNode{
				name: GatewayID{c.Name, "worker"}, next: m.now,
				tunnel: netip.AddrFrom4([4]byte{10, 0, byte(i), byte(j)}), addr: netip.AddrFrom4([4]byte{10, 1, byte(i), byte(j)}),
			}
			if j < len(c.Gateways) {
				n.name.Gateway = c.Gateways[j].Name
			}
			m.byAddr[n.tunnel], m.byAddr[n.addr] = n, n
			m.nodes = append(m.nodes, n)
		}
	}
	for _, n := range m.nodes {
		m.start(n, s)
	}
	m.run(2 * time.Second)
	for _, n := range m.nodes {
		n.SetReady(true)
	}
	m.run(3 * time.Second)
	return m
}

// start starts a new agent on the node.
func (m *sim) start(n *simNode, s Settings) {
	gateway := n.name.Gateway
	if gateway == "worker" {
		gateway = ""
	}
	n.stopped = false
	n.Prober = New(Config{
		Cluster: n.name.Cluster, Gateway: gateway, Port: 4804, Settings: s, Wake: trigger.New(),
		OnChange: func() { n.changed = true },
	})
	n.clock = func() time.Time { return m.now }
	var targets []Target
	var others [][]netip.Addr
	for _, o := range m.nodes {
		inside := o.name.Cluster == n.name.Cluster
		switch {
		case o == n:
		case inside:
			others = append(others, []netip.Addr{o.addr})
			if o.name.Gateway != "worker" {
				targets = append(targets, Target{Peer: o.name, Source: n.addr, Addr: o.addr, Device: vxlan})
			}
		case gateway != "" && o.name.Gateway != "worker":
			targets = append(targets, Target{Peer: o.name, Source: n.tunnel, Addr: o.tunnel})
		}
	}
	n.SetNodes(others)
	n.SetTargets(targets)
	n.next = m.now
}

// run advances the simulated time.
func (m *sim) run(d time.Duration) {
	for end := m.now.Add(d); ; {
		for _, n := range m.nodes {
			m.step(n)
		}
		at := end
		for _, n := range m.nodes {
			if !n.stopped && n.next.Before(at) {
				at = n.next
			}
		}
		if len(m.inFlight) > 0 && m.inFlight[0].at.Before(at) {
			at = m.inFlight[0].at
		}
		if at.After(m.now) {
			m.now = at
		}
		if !m.now.Before(end) {
			return
		}
		for len(m.inFlight) > 0 && !m.inFlight[0].at.After(m.now) {
			m.deliver(heap.Pop(&m.inFlight).(packet))
		}
	}
}

// step runs the due actions of one agent.
func (m *sim) step(n *simNode) {
	if n.stopped {
		return
	}
	select {
	case <-n.wake:
		n.next = m.now
	default:
	}
	if !n.next.After(m.now) {
		packets, wait := n.Tick(m.now)
		n.next = m.now.Add(wait)
		m.send(packets)
	}
	if n.changed {
		n.changed = false
		m.choose(n)
	}
}

func (m *sim) choose(n *simNode) {
	paths := ChooseLinks(m.table, n.name.Cluster, n.Snapshot())
	use := map[string]model.Path{}
	for cluster, c := range paths {
		if c.Path != n.paths[cluster].Path {
			n.pathChanges = append(n.pathChanges, pathChange{m.now, cluster, c})
		}
		use[cluster] = c.Path
	}
	n.paths = paths
	n.SetActiveLinks(use)
	m.forward(n)
}

// forward sets the traffic of a gateway.
func (m *sim) forward(n *simNode) {
	traffic := map[string]bool{}
	for cluster, path := range n.paths {
		if path.Local == n.name.Gateway && !m.idle {
			traffic[cluster] = true
		}
	}
	n.SetTraffic(traffic)
}

func (m *sim) send(packets []outgoing) {
	for _, o := range packets {
		m.sent++
		if from := m.byAddr[o.From.Addr]; m.withoutTokens != nil && from == m.withoutTokens && o.From.Device == "" {
			older, _ := decode(o.Raw)
			older.token = 0
			o.Raw = older.encode()
		}
		heap.Push(&m.inFlight, packet{m.now.Add(m.delay), m.sent, o})
	}
}

func (m *sim) deliver(p packet) {
	from, to := m.byAddr[p.From.Addr], m.byAddr[p.To.Addr()]
	tunnel := p.From.Device == ""
	if to == nil || to.stopped || from.stopped || m.lost != nil && m.lost(from, to, tunnel) {
		return
	}
	at := Listen{Addr: p.To.Addr(), Device: p.From.Device}
	m.send(to.receive(m.now, at, netip.AddrPortFrom(p.From.Addr, 4804), p.Raw))
}

// decode decodes a packet of a prober.
func decode(raw []byte) (message, error) {
	w, err := wire.Decode(raw)
	if err != nil {
		return message{}, err
	}
	m, ok := decodeMessage(w)
	if !ok {
		return m, errors.New("not a message of health")
	}
	return m, nil
}

// receive passes a datagram to the prober, like a transport.Transport.
func (p *Prober) receive(now time.Time, at Listen, from netip.AddrPort, raw []byte) []outgoing {
	w, err := wire.Decode(raw)
	if err != nil {
		return nil
	}
	return p.Receive(now, transport.Packet{Local: at, From: from, Message: w})
}

func (m *sim) node(cluster, gateway string) *simNode {
	i := slices.IndexFunc(m.nodes, func(n *simNode) bool { return n.name == GatewayID{cluster, gateway} })
	if i < 0 {
		m.t.Fatalf("no node %s/%s", cluster, gateway)
	}
	return m.nodes[i]
}

// activeLink returns the common active link of all running nodes of both clusters, as seen from a.
// The test fails if they differ.
func (m *sim) activeLink(a, b string) ActiveLink {
	m.t.Helper()
	var found *ActiveLink
	for _, n := range m.nodes {
		if n.stopped || n.name.Cluster != a && n.name.Cluster != b {
			continue
		}
		var c ActiveLink
		if n.name.Cluster == a {
			c = n.paths[b]
		} else if c = n.paths[a]; true {
			c.Local, c.Remote = c.Remote, c.Local
		}
		if found == nil {
			found = &c
		}
		if c.Path != found.Path {
			m.t.Fatalf("%v uses %v between %s and %s, others %v", n.name, c, a, b, *found)
		}
	}
	return *found
}

// lastMove returns when the last running node of two clusters changed its path after a time. The
// test fails if a node did not change its path.
func (m *sim) lastMove(a, b string, since time.Time) time.Duration {
	m.t.Helper()
	var last time.Duration
	for _, n := range m.nodes {
		if n.stopped || n.name.Cluster != a && n.name.Cluster != b {
			continue
		}
		remote := b
		if n.name.Cluster == b {
			remote = a
		}
		latest := time.Duration(-1)
		for _, move := range n.pathChanges {
			if move.cluster == remote && !move.at.Before(since) {
				latest = move.at.Sub(since)
			}
		}
		if latest < 0 {
			m.t.Fatalf("%v did not move: %+v", n.name, n.paths[remote])
		}
		last = max(last, latest)
	}
	return last
}
