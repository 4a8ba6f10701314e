package desired

import (
	"strconv"
	"strings"

	"hawser.dev/hawser/internal/diff"
)

// TableName is the nftables table (family inet) that Hawser owns as a whole.
const TableName = "hawser"

// Table is the static part of table inet hawser: chains, rules, empty sets and maps. It is
// written in one transaction, and only if its text changes. Everything that changes often is an
// Element.
type Table struct {
	Name string
	MSS4 int // largest TCP segment that crosses a tunnel, bytes
	MSS6 int
	// Connections is the maximum number of connections of one pod through this gateway; 0 =
	// unlimited. See SetQuota.
	Connections int
	// Digest is the digest of chains, rules and sets. Only the converge kind knows the rules,
	// so it sets Digest in the desired and the observed table (converge.Normalizer).
	Digest string
	Origin string
}

// Key is the name.
func (t Table) Key() string { return t.Name }

// Fields returns the inputs of the rules.
func (t Table) Fields() []diff.Field {
	connections := ""
	if t.Connections > 0 {
		connections = strconv.Itoa(t.Connections)
	}
	return []diff.Field{
		{Name: "mss4", Value: strconv.Itoa(t.MSS4)},
		{Name: "mss6", Value: strconv.Itoa(t.MSS6)},
		{Name: "connections", Value: connections},
		{Name: "digest", Value: t.Digest},
	}
}

// Element is one element of a set or map of table inet hawser, in the notation
// of nft(8): parts joined with " . ", protocols by name (tcp, udp), ports and
// marks in decimal, prefixes as address/length (a single address without it).
type Element struct {
	Set    string // a name of Sets
	Family int    // 4 or 6
	ID     string // the key
	Value  string // maps: the data; verdict maps: the chain to go to
	Origin string
}

// Key is set, family and key.
func (e Element) Key() string { return e.Set + strconv.Itoa(e.Family) + " " + e.ID }

// Fields returns the data.
func (e Element) Fields() []diff.Field { return []diff.Field{{Name: "value", Value: e.Value}} }

// Equal reports whether the elements are identical. A set can have thousands of elements, so the
// kind compares them without Fields.
func (e Element) Equal(other Element) bool { return e == other }

// Type is the type of one part of a set's key or data.
type Type string

// Types of parts.
const (
	TypeAddr    Type = "addr"    // ipv4_addr or ipv6_addr
	TypeAddr4   Type = "addr4"   // ipv4_addr, in sets of both families
	TypeAddr6   Type = "addr6"   // ipv6_addr, in sets of both families
	TypeProto   Type = "proto"   // inet_proto
	TypePort    Type = "port"    // inet_service
	TypeMark    Type = "mark"    // mark
	TypeIfname  Type = "ifname"  // ifname
	TypeVerdict Type = "verdict" // goto a chain
)

// Set declares one set or map. It exists once per family, with 4 or 6 appended to its name.
type Set struct {
	Name     string
	Doc      string
	Key      []Type
	Data     []Type // empty for a set
	Interval bool   // keys are prefixes
	Prefixes bool   // the data are prefixes, too (prefix NAT)
	Counter  bool   // each element counts its packets
	// Dynamic is true if package projection creates no Elements of the set: nftables rules or
	// the kind of WireGuard peers add them.
	Dynamic bool
	// Expires is true if its elements have a timeout.
	Expires bool
}

// Names of the sets.
const (
	SetServices          = "services"
	SetSlots             = "slots"
	SetICMPEcho          = "icmp_echo"
	SetOwners            = "owners"
	SetUnmapped          = "unmapped"
	SetEgress            = "egress"
	SetMapped            = "mapped"
	SetShared            = "shared"
	SetReverse           = "reverse"
	SetAmbiguous         = "ambiguous"
	SetKeepSource        = "keep_source"
	SetDirect            = "direct"
	SetRemote            = "remote"
	SetPodBlocks         = "podblocks"
	SetBlocks            = "blocks"
	SetPools             = "pools"
	SetRestricted        = "restricted"
	SetAllowed           = "allowed"
	SetRemoteExports     = "remote_exports"
	SetMultiPod          = "multi_pod"
	SetNodes             = "nodes"
	SetHairpin           = "hairpin"
	SetTunnels           = "tunnels"
	SetOverlays          = "overlays"
	SetSources4In        = "sources4in"
	SetSources6In        = "sources6in"
	SetSent              = "sent"
	SetSplitHorizon4     = "split_horizon4in"
	SetSplitHorizon6     = "split_horizon6in"
	SetNoTrack           = "notrack"
	SetSiblings          = "siblings"
	SetNodeMarks         = "node_marks"
	SetServed            = "served"
	SetPods              = "pods"
	SetPeers             = "peers"
	SetErrors            = "errors"
	SetDNS               = "dns"
	SetSelf4             = "self4"
	SetSelf6             = "self6"
	SetVXLAN             = "vxlan"
	SetQuota             = "quota"
	SetOverQuota         = "over_quota"
	SetCountAll          = "count_all"
	SetRates             = "rates"
	SetOldEndpoints      = "old_endpoints"
	SetExternalEndpoints = "external_endpoints"
	SetNetworks          = "networks"
	SetConnected         = "connected"
	SetSenders           = "senders"
	SetGatewayHops       = "gateway_hops"
	SetNodeHops          = "node_hops"
)

