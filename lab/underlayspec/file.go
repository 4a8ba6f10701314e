// Package underlayspec describes the network between the gateways of a lab: routers with address
// translation and firewalls, isolated networks, and asymmetric paths. It has only data and pure
// functions; package lab creates the namespaces.
package underlayspec

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema/load"
)

// File is the document that `hawser lab up --underlay` reads.
type File struct {
	// Segments are isolated networks: an address in a segment is reachable only from addresses
	// in the same segment. All other addresses are the internet.
	Segments []Segment `json:"segments,omitempty"`
	// Routers are between gateways and the rest of the wide area.
	Routers []Router `json:"routers,omitempty"`
	// Paths route the packets of one direction through a router.
	Paths []Path `json:"paths,omitempty"`
}

// Segment is an isolated network.
type Segment struct {
	Name  string         `json:"name" required:"true"`
	CIDRs []netip.Prefix `json:"cidrs" required:"true"`
}

// Kinds of address translation (RFC 3489, section 5; RFC 4787 for their behaviour).
const (
	FullCone       = "full-cone"       // one mapping per source, open to every host
	PortRestricted = "port-restricted" // one mapping per source, open to addresses and ports to which it sent packets
	Symmetric      = "symmetric"       // one mapping per source and destination
)

// Router is a namespace with an outer interface out0 and an inner interface in0.
type Router struct {
	Name string `json:"name" required:"true"`
	// UplinkOf has the clusters, or single nodes as cluster/node, whose gateways have their uplink
	// through the router.
	UplinkOf []string `json:"uplinkOf,omitempty"`
	// NAT is the kind of address translation; empty = the router does not translate addresses.
	NAT string `json:"nat,omitempty" enum:"full-cone|port-restricted|symmetric"`
	// Addresses are the router's outer addresses, at most one per address family. The router
	// does not forward a family without an address.
	Addresses []netip.Addr `json:"addresses" required:"true"`
	Forward   []Forward    `json:"forward,omitempty"`
	Firewall  []Rule       `json:"firewall,omitempty"`
}

// Forward forwards UDP ports of the router to a gateway behind it.
type Forward struct {
	Port   int    `json:"port" required:"true" min:"1" max:"65535"`      // first port of the router
	Count  int    `json:"count,omitempty" default:"1" min:"1" max:"256"` // number of consecutive ports
	To     string `json:"to" required:"true"`                            // cluster/node
	ToPort int    `json:"toPort,omitempty" min:"1" max:"65535"`          // first port of the node; 0 = Port
}

// Packets that a Rule drops.
const (
	DropUDP  = "udp"
	DropICMP = "icmp" // of both families, including errors; neighbour discovery still works
	DropNew  = "new"  // first packets of connections
)

// Directions of a packet through a router.
const (
	DirectionIn   = "in"   // to the gateways behind it
	DirectionOut  = "out"  // from them
	DirectionBoth = "both" // or empty
)

// Rule silently drops packets that the router forwards.
type Rule struct {
	Drop      string `json:"drop" required:"true" enum:"udp|icmp|new"`
	Port      int    `json:"port,omitempty" min:"1" max:"65535"`  // first destination port of DropUDP; 0 = all
	Count     int    `json:"count,omitempty" min:"1" max:"65535"` // number of consecutive ports
	Direction string `json:"direction,omitempty" enum:"in|out|both"`
}

// Path routes packets of the gateways From to the gateways To through the router Via.
type Path struct {
	From string `json:"from" required:"true"` // cluster, or cluster/node
	To   string `json:"to" required:"true"`
	Via  string `json:"via" required:"true"`
}

// Parse reads a file. known reports whether the topology has a cluster, or the node of a gateway as
// cluster/node; nil = it has all.
func Parse(name string, raw []byte, known func(target string) bool) (File, diag.List) {
	var f File
	list := load.Document(name, raw, &f, func() diag.List { return f.check(known) })
	return f, list
}

// Outside returns the router's outer address of the family, or the zero address.
func (r *Router) Outside(six bool) netip.Addr {
	i := slices.IndexFunc(r.Addresses, func(a netip.Addr) bool { return a.Is6() == six })
	if i < 0 {
		return netip.Addr{}
	}
	return r.Addresses[i]
}

// Of returns the router of a node's uplink, or nil.
func (f *File) Of(cluster, node string) *Router {
	for _, target := range []string{cluster + "/" + node, cluster} {
		for i := range f.Routers {
			if slices.Contains(f.Routers[i].UplinkOf, target) {
				return &f.Routers[i]
			}
		}
	}
	return nil
}

// RouterFor returns the router on the path from one node to another; empty for the direct path.
func (f *File) RouterFor(from, to [2]string) string {
	for _, p := range f.Paths {
		if names(p.From, from) && names(p.To, to) {
			return p.Via
		}
	}
	return ""
}

// names reports whether a target is the node, given as cluster and node, or its cluster.
func names(target string, node [2]string) bool {
	return target == node[0] || target == node[0]+"/"+node[1]
}

// Segment returns the index of the segment with an address; -1 for the internet.
func (f *File) Segment(a netip.Addr) int {
	return slices.IndexFunc(f.Segments, func(s Segment) bool {
		return slices.ContainsFunc(s.CIDRs, func(p netip.Prefix) bool { return p.Contains(a) })
	})
}

// Named returns the router with a name, or nil.
func (f *File) Named(name string) *Router {
	i := slices.IndexFunc(f.Routers, func(r Router) bool { return r.Name == name })
	if i < 0 {
		return nil
	}
	return &f.Routers[i]
}

// ports returns the outer and inner ports of a Forward.
func (f Forward) ports() [][2]int {
	var out [][2]int
	inside := cmp.Or(f.ToPort, f.Port)
	for i := range max(f.Count, 1) {
		out = append(out, [2]int{f.Port + i, inside + i})
	}
	return out
}

func (r Rule) ports() string {
	last := r.Port + max(r.Count, 1) - 1
	if last == r.Port {
		return fmt.Sprint(r.Port)
	}
	return fmt.Sprintf("%d-%d", r.Port, last)
}
