// Package desired holds the types of everything that a node should have: the
// kernel objects, the userspace tunnel and the DNS data. Project fills them,
// the converge kinds compare them with what is. They are data only.
package desired

import (
	"net/netip"
	"strconv"
	"strings"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/schema/fabric"
)

// Names, numbers and marks by which Hawser finds its own objects again.
const (
	LinkPrefix   = "hw-"    // every link of ours starts with it
	LinkAlias    = "hawser" // and carries this alias
	TunnelPrefix = "hw-wg"  // WireGuard devices; the key epoch follows, and behind it -lane but for lane 0, or -p and the port
	VXLANPrefix  = "hw-vt"  // VXLAN to other clusters; the outer family and -port follow
	NodePrefix   = "hw-vx"  // links inside the cluster; all others of ours are cables
	NodeLink     = "hw-vx0" // VXLAN between the nodes of one cluster
	PassPrefix   = "hw-tr"  // VXLAN through the cables, for what clusters pass on to each other; the outer family and -port follow
	MateLink     = "hw-vx1" // VXLAN between the gateways of one cluster, for the same

	RouteProtocol = 73   // routes and rules
	TableOut      = 7300 // routes to remote clusters
	TableIn       = 7301 // routes of packets that came out of a tunnel
	TableTransit  = 7302 // a gateway's own links, for what other nodes hand to it
	TableIPsec    = 7303 // VXLAN to remote gateways, which IPsec encrypts
	RuleIPsec     = 7297 // priority of the rule of TableIPsec
	TableBound    = 7304 // IPv6 of nodes of this cluster, for sockets bound to NodeLink
	RuleBound     = 7296 // priority of the rule of TableBound
	TablePass     = 7305 // routes of what came over PassPrefix: passed on, or handed to another gateway
	TableMate     = 7306 // routes of what came over MateLink: passed on
	TableFeed     = 7307 // feeds of neighbours that are reached through others
	RuleFeed      = 7290 // priorities of the rules of TableFeed: to FeedPort, and from it one behind
	RuleMate      = 7292
	RulePass      = 7294 // and the one before
	RuleTransit   = 7299 // priority of the rule of TableTransit
	RulePriority  = 7300 // of the rule of TableOut; those of the WireGuard devices at the gateway's own port follow
	RuleCable     = 7365 // of the rules of all other cables
	MetricCable   = 7300 // of routes over cables beside the one in use; what follows tells them apart

	VXLANPort = 4803 // UDP, between nodes of one cluster
	VXLANID   = 73
	// VXLANCableID is the VNI between gateways of different clusters.
	VXLANCableID = 74
	PassID       = 75   // VNI of what clusters pass on
	PassPort     = 4809 // UDP, the same on tunnel addresses
	ProbePort    = 4804 // UDP, link probes on tunnel addresses and over NodeLink
	PathPort     = 4806 // UDP, probes of full size on tunnel addresses
	FeedPort     = 4805 // TCP, peer feed on tunnel addresses and over NodeLink
	IPsecPort    = 4807 // UDP, VXLAN on tunnel addresses, inside ESP only
	CablePort    = 4808 // UDP, changes of cables, on tunnel addresses over each of them
)