// Sets returns all sets. docs/datapath.md describes the rules that use them.
func Sets() []Set {
	address := []Type{TypeAddr}
	service := []Type{TypeAddr, TypeProto, TypePort}
	target := []Type{TypeAddr, TypePort}
	return []Set{
		{Name: SetServices, Doc: "address and port of a VIP or of an export of this cluster: the verdict that picks a backend", Key: service, Data: []Type{TypeVerdict}},
		{Name: SetSlots, Doc: "address and port as in services, and a slot: the backend", Key: []Type{TypeAddr, TypeProto, TypePort, TypeMark}, Data: target},
		{Name: SetICMPEcho, Doc: "VIP or export address: the address that answers a ping", Key: address, Data: address},
		{Name: SetOwners, Doc: "global address of one pod: the pod", Key: address, Data: address},
		{Name: SetUnmapped, Doc: "global prefix of mapped pods: their own prefix", Key: address, Data: address, Interval: true, Prefixes: true},
		{Name: SetEgress, Doc: "pod: its own egress address", Key: address, Data: address},
		{Name: SetMapped, Doc: "pod prefix: its global prefix", Key: address, Data: address, Interval: true, Prefixes: true},
		{Name: SetShared, Doc: "slot: one of the cluster's egress addresses", Key: []Type{TypeMark}, Data: address},
		{Name: SetReverse, Doc: "backend: the export address of its replies, for packets that a server sends first", Key: service, Data: target},
		{Name: SetAmbiguous, Doc: "backend that answers for several addresses: packets that it sends first wait for its client", Key: service},
		{Name: SetKeepSource, Doc: "prefixes of this cluster whose source address is kept (flat)", Key: address, Interval: true},
		{Name: SetDirect, Doc: "prefixes of this cluster that other clusters reach without translation (flat)", Key: address, Interval: true},
		{Name: SetRemote, Doc: "prefixes behind the tunnels; the packets to each are counted", Key: address, Interval: true, Counter: true},
		{Name: SetNetworks, Doc: "addresses of other clusters that on this node belong to a network that the node is connected to", Key: address, Interval: true},
		{Name: SetConnected, Doc: "such an address and the device of its network: packets to and from there do not belong to other clusters", Key: []Type{TypeAddr, TypeIfname}, Interval: true},
		{Name: SetPodBlocks, Doc: "global prefixes of mapped pods: only replies come in", Key: address, Interval: true},
		{Name: SetBlocks, Doc: "global prefixes of this cluster: the original destination of translated packets", Key: address, Interval: true},
		{Name: SetPools, Doc: "pools of clusterset IPs: packets without a backend are rejected", Key: address, Interval: true},
		{Name: SetRestricted, Doc: "export addresses with an allow list", Key: address},
		{Name: SetAllowed, Doc: "source prefix and export address of the allow lists", Key: []Type{TypeAddr, TypeAddr}, Interval: true},
		{Name: SetRemoteExports, Doc: "address, protocol and port of other clusters' exports: servers that may reply", Key: service},
		{Name: SetMultiPod, Doc: "addresses of such exports that represent several pods", Key: address},
		{Name: SetNodes, Doc: "nodes of this cluster, which may send VXLAN", Key: address},
		{Name: SetSiblings, Doc: "other gateways of this cluster, which may send VXLAN with transit traffic", Key: address},
		{Name: SetExternalEndpoints, Doc: "endpoints outside pods: traffic from other clusters is sent with the gateway's address", Key: service},
		{Name: SetSenders, Doc: "last four bytes of the hardware address of a node that may hand over packets without VXLAN, and the device: the same bytes of its address on hw-vx0", Key: []Type{TypeMark, TypeIfname}, Data: []Type{TypeMark}},
		{Name: SetGatewayHops, Doc: "gateways of this cluster that get packets without VXLAN, with the device to them", Key: []Type{TypeAddr, TypeIfname}},
		{Name: SetNodeHops, Doc: "other nodes that get packets without VXLAN, with the device to them", Key: []Type{TypeAddr, TypeIfname}},
		{Name: SetHairpin, Doc: "a local backend as source and destination: a pod that reaches itself", Key: []Type{TypeAddr, TypeAddr}},
		{Name: SetTunnels, Doc: "this gateway's addresses inside the tunnels", Key: address},
		{Name: SetOverlays, Doc: "ports where this gateway receives VXLAN from other clusters", Key: []Type{TypePort}},
		{Name: SetSources4In, Doc: "outer source, such a port, and the inner source prefix (IPv4)", Key: []Type{TypeAddr, TypePort, TypeAddr4}, Interval: true, Counter: true},
		{Name: SetSources6In, Doc: "the same for IPv6 inside", Key: []Type{TypeAddr, TypePort, TypeAddr6}, Interval: true, Counter: true},
		{Name: SetSent, Doc: "destinations of VXLAN to other clusters", Key: []Type{TypeAddr, TypePort}, Counter: true},
		{Name: SetSplitHorizon4, Doc: "gateway of a neighbouring cluster, and destinations that it must not send here (IPv4): this cluster reaches them only through that cluster", Key: []Type{TypeAddr, TypeAddr4}, Interval: true},
		{Name: SetSplitHorizon6, Doc: "the same for IPv6 inside", Key: []Type{TypeAddr, TypeAddr6}, Interval: true},
		{Name: SetNodeMarks, Doc: "last four bytes of a node's hardware address on hw-vx0: the mark that leads to the node", Key: []Type{TypeMark}, Data: []Type{TypeMark}},
		{Name: SetServed, Doc: "UDP backends of this cluster's exports: they receive no unsolicited packets", Key: service},
		{Name: SetPods, Doc: "prefixes of this cluster's pods, which may reach clusterset IPs and other clusters", Key: address, Interval: true},
		{Name: SetPeers, Doc: "addresses of other clusters' gateways inside the tunnels", Key: address},
		{Name: SetDNS, Doc: "addresses of this node's DNS server", Key: address},
		{Name: SetErrors, Doc: "source of an ICMP error, and the remote end of the flows that it may be about", Key: []Type{TypeAddr, TypeAddr}, Interval: true},
		{Name: SetSelf4, Doc: "each node's outer address and its own inner address (IPv4): no node can use another node's source", Key: []Type{TypeAddr, TypeAddr4}},
		{Name: SetSelf6, Doc: "the same for IPv6 inside", Key: []Type{TypeAddr, TypeAddr6}},
		{Name: SetVXLAN, Doc: "where nodes and gateways receive VXLAN, and load balancers of this cluster's gateways: nothing is forwarded there", Key: target},
		{Name: SetNoTrack, Doc: "prefixes that are forwarded without connection tracking", Key: address, Interval: true},
		{Name: SetQuota, Doc: "pod: its connections, or a part of them, counted by the rules", Key: address, Dynamic: true},
		{Name: SetOverQuota, Doc: "pod that was refused recently and has no other count", Key: address, Dynamic: true, Expires: true},
		{Name: SetCountAll, Doc: "pod that was refused: all its new connections are counted until it is below the limit", Key: address, Dynamic: true, Expires: true},
		{Name: SetRates, Doc: "gateway of another cluster: its packet rate to this gateway's own addresses, counted by the rules", Key: address, Dynamic: true},
		{Name: SetOldEndpoints, Doc: "previous endpoint of a remote gateway: its packets are dropped for a moment", Key: target, Dynamic: true, Expires: true},
	}
}

