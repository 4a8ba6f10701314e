// Package sniff captures on the lab's underlay and finds forbidden frames: packets between
// clusters outside their tunnels.
package sniff

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"hawser.dev/hawser/nodeagent/desired"
)

// Rules describes the packets allowed on an underlay.
type Rules struct {
	// Endpoints are the gateways' addresses in the wide area. Ports are the first and the last
	// UDP port of their tunnels.
	Endpoints map[netip.Addr]bool
	Ports     [2]uint16
	// Inside are the prefixes of the nodes, pods and services of a cluster.
	Inside []netip.Prefix
	// Nodes are the networks of the nodes. Any content is allowed inside VXLAN between them,
	// to the port VXLAN.
	Nodes []netip.Prefix
	VXLAN uint16
	// Pods are the prefixes of the pods of a cluster. Global are the global prefixes by cluster.
	Pods   []netip.Prefix
	Global map[string][]netip.Prefix
	// Direct are the nodes of clusters with nodeNetwork: auto, by hardware address.
	Direct map[HardwareAddr]DirectNode
	// Mark is part of every watched payload. It must not appear in clear in the wide area.
	Mark []byte
}

// HardwareAddr is the hardware address of a node on its cluster's network.
type HardwareAddr [6]byte

// DirectNode is a node that may exchange packets of other clusters without VXLAN: a gateway with
// the workers of its cluster.
type DirectNode struct {
	Cluster string
	Gateway bool
	Worker  bool // it may be both at different times
}

// Ethernet and IP protocol numbers (IANA).
const (
	etherIPv4 = 0x0800
	etherARP  = 0x0806
	etherIPv6 = 0x86dd

	protoICMP   = 1
	protoIGMP   = 2
	protoTCP    = 6
	protoUDP    = 17
	protoICMPv6 = 58
)

// packet holds the parsed fields of a frame.
type packet struct {
	src, dst netip.Addr
	proto    byte
	fragment bool // not the first fragment: it has no ports
	rest     []byte
}

func (p packet) String() string { return fmt.Sprintf("%s > %s proto %d", p.src, p.dst, p.proto) }

// WAN returns the problem of a frame in the wide area, or an empty string.
func (r Rules) WAN(frame []byte) string {
	if len(r.Mark) > 0 && bytes.Contains(frame, r.Mark) {
		return "payload in clear: " + Describe(frame)
	}
	p, done, wrong := r.parse(frame)
	if done {
		return wrong
	}
	if r.tunnel(p) {
		return ""
	}
	if r.refusal(p) {
		return ""
	}
	return "not a tunnel's packet: " + Describe(frame)
}

// refusal reports whether a packet is a gateway's ICMP error about a tunnel's packet, as sent
// while its tunnel is down.
func (r Rules) refusal(p packet) bool {
	if !r.Endpoints[p.dst] || len(p.rest) <= 8 || !p.unreachable() {
		return false
	}
	quoted, ok := parseIP(p.rest[8:])
	return ok && r.ports(quoted)
}

// unreachable reports whether p is an ICMP error about an undelivered packet, including
// IPv6's separate message for too long packets (RFC 4443).
func (p packet) unreachable() bool {
	switch {
	case p.fragment || len(p.rest) == 0:
		return false
	case p.proto == protoICMP:
		return p.rest[0] == 3
	}
	return p.proto == protoICMPv6 && (p.rest[0] == 1 || p.rest[0] == 2)
}

// failure reports whether p is an ICMP error: unreachable, or time exceeded.
func (p packet) failure() bool {
	const expired4, expired6 = 11, 3
	return p.unreachable() || len(p.rest) > 0 && !p.fragment &&
		(p.proto == protoICMP && p.rest[0] == expired4 || p.proto == protoICMPv6 && p.rest[0] == expired6)
}

// tunnel reports whether p is WireGuard between two gateways: its ports, and its
// message types 1 to 4 with three zero bytes (the protocol's section 5.4).
func (r Rules) tunnel(p packet) bool {
	if !r.ports(p) {
		return false
	}
	if p.fragment || len(p.rest) < 8 {
		return p.fragment
	}
	body := p.rest[8:]
	return len(body) >= 4 && body[0] >= 1 && body[0] <= 4 && body[1] == 0 && body[2] == 0 && body[3] == 0
}

func (r Rules) ports(p packet) bool {
	if p.proto != protoUDP || !r.Endpoints[p.src] || !r.Endpoints[p.dst] {
		return false
	}
	if p.fragment {
		return true
	}
	if len(p.rest) < 4 {
		return false
	}
	// One of the two ports is enough. A tunnel process may be frozen before the agent sets its
	// port. After the thaw it may process the agent's commands in another order, with a peer
	// first.
	return r.port(binary.BigEndian.Uint16(p.rest)) || r.port(binary.BigEndian.Uint16(p.rest[2:]))
}

func (r Rules) port(n uint16) bool { return n >= r.Ports[0] && n <= r.Ports[1] }

// LAN returns the problem of a frame in a cluster's own network, or an empty string.
func (r Rules) LAN(frame []byte) string {
	p, done, wrong := r.parse(frame)
	if done {
		return wrong
	}
	if p.proto == protoUDP && contains(r.Nodes, p.src) && contains(r.Nodes, p.dst) && len(p.rest) >= 4 &&
		binary.BigEndian.Uint16(p.rest[2:]) == r.VXLAN {
		return ""
	}
	if p.dst.IsMulticast() && p.proto == protoIGMP {
		return ""
	}
	if contains(r.Inside, p.src) && contains(r.Inside, p.dst) {
		return ""
	}
	if r.direct(frame, p) {
		return ""
	}
	// A booting node has no routes to the wide area yet.
	if r.refusal(p) {
		return ""
	}
	return "leaves the cluster in clear: " + Describe(frame)
}

