package mcs

import (
	"cmp"
	"net/netip"
	"slices"

	"hawser.dev/hawser/schema/fabric"
)

// ClusterView is the input of Decide from the view of one cluster.
type ClusterView struct {
	Fabric  *fabric.Fabric // its dynamic exports are ignored
	Digest  string         // of the fabric, for the message of a condition
	Cluster string
	Exports []Export // of this cluster
	Imports []Import // observed ones of this cluster
	// Namespaces are the existing namespaces, sorted. Without HasAPI all exist.
	Namespaces []string
	// HasAPI reports that Exports and Imports record the addresses, and only recorded ones are
	// used. Without an API the results of Allocate are used directly.
	HasAPI bool
	// Hostnames has the endpoints' hostnames of this cluster's headless Services, by
	// namespace/name; nil if pods need no allocated addresses here.
	Hostnames map[string][]string
	// Unsupported describes the unsupported parts of this cluster's Services, by
	// namespace/name.
	Unsupported map[string][]string
	Offers      map[string][]NamedOffer // by other cluster
}

// NamedOffer is an offer with its name.
type NamedOffer struct {
	Namespace string
	Name      string
	Offer     *Offer
}

func (e *Export) id() string     { return e.Namespace + "/" + e.Name }
func (o *NamedOffer) id() string { return o.Namespace + "/" + o.Name }
func (m *Import) id() string     { return m.Namespace + "/" + m.Name }

// topology is an index of the declared exports and addresses of the fabric.
type topology struct {
	fabric    *fabric.Fabric
	declared  map[string]*fabric.Export      // by namespace/name
	allocated map[string]map[netip.Addr]bool // by cluster; vips for clusterset IPs
}

// vips is the key of the clusterset IPs; no cluster has such a name.
const vips = "/vips"

func indexOf(f *fabric.Fabric) *topology {
	t := &topology{fabric: f, declared: make(map[string]*fabric.Export, len(f.Exports)), allocated: map[string]map[netip.Addr]bool{vips: {}}}
	for i := range f.Clusters {
		c := &f.Clusters[i]
		t.allocated[c.Name] = map[netip.Addr]bool{}
		t.addAllocated(c.Name, c.EgressIPs)
		for j := range c.EgressRules {
			t.addAllocated(c.Name, c.EgressRules[j].IPs)
		}
	}
	for i := range f.Exports {
		if e := &f.Exports[i]; !e.Dynamic {
			t.declared[e.ID()] = e
			t.addAllocated(vips, e.VIPs)
			for i := range e.Clusters {
				part := &e.Clusters[i]
				t.addAllocated(part.Name, part.IPs)
				for j := range part.Hosts {
					t.addAllocated(part.Name, part.Hosts[j].IPs)
				}
			}
		}
	}
	return t
}

func (t *topology) addAllocated(cluster string, addrs []netip.Addr) {
	given := t.allocated[cluster]
	if given == nil {
		return // a cluster that is not in the fabric
	}
	for _, a := range addrs {
		given[a] = true
	}
}

// allocatedIn returns a function that reports whether the topology allocated an address of a
// cluster's blocks.
func (t *topology) allocatedIn(c *fabric.Cluster) func(netip.Addr) bool {
	given := t.allocated[c.Name]
	return func(a netip.Addr) bool {
		return given[a] || slices.ContainsFunc(c.Mappings, func(m fabric.Mapping) bool { return m.Global.Contains(a) })
	}
}

// isAllocatedVIP reports whether the topology allocated a clusterset IP.
func (t *topology) isAllocatedVIP(a netip.Addr) bool { return t.allocated[vips][a] }

// exists reports whether a namespace exists.
func (w *ClusterView) exists(namespace string) bool {
	if !w.HasAPI {
		return true
	}
	_, found := slices.BinarySearch(w.Namespaces, namespace)
	return found
}

// familiesIn returns the families that the cluster has, in the given order, without duplicates. If
// families is empty, it returns all families of the cluster.
func familiesIn(c *fabric.Cluster, families []int) []int {
	if len(families) == 0 {
		families = []int{4, 6}
	}
	var out []int
	for _, fam := range families {
		if (fam == 4 || fam == 6) && c.Has(fam) && !slices.Contains(out, fam) {
			out = append(out, fam)
		}
	}
	return out
}

func comparePorts(a, b Port) int {
	return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.AppProtocol, b.AppProtocol))
}

// Dynamic returns the dynamic exports in the form of the fabric, sorted by namespace/name.
func (d Decision) Dynamic() []fabric.Export {
	var out []fabric.Export
	for i := range d.Services {
		if r := &d.Services[i]; r.Declared == nil {
			e := fabric.Export{
				Namespace: r.Namespace, Name: r.Name, Type: r.Type, VIPs: r.VIPs, Ports: dataPorts(r.Ports), Affinity: r.Affinity,
				Balance: fabric.Balance{Policy: fabric.LocalFirst}, Dynamic: true,
			}
			for i := range r.Parts {
				p := &r.Parts[i]
				part := fabric.ExportCluster{Name: p.Cluster}
				if ports := dataPorts(p.Ports); len(ports) < len(e.Ports) {
					part.Ports = ports
				}
				// Empty Ports mean all ports, so a part without ports gets no
				// address.
				if r.Type != fabric.Headless && len(dataPorts(p.Ports)) > 0 {
					part.IPs = p.Addrs
				}
				if r.Type == fabric.Headless {
					part.Hosts = p.Hosts
				}
				e.Clusters = append(e.Clusters, part)
			}
			slices.SortFunc(e.Clusters, func(a, b fabric.ExportCluster) int { return cmp.Compare(a.Name, b.Name) })
			out = append(out, e)
		}
	}
	return out
}

// dataPorts returns the ports that the data path supports: TCP and UDP.
func dataPorts(ports []Port) []fabric.Port {
	var out []fabric.Port
	for _, p := range ports {
		if p.Protocol != "SCTP" {
			out = append(out, fabric.Port{Name: p.Name, Protocol: p.Protocol, Port: p.Port, AppProtocol: p.AppProtocol})
		}
	}
	return out
}
