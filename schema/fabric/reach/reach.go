// Package reach says what a packet may reach in a clusterset. It is written from
// docs/datapath.md and docs/security.md, and knows nothing of rules: a test (e2e/reach)
// holds the rules of a gateway to it, with packets through a real kernel. The plan of a
// change and hawser explain ask the same functions. It is pure.
package reach

import (
	"net/netip"
	"slices"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/schema/fabric"
)

// Place is where a packet comes to a gateway from.
type Place string

// Places.
const (
	Tunnel  Place = "tunnel"  // another cluster's gateway
	Pod     Place = "pod"     // of the gateway's own node
	Node    Place = "node"    // another node of the cluster hands it over
	Beside  Place = "beside"  // a host of the nodes' network, which is none
	Service Place = "service" // in a Verdict: a ClusterIP of the cluster, which its own proxy translates
	Nowhere Place = "nowhere" // in a Verdict: the packet ends here
	Host    Place = "host"    // in a Verdict: the gateway itself
)

// Ports of gateways at their addresses inside the tunnels (docs/datapath.md).
const (
	ProbePort = 4804 // UDP
	FeedPort  = 4805 // TCP
)

// Packet is the first packet of a flow.
type Packet struct {
	From    Place
	Cluster string // of Tunnel: who sent it
	// Via is, of Tunnel, the neighbour whose gateway passed it on; empty = the gateway of
	// the cluster itself sent it.
	Via      string
	Protocol string // tcp | udp | icmp
	Src, Dst netip.AddrPort
	// Middle says of TCP that it is neither SYN nor RST, of ICMP that it is an echo reply.
	Middle bool
}

// Verdict is where a packet may come out. Each list has all that it may have there.
type Verdict struct {
	To   Place
	Dst  []netip.AddrPort // port 0 = as it was
	Srcs []netip.Addr     // none = as it was
}

// Endpoint is one backend of an export in its cluster.
type Endpoint struct {
	Addrs    []netip.Addr
	Hostname string // the name of its DNS record; empty when it has none
	Ready    bool
	// Ports maps the export's port (by protocol and number, as in "TCP/80") to the port
	// on the endpoint.
	Ports map[string]int
}

// Facts are the backends of a cluster's exports, by namespace/name.
type Facts map[string][]Endpoint

// Set is a clusterset that can be asked. It is safe for concurrent use.
type Set struct {
	fabric   *fabric.Fabric
	clusters map[string]*fabric.Cluster
	named    map[netip.Addr][]*fabric.Export // exports with the address: their own, of a part, of a host
	headless map[string][]*fabric.Export     // by cluster with a part
	served   map[string][]*fabric.Export     // by cluster with a part: those with UDP ports
	dynamic  map[string]*fabric.Export       // by cluster: one that stands for those that are made in it
	group    map[string]int                  // of clusters that have a way to each other
	blocks   *prefixes                       // global blocks
	flat     *prefixes                       // prefixes of pods and services that are reached as they are
	all      *prefixes                       // prefixes of pods and services
}

// New prepares a fabric. It must not change afterwards.
func New(f *fabric.Fabric) *Set {
	s := &Set{
		fabric: f, clusters: make(map[string]*fabric.Cluster, len(f.Clusters)),
		named: make(map[netip.Addr][]*fabric.Export, 3*len(f.Exports)), headless: map[string][]*fabric.Export{},
		served: map[string][]*fabric.Export{},
		group:  make(map[string]int, len(f.Clusters)), blocks: newPrefixes(), flat: newPrefixes(), all: newPrefixes(),
	}
	for i := range f.Clusters {
		c := &f.Clusters[i]
		s.clusters[c.Name] = c
		s.blocks.add(c.Name, c.GlobalCIDRs)
		for _, list := range [][]netip.Prefix{c.PodCIDRs, c.ServiceCIDRs} {
			s.all.add(c.Name, list)
			for _, p := range list {
				if !c.Hides(fabric.Family(p.Addr())) {
					s.flat.add(c.Name, []netip.Prefix{p})
				}
			}
		}
	}
	for _, p := range []*prefixes{s.blocks, s.flat, s.all} {
		p.sort()
	}
	for i, group := range f.Graph().Groups() {
		for _, name := range group {
			s.group[name] = i
		}
	}
	for i := range f.Exports {
		s.index(&f.Exports[i])
	}
	s.addDynamic()
	return s
}

// addDynamic makes an export for each cluster that may make some, at an address that
// those come to last.
func (s *Set) addDynamic() {
	s.dynamic = map[string]*fabric.Export{}
	for i := range s.fabric.Clusters {
		c := &s.fabric.Clusters[i]
		if s.fabric.DynamicExports == nil || len(c.Dynamic) == 0 {
			continue
		}
		e := &fabric.Export{
			Namespace: "*", Name: c.Name, Type: fabric.ClusterSetIP, Dynamic: true,
			Ports:    []fabric.Port{{Protocol: "TCP", Port: anyPort}},
			Clusters: []fabric.ExportCluster{{Name: c.Name}},
		}
		for _, p := range c.Dynamic {
			e.Clusters[0].IPs = append(e.Clusters[0].IPs, cidr.Last(p))
		}
		s.dynamic[c.Name] = e
		s.index(e)
	}
}

func (s *Set) index(e *fabric.Export) {
	name := func(addrs []netip.Addr) {
		for _, a := range addrs {
			if list := s.named[a]; len(list) == 0 || list[len(list)-1] != e {
				s.named[a] = append(list, e)
			}
		}
	}
	name(e.VIPs)
	udp := slices.ContainsFunc(e.Ports, func(p fabric.Port) bool { return p.Protocol == "UDP" })
	for i := range e.Clusters {
		part := &e.Clusters[i]
		name(part.IPs)
		for j := range part.Hosts {
			name(part.Hosts[j].IPs)
		}
		if e.Type == fabric.Headless {
			s.headless[part.Name] = append(s.headless[part.Name], e)
		}
		if udp {
			s.served[part.Name] = append(s.served[part.Name], e)
		}
	}
}

// Fabric gives what the set was made of.
func (s *Set) Fabric() *fabric.Fabric { return s.fabric }

// Cluster finds a cluster by name; nil when there is none.
func (s *Set) Cluster(name string) *fabric.Cluster { return s.clusters[name] }

// Connected reports whether two clusters have a way to each other when all links are
// alive, over gateways that both have.
func (s *Set) Connected(a, b string) bool {
	x, y := s.clusters[a], s.clusters[b]
	return x != nil && y != nil && a != b && len(x.Gateways) > 0 && len(y.Gateways) > 0 && s.group[a] == s.group[b]
}

// Overlapping gives the clusters with a prefix of pods or services that overlaps with
// that of another one where one of the two hides nothing: what those reach depends on
// whose prefix it is.
func (s *Set) Overlapping() map[string]bool {
	out := map[string]bool{}
	for i := range s.fabric.Clusters {
		c := &s.fabric.Clusters[i]
		for _, p := range slices.Concat(c.PodCIDRs, c.ServiceCIDRs) {
			for _, owners := range s.flat.overlapping(p) {
				for _, owner := range owners {
					if owner != c.Name {
						out[c.Name], out[owner] = true, true
					}
				}
			}
		}
	}
	return out
}
