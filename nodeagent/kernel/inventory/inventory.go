// Package inventory has the kernel state of a node, of Hawser and of other programs, as
// reported by `hawser-agent kernel`. The JSON has the form of `ip -j`, `bridge -j` and `nft
// -j`, which the agent's image lacks. The types are data only, and no field can contain a
// private key.
package inventory

import "time"

// Kernel is the kernel state in the network namespace of a node's agent.
type Kernel struct {
	Cluster       string            `json:"cluster"`
	Node          string            `json:"node"`
	At            time.Time         `json:"at"`
	Release       string            `json:"release"`             // of the kernel
	Links         []Link            `json:"links"`               // ip -j -details -statistics address
	Rules         []Rule            `json:"rules"`               // ip -j -details rule, IPv4 first
	Routes        []Route           `json:"routes"`              // ip -j -details route show table all, without table local
	RoutesOmitted int               `json:"routesOmitted"`       // further routes of other programs
	Neighbors     []Neighbor        `json:"neighbors,omitempty"` // ip -j neighbour, on Hawser's links
	FDB           []FDBEntry        `json:"fdb,omitempty"`       // bridge -j fdb, on Hawser's links
	Wireguard     []Wireguard       `json:"wireguard,omitempty"`
	NFTables      []NFTObject       `json:"nftables"` // nft -j list ruleset
	Sysctls       map[string]string `json:"sysctls"`  // by name below /proc/sys
	Conntrack     Conntrack         `json:"conntrack"`
	Errors        []string          `json:"errors,omitempty"` // parts that could not be read
}

// Link is a network interface with its addresses.
type Link struct {
	IfIndex   int       `json:"ifindex"`
	IfName    string    `json:"ifname"`
	Flags     []string  `json:"flags"`
	MTU       int       `json:"mtu"`
	Master    string    `json:"master,omitempty"` // bridge or VRF
	OperState string    `json:"operstate"`
	LinkType  string    `json:"link_type"`
	Address   string    `json:"address,omitempty"`
	LinkInfo  *LinkInfo `json:"linkinfo,omitempty"`
	IfAlias   string    `json:"ifalias,omitempty"`
	AddrInfo  []Addr    `json:"addr_info"`
	Stats     Stats     `json:"stats64"`
}

// LinkInfo is the kind of a virtual interface.
type LinkInfo struct {
	Kind string `json:"info_kind"`
	Data *VXLAN `json:"info_data,omitempty"` // of VXLAN only
}

// VXLAN is the configuration of a VXLAN interface.
type VXLAN struct {
	ID     int    `json:"id"`
	Local  string `json:"local,omitempty"`
	Local6 string `json:"local6,omitempty"`
	Port   int    `json:"port"`
}

// Addr is an address of an interface.
type Addr struct {
	Family    string `json:"family"` // inet or inet6
	Local     string `json:"local"`
	Address   string `json:"address,omitempty"` // of the peer of a point-to-point interface
	PrefixLen int    `json:"prefixlen"`
}

// Stats are the counters of an interface since its creation.
type Stats struct {
	RX Traffic `json:"rx"`
	TX Traffic `json:"tx"`
}

// Traffic is the counters of one direction.
type Traffic struct {
	Bytes   uint64 `json:"bytes"`
	Packets uint64 `json:"packets"`
	Errors  uint64 `json:"errors"`
	Dropped uint64 `json:"dropped"`
}

