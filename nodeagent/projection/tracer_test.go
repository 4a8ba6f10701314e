package projection_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/projection"
)

// packet is the first packet of a flow, or a reply.
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

// flow is a conntrack entry: the packet as it arrived, and the expected reply.
type flow struct {
	original, reply packet
	owner           string // conntrack mark: the node that handed it over (desired.ReturnID)
}

// tracer forwards packets through a world. It evaluates the rules of table inet hawser with the
// nodes' elements, policy routing and WireGuard's allowed IPs. From a CNI and kube-proxy it
// implements ClusterIPs and the masquerading of packets from pods to other networks.
type tracer struct {
	w     *world
	slot  int // hash of the client
	flows map[string][]flow
	// overlay is set if Node objects have no pod prefixes and the pod network delivers packets
	// directly to pods. It has the nodes with their pod prefixes, by cluster.
	overlay map[string][]model.Node
}

// hidePrefixes removes the pod prefixes from the nodes of a world.
func (t *tracer) hidePrefixes() {
	t.overlay = map[string][]model.Node{}
	for name, in := range t.w.inputs {
		t.overlay[in.Cluster] = in.Facts.Nodes
		nodes := slices.Clone(in.Facts.Nodes)
		for i := range nodes {
			nodes[i].PodCIDRs = nil
		}
		in.Facts.Nodes = nodes
		t.w.inputs[name] = in
	}
	t.w.project()
}

// hop is a packet at one node.
type hop struct {
	node string // cluster/node
	iif  string // hw-*, "pod", "cni" or "local" (the host itself)
	packet
	answer   bool   // conntrack classifies it as a reply
	original packet // first packet of its flow
	mid      bool   // TCP, neither SYN nor RST: in the middle of a connection
	sender   string // node that sent it over NodeDevice
	mark     uint32
}

func newTracer(w *world, slot int) *tracer {
	return &tracer{w: w, slot: slot, flows: map[string][]flow{}}
}

// send forwards a packet and returns its last hop with the result: "delivered", or the reason of
// the drop.
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
		if reason := t.refused(&translated); reason != "" {
			return h, reason
		}
	}
	owner := ""
	if known >= 0 {
		owner = t.flows[h.node][known].owner
	}
	owner = t.owner(&translated, owner)
	if known >= 0 {
		t.flows[h.node][known].owner = owner
	}
	route, local := t.lookup(&translated)
	if reason := t.filter(&translated, route); reason != "" {
		return h, reason
	}
	if route == nil && !local && !t.inside(&translated) {
		return h, "left by the default route"
	}
	if known < 0 {
		if reason := t.postrouting(&translated, route); reason != "" {
			return h, reason
		}
		t.flows[h.node] = append(t.flows[h.node], flow{original: in, reply: translated.turned(), owner: owner})
	}
	return t.forward(translated, route)
}

// owner evaluates the chain return_path and returns the new conntrack mark of the flow.
func (t *tracer) owner(h *hop, known string) string {
	_, isRemote := t.has(h, desired.SetRemote, h.dst)
	switch {
	case h.iif == desired.NodeDevice && isRemote:
		return desired.ReturnID(desired.HardwareAddr("node/" + h.sender))
	case h.iif != desired.NodeDevice && !t.tunnel(h.iif) && isRemote:
		return ""
	}
	if mark, ok := t.element(h, desired.SetNodeMarks, known); ok && t.tunnel(h.iif) {
		fmt.Sscan(mark, &h.mark)
	} else if t.tunnel(h.iif) && h.answer {
		h.mark = desired.MarkReturn
	}
	return known
}

func (t *tracer) state(h *hop) desired.State    { return t.w.states[h.node] }
func (t *tracer) input(h *hop) projection.Input { return t.w.inputs[h.node] }
func (t *tracer) tunnel(name string) bool       { return strings.HasPrefix(name, desired.TunnelDevicePrefix) }
func (h *hop) service(a netip.Addr, p int) string {
	return fmt.Sprintf("%s . %s . %d", a, h.proto, p)
}

// element returns the value of the element with a key.
func (t *tracer) element(h *hop, set, id string) (string, bool) {
	for _, e := range t.state(h).Elements {
		if e.Set == set && e.ID == id {
			return e.Value, true
		}
	}
	return "", false
}

// has returns the element of a set whose prefix contains an address.
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

// fromInside reports whether a packet comes from a pod, the host itself or a Hawser device.
func (t *tracer) fromInside(h *hop) bool {
	_, pod := t.has(h, desired.SetPods, h.src)
	return pod || h.iif == "local" || h.iif == desired.NodeDevice || t.tunnel(h.iif)
}

// prerouting evaluates the chains services and inverse, then kube-proxy.
func (t *tracer) prerouting(h *hop) {
	if !t.fromInside(h) {
		t.kubeProxy(h)
		return
	}
	if h.proto == "icmp" {
		if to, ok := t.element(h, desired.SetICMPEcho, h.dst.String()); ok {
			h.dst = netip.MustParseAddr(to)
			return
		}
	} else if chain, ok := t.element(h, desired.SetServices, h.service(h.dst, h.dport)); ok {
		to, ok := t.element(h, desired.SetSlots, fmt.Sprintf("%s . %d", h.service(h.dst, h.dport), t.slot%slotsOf(chain)))
		if !ok {
			panic("no slot for " + h.service(h.dst, h.dport))
		}
		address, port, _ := strings.Cut(to, " . ")
		h.dst = netip.MustParseAddr(address)
		fmt.Sscan(port, &h.dport)
		return
	}
	if t.tunnel(h.iif) {
		if to, ok := t.element(h, desired.SetOwners, h.dst.String()); ok {
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

// moved returns an address after prefix NAT. It does not use the code under test.
func moved(a netip.Addr, from, to netip.Prefix) netip.Addr {
	x, y := a.As4(), to.Addr().As4()
	for bit := from.Bits(); bit < 32; bit++ {
		mask := byte(0x80 >> (bit % 8))
		y[bit/8] = y[bit/8]&^mask | x[bit/8]&mask
	}
	return netip.AddrFrom4(y)
}

// refused evaluates the reject rules for the pools in the chains forward and outgoing.
func (t *tracer) refused(h *hop) string {
	if _, ok := t.has(h, desired.SetPools, h.dst); ok && !t.tunnel(h.iif) {
		return "refused"
	}
	return ""
}
