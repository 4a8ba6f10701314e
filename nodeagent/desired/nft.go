package desired

import (
	"strconv"
	"strings"

	"hawser.dev/hawser/internal/diff"
)

// TableName is the nftables table (family inet) that is ours as a whole.
const TableName = "hawser"

// Table is the static part of table inet hawser: chains, rules, empty sets and
// maps. It is written in one transaction, and only when its text changes; all
// that moves is an Element.
type Table struct {
	Name string
	MSS4 int // largest TCP segment that crosses a tunnel, bytes
	MSS6 int
	// Connections is how many connections of one pod this gateway keeps at most; 0 = any
	// number. See quota in the rules.
	Connections int
	// Skeleton is the digest of chains, rules and sets. The kind fills it on
	// both sides (converge.Normalizer), as only it knows the rules.
	Skeleton string
	Origin   string
}

// Key is the name.
func (t Table) Key() string { return t.Name }

// Fields gives what decides the rules.
func (t Table) Fields() []diff.Field {
	connections := ""
	if t.Connections > 0 {
		connections = strconv.Itoa(t.Connections)
	}
	return []diff.Field{
		{Name: "mss4", Value: strconv.Itoa(t.MSS4)},
		{Name: "mss6", Value: strconv.Itoa(t.MSS6)},
		{Name: "connections", Value: connections},
		{Name: "skeleton", Value: t.Skeleton},
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

// Fields gives the data.
func (e Element) Fields() []diff.Field { return []diff.Field{{Name: "value", Value: e.Value}} }

// Equal is ==, which a kind's list of thousands cannot be compared with for free.
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
	TypeLink    Type = "link"    // ifname
	TypeVerdict Type = "verdict" // goto a chain
)

// Set declares one set or map; it exists once a family, its name followed by 4 or 6.
type Set struct {
	Name     string
	Doc      string
	Key      []Type
	Data     []Type // empty: a set
	Interval bool   // keys are prefixes
	Prefixes bool   // data are prefixes too (prefix NAT)
	Counter  bool   // each element counts what it matched
	// Dynamic says that there are no Elements of it: rules fill it, from packets, or the
	// kind of WireGuard's peers does.
	Dynamic bool
	// Expires says that its elements have an end.
	Expires bool
}

// Names of the sets.
const (
	SetServices      = "services"
	SetSlots         = "slots"
	SetEcho          = "echo"
	SetOwners        = "owners"
	SetUnmapped      = "unmapped"
	SetEgress        = "egress"
	SetMapped        = "mapped"
	SetShared        = "shared"
	SetReverse       = "reverse"
	SetAmbiguous     = "ambiguous"
	SetKeepSource    = "own"
	SetDirect        = "direct"
	SetRemote        = "remote"
	SetPodBlocks     = "podblocks"
	SetBlocks        = "blocks"
	SetPools         = "pools"
	SetRestricted    = "restricted"
	SetAllowed       = "allowed"
	SetOffers        = "offers"
	SetMultiPod      = "fronts"
	SetNodes         = "nodes"
	SetHairpin       = "hairpin"
	SetTunnels       = "tunnels"
	SetOverlays      = "overlays"
	SetCarry4In      = "carry4in"
	SetCarry6In      = "carry6in"
	SetSent          = "sent"
	SetSplitHorizon4 = "turn4in"
	SetSplitHorizon6 = "turn6in"
	SetNoTrack       = "through"
	SetSiblings      = "siblings"
	SetHomes         = "homes"
	SetServed        = "served"
	SetPods          = "pods"
	SetPeers         = "peers"
	SetErrors        = "errors"
	SetDNS           = "dns"
	SetSelf4         = "self4"
	SetSelf6         = "self6"
	SetVXLAN         = "vxlan"
	SetQuota         = "quota"
	SetFull          = "full"
	SetHeld          = "held"
	SetRates         = "rates"
	SetOldEndpoints  = "former"
	SetMachines      = "machines"
	SetNetworks      = "networks"
	SetConnected     = "connected"
)

// Sets declares all of them. See docs/datapath.md for the rules that use them.
func Sets() []Set {
	address := []Type{TypeAddr}
	service := []Type{TypeAddr, TypeProto, TypePort}
	target := []Type{TypeAddr, TypePort}
	return []Set{
		{Name: SetServices, Doc: "address and port of a VIP or of an export of this cluster: how a backend is picked", Key: service, Data: []Type{TypeVerdict}},
		{Name: SetSlots, Doc: "the same and a slot: the backend", Key: []Type{TypeAddr, TypeProto, TypePort, TypeMark}, Data: target},
		{Name: SetEcho, Doc: "VIP or export address: who answers a ping", Key: address, Data: address},
		{Name: SetOwners, Doc: "global address of one pod: the pod", Key: address, Data: address},
		{Name: SetUnmapped, Doc: "global prefix of mapped pods: their own prefix", Key: address, Data: address, Interval: true, Prefixes: true},
		{Name: SetEgress, Doc: "pod: its own egress address", Key: address, Data: address},
		{Name: SetMapped, Doc: "pod prefix: its global prefix", Key: address, Data: address, Interval: true, Prefixes: true},
		{Name: SetShared, Doc: "slot: one of the cluster's egress addresses", Key: []Type{TypeMark}, Data: address},
		{Name: SetReverse, Doc: "backend: the export that it answers for, for packets that a server sends first", Key: service, Data: target},
		{Name: SetAmbiguous, Doc: "backend that answers for several addresses: what it sends first waits for its client", Key: service},
		{Name: SetKeepSource, Doc: "prefixes of this cluster whose source address is kept (flat)", Key: address, Interval: true},
		{Name: SetDirect, Doc: "prefixes of this cluster that others reach as they are (flat)", Key: address, Interval: true},
		{Name: SetRemote, Doc: "prefixes behind the tunnels", Key: address, Interval: true},
		{Name: SetNetworks, Doc: "addresses of other clusters that on this node belong to a network that the node is connected to", Key: address, Interval: true},
		{Name: SetConnected, Doc: "the same, with the link of the network: packets to and from there are not of other clusters", Key: []Type{TypeAddr, TypeLink}, Interval: true},
		{Name: SetPodBlocks, Doc: "global prefixes of mapped pods: only answers come in", Key: address, Interval: true},
		{Name: SetBlocks, Doc: "global prefixes of this cluster: what comes in translated was sent to them", Key: address, Interval: true},
		{Name: SetPools, Doc: "pools of clusterset IPs: what no backend took is refused", Key: address, Interval: true},
		{Name: SetRestricted, Doc: "export addresses with an allow list", Key: address},
		{Name: SetAllowed, Doc: "source prefix and export address of the allow lists", Key: []Type{TypeAddr, TypeAddr}, Interval: true},
		{Name: SetOffers, Doc: "address, protocol and port of other clusters' exports: who may have been asked", Key: service},
		{Name: SetMultiPod, Doc: "those of them that stand for several pods", Key: address},
		{Name: SetNodes, Doc: "nodes of this cluster: who may send VXLAN", Key: address},
		{Name: SetSiblings, Doc: "other gateways of this cluster: who may send VXLAN with transit traffic", Key: address},
		{Name: SetMachines, Doc: "endpoints that are no pods: what other clusters send there gets the gateway's address", Key: service},
		{Name: SetHairpin, Doc: "local backends, twice: a pod that reaches itself", Key: []Type{TypeAddr, TypeAddr}},
		{Name: SetTunnels, Doc: "this gateway's addresses inside the tunnels", Key: address},
		{Name: SetOverlays, Doc: "ports at which this gateway takes VXLAN from other clusters", Key: []Type{TypePort}},
		{Name: SetCarry4In, Doc: "who may send to such a port, and from which prefix inside (IPv4)", Key: []Type{TypeAddr, TypePort, TypeAddr4}, Interval: true, Counter: true},
		{Name: SetCarry6In, Doc: "the same for IPv6 inside", Key: []Type{TypeAddr, TypePort, TypeAddr6}, Interval: true, Counter: true},
		{Name: SetSent, Doc: "where VXLAN is sent to other clusters", Key: []Type{TypeAddr, TypePort}, Counter: true},
		{Name: SetSplitHorizon4, Doc: "gateway of a neighbour, and what it must not send here (IPv4): it is reached through that neighbour only", Key: []Type{TypeAddr, TypeAddr4}, Interval: true},
		{Name: SetSplitHorizon6, Doc: "the same for IPv6 inside", Key: []Type{TypeAddr, TypeAddr6}, Interval: true},
		{Name: SetHomes, Doc: "last four bytes of a node's hardware address on hw-vx0: the mark that leads to the node", Key: []Type{TypeMark}, Data: []Type{TypeMark}},
		{Name: SetServed, Doc: "UDP backends of this cluster's exports: nothing that nobody asked for comes to them", Key: service},
		{Name: SetPods, Doc: "prefixes of this cluster's pods: who may ask for clusterset IPs and other clusters", Key: address, Interval: true},
		{Name: SetPeers, Doc: "addresses of other clusters' gateways inside the tunnels", Key: address},
		{Name: SetDNS, Doc: "addresses of this node's DNS server", Key: address},
		{Name: SetErrors, Doc: "source of an ICMP error, and the remote end of the flows that it may be about", Key: []Type{TypeAddr, TypeAddr}, Interval: true},
		{Name: SetSelf4, Doc: "each node's address outside, and its own inside (IPv4): no node sends with another's", Key: []Type{TypeAddr, TypeAddr4}},
		{Name: SetSelf6, Doc: "the same for IPv6 inside", Key: []Type{TypeAddr, TypeAddr6}},
		{Name: SetVXLAN, Doc: "where nodes and gateways take VXLAN, and load balancers of this cluster's gateways: nothing is forwarded there", Key: target},
		{Name: SetNoTrack, Doc: "what is passed on without connection tracking", Key: address, Interval: true},
		{Name: SetQuota, Doc: "pod: connections that it has, or one of several, counted by the rules", Key: address, Dynamic: true},
		{Name: SetFull, Doc: "pod that was refused a moment ago, and is without another count", Key: address, Dynamic: true, Expires: true},
		{Name: SetHeld, Doc: "pod that was refused: all that it begins is counted until there is room", Key: address, Dynamic: true, Expires: true},
		{Name: SetRates, Doc: "gateway of another cluster: how fast it sends to this one itself, counted by the rules", Key: address, Dynamic: true},
		{Name: SetOldEndpoints, Doc: "where a gateway of another cluster was reached until a moment ago: nothing comes in from there", Key: target, Dynamic: true, Expires: true},
	}
}

// Slot classes: how many slots the backends of one address share. The hash of
// the caller picks the slot. There is one class for all numbers of backends from
// two on, as at the border between two classes nearly every slot would change
// hands (docs/adr/0005-slots.md).
const (
	SlotsOne  = 1
	SlotsMany = 1024 // up to 128 backends get a share close to their weight
)

// SharedSlots is the number of slots of SetShared.
const SharedSlots = 64

// PickChain names the chain (without family digit) that picks among slots, by
// the caller's address and port, or by its address alone (session affinity).
func PickChain(slots int, affinity bool) string {
	switch {
	case slots == SlotsOne:
		return "pick_one"
	case affinity:
		return "pick_many_client"
	}
	return "pick_many"
}

// ForeignRuleText describes routing rules of other programs that take packets from pods to
// other clusters before Hawser's rules.
func ForeignRuleText(rules []string) string {
	shown, more := rules, ""
	if len(rules) > 3 {
		shown, more = rules[:3], " and "+strconv.Itoa(len(rules)-3)+" more"
	}
	return "routing rules of another program come before Hawser's rule 7300 and take packets for other clusters: " +
		strings.Join(shown, ", ") + more + "; have that program leave out the clusterset's prefixes, or give its rules a priority above 7365"
}

// Drop is why table inet hawser drops packets. Each has a chain, which counts them.
type Drop struct {
	Reason string
	Doc    string // what was dropped, for people
	Do     string // what to do about it when it should have passed
}

// Reasons of drops.
const (
	DropUnknownSource = "stranger"
	DropTunnel        = "tunnel"
	DropVXLAN         = "vxlan"
	DropOverlay       = "overlay"
	DropUnoffered     = "unoffered"
	DropExcluded      = "excluded"
	DropUnsolicited   = "unasked"
	DropTransit       = "transit"
	DropLeak          = "leak"
	DropQuota         = "quota"
	DropFlood         = "flood"
	DropOldEndpoint   = "former"
	DropError         = "error"
	DropResolver      = "resolver"
	DropConnected     = "connected"
)

// Drops gives all of them.
func Drops() []Drop {
	return []Drop{
		{DropUnknownSource, "from an address that is no pod's of this cluster, for another cluster or a clusterset IP",
			"put the prefix into the cluster's podCIDRs if pods have it; other hosts reach other clusters by a load balancer or a proxy in the cluster"},
		{DropTunnel, "for a gateway's address inside the tunnels, from somebody else than a gateway",
			"nothing but gateways is answered there"},
		{DropVXLAN, "VXLAN of the cluster's own nodes or gateways (UDP 4803, and the port of driver vxlan), from or for somebody who is none, or for a gateway's load balancer that kube-proxy does not know yet",
			"nodes are known by their addresses: hawser-agent status on both nodes names those that are not known"},
		{DropOverlay, "VXLAN of another cluster, from an address that is none of its gateways', or with a source that is none of its own",
			"endpoints of the gateways in the topology are where their packets come from"},
		{DropUnoffered, "out of a tunnel, for what this cluster offers to nobody", "exports of the topology say what is offered"},
		{DropExcluded, "between a cluster and an export whose allow list does not name it, requests and answers alike", "exports[].allow of the topology says who may"},
		{DropUnsolicited, "out of a tunnel, for a pod that nobody can reach unless it asked", "export the service, or have the pod ask first"},
		{DropTransit, "out of a tunnel, into another one", "clusters pass on for others where the topology's shape says so"},
		{DropLeak, "for another cluster, by a link that is no tunnel", "hawser-agent status lists links that are down; if the link is up, a routing rule of another program comes before rule 7300: ip rule"},
		{DropQuota, "a new connection of a pod that has as many through this gateway as the topology allows",
			"find out why the pod opens so many connections (conntrack -L -s its address, on the gateway); limits.connections of the topology allows more"},
		{DropFlood, "from another cluster's gateway for this one itself, faster than probes come",
			"that gateway floods this one, and its links may seem dead: find out what sends there, or take its cluster out of the topology"},
		{DropError, "an ICMP error out of a tunnel, from a cluster that is neither at the other end of the flow nor on the path there",
			"nothing: no router on the path sends such an error, so find out which cluster does"},
		{DropResolver, "for this node's DNS server, from an address that is no pod's or node's of this cluster",
			"put the prefix into the cluster's podCIDRs if pods have it; other hosts ask the cluster's own DNS"},
		{DropConnected, "out of a tunnel, from an address of another cluster that on this node belongs to a network that the node is connected to",
			"hawser-agent status names the network (connected-network): use other addresses for the network or the cluster"},
		{DropOldEndpoint, "WireGuard from the endpoint at which a gateway was reached until a second ago: such a packet would take the link back there",
			"nothing: it was on its way when the link went to another endpoint"},
	}
}

// DropPrefix begins the names of the chains that drop.
const DropPrefix = "drop_"

// Chain names the chain that counts and drops.
func (d Drop) Chain() string { return DropPrefix + d.Reason }
