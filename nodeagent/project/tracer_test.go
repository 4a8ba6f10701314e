package project_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/project"
)

// packet is the first packet of a flow, or an answer.
type packet struct {
	proto    string
	src, dst netip.Addr
	sport    int
	dport    int
}

func (p packet) turned() packet {
	return packet{proto: p.proto, src: p.dst, dst: p.src, sport: p.dport, dport: p.sport}
}

func (p packet) String() string {
	return fmt.Sprintf("%s:%d from %s", p.dst, p.dport, p.src)
}

// flow is a conntrack entry: the packet as it came, and as its answer comes.
type flow struct{ original, reply packet }

// tracer carries packets through a world: it evaluates the rules of table inet
// hawser over the nodes' elements, policy routing, WireGuard's allowed IPs, and
// the little of a CNI and of kube-proxy that matters (masquerade of what leaves
// the pods' prefixes, ClusterIPs).
type tracer struct {
	w     *world
	slot  int // what the hash of the caller gives
	flows map[string][]flow
}

// hop is a packet at one node.
type hop struct {
	node string // cluster/node
	iif  string // hw-*, "pod", "cni" or "local" (the host itself)
	packet
	answer   bool   // conntrack knows it as the answer of a flow
	original packet // of its flow
	mid      bool   // TCP, neither SYN nor RST: in the middle of a connection
}

func newTracer(w *world, slot int) *tracer {
	return &tracer{w: w, slot: slot, flows: map[string][]flow{}}
}

// send carries a packet to its end: "delivered" at a node, or the reason why not.
func (t *tracer) send(h hop) (hop, string) {
	for range 16 {
		next, end := t.visit(h)
		if end != "" {
			return next, end
		}
		h = next
	}
	return h, "loop"
}

func (t *tracer) visit(h hop) (hop, string) {
	in := h.packet
	h.original = in
	known := -1
	for i, f := range t.flows[h.node] {
		if f.original == in {
			known, h.packet, h.answer = i, f.reply.turned(), false
		} else if f.reply == in {
			known, h.packet, h.answer, h.original = i, f.original.turned(), true, f.original
		}
	}
	translated := h
	if known < 0 {
		t.prerouting(&translated)
		if why := t.refused(&translated); why != "" {
			return h, why
		}
	}
	route, local := t.lookup(&translated)
	if why := t.filter(&translated, route); why != "" {
		return h, why
	}
	if route == nil && !local && !t.inside(&translated) {
		return h, "left by the default route"
	}
	if known < 0 {
		if why := t.postrouting(&translated, route); why != "" {
			return h, why
		}
		t.flows[h.node] = append(t.flows[h.node], flow{original: in, reply: translated.turned()})
	}
	return t.forward(translated, route)
}

func (t *tracer) state(h *hop) desired.State { return t.w.states[h.node] }
func (t *tracer) input(h *hop) project.Input { return t.w.inputs[h.node] }
func (t *tracer) tunnel(name string) bool    { return strings.HasPrefix(name, desired.TunnelPrefix) }
func (h *hop) service(a netip.Addr, p int) string {
	return fmt.Sprintf("%s . %s . %d", a, h.proto, p)
}

// get finds an element by key; has finds a prefix that holds an address.
func (t *tracer) get(h *hop, set, id string) (string, bool) {
	for _, e := range t.state(h).Elements {
		if e.Set == set && e.ID == id {
			return e.Value, true
		}
	}
	return "", false
}

func (t *tracer) has(h *hop, set string, a netip.Addr) (desired.Element, bool) {
	for _, e := range t.state(h).Elements {
		if e.Set == set && parsePrefix(e.ID).Contains(a) {
			return e, true
		}
	}
	return desired.Element{}, false
}

func parsePrefix(text string) netip.Prefix {
	if strings.Contains(text, "/") {
		return netip.MustParsePrefix(text)
	}
	a := netip.MustParseAddr(text)
	return netip.PrefixFrom(a, a.BitLen())
}

// prerouting is the chains services and inverse, then kube-proxy.
func (t *tracer) prerouting(h *hop) {
	if h.proto == "icmp" {
		if to, ok := t.get(h, desired.SetEcho, h.dst.String()); ok {
			h.dst = netip.MustParseAddr(to)
			return
		}
	} else if chain, ok := t.get(h, desired.SetServices, h.service(h.dst, h.dport)); ok {
		to, ok := t.get(h, desired.SetSlots, fmt.Sprintf("%s . %d", h.service(h.dst, h.dport), t.slot%slotsOf(chain)))
		if !ok {
			panic("no slot for " + h.service(h.dst, h.dport))
		}
		address, port, _ := strings.Cut(to, " . ")
		h.dst = netip.MustParseAddr(address)
		fmt.Sscan(port, &h.dport)
		return
	}
	if t.tunnel(h.iif) {
		if to, ok := t.get(h, desired.SetOwners, h.dst.String()); ok {
			h.dst = netip.MustParseAddr(to)
		} else if e, ok := t.has(h, desired.SetUnmapped, h.dst); ok {
			h.dst = moved(h.dst, parsePrefix(e.ID), parsePrefix(e.Value))
		}
	}
	t.kubeProxy(h)
}

