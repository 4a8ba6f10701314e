package projection_test

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/nodeagent/desired"
)

// lookup evaluates the routing rules in order. It returns true if the destination is an address of
// the host.
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
	rules, from := slices.Clone(s.Rules), 0
	slices.SortStableFunc(rules, func(a, b desired.Rule) int { return cmp.Compare(a.Priority, b.Priority) })
	for _, rule := range rules {
		if rule.Priority < from || rule.IPv6 != h.dst.Is6() || rule.IIF != "" && rule.IIF != h.iif || h.mark&rule.Mask != rule.Mark {
			continue
		}
		if rule.Goto > 0 {
			from = rule.Goto
			continue
		}
		if rule.Table == desired.TableMain {
			return nil, false
		}
		var best *desired.Route
		for i := range s.Routes {
			r := &s.Routes[i]
			if r.Table == rule.Table && r.Dst.Contains(h.dst) && (best == nil || r.Dst.Bits() > best.Dst.Bits()) {
				best = r
			}
		}
		if best != nil && best.Type != desired.RouteThrow {
			return best, false
		}
	}
	return nil, false
}

// filter evaluates the chains forward, input and inbound.
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
	if route != nil && t.tunnel(route.Device) {
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

// inside reports whether the destination is a pod or node of the cluster.
func (t *tracer) inside(h *hop) bool {
	_, ok := t.podNode(h)
	for _, n := range t.input(h).Facts.Nodes {
		ok = ok || slices.Contains(n.Addrs, h.dst)
	}
	return ok
}

func (t *tracer) podNode(h *hop) (string, bool) {
	nodes := t.input(h).Facts.Nodes
	if t.overlay != nil {
		nodes = t.overlay[t.input(h).Cluster]
	}
	for _, n := range nodes {
		for _, p := range n.PodCIDRs {
			if p.Contains(h.dst) {
				return n.Name, true
			}
		}
	}
	return "", false
}

func (t *tracer) postrouting(h *hop, route *desired.Route) string {
	if route != nil && t.tunnel(route.Device) {
		return t.egress(h)
	}
	if _, ok := t.element(h, desired.SetHairpin, h.src.String()+" . "+h.dst.String()); ok {
		h.src = t.nodeAddr(h)
		return ""
	}
	_, toRemote := t.has(h, desired.SetRemote, h.dst)
	_, fromRemote := t.has(h, desired.SetRemote, h.src)
	if toRemote || fromRemote {
		return ""
	}
	// A CNI masquerades packets from pods to addresses that are not pods. kube-proxy
	// masquerades packets from addresses that are not pods.
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

// egress evaluates the chain egress for the first packet of a flow.
func (t *tracer) egress(h *hop) string {
	if _, ok := t.has(h, desired.SetTunnels, h.src); ok {
		return ""
	}
	first := h.mid && h.proto == "tcp" || h.proto == "udp"
	if _, ok := t.element(h, desired.SetAmbiguous, h.service(h.src, h.sport)); ok && first {
		return "waits for its client"
	}
	if to, ok := t.element(h, desired.SetReverse, h.service(h.src, h.sport)); ok && first {
		address, port, _ := strings.Cut(to, " . ")
		h.src = netip.MustParseAddr(address)
		fmt.Sscan(port, &h.sport)
	} else if to, ok := t.element(h, desired.SetEgress, h.src.String()); ok {
		h.src = netip.MustParseAddr(to)
	} else if _, ok := t.has(h, desired.SetKeepSource, h.src); ok {
		return ""
	} else if e, ok := t.has(h, desired.SetMapped, h.src); ok {
		h.src = moved(h.src, parsePrefix(e.ID), parsePrefix(e.Value))
	} else if !t.fromInside(h) {
		return "stranger"
	} else if to, ok := t.element(h, desired.SetShared, fmt.Sprint(t.slot%desired.SharedSlots)); ok {
		h.src = netip.MustParseAddr(to)
	}
	return ""
}

// forward returns the packet at the next node, or its result.
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
		next := hop{node: cluster + "/" + node, iif: "cni", packet: h.packet, mid: h.mid}
		if t.overlay != nil {
			return next, "delivered"
		}
		return next, ""
	}
	if route.Device == desired.NodeDevice {
		for _, n := range t.input(&h).Facts.Nodes {
			if slices.Contains(n.Addrs, route.Via) {
				return hop{node: cluster + "/" + n.Name, iif: desired.NodeDevice, packet: h.packet, mid: h.mid, sender: t.input(&h).Node}, ""
			}
		}
		return h, "no neighbour " + route.Via.String()
	}
	return t.wireguard(h, route.Device)
}

// wireguard applies the allowed IPs of both gateways.
func (t *tracer) wireguard(h hop, link string) (hop, string) {
	for _, peer := range t.state(&h).Peers {
		if peer.Device != link || !containsAddr(peer.AllowedIPs, h.dst) {
			continue
		}
		at := t.keyHolder(peer.PublicKey)
		for _, remote := range t.w.states[at].Peers {
			if t.keyHolder(remote.PublicKey) == h.node && containsAddr(remote.AllowedIPs, h.src) {
				return hop{node: at, iif: remote.Device, packet: h.packet, mid: h.mid}, ""
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

func containsAddr(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}
