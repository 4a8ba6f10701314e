// Package reach is the reference model of packet forwarding. It returns where a packet may arrive.
// It implements docs/datapath.md and docs/security.md, and does not read nftables rules: e2e/reach
// sends packets through a kernel and compares the results. The package is pure.
package reach

import (
	"net/netip"
	"slices"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/schema/fabric"
)

// Point is where a packet enters or leaves a gateway.
type Point string

// Points.
const (
	Tunnel   Point = "tunnel"   // another cluster's gateway
	Pod      Point = "pod"      // of the gateway's own node
	Node     Point = "node"     // another node of the cluster, which forwards to the gateway
	Neighbor Point = "neighbor" // a host of the nodes' network that is not a node
	Service  Point = "service"  // in a Verdict: a ClusterIP of the cluster, which its own proxy translates
	Dropped  Point = "dropped"  // in a Verdict: the packet ends here
	Host     Point = "host"     // in a Verdict: the gateway itself
)

// Ports of gateways at their addresses inside the tunnels (docs/datapath.md).
const (
	ProbePort = 4804 // UDP
	FeedPort  = 4805 // TCP
)

// Packet is the first packet of a flow.
type Packet struct {
	From    Point
	Cluster string // of Tunnel: cluster of the sender
	// Via is, of Tunnel, the neighbour that forwarded the packet; empty if Cluster itself
	// sent it.
	Via      string
	Protocol string // tcp | udp | icmp
	Src, Dst netip.AddrPort
	// MidFlow marks a TCP packet without SYN and RST, or an ICMP echo reply.
	MidFlow bool
}

// Verdict is where a packet may leave the gateway, with all possible addresses.
type Verdict struct {
	To   Point
	Dst  []netip.AddrPort // port 0 is unchanged
	Srcs []netip.Addr     // empty is unchanged
}

// Backend is a backend of an export in its cluster.
type Backend struct {
	Addrs    []netip.Addr
	Hostname string // the name of its DNS record; empty if absent
	Ready    bool
	// Ports maps the export's port (by protocol and number, as in "TCP/80") to the port
	// on the endpoint.
	Ports map[string]int
}

// Backends contains the backends of a cluster's exports, by namespace/name.
type Backends map[string][]Backend

// Model predicts how the gateways of a fabric forward packets. It is safe for concurrent use.
type Model struct {
	fabric     *fabric.Fabric
	clusters   map[string]*fabric.Cluster
	exportsAt  map[netip.Addr][]*fabric.Export // exports with the address: their own, of a part, of a host
	headless   map[string][]*fabric.Export     // by cluster with a part
	udpExports map[string][]*fabric.Export     // by cluster with a part: those with UDP ports
	dynamic    map[string]*fabric.Export       // by cluster: represents all dynamic exports of the cluster
	components map[string]int                  // of clusters that have a path to each other
	blocks     *prefixIndex                    // global blocks
	flat       *prefixIndex                    // prefixes of pods and services with distinct CIDRs
	all        *prefixIndex                    // prefixes of pods and services
}

// New returns the model of a fabric, which must not change afterwards.
func New(f *fabric.Fabric) *Model {
	m := &Model{
		fabric: f, clusters: make(map[string]*fabric.Cluster, len(f.Clusters)),
		exportsAt: make(map[netip.Addr][]*fabric.Export, 3*len(f.Exports)), headless: map[string][]*fabric.Export{},
		udpExports: map[string][]*fabric.Export{},
		components: make(map[string]int, len(f.Clusters)), blocks: newPrefixIndex(), flat: newPrefixIndex(), all: newPrefixIndex(),
	}
	for i := range f.Clusters {
		c := &f.Clusters[i]
		m.clusters[c.Name] = c
		m.blocks.add(c.Name, c.GlobalCIDRs)
		for _, list := range [][]netip.Prefix{c.PodCIDRs, c.ServiceCIDRs} {
			m.all.add(c.Name, list)
			for _, p := range list {
				if !c.IsGlobalnet(fabric.Family(p.Addr())) {
					m.flat.add(c.Name, []netip.Prefix{p})
				}
			}
		}
	}
	for _, p := range []*prefixIndex{m.blocks, m.flat, m.all} {
		p.sort()
	}
	for i, group := range f.Graph().Components() {
		for _, name := range group {
			m.components[name] = i
		}
	}
	for i := range f.Exports {
		m.indexExport(&f.Exports[i])
	}
	m.addDynamic()
	return m
}

// addDynamic adds an export for each cluster that may have dynamic exports, at the address
// that is allocated last.
func (m *Model) addDynamic() {
	m.dynamic = map[string]*fabric.Export{}
	for i := range m.fabric.Clusters {
		c := &m.fabric.Clusters[i]
		if m.fabric.DynamicExports == nil || len(c.Dynamic) == 0 {
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
		m.dynamic[c.Name] = e
		m.indexExport(e)
	}
}

func (m *Model) indexExport(e *fabric.Export) {
	addAddrs := func(addrs []netip.Addr) {
		for _, a := range addrs {
			if list := m.exportsAt[a]; len(list) == 0 || list[len(list)-1] != e {
				m.exportsAt[a] = append(list, e)
			}
		}
	}
	addAddrs(e.VIPs)
	udp := slices.ContainsFunc(e.Ports, func(p fabric.Port) bool { return p.Protocol == "UDP" })
	for i := range e.Clusters {
		part := &e.Clusters[i]
		addAddrs(part.IPs)
		for j := range part.Hosts {
			addAddrs(part.Hosts[j].IPs)
		}
		if e.Type == fabric.Headless {
			m.headless[part.Name] = append(m.headless[part.Name], e)
		}
		if udp {
			m.udpExports[part.Name] = append(m.udpExports[part.Name], e)
		}
	}
}

// Fabric returns the fabric of the model.
func (m *Model) Fabric() *fabric.Fabric { return m.fabric }

// Cluster returns a cluster, or nil.
func (m *Model) Cluster(name string) *fabric.Cluster { return m.clusters[name] }

// Connected reports whether two clusters with gateways have a path to each other while all
// links are up.
func (m *Model) Connected(a, b string) bool {
	x, y := m.clusters[a], m.clusters[b]
	return x != nil && y != nil && a != b && len(x.Gateways) > 0 && len(y.Gateways) > 0 && m.components[a] == m.components[b]
}

// Overlapping returns the clusters with a pod or service prefix that overlaps a prefix of
// another cluster, if at least one of the two prefixes is not hidden.
func (m *Model) Overlapping() map[string]bool {
	out := map[string]bool{}
	for i := range m.fabric.Clusters {
		c := &m.fabric.Clusters[i]
		for _, p := range slices.Concat(c.PodCIDRs, c.ServiceCIDRs) {
			for _, owners := range m.flat.overlapping(p) {
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