func slotsOf(chain string) int {
	if strings.HasPrefix(chain, "pick_one") {
		return desired.SlotsOne
	}
	return desired.SlotsMany
}

func (t *tracer) kubeProxy(h *hop) {
	for _, s := range t.input(h).Facts.Services {
		for _, e := range s.Endpoints {
			if slices.Contains(s.ClusterIPs, h.dst) && e.Ready {
				h.dst, h.dport = e.Addrs[0], e.Ports[fmt.Sprintf("%s/%d", strings.ToUpper(h.proto), h.dport)]
				return
			}
		}
	}
}

// moved is prefix NAT, written apart from the code under test.
func moved(a netip.Addr, from, to netip.Prefix) netip.Addr {
	x, y := a.As4(), to.Addr().As4()
	for bit := from.Bits(); bit < 32; bit++ {
		mask := byte(0x80 >> (bit % 8))
		y[bit/8] = y[bit/8]&^mask | x[bit/8]&mask
	}
	return netip.AddrFrom4(y)
}

// refused is the pools' reject in the chains forward and outgoing.
func (t *tracer) refused(h *hop) string {
	if _, ok := t.has(h, desired.SetPools, h.dst); ok && !t.tunnel(h.iif) {
		return "refused"
	}
	return ""
}

// lookup goes through the rules in order; local means that the host is meant.
func (t *tracer) lookup(h *hop) (*desired.Route, bool) {
	s := t.state(h)
	for _, n := range t.input(h).Facts.Nodes {
		if n.Name == t.input(h).Node && slices.Contains(n.Addrs, h.dst) {
			return nil, true
		}
	}
	if slices.Contains(t.input(h).Local.HostSource, h.dst) {
		return nil, true
	}
	for _, rule := range s.Rules {
		if rule.IIF != "" && rule.IIF != h.iif {
			continue
		}
		var best *desired.Route
		for i := range s.Routes {
			r := &s.Routes[i]
			if r.Table == rule.Table && r.Dst.Contains(h.dst) && (best == nil || r.Dst.Bits() > best.Dst.Bits()) {
				best = r
			}
		}
		if best != nil {
			return best, false
		}
	}
	return nil, false
}

// filter is the chains forward, input and inbound.
func (t *tracer) filter(h *hop, route *desired.Route) string {
	if route != nil && route.Type == desired.RouteBlackhole {
		return "blackhole"
	}
	if _, ok := t.has(h, desired.SetRemote, h.dst); ok && route == nil {
		return "kept inside"
	}
	if !t.tunnel(h.iif) || h.answer {
		return ""
	}
	if route != nil && t.tunnel(route.Link) {
		return "from tunnel to tunnel"
	}
	for _, e := range t.state(h).Elements {
		from, to, _ := strings.Cut(e.ID, " . ")
		if e.Set == desired.SetAllowed && parsePrefix(from).Contains(h.src) && parsePrefix(to).Contains(h.original.dst) {
			return ""
		}
	}
	if _, ok := t.has(h, desired.SetRestricted, h.original.dst); ok {
		return "not allowed"
	}
	if _, ok := t.has(h, desired.SetPodBlocks, h.original.dst); ok {
		if h.mid {
			return ""
		}
		return "answers only"
	}
	if _, ok := t.has(h, desired.SetDirect, h.original.dst); ok {
		return ""
	}
	if _, ok := t.has(h, desired.SetBlocks, h.original.dst); ok && h.original.dst != h.dst {
		return ""
	}
	return "not offered"
}

// inside reports whether the cluster's own routes know the destination.
func (t *tracer) inside(h *hop) bool {
	_, ok := t.podNode(h)
	for _, n := range t.input(h).Facts.Nodes {
		ok = ok || slices.Contains(n.Addrs, h.dst)
	}
	return ok
}

func (t *tracer) podNode(h *hop) (string, bool) {
	for _, n := range t.input(h).Facts.Nodes {
		for _, p := range n.PodCIDRs {
			if p.Contains(h.dst) {
				return n.Name, true
			}
		}
	}
	return "", false
}