// direct reports whether a frame is a direct packet between a gateway and another node of its
// cluster. The packet is from a pod to another cluster or back, or an ICMP error of such a flow.
// The error's source may be a node or a gateway's tunnel address.
func (r Rules) direct(frame []byte, p packet) bool {
	to, known := r.Direct[HardwareAddr(frame[:6])]
	from, ok := r.Direct[HardwareAddr(frame[6:12])]
	if !known || !ok || from.Cluster != to.Cluster {
		return false
	}
	foreign := r.remote(from.Cluster, p.src)
	switch {
	case from.Gateway && to.Worker && contains(r.Pods, p.dst):
		return foreign || p.failure()
	case from.Gateway && to.Worker && contains(r.Nodes, p.dst):
		return foreign && p.test()
	case from.Worker && to.Gateway && r.remote(from.Cluster, p.dst):
		return contains(r.Pods, p.src) || contains(r.Nodes, p.src) && p.failure()
	}
	return false
}

// test reports whether p is a test packet, which a node sends itself over a gateway.
func (p packet) test() bool {
	return p.proto == protoUDP && !p.fragment && len(p.rest) >= 4 && binary.BigEndian.Uint16(p.rest[2:]) == desired.ProbePort
}

// remote reports whether addr is a global address of another cluster.
func (r Rules) remote(cluster string, addr netip.Addr) bool {
	for name, prefixes := range r.Global {
		if name != cluster && contains(prefixes, addr) {
			return true
		}
	}
	return false
}

func contains(list []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// parse parses a frame and applies the common rules: ARP and neighbour discovery are allowed,
// other non-IP frames are not. done reports whether the frame needs no further check.
func (r Rules) parse(frame []byte) (p packet, done bool, wrong string) {
	if len(frame) < 14 {
		return p, true, fmt.Sprintf("a frame of %d bytes", len(frame))
	}
	kind := binary.BigEndian.Uint16(frame[12:])
	if kind == etherARP || kind == etherIPv6 && isNeighborDiscovery(frame[14:]) {
		return p, true, ""
	}
	if p, ok := parseFrame(frame); ok {
		return p, false, ""
	}
	return p, true, "unknown: " + Describe(frame)
}

// isNeighborDiscovery reports whether a packet is neighbour discovery or multicast listener
// discovery (RFC 4861, RFC 3810), which an idle IPv6 link sends.
func isNeighborDiscovery(b []byte) bool {
	if len(b) < 40 {
		return false
	}
	next, rest := b[6], b[40:]
	if next == 0 && len(rest) >= 8 { // hop-by-hop options
		next, rest = rest[0], rest[min(8+int(rest[1])*8, len(rest)):]
	}
	if next != protoICMPv6 || len(rest) == 0 {
		return false
	}
	return rest[0] >= 130 && rest[0] <= 137 || rest[0] == 143
}

func parseIPv4(b []byte) (packet, bool) {
	if len(b) < 20 || b[0]>>4 != 4 {
		return packet{}, false
	}
	size := int(b[0]&15) * 4
	if size < 20 || len(b) < size {
		return packet{}, false
	}
	p := packet{proto: b[9], fragment: binary.BigEndian.Uint16(b[6:])&0x1fff != 0, rest: b[size:]}
	p.src, _ = netip.AddrFromSlice(b[12:16])
	p.dst, _ = netip.AddrFromSlice(b[16:20])
	return p, true
}

// Extension headers of IPv6 (IANA). All except the fragment header start with the same fields.
const (
	extHopByHop    = 0
	extRouting     = 43
	extFragment    = 44
	extDestination = 60
)

func parseIPv6(b []byte) (packet, bool) {
	if len(b) < 40 || b[0]>>4 != 6 {
		return packet{}, false
	}
	p := packet{proto: b[6], rest: b[40:]}
	p.src, _ = netip.AddrFromSlice(b[8:24])
	p.dst, _ = netip.AddrFromSlice(b[24:40])
	for p.proto == extHopByHop || p.proto == extRouting || p.proto == extFragment || p.proto == extDestination {
		if len(p.rest) < 8 {
			return packet{}, false
		}
		size := 8
		if p.proto == extFragment {
			p.fragment = binary.BigEndian.Uint16(p.rest[2:])&^7 != 0
		} else {
			size += int(p.rest[1]) * 8
		}
		p.proto, p.rest = p.rest[0], p.rest[min(size, len(p.rest)):]
		if p.fragment {
			break // the rest is from the middle of a packet
		}
	}
	return p, true
}

// parseIP parses a packet of either family.
func parseIP(b []byte) (packet, bool) {
	if len(b) > 0 && b[0]>>4 == 6 {
		return parseIPv6(b)
	}
	return parseIPv4(b)
}

// parseFrame parses the packet in a frame.
func parseFrame(frame []byte) (packet, bool) {
	if len(frame) < 14 {
		return packet{}, false
	}
	switch binary.BigEndian.Uint16(frame[12:]) {
	case etherIPv4:
		return parseIPv4(frame[14:])
	case etherIPv6:
		return parseIPv6(frame[14:])
	}
	return packet{}, false
}