// Slot classes: the number of slots that the backends of one address share. The hash of the client
// picks the slot. Two or more backends always use the same class: a change of class would change
// the backend of nearly every slot (docs/adr/0005-slots.md).
const (
	SlotsOne  = 1
	SlotsMany = 1024 // up to 128 backends get a share close to their weight
)

// SharedSlots is the number of slots of SetShared.
const SharedSlots = 64

// PickChain returns the name of the chain that picks a slot, without the family digit. The chain
// hashes the client's address and port, or its address alone (session affinity).
func PickChain(slots int, affinity bool) string {
	switch {
	case slots == SlotsOne:
		return "pick_one"
	case affinity:
		return "pick_many_client"
	}
	return "pick_many"
}

// ForeignRuleText returns the message about other programs' routing rules that match packets from
// pods to other clusters before Hawser's rules.
func ForeignRuleText(rules []string) string {
	shown, more := rules, ""
	if len(rules) > 3 {
		shown, more = rules[:3], " and "+strconv.Itoa(len(rules)-3)+" more"
	}
	return "routing rules of another program come before Hawser's rule 7300 and take packets for other clusters: " +
		strings.Join(shown, ", ") + more + "; have that program leave out the clusterset's prefixes, or give its rules a priority above 7365"
}

// Drop is one reason why table inet hawser drops packets. Each reason has a chain that counts its
// packets.
type Drop struct {
	Reason string
	Doc    string // description of the dropped packets, for users
	Do     string // remedy if the packet should have passed
}

