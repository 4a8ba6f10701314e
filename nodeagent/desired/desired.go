// Package desired holds the types of everything that a node should have: the
// kernel objects, the userspace tunnel and the DNS data. Project fills them,
// the converge kinds compare them with what is. They are data only.
package desired

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"strconv"
	"strings"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/schema/fabric"
)

// Names, numbers and marks by which Hawser finds its own objects again.
const (
	DevicePrefix  = "hw-"    // every link of ours starts with it
	LinkAlias     = "hawser" // and carries this alias
	TunnelPrefix  = "hw-wg"  // WireGuard devices; the key epoch follows, and behind it -lane but for lane 0, or -p and the port
	VXLANPrefix   = "hw-vt"  // VXLAN to other clusters; the outer family and -port follow
	NodePrefix    = "hw-vx"  // links inside the cluster; all others of ours are tunnels
	NodeDevice    = "hw-vx0" // VXLAN between the nodes of one cluster
	TransitPrefix = "hw-tr"  // VXLAN through the tunnels, for what clusters pass on to each other; the outer family and -port follow
	SiblingDevice = "hw-vx1" // VXLAN between the gateways of one cluster, for the same

	RouteProtocol   = 73   // routes and rules
	TableOut        = 7300 // routes to remote clusters
	TableIn         = 7301 // routes of packets that came out of a tunnel, here or at another gateway
	TableGateway    = 7302 // a gateway's own links, for what other nodes hand to it
	TableIPsec      = 7303 // VXLAN to remote gateways, which IPsec encrypts
	RuleIPsec       = 7297 // priority of the rule of TableIPsec
	TableBound      = 7304 // IPv6 of nodes of this cluster, for sockets bound to NodeLink
	RuleBound       = 7296 // priority of the rule of TableBound
	TableTransit    = 7305 // routes of what came over PassPrefix: passed on, or handed to another gateway
	TableSibling    = 7306 // routes of what came over MateLink: passed on
	TableFeed       = 7307 // feeds of neighbours that are reached through others
	RuleFeed        = 7290 // priorities of the rules of TableFeed: to FeedPort, and from it one behind
	RuleMate        = 7292
	RuleTransit     = 7294       // and the one before
	RuleGateway     = 7299       // priority of the rule of TableTransit
	RulePriority    = 7300       // of the rule of TableOut; those of the WireGuard devices at the gateway's own port follow
	RuleTunnel      = 7365       // of the rules of all other tunnels, and of what other gateways send on
	RuleReturn      = 7289       // priority of the rules that lead what came out of a tunnel, or from another gateway, home: the node that its flow came from
	RuleHomes       = 33000      // the first of the rules by which the node is found, behind all others: nothing comes here but from RuleHome
	RuleHomesEnd    = 33280      // the last of them, for a node that is not known (any more)
	TableReturnBase = 7400       // routes to nodes that handed over flows, a table for each node; its number follows
	MaxReturnNodes  = 4095       // nodes
	TableMain       = 254        // the kernel's main table
	MarkHome        = 0x70000000 // in the bits of MaskHome: the packet goes home by the rules from RuleHomes on; see HomeMark
	MaskHome        = 0xf0000000
	MetricTunnel    = 7300 // of routes over tunnels beside the one in use; what follows tells them apart

	VXLANPort = 4803 // UDP, between nodes of one cluster
	VXLANID   = 73
	// VXLANTunnelID is the VNI between gateways of different clusters.
	VXLANTunnelID = 74
	TransitVNI    = 75   // VNI of what clusters pass on
	TransitPort   = 4809 // UDP, the same on tunnel addresses
	ProbePort     = 4804 // UDP, messages about links (package wire) on tunnel addresses and over NodeLink
	FeedPort      = 4805 // TCP, peer feed on tunnel addresses and over NodeLink
	IPsecPort     = 4807 // UDP, VXLAN on tunnel addresses, inside ESP only
)

// State is everything that one node should have.
type State struct {
	Sysctls    []Sysctl
	Links      []Device
	Wireguards []Wireguard
	Peers      []Peer
	IPsecs     []IPsec
	Addresses  []Address
	Neighbours []Neighbour
	Forwards   []Forward
	Rules      []Rule
	Routes     []Route
	Tables     []Table
	Elements   []Element
	Services   []Service // DNS
	Zones      []Zone    // DNS
	Tunnels    []Tunnel  // how the objects above lead to other gateways; by cluster, gateway and preference
}

// Sysctl is one kernel setting under /proc/sys. The kind remembers the value
// that it found, and cleanup restores it.
type Sysctl struct {
	Name   string // slashes, as below /proc/sys: net/ipv4/ip_forward
	Value  string
	Origin string
}

// Key is the name.
func (s Sysctl) Key() string { return s.Name }

// Fields gives the value.
func (s Sysctl) Fields() []diff.Field { return []diff.Field{{Name: "value", Value: s.Value}} }

// Types of Link.
const (
	LinkVXLAN     = "vxlan"
	LinkWireguard = "wireguard" // the kernel's, or a TUN device held by our own wireguard process
	LinkIPsec     = "ipsec"     // an xfrm interface, or the TUN device of our own charon; always IPsecLink
)

// Device is one network device.
type Device struct {
	Name string
	Type string
	MTU  int
	Up   bool
	MAC  string // VXLAN only; a device of a tunnel has none
	VNI  int    // VXLAN
	Port int    // VXLAN: UDP; IPsec: that of IKE behind NAT and of ESP in UDP
	// IKEPort is IPsec's other UDP port.
	IKEPort int
	// Local is, of a VXLAN, the source of the outer packets: the node's own address,
	// or 0.0.0.0 or :: where the route decides. That gives the outer family, which
	// the kernel does not tell of a device that exists.
	Local  netip.Addr
	Origin string
}