// State is everything that one node should have.
type State struct {
	Sysctls    []Sysctl
	Links      []Link
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
	Cables     []Cable   // how the objects above lead to other gateways; by cluster, gateway and preference
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

// Link is one network device.
type Link struct {
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
func (l Link) Key() string { return l.Name }

// Fields gives the attributes; type, VNI and port cannot change in place.
func (l Link) Fields() []diff.Field {
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

// Wireguard is the configuration of a WireGuard device.
type Wireguard struct {
	Link       string
	PrivateKey fabric.Secret
	ListenPort int
	Origin     string
}

// Key is the link's name.
func (w Wireguard) Key() string { return w.Link }

// Fields gives the configuration; the private key never prints.
func (w Wireguard) Fields() []diff.Field {
	return []diff.Field{
		{Name: "privateKey", Value: secret(w.PrivateKey), Secret: true},
		{Name: "listenPort", Value: strconv.Itoa(w.ListenPort)},
	}
}

// Peer is one peer of a WireGuard device.
type Peer struct {
	Link      string
	PublicKey string // base64
	PSK       fabric.Secret
	// Endpoint is where the peer is first looked for. While it answers, the
	// address that the kernel learned counts (roaming); invalid = it dials in.
	Endpoint   netip.AddrPort
	AllowedIPs []netip.Prefix // sorted
	Keepalive  int            // seconds; 0 = off
	// Dial counts how often it was decided to send to Endpoint, whatever the kernel
	// learned before; 0 = never.
	Dial   int
	Origin string
}

// Key is link/public key.
func (p Peer) Key() string { return p.Link + "/" + p.PublicKey }

// Fields gives the configuration; the pre-shared key never prints.
func (p Peer) Fields() []diff.Field {
	endpoint := ""
	if p.Endpoint.IsValid() {
		endpoint = p.Endpoint.String()
	}
	fields := []diff.Field{
		{Name: "psk", Value: secret(p.PSK), Secret: true},
		{Name: "endpoint", Value: endpoint},
		{Name: "allowedIPs", Value: join(p.AllowedIPs)},
		{Name: "keepalive", Value: strconv.Itoa(p.Keepalive)},
	}
	if p.Dial > 0 {
		fields = append(fields, diff.Field{Name: "dial", Value: strconv.Itoa(p.Dial)})
	}
	return fields
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

// Rule is one routing policy rule of protocol RouteProtocol.
type Rule struct {
	Priority int
	IPv6     bool
	IIF      string // input interface; empty = any
	UDPPort  int    // destination; 0 = any packet
	TCPPort  int    // the same of TCP
	TCPFrom  int    // source port of TCP; 0 = any packet
	OIF      string // interface that a socket is bound to; empty = any
	Table    int
	Origin   string
}

// Key is family and priority, and the link where several rules share one.
func (r Rule) Key() string {
	key := family(r.IPv6) + "/" + strconv.Itoa(r.Priority)
	if r.Priority == RuleCable {
		key += "/" + r.IIF
	}
	return key
}

// Fields gives selector and table; a rule is replaced, never changed.
func (r Rule) Fields() []diff.Field {
	return []diff.Field{
		{Name: "iif", Value: r.IIF, Immutable: true},
		{Name: "udpPort", Value: number(r.UDPPort), Immutable: true},
		{Name: "tcpPort", Value: number(r.TCPPort), Immutable: true},
		{Name: "tcpFrom", Value: number(r.TCPFrom), Immutable: true},
		{Name: "oif", Value: r.OIF, Immutable: true},
		{Name: "table", Value: strconv.Itoa(r.Table), Immutable: true},
	}
}

// Types of Route.
const (
	RouteUnicast   = "unicast"
	RouteBlackhole = "blackhole"
)

// Route is one route of protocol RouteProtocol in a table of ours.
type Route struct {
	Table int
	Dst   netip.Prefix
	Type  string
	Link  string     // unicast
	Via   netip.Addr // unicast: next hop on Link, taken as on-link; invalid = none
	Src   netip.Addr // preferred source of the host's own packets; invalid = kernel's choice
	MTU   int        // 0 = the link's
	// Metric is set for a route beside another one to the same destination, which
	// only who is bound to its link takes; 0 = the kernel's choice.
	Metric int
	Origin string
}

// Key is table and destination, and the metric where it has one.
func (r Route) Key() string {
	key := strconv.Itoa(r.Table) + "/" + r.Dst.String()
	if r.Metric > 0 {
		key += " metric " + strconv.Itoa(r.Metric)
	}
	return key
}

// Fields gives the way.
func (r Route) Fields() []diff.Field {
	return []diff.Field{
		{Name: "type", Value: r.Type},
		{Name: "dev", Value: r.Link},
		{Name: "via", Value: addr(r.Via)},
		{Name: "src", Value: addr(r.Src)},
		{Name: "mtu", Value: number(r.MTU)},
	}
}

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

func join[T interface{ String() string }](list []T) string {
	texts := make([]string, len(list))
	for i, item := range list {
		texts[i] = item.String()
	}
	return strings.Join(texts, ",")
}

// secret turns a key into bytes that can be compared; the Field that holds them
// is marked Secret and never prints.
func secret(key fabric.Secret) string { return string(key[:]) }
