// Package inventory holds what a node's kernel has, of Hawser's and of others, as
// hawser-agent kernel tells it. It is data only, and nothing in it has a place for a
// key that is not public: what is not a field cannot be told by mistake.
package inventory

import "time"

// Kernel is what the kernel has in the network namespace of a node's agent.
type Kernel struct {
	Cluster    string            `json:"cluster"`
	Node       string            `json:"node"`
	At         time.Time         `json:"at"`
	Release    string            `json:"release"` // of the kernel
	Links      []Link            `json:"links"`
	Rules      []Rule            `json:"rules"`
	Routes     []Route           `json:"routes"` // of all tables but the one named local
	Left       int               `json:"routesLeftOut,omitempty"`
	Neighbours []Neighbour       `json:"neighbours,omitempty"` // on Hawser's links
	Wireguard  []Wireguard       `json:"wireguard,omitempty"`
	Tables     []Table           `json:"tables"`         // of nftables, and so of iptables-nft
	Sets       []Set             `json:"sets,omitempty"` // of table inet hawser
	Sysctls    map[string]string `json:"sysctls"`        // by name below /proc/sys
	Conntrack  Conntrack         `json:"conntrack"`
	Errors     []string          `json:"errors,omitempty"` // what could not be read
}

// Link is a network interface.
type Link struct {
	Name      string   `json:"name"`
	Type      string   `json:"type"`
	MTU       int      `json:"mtu"`
	Up        bool     `json:"up"`
	State     string   `json:"state"` // as ip(8) has it: up, down, unknown, lowerlayerdown, ...
	Alias     string   `json:"alias,omitempty"`
	MAC       string   `json:"mac,omitempty"`
	Master    string   `json:"master,omitempty"` // bridge or VRF that it belongs to
	Addresses []string `json:"addresses,omitempty"`
	VXLAN     *VXLAN   `json:"vxlan,omitempty"`
	Received  Traffic  `json:"received"`
	Sent      Traffic  `json:"sent"`
}

// VXLAN is what a VXLAN interface has besides.
type VXLAN struct {
	VNI   int    `json:"vni"`
	Port  int    `json:"port"`
	Local string `json:"local,omitempty"`
}

// Traffic counts what went one way since the interface was made.
type Traffic struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
	Errors  uint64 `json:"errors"`
	Dropped uint64 `json:"dropped"`
}

// Rule is a routing policy rule.
type Rule struct {
	Family   int    `json:"family"` // 4 or 6
	Priority int    `json:"priority"`
	Protocol int    `json:"protocol"`         // who made it; 73 is Hawser
	Select   string `json:"select,omitempty"` // which packets, in the words of ip(8); empty = all
	Table    int    `json:"table,omitempty"`
}

// Route is a route.
type Route struct {
	Table    int    `json:"table"`
	Dst      string `json:"dst"`
	Type     string `json:"type"`
	Via      string `json:"via,omitempty"`
	Link     string `json:"link,omitempty"`
	Src      string `json:"src,omitempty"`
	Protocol int    `json:"protocol"`
	Metric   int    `json:"metric,omitempty"`
	MTU      int    `json:"mtu,omitempty"`
}

// Neighbour is an entry of the neighbour tables, or a forwarding entry.
type Neighbour struct {
	Link    string `json:"link"`
	Addr    string `json:"addr,omitempty"`
	MAC     string `json:"mac,omitempty"`
	State   string `json:"state"`             // permanent, reachable, stale, failed, ...
	Forward bool   `json:"forward,omitempty"` // frames to MAC are sent to Addr
}

// Wireguard is a WireGuard device of Hawser's.
type Wireguard struct {
	Link      string `json:"link"`
	Holder    string `json:"holder,omitempty"` // kernel or userspace; empty = nobody answers
	PublicKey string `json:"publicKey,omitempty"`
	Port      int    `json:"port,omitempty"`
	Peers     []Peer `json:"peers,omitempty"`
}

// Peer is a peer of a WireGuard device. Whether it has a pre-shared key is told, not
// which.
type Peer struct {
	PublicKey  string    `json:"publicKey"`
	Shared     bool      `json:"shared"` // there is a pre-shared key
	Endpoint   string    `json:"endpoint,omitempty"`
	Handshake  time.Time `json:"handshake,omitzero"` // the last one
	RxBytes    int64     `json:"rxBytes"`
	TxBytes    int64     `json:"txBytes"`
	Keepalive  string    `json:"keepalive,omitempty"`
	AllowedIPs []string  `json:"allowedIPs,omitempty"`
}

// Table is a table of nftables.
type Table struct {
	Family string  `json:"family"` // ip, ip6, inet, arp, bridge or netdev
	Name   string  `json:"name"`
	Chains []Chain `json:"chains,omitempty"`
}

// Chain is a chain of a table.
type Chain struct {
	Name     string `json:"name"`
	Type     string `json:"type,omitempty"` // of a base chain, as what follows
	Hook     string `json:"hook,omitempty"`
	Device   string `json:"device,omitempty"`
	Priority int    `json:"priority,omitempty"`
	Policy   string `json:"policy,omitempty"` // accept or drop
	Rules    int    `json:"rules"`
	// Digests are those of Hawser's rules, in order, in hexadecimal; an empty one is
	// that of a rule of somebody else's. Of other tables there are none.
	Digests []string `json:"digests,omitempty"`
}

// Set is a set or map of table inet hawser.
type Set struct {
	Name     string   `json:"name"`
	Count    int      `json:"count"`
	Elements []string `json:"elements,omitempty"` // as nft(8) writes them
}

// Conntrack says how full the table of connections is; zero = not known.
type Conntrack struct {
	Count int `json:"count"`
	Max   int `json:"max"`
}
