// Package firewall computes the ports that must be open for the links of a clusterset, with their
// addresses and sources. Traffic inside the tunnels needs no open ports. The package is pure.
package firewall

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"

	"hawser.dev/hawser/schema/fabric"
)

// Protocols of openings.
const (
	UDP = "udp"
	ESP = "esp" // IP protocol 50, which has no ports
)

// Purposes of openings.
const (
	PurposeLinks     = "links"     // active links
	PurposeMigration = "migration" // the secondary tunnel of a link during a migration
	PurposeNodes     = "nodes"     // between the nodes of one cluster
)

// NodeVXLANPort is the UDP port of the VXLAN between the nodes of a cluster (docs/datapath.md).
const NodeVXLANPort = 4803

// Rule lists ports of one gateway that must be open for incoming packets. Outgoing packets
// and replies are assumed to be allowed.
type Rule struct {
	Cluster string `json:"cluster"`
	Gateway string `json:"gateway,omitempty"` // empty: every node of the cluster
	Node    string `json:"node,omitempty"`    // of the gateway
	Purpose string `json:"purpose"`
	Driver  string `json:"driver,omitempty"`
	// Protocol and ports on the node itself; ESP has no ports.
	Protocol string `json:"protocol"`
	First    int    `json:"firstPort,omitempty"`
	Last     int    `json:"lastPort,omitempty"`
	// Destinations are the gateway's endpoints, in their order.
	Destinations []Destination `json:"destinations,omitempty"`
	// From names the clusters whose gateways send, sorted.
	From []string `json:"from"`
	// Sources are the source addresses; empty if the topology does not know all of them.
	Sources []netip.Prefix `json:"sources,omitempty"`
}

// Destination is an endpoint.
type Destination struct {
	Host string `json:"host"` // an address, a DNS name, or a source of discovered endpoints (fabric.Sources)
	// First is the first port at the endpoint: a router forwards from it to the port of the gateway.
	// 0: the ports are the ports of the gateway.
	First int `json:"firstPort,omitempty"`
}

// Ports returns the ports as text, as in 51820 or 51820-51823; empty for ESP.
func (o *Rule) Ports() string {
	switch {
	case o.First == 0:
		return ""
	case o.First == o.Last:
		return strconv.Itoa(o.First)
	}
	return strconv.Itoa(o.First) + "-" + strconv.Itoa(o.Last)
}

// portNeed is one port, or ESP, of a gateway.
type portNeed struct {
	purpose, driver, protocol string
	port                      int
	routerOffset              int // offset from the port of an endpoint with its own port; negative: not reachable there
}

// Calculator computes the rules of a clusterset. It is safe for concurrent use.
type Calculator struct {
	fabric   *fabric.Fabric
	graph    *fabric.Graph
	clusters map[string]*fabric.Cluster
	ordinals map[string]string // by cluster: the ordinals of its gateways, as text
}

// New returns a Calculator for a fabric, which must not change afterwards.
func New(f *fabric.Fabric) *Calculator {
	s := &Calculator{fabric: f, graph: f.Graph(), clusters: make(map[string]*fabric.Cluster, len(f.Clusters)),
		ordinals: make(map[string]string, len(f.Clusters))}
	for i := range f.Clusters {
		c := &f.Clusters[i]
		s.clusters[c.Name] = c
		ordinals := make([]byte, len(c.Gateways)) // each below fabric.MaxGateways
		for j := range c.Gateways {
			ordinals[j] = byte(c.Gateways[j].Ordinal)
		}
		s.ordinals[c.Name] = string(ordinals)
	}
	return s
}

// Links returns the rules of a cluster's gateways for active links and migrations: one per
// port, in the order of the fabric's gateways. A gateway without endpoints only dials out
// and has no rules. filter selects the other clusters; nil is all.
func (s *Calculator) Links(cluster string, filter func(other string) bool) []Rule {
	c := s.clusters[cluster]
	if c == nil {
		return nil
	}
	groups := s.neighborGroups(c, filter)
	var out []Rule
	for i := range c.Gateways {
		if len(c.Gateways[i].Endpoints) > 0 {
			out = append(out, s.gatewayRules(c, &c.Gateways[i], groups)...)
		}
	}
	return out
}

// group contains neighbours that need the same ports.
type group struct {
	link  fabric.LinkSettings
	names []string // sorted
}

func (s *Calculator) neighborGroups(c *fabric.Cluster, filter func(other string) bool) []*group {
	type key struct {
		driver, ordinals string
		port             int
	}
	byKey := map[key]*group{}
	var out []*group
	var neighbors *group // group of the previous neighbour, which most neighbours share
	var last key
	for _, name := range s.graph.Neighbors(c.Name) {
		if filter != nil && !filter(name) {
			continue
		}
		link := s.fabric.Link(c.Name, name)
		k := key{link.Driver, s.ordinals[name], link.Port}
		if neighbors == nil || k != last {
			if byKey[k] == nil {
				byKey[k] = &group{link: link}
				out = append(out, byKey[k])
			}
			neighbors, last = byKey[k], k
		}
		neighbors.names = append(neighbors.names, name)
	}
	return out
}

// RulesFor returns all rules of a cluster: the rules of Links with consecutive ports merged,
// and the rule between its nodes. It sets Sources.
func (s *Calculator) RulesFor(cluster string) []Rule {
	if s.clusters[cluster] == nil {
		return nil
	}
	out := merge(s.Links(cluster, nil))
	for i := range out {
		out[i].Sources = s.sourceAddrs(out[i].From)
	}
	return append(out, Rule{Cluster: cluster, Purpose: PurposeNodes, Protocol: UDP, First: NodeVXLANPort, Last: NodeVXLANPort,
		From: []string{cluster}})
}