func (t *tracer) postrouting(h *hop, route *desired.Route) string {
	if route != nil && t.tunnel(route.Link) {
		return t.egress(h)
	}
	if _, ok := t.get(h, desired.SetHairpin, h.src.String()+" . "+h.dst.String()); ok {
		h.src = t.nodeAddr(h)
		return ""
	}
	_, there := t.has(h, desired.SetRemote, h.dst)
	_, here := t.has(h, desired.SetRemote, h.src)
	if there || here {
		return ""
	}
	// What a CNI masquerades: from pods to anything that is no pod; and what
	// kube-proxy does: from anything that is no pod.
	from := *h
	from.dst = h.src
	_, pod := t.podNode(&from)
	_, toPod := t.podNode(h)
	if pod != toPod && h.iif != "local" && h.iif != "cni" {
		h.src = t.nodeAddr(h)
	}
	return ""
}

func (t *tracer) nodeAddr(h *hop) netip.Addr {
	for _, n := range t.input(h).Facts.Nodes {
		if n.Name == t.input(h).Node {
			return n.Addrs[0]
		}
	}
	panic("no node " + h.node)
}

// egress is the chain of that name, for the first packet of a flow.
func (t *tracer) egress(h *hop) string {
	if _, ok := t.has(h, desired.SetTunnels, h.src); ok {
		return ""
	}
	first := h.mid && h.proto == "tcp" || h.proto == "udp"
	if _, ok := t.get(h, desired.SetAmbiguous, h.service(h.src, h.sport)); ok && first {
		return "waits for its client"
	}
	if to, ok := t.get(h, desired.SetReverse, h.service(h.src, h.sport)); ok && first {
		address, port, _ := strings.Cut(to, " . ")
		h.src = netip.MustParseAddr(address)
		fmt.Sscan(port, &h.sport)
	} else if to, ok := t.get(h, desired.SetEgress, h.src.String()); ok {
		h.src = netip.MustParseAddr(to)
	} else if _, ok := t.has(h, desired.SetOwn, h.src); ok {
		return ""
	} else if e, ok := t.has(h, desired.SetMapped, h.src); ok {
		h.src = moved(h.src, parsePrefix(e.ID), parsePrefix(e.Value))
	} else if to, ok := t.get(h, desired.SetShared, fmt.Sprint(t.slot%desired.SharedSlots)); ok {
		h.src = netip.MustParseAddr(to)
	}
	return ""
}

// forward brings the packet to the next node, or to its end.
func (t *tracer) forward(h hop, route *desired.Route) (hop, string) {
	cluster := t.input(&h).Cluster
	if route == nil {
		node, pod := t.podNode(&h)
		if !pod || node == t.input(&h).Node || slices.Contains(t.input(&h).Local.HostSource, h.dst) {
			for _, n := range t.input(&h).Facts.Nodes {
				if slices.Contains(n.Addrs, h.dst) && n.Name != t.input(&h).Node {
					return hop{node: cluster + "/" + n.Name, iif: "cni", packet: h.packet, mid: h.mid}, ""
				}
			}
			return h, "delivered"
		}
		return hop{node: cluster + "/" + node, iif: "cni", packet: h.packet, mid: h.mid}, ""
	}
	if route.Link == desired.NodeLink {
		for _, n := range t.input(&h).Facts.Nodes {
			if slices.Contains(n.Addrs, route.Via) {
				return hop{node: cluster + "/" + n.Name, iif: desired.NodeLink, packet: h.packet, mid: h.mid}, ""
			}
		}
		return h, "no neighbour " + route.Via.String()
	}
	return t.wireguard(h, route.Link)
}

// wireguard applies the allowed IPs of both ends.
func (t *tracer) wireguard(h hop, link string) (hop, string) {
	for _, peer := range t.state(&h).Peers {
		if peer.Link != link || !holds(peer.AllowedIPs, h.dst) {
			continue
		}
		at := t.keyHolder(peer.PublicKey)
		for _, back := range t.w.states[at].Peers {
			if t.keyHolder(back.PublicKey) == h.node && holds(back.AllowedIPs, h.src) {
				return hop{node: at, iif: back.Link, packet: h.packet, mid: h.mid}, ""
			}
		}
		return h, "source " + h.src.String() + " not allowed by " + at
	}
	return h, "no peer for " + h.dst.String()
}

func (t *tracer) keyHolder(key string) string {
	for _, c := range t.w.fabric.Clusters {
		for _, g := range c.Gateways {
			if g.Keys[0].Public == key {
				return c.Name + "/" + g.Node
			}
		}
	}
	return ""
}

func holds(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}