// Rule is a routing policy rule.
type Rule struct {
	Family            string `json:"family"` // inet or inet6; ip(8) lists one family only
	Priority          int    `json:"priority"`
	Not               Null   `json:"not,omitzero"`
	Src               string `json:"src"` // an address, or all
	SrcLen            *int   `json:"srclen,omitempty"`
	Dst               string `json:"dst,omitempty"`
	DstLen            *int   `json:"dstlen,omitempty"`
	FwMark            string `json:"fwmark,omitempty"`
	FwMask            string `json:"fwmask,omitempty"`
	IIF               string `json:"iif,omitempty"`
	OIF               string `json:"oif,omitempty"`
	IPProto           string `json:"ipproto,omitempty"`
	SPort             int    `json:"sport,omitempty"`
	SPortStart        int    `json:"sport_start,omitempty"`
	SPortEnd          int    `json:"sport_end,omitempty"`
	DPort             int    `json:"dport,omitempty"`
	DPortStart        int    `json:"dport_start,omitempty"`
	DPortEnd          int    `json:"dport_end,omitempty"`
	Table             string `json:"table,omitempty"` // empty = goto, or a rule that drops packets
	SuppressPrefixLen *int   `json:"suppress_prefixlen,omitempty"`
	Goto              *int   `json:"goto,omitempty"`
	Protocol          string `json:"protocol"` // of the program that added it; 73 is Hawser
}

// Null is a field whose presence is its value. ip(8) and nft(8) write null.
type Null bool

// MarshalJSON writes null.
func (Null) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

// UnmarshalJSON accepts any value.
func (n *Null) UnmarshalJSON([]byte) error {
	*n = true
	return nil
}

// Route is a route.
type Route struct {
	Family   string         `json:"family"` // inet or inet6; ip(8) has none
	Type     string         `json:"type"`
	Dst      string         `json:"dst"`
	Gateway  string         `json:"gateway,omitempty"`
	Via      *Via           `json:"via,omitempty"`
	Dev      string         `json:"dev,omitempty"`
	Table    string         `json:"table"`
	Protocol string         `json:"protocol"`
	PrefSrc  string         `json:"prefsrc,omitempty"`
	Metric   int            `json:"metric,omitempty"`
	Metrics  []RouteMetrics `json:"metrics,omitempty"`
	Nexthops []Nexthop      `json:"nexthops,omitempty"`
}

// RouteMetrics are the metrics of a route.
type RouteMetrics struct {
	MTU int `json:"mtu,omitempty"`
}

// Via is a gateway of another family than the route.
type Via struct {
	Family string `json:"family"`
	Host   string `json:"host"`
}

// Nexthop is one path of a multipath route.
type Nexthop struct {
	Gateway string `json:"gateway,omitempty"`
	Via     *Via   `json:"via,omitempty"`
	Dev     string `json:"dev"`
	Weight  int    `json:"weight"`
}

// Neighbor is an entry of the neighbour tables.
type Neighbor struct {
	Dst    string   `json:"dst"`
	Dev    string   `json:"dev"`
	LLAddr string   `json:"lladdr,omitempty"`
	State  []string `json:"state"`
}

// FDBEntry is a forwarding entry: frames to a hardware address are sent to Dst.
type FDBEntry struct {
	MAC    string `json:"mac"`
	IfName string `json:"ifname"`
	Dst    string `json:"dst,omitempty"`
	State  string `json:"state,omitempty"`
}

// Wireguard is a WireGuard device of Hawser.
type Wireguard struct {
	Link      string `json:"link"`
	Mode      string `json:"holder,omitempty"` // kernel or userspace; empty = no process replies
	PublicKey string `json:"publicKey,omitempty"`
	Port      int    `json:"port,omitempty"`
	Peers     []Peer `json:"peers,omitempty"`
}

// Peer is a peer of a WireGuard device, without its pre-shared key.
type Peer struct {
	PublicKey  string    `json:"publicKey"`
	HasPSK     bool      `json:"shared"`
	Endpoint   string    `json:"endpoint,omitempty"`
	Handshake  time.Time `json:"handshake,omitzero"` // the last one
	RxBytes    int64     `json:"rxBytes"`
	TxBytes    int64     `json:"txBytes"`
	Keepalive  string    `json:"keepalive,omitempty"`
	AllowedIPs []string  `json:"allowedIPs,omitempty"`
}

// Conntrack is the usage of the connection table; zero = unknown.
type Conntrack struct {
	Count int `json:"count"`
	Max   int `json:"max"`
}