// Key is the name.
func (l Device) Key() string { return l.Name }

// Fields gives the attributes; type, VNI and port cannot change in place.
func (l Device) Fields() []diff.Field {
	local := l.Local
	if local.IsValid() && local.IsUnspecified() {
		local = netip.Addr{}
	}
	return []diff.Field{
		{Name: "type", Value: l.Type, Immutable: true},
		{Name: "mtu", Value: strconv.Itoa(l.MTU)},
		{Name: "up", Value: strconv.FormatBool(l.Up)},
		{Name: "mac", Value: l.MAC},
		{Name: "vni", Value: number(l.VNI), Immutable: true},
		{Name: "port", Value: number(l.Port), Immutable: true},
		{Name: "ikePort", Value: number(l.IKEPort), Immutable: true},
		{Name: "local", Value: addr(local), Immutable: true},
	}
}

// Address is one address on a link of ours.
type Address struct {
	Link   string
	Prefix netip.Prefix
	Scope  string // global | link | host; link = the kernel takes it as a source only for who asks for it
	Origin string
}

// Key is link/prefix.
func (a Address) Key() string { return a.Link + "/" + a.Prefix.String() }

// Fields gives the scope, which cannot change in place.
func (a Address) Fields() []diff.Field {
	return []diff.Field{{Name: "scope", Value: a.Scope, Immutable: true}}
}

// Neighbour says how a next hop on a VXLAN is reached, so that nothing is flooded
// or learned: by a permanent neighbour entry (Addr to MAC) and, for the address of
// a node on NodeLink, a forwarding entry (MAC to Addr) too.
type Neighbour struct {
	Link   string
	Addr   netip.Addr // a node's own address, or one inside the tunnels
	MAC    string
	Origin string
}

// Key is link/address.
func (n Neighbour) Key() string { return n.Link + "/" + n.Addr.String() }

// Fields gives the hardware address.
func (n Neighbour) Fields() []diff.Field { return []diff.Field{{Name: "mac", Value: n.MAC}} }

func family(ipv6 bool) string {
	if ipv6 {
		return "ipv6"
	}
	return "ipv4"
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func addr(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// secret turns a key into bytes that can be compared; the Field that holds them
// is marked Secret and never prints.
func secret(key fabric.Secret) string { return string(key[:]) }

// HardwareAddr derives the address of a node or gateway on a VXLAN from a name
// that no other one has, in the locally administered unicast range (IEEE 802).
// Equal addresses at two places would make the kernel drop frames as loops.
func HardwareAddr(name string) string {
	sum := sha256.Sum256([]byte("hawser " + name))
	sum[0] = sum[0]&^0x01 | 0x02
	parts := make([]string, 6)
	for i := range parts {
		parts[i] = hex.EncodeToString(sum[i : i+1])
	}
	return strings.Join(parts, ":")
}

// LinkLocal gives the IPv6 link-local address that belongs to a hardware address
// (RFC 4291, appendix A). It is not valid for text that is none.
func LinkLocal(mac string) netip.Addr {
	raw, err := hex.DecodeString(strings.ReplaceAll(mac, ":", ""))
	if err != nil || len(raw) != 6 {
		return netip.Addr{}
	}
	return netip.AddrFrom16([16]byte{
		0: 0xfe, 1: 0x80, 8: raw[0] ^ 0x02, 9: raw[1], 10: raw[2], 11: 0xff, 12: 0xfe, 13: raw[3], 14: raw[4], 15: raw[5],
	})
}

// homeDigits are the bits of a mark that hold the three hexadecimal digits of a
// node's number, the first one first. They leave out what others' routing rules ask
// for: 0x00ff0000 (Tailscale, Calico), 0x00000f00 (Cilium) and 0x00000080 (the VPC CNI
// of AWS). Packets carry such a mark between prerouting and forward only.
var homeDigits = [3]uint{24, 12, 0}

// HomeDigits are the bits of all of them.
const HomeDigits = 0x0f00f00f

// ReturnMark is the mark of packets that go home to the node of a number, 0 to
// MostHomes; 0 is this node itself.
func ReturnMark(number int) uint32 {
	mark := uint32(MarkHome)
	for i, shift := range homeDigits {
		mark |= uint32(number>>(8-4*i)&0xf) << shift
	}
	return mark
}

// HomeRules are the rules by which a packet with HomeMark(number) finds its table. They
// are a tree of three levels, and nodes share the upper ones, so that no packet meets
// more than 48 of them, however many nodes there are. Rules of one priority stand for
// one place of the tree.
func HomeRules(number, table int, ipv6 bool, origin string) []Rule {
	mark := ReturnMark(number)
	first, second := number>>8, number>>4
	priorities := [3]int{RuleHomes, RuleHomes + 1 + first, RuleHomes + 17 + second}
	rules := make([]Rule, len(priorities))
	for i, shift := range homeDigits {
		mask := MaskHome | uint32(0xf)<<shift // never 0, which the kernel takes for any mark where it deletes
		rules[i] = Rule{Priority: priorities[i], IPv6: ipv6, Mark: mark & mask, Mask: mask, Origin: origin}
	}
	rules[0].Goto, rules[1].Goto, rules[2].Table = priorities[1], priorities[2], table
	return rules
}

// HomeID is how a node is known by the frames that it sends on NodeLink: the last four
// bytes of its hardware address as the kernel holds them in a mark, in decimal. It is
// empty for text that is no hardware address.
func HomeID(mac string) string {
	raw, err := hex.DecodeString(strings.ReplaceAll(mac, ":", ""))
	if err != nil || len(raw) != 6 {
		return ""
	}
	return strconv.FormatUint(uint64(binary.NativeEndian.Uint32(raw[2:])), 10)
}
