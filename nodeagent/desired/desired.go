// Package desired has the types of the desired objects of a node: kernel objects, tunnels
// and DNS data. Package projection creates them; the converge kinds compare them with
// the observed objects. They are data only.
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

// Names, numbers and marks by which Hawser recognizes its own objects.
const (
	DevicePrefix        = "hw-"    // prefix of our devices except IPsecDevice
	DeviceAlias         = "hawser" // alias of every device of ours
	TunnelDevicePrefix  = "hw-wg"  // WireGuard devices; <epoch>, <epoch>-<ordinal> (above 0), or <epoch>-p<port> (a link with its own port)
	VXLANDevicePrefix   = "hw-vt"  // VXLAN to other clusters; followed by the outer family and -port
	NodeDevicePrefix    = "hw-vx"  // devices inside the cluster; all other hw- devices lead to other clusters
	NodeDevice          = "hw-vx0" // VXLAN between the nodes of one cluster
	TransitDevicePrefix = "hw-tr"  // VXLAN inside the tunnels, for transit traffic; followed by the outer family and -port
	SiblingDevice       = "hw-vx1" // VXLAN to the other gateways of this cluster (siblings), for transit traffic

	RouteProtocol     = 73         // routes and rules
	TableOut          = 7300       // routes to remote clusters
	TableIn           = 7301       // routes of packets from a tunnel, received here or by a sibling
	TableGateway      = 7302       // a gateway's own links, for traffic that other nodes hand to it
	TableIPsec        = 7303       // VXLAN to remote gateways, encrypted by IPsec
	RuleIPsec         = 7297       // priority of the rule of TableIPsec
	TableBound        = 7304       // IPv6 of nodes of this cluster, for sockets bound to NodeDevice
	RuleBound         = 7296       // priority of the rule of TableBound
	TableTransit      = 7305       // routes of packets from TransitDevicePrefix devices: forwarded, or handed to a sibling
	TableSibling      = 7306       // routes of packets from SiblingDevice: forwarded
	TableFeed         = 7307       // feeds of neighbouring clusters that are reached in transit
	RuleFeed          = 7290       // priority of the rule of TableFeed for packets to FeedPort
	RuleFeedReply     = 7291       // priority of the rule of TableFeed for packets from FeedPort
	RuleSibling       = 7292       // priority of the rule of TableSibling
	RuleTransit6      = 7293       // priority of the rule of TableTransit for the device whose outer family is IPv6
	RuleTransit4      = 7294       // priority of the rule of TableTransit for the device whose outer family is IPv4
	RuleGateway       = 7299       // priority of the rule of TableGateway
	RuleOut           = 7300       // priority of the rule of TableOut; the rules of the WireGuard devices at the gateway's own port follow
	RuleDirectTest    = 7364       // priority of the rule of TableMain for direct-path tests by other nodes; after RuleOut, because exports may use ProbePort
	RuleTunnel        = 7365       // priority of the rules of all other tunnels, and of packets from other gateways
	RuleReturn        = 7289       // priority of the rules that return packets from a tunnel or another gateway to the node that opened the flow
	RuleReturnPath    = 33000      // first priority of the rules by ReturnMark, after the kernel's rule 32767; reached through RuleReturn
	RuleReturnPathEnd = 33280      // last of them, for an unknown node
	TableReturnBase   = 7400       // routes to nodes that handed over flows: one table per node; the node's number is added
	MaxReturnNodes    = 4095       // nodes
	TableMain         = 254        // the kernel's main table
	MarkReturn        = 0x70000000 // in the bits of MaskReturn: the rules from RuleReturnPath on return the packet to its node; see ReturnMark
	MaskReturn        = 0xf0000000
	MetricTunnel      = 7300 // base metric of routes over tunnels other than the active one

	VXLANPort      = 4803 // UDP, between nodes of one cluster
	NodeVNI        = 73   // between nodes of one cluster
	TunnelVNI      = 74   // between gateways of different clusters
	TransitVNI     = 75   // transit traffic
	TransitPort    = 4809 // UDP, VXLAN of transit traffic on tunnel addresses
	ProbePort      = 4804 // UDP, messages about links (package wire) on tunnel addresses and over NodeDevice
	FeedPort       = 4805 // TCP, peer feed on tunnel addresses and over NodeDevice
	IPsecVXLANPort = 4807 // UDP, VXLAN on tunnel addresses, inside ESP only
)