func (s *Calculator) gatewayRules(c *fabric.Cluster, g *fabric.Gateway, groups []*group) []Rule {
	needs := map[portNeed][]string{}
	for _, neighbors := range groups {
		for _, n := range s.portNeeds(neighbors.link, g, s.clusters[neighbors.names[0]]) {
			switch existing := needs[n]; {
			case existing == nil:
				needs[n] = neighbors.names
			case &existing[0] != &neighbors.names[0]: // a need of two groups: the ordinals of their gateways overlap
				existing = slices.Concat(existing, neighbors.names)
				slices.Sort(existing)
				needs[n] = slices.Compact(existing)
			}
		}
	}
	var out []Rule
	for n, from := range needs {
		o := Rule{
			Cluster: c.Name, Gateway: g.Name, Node: g.Node, Purpose: n.purpose, Driver: n.driver, Protocol: n.protocol,
			First: n.port, Last: n.port, Destinations: endpointsFor(g, n), From: from,
		}
		if len(o.Destinations) > 0 {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b Rule) int {
		return cmp.Or(cmp.Compare(a.Purpose, b.Purpose), cmp.Compare(a.Driver, b.Driver), -cmp.Compare(a.Protocol,
			b.Protocol), cmp.Compare(a.First, b.First))
	})
	return out
}

// portNeeds returns the ports that a gateway needs for the gateways of one cluster.
func (s *Calculator) portNeeds(l fabric.LinkSettings, g *fabric.Gateway, remote *fabric.Cluster) []portNeed {
	if len(remote.Gateways) == 0 {
		return nil
	}
	var out []portNeed
	base := l.BasePort(g, 0)
	addUDP := func(purpose, driver string, port int) {
		out = append(out, portNeed{purpose, driver, UDP, port, port - base})
	}
	switch l.Driver {
	case fabric.DriverWireguard:
		for i := range remote.Gateways {
			for _, epoch := range s.fabric.Epochs {
				addUDP(PurposeLinks, l.Driver, fabric.WireguardPort(base, epoch, remote.Gateways[i].Ordinal, false))
				addUDP(PurposeMigration, l.Driver, fabric.WireguardPort(base, epoch, remote.Gateways[i].Ordinal, true))
			}
		}
	case fabric.DriverVXLAN:
		addUDP(PurposeLinks, l.Driver, fabric.VXLANPort(base, false))
		addUDP(PurposeMigration, l.Driver, fabric.VXLANPort(base, true))
	case fabric.DriverIPsec:
		set := &s.fabric.Tunnel.IPsec
		out = append(out, portNeed{PurposeLinks, l.Driver, UDP, set.NATPort, fabric.IPsecOffset}, portNeed{PurposeLinks, l.Driver, UDP,
			set.IKEPort, -1})
		if set.Encapsulation != fabric.EncapsulationUDP {
			out = append(out, portNeed{PurposeLinks, l.Driver, ESP, 0, -1})
		}
	}
	return out
}

// endpointsFor returns the endpoints to which a need applies. An endpoint with a port is a
// router that forwards to the gateway.
func endpointsFor(g *fabric.Gateway, n portNeed) []Destination {
	var out []Destination
	for _, text := range g.Endpoints {
		e, err := fabric.ParseEndpoint(text)
		switch {
		case fabric.IsEndpointSource(text):
			out = append(out, Destination{Host: text})
		case err != nil: // not used
		case e.Port == 0:
			out = append(out, Destination{Host: e.Host()})
		case n.routerOffset >= 0:
			out = append(out, Destination{Host: e.Host(), First: e.Port + n.routerOffset})
		}
	}
	return out
}

// sourceAddrs returns the endpoint addresses of all gateways of some clusters. It returns none
// if a gateway has no address.
func (s *Calculator) sourceAddrs(clusters []string) []netip.Prefix {
	var out []netip.Prefix
	for _, name := range clusters {
		c := s.clusters[name]
		for i := range c.Gateways {
			known := false
			for _, text := range c.Gateways[i].Endpoints {
				e, err := fabric.ParseEndpoint(text)
				if err != nil || !e.Addr.IsValid() {
					return nil
				}
				known = true
				out = append(out, netip.PrefixFrom(e.Addr, e.Addr.BitLen()))
			}
			if !known {
				return nil
			}
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out)
}

// merge merges consecutive ports for the same clusters into ranges.
func merge(list []Rule) []Rule {
	var out []Rule
	for _, o := range list {
		if last := len(out) - 1; last >= 0 && isNextPort(&out[last], &o) {
			out[last].Last = o.Last
			continue
		}
		out = append(out, o)
	}
	return out
}

// isNextPort reports whether the ports of b follow the ports of a, for the same clusters and
// endpoints.
func isNextPort(a, b *Rule) bool {
	if a.Purpose != b.Purpose || a.Driver != b.Driver || a.Protocol != b.Protocol || a.First == 0 ||
		a.Last+1 != b.First || !slices.Equal(a.From, b.From) {
		return false
	}
	return slices.EqualFunc(a.Destinations, b.Destinations, func(x, y Destination) bool {
		return x.Host == y.Host && (x.First == 0) == (y.First == 0) && (x.First == 0 ||
			x.First+b.First-a.First == y.First)
	})
}