// Reasons of drops.
const (
	DropUnknownSource = "unknown_source"
	DropTunnel        = "tunnel"
	DropVXLAN         = "vxlan"
	DropOverlay       = "overlay"
	DropNotExported   = "not_exported"
	DropNotAllowed    = "not_allowed"
	DropUnsolicited   = "unsolicited"
	DropTransit       = "transit"
	DropLeak          = "leak"
	DropQuota         = "quota"
	DropFlood         = "flood"
	DropOldEndpoint   = "old_endpoint"
	DropError         = "error"
	DropResolver      = "resolver"
	DropConnected     = "connected"
)

// Drops returns all reasons.
func Drops() []Drop {
	return []Drop{
		{DropUnknownSource, "from an address outside this cluster's pods, for another cluster or a clusterset IP",
			"put the prefix into the cluster's podCIDRs if pods have it; other hosts reach other clusters by a load balancer or a proxy in the cluster"},
		{DropTunnel, "for a gateway's address inside the tunnels, not from a gateway",
			"only gateways may send there"},
		{DropVXLAN, "VXLAN of the cluster's own nodes or gateways (UDP 4803, and the port of driver vxlan), from or to another host, or for a gateway's load balancer that kube-proxy does not know yet",
			"nodes are known by their addresses: hawser-agent status on both nodes names the unknown ones"},
		{DropOverlay, "VXLAN of another cluster, not from an address of its gateways, or with an inner source outside that cluster",
			"endpoints of the gateways in the topology are where their packets come from"},
		{DropNotExported, "out of a tunnel, for a destination that this cluster does not export", "exports of the topology list the exports"},
		{DropNotAllowed, "between a cluster and an export whose allow list does not name it, requests and replies", "exports[].allow of the topology lists the permitted clusters"},
		{DropUnsolicited, "out of a tunnel, for a pod that did not open the connection and is not exported", "export the service, or let the pod open the connection"},
		{DropTransit, "out of a tunnel, into another tunnel", "clusters forward transit traffic only if the topology's shape says so"},
		{DropLeak, "for another cluster, through a device that is not a tunnel", "hawser-agent status lists links that are down; if the link is up, a routing rule of another program comes before rule 7300: ip rule"},
		{DropQuota, "a new connection of a pod that reached its quota through this gateway",
			"find out why the pod opens so many connections (conntrack -L -s its address, on the gateway); limits.connections of the topology allows more"},
		{DropFlood, "from another cluster's gateway to this gateway itself, faster than probes",
			"that gateway floods this one, and its links may seem dead: find out what sends there, or take its cluster out of the topology"},
		{DropError, "an ICMP error out of a tunnel, from a cluster that is neither the flow's peer nor on the path to it",
			"no router on the path sends such an error: find out which cluster does"},
		{DropResolver, "for this node's DNS server, from an address outside this cluster's pods and nodes",
			"put the prefix into the cluster's podCIDRs if pods have it; other hosts use the cluster's own DNS"},
		{DropConnected, "out of a tunnel, from an address of another cluster that overlaps a network of this node",
			"hawser-agent status names the network (connected-network): use other addresses for the network or the cluster"},
		{DropOldEndpoint, "WireGuard from an endpoint that a gateway left less than a second ago: such a packet would move the link back",
			"nothing: it was in flight when the link moved to another endpoint"},
	}
}

// DropPrefix starts the names of the chains that drop.
const DropPrefix = "drop_"

// Chain returns the name of the chain that counts and drops.
func (d Drop) Chain() string { return DropPrefix + d.Reason }