// State is the desired state of one node.
type State struct {
	Sysctls    []Sysctl
	Devices    []Device
	Wireguards []Wireguard
	Peers      []Peer
	IPsecs     []IPsec
	Addresses  []Address
	Neighbors  []Neighbor
	Forwards   []Forward
	Rules      []Rule
	Routes     []Route
	Tables     []Table
	Elements   []Element
	Services   []Service // DNS
	Zones      []Zone    // DNS
	Tunnels    []Tunnel  // encapsulations to other gateways, built from the objects above; sorted by cluster, gateway and preference
}

// Sysctl is one kernel setting under /proc/sys. The converge.Kind of sysctls saves the original
// value, and cleanup restores it.
type Sysctl struct {
	Name   string // slashes, as below /proc/sys: net/ipv4/ip_forward
	Value  string
	Origin string
}

// Key is the name.
func (s Sysctl) Key() string { return s.Name }

// Fields returns the value.
func (s Sysctl) Fields() []diff.Field { return []diff.Field{{Name: "value", Value: s.Value}} }

// Values of Device.Type.
const (
	DeviceVXLAN     = "vxlan"
	DeviceWireguard = "wireguard" // in the kernel, or a TUN device of our own WireGuard process
	DeviceIPsec     = "ipsec"     // an xfrm interface, or the TUN device of our own charon; always IPsecDevice
)

// Device is one network device.
type Device struct {
	Name string
	Type string
	MTU  int
	Up   bool
	MAC  string // VXLAN only
	VNI  int    // VXLAN
	Port int    // VXLAN: UDP port; IPsec: UDP port of IKE behind NAT and of ESP in UDP
	// IKEPort is the other UDP port of IPsec.
	IKEPort int
	// Local is the source address of a VXLAN's outer packets: the node's own address, or
	// 0.0.0.0 or :: if the route decides. It determines the outer family, which the kernel does
	// not report for an existing device.
	Local  netip.Addr
	Origin string
}

// Key is the name.
func (d Device) Key() string { return d.Name }

// Fields returns the attributes; type, VNI, ports and local address cannot change in place.
func (d Device) Fields() []diff.Field {
	local := d.Local
	if local.IsValid() && local.IsUnspecified() {
		local = netip.Addr{}
	}
	return []diff.Field{
		{Name: "type", Value: d.Type, Immutable: true},
		{Name: "mtu", Value: strconv.Itoa(d.MTU)},
		{Name: "up", Value: strconv.FormatBool(d.Up)},
		{Name: "mac", Value: d.MAC},
		{Name: "vni", Value: number(d.VNI), Immutable: true},
		{Name: "port", Value: number(d.Port), Immutable: true},
		{Name: "ikePort", Value: number(d.IKEPort), Immutable: true},
		{Name: "local", Value: addr(local), Immutable: true},
	}
}

// Address is one address on a device of ours.
type Address struct {
	Device string
	Prefix netip.Prefix
	Scope  string // global, link or host; link: the kernel selects it as a source only on request
	Origin string
}

// Key is device/prefix.
func (a Address) Key() string { return a.Device + "/" + a.Prefix.String() }

// Fields returns the scope, which cannot change in place.
func (a Address) Fields() []diff.Field {
	return []diff.Field{{Name: "scope", Value: a.Scope, Immutable: true}}
}

// Neighbor maps a next hop on a VXLAN to its hardware address, so that the device neither
// floods nor learns. It is a permanent neighbour entry (Addr to MAC). For addresses of
// nodes on NodeDevice it is also an FDB entry (MAC to Addr).
type Neighbor struct {
	Device string
	Addr   netip.Addr // a node's own address, or an address inside the tunnels
	MAC    string
	Origin string
}

// Key is device/address.
func (n Neighbor) Key() string { return n.Device + "/" + n.Addr.String() }

// Fields returns the hardware address.
func (n Neighbor) Fields() []diff.Field { return []diff.Field{{Name: "mac", Value: n.MAC}} }

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

// secret returns the key's bytes for comparison. The Field that holds them is marked Secret and
// never printed.
func secret(key fabric.Secret) string { return string(key[:]) }

// HardwareAddr derives a MAC address on a VXLAN from a unique node or gateway name. The address
// is in the locally administered unicast range (IEEE 802). Two devices with equal addresses
// would make the kernel drop frames as loops.
func HardwareAddr(name string) string {
	sum := sha256.Sum256([]byte("hawser " + name))
	sum[0] = sum[0]&^0x01 | 0x02
	parts := make([]string, 6)
	for i := range parts {
		parts[i] = hex.EncodeToString(sum[i : i+1])
	}
	return strings.Join(parts, ":")
}

// LinkLocal returns the IPv6 link-local address of a hardware address (RFC 4291, appendix A),
// or the invalid address if mac is malformed.
func LinkLocal(mac string) netip.Addr {
	raw, err := hex.DecodeString(strings.ReplaceAll(mac, ":", ""))
	if err != nil || len(raw) != 6 {
		return netip.Addr{}
	}
	return netip.AddrFrom16([16]byte{
		0: 0xfe, 1: 0x80, 8: raw[0] ^ 0x02, 9: raw[1], 10: raw[2], 11: 0xff, 12: 0xfe, 13: raw[3], 14: raw[4], 15: raw[5],
	})
}

// returnDigits are the shifts of the three hexadecimal digits of a node's number in a mark, the
// highest digit first. They avoid the bits that other programs' routing rules match: 0x00ff0000
// (Tailscale, Calico), 0x00000f00 (Cilium) and 0x00000080 (the VPC CNI of AWS). A packet has
// such a mark only between prerouting and forward.
var returnDigits = [3]uint{24, 12, 0}

// ReturnDigits is the mask of all bits of returnDigits.
const ReturnDigits = 0x0f00f00f

// ReturnMark returns the mark of packets that return to the node with this number, from 0 to
// MaxReturnNodes. 0 is this node itself.
func ReturnMark(number int) uint32 {
	mark := uint32(MarkReturn)
	for i, shift := range returnDigits {
		mark |= uint32(number>>(8-4*i)&0xf) << shift
	}
	return mark
}

// ReturnRules returns the rules that lead a packet with ReturnMark(number) to table, the return
// table of the node with this number. The rules of all nodes form a tree of three levels whose upper
// levels are shared: rules of one priority are the branches of one vertex. A packet meets at most 48
// rules, however many nodes exist.
func ReturnRules(number, table int, ipv6 bool, origin string) []Rule {
	mark := ReturnMark(number)
	first, second := number>>8, number>>4
	priorities := [3]int{RuleReturnPath, RuleReturnPath + 1 + first, RuleReturnPath + 17 + second}
	rules := make([]Rule, len(priorities))
	for i, shift := range returnDigits {
		mask := MaskReturn | uint32(0xf)<<shift // never 0: on delete, the kernel reads mask 0 as any mark
		rules[i] = Rule{Priority: priorities[i], IPv6: ipv6, Mark: mark & mask, Mask: mask, Origin: origin}
	}
	rules[0].Goto, rules[1].Goto, rules[2].Table = priorities[1], priorities[2], table
	return rules
}

// ReturnID returns the last four bytes of mac, as the kernel stores them in a mark, in decimal.
// They identify the frames that a node sends on NodeDevice. It returns "" if mac is malformed.
func ReturnID(mac string) string {
	raw, err := hex.DecodeString(strings.ReplaceAll(mac, ":", ""))
	if err != nil || len(raw) != 6 {
		return ""
	}
	return strconv.FormatUint(uint64(binary.NativeEndian.Uint32(raw[2:])), 10)
}
