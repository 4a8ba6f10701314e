package reach

import (
	"iter"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/schema/fabric"
)

// ClientPort is a source port that a client may have.
const ClientPort = 40000

// anyPort is the port of requests to a target without a list of ports.
const anyPort = 1

// Target is an export, prefix or address of a cluster to which clients in other clusters may
// connect. An export has one ready backend.
type Target struct {
	model    *Model
	cluster  string
	addrs    []netip.Addr // at most one per family, unless it is an address
	backends Backends
}

// Export returns a cluster's part of an export. It is nil if the cluster does not export it.
func (m *Model) Export(e *fabric.Export, cluster string) *Target {
	part, c := e.ClusterPart(cluster), m.clusters[cluster]
	if part == nil || c == nil {
		return nil
	}
	backend := Backend{Addrs: SamplePod(c), Ready: true, Ports: make(map[string]int, len(e.Ports))}
	for _, p := range e.Ports {
		backend.Ports[PortID(p)] = p.Port
	}
	t := &Target{model: m, cluster: cluster, backends: Backends{e.ID(): {backend}}}
	switch {
	case len(part.IPs) > 0:
		t.addrs = part.IPs
	case len(part.Hosts) > 0:
		backend.Hostname = strings.Replace(part.Hosts[0].Name, "*", "pod", 1)
		t.backends[e.ID()] = []Backend{backend}
		t.addrs = part.Hosts[0].IPs
	default:
		for _, a := range backend.Addrs {
			if global, ok := remoteAddr(c, a); ok {
				t.addrs = append(t.addrs, global)
			}
		}
	}
	return t
}

// Dynamic returns a target that represents a cluster's dynamic exports. It is nil if the fabric has
// no addresses for dynamic exports of the cluster.
func (m *Model) Dynamic(cluster string) *Target {
	e := m.dynamic[cluster]
	if e == nil {
		return nil
	}
	return m.Export(e, cluster)
}

// Prefix returns a cluster's own prefix of pods or services. It is nil if no podCIDR or
// serviceCIDR of the cluster contains p.
func (m *Model) Prefix(cluster string, p netip.Prefix) *Target {
	c := m.clusters[cluster]
	if c == nil || !slices.ContainsFunc(slices.Concat(c.PodCIDRs, c.ServiceCIDRs), func(own netip.Prefix) bool {
		return own.Bits() <= p.Bits() && own.Contains(p.Addr())
	}) {
		return nil
	}
	return m.Address(cluster, sampleAddr(p))
}

// Address returns an address as a target in a cluster.
func (m *Model) Address(cluster string, a netip.Addr) *Target {
	return &Target{model: m, cluster: cluster, addrs: []netip.Addr{a}}
}

// Addrs returns the addresses of the target in other clusters; empty if it has none.
func (t *Target) Addrs() []netip.Addr { return t.addrs }

// ReachableFrom reports whether pods of another cluster can connect to a port of the target. The
// port of a target without a list of ports is the zero value.
func (t *Target) ReachableFrom(from string, port fabric.Port) bool {
	if t == nil || t.model.clusters[from] == nil {
		return false
	}
	for _, p := range t.Paths(from, SamplePod(t.model.clusters[from]), t.addrs, port) {
		if p.Delivered() {
			return true
		}
	}
	return false
}

// Paths follows the first packet of a connection from a client in another cluster to each requested
// address, such as those of Addrs. It yields the packet's source address. The client has at most
// one address per family; requested addresses of other families are skipped. It yields nothing if
// the clusters have no path to each other.
func (t *Target) Paths(from string, client, requested []netip.Addr, port fabric.Port) iter.Seq2[netip.Addr, Path] {
	return func(yield func(netip.Addr, Path) bool) {
		if !t.model.Connected(from, t.cluster) {
			return
		}
		protocol, number := "tcp", uint16(anyPort)
		if port.Port != 0 {
			protocol, number = strings.ToLower(port.Protocol), uint16(port.Port)
		}
		for _, dst := range requested {
			src, ok := sameFamily(client, dst)
			if !ok {
				continue
			}
			if !yield(src, t.model.forwardingPath(from, t.cluster, Packet{From: Pod, Protocol: protocol,
				Src: netip.AddrPortFrom(src, ClientPort), Dst: netip.AddrPortFrom(dst, number)}, t.backends)) {
				return
			}
		}
	}
}

// Path is how two gateways forward a packet of a pod to another cluster.
type Path struct {
	Out Verdict   // of the gateway of the pod's cluster
	In  []Verdict // of the gateway of the other cluster, per source address that the packet may have
}

func (m *Model) forwardingPath(from, to string, p Packet, backends Backends) Path {
	path := Path{Out: m.Allowed(nil, from, p)}
	if path.Out.To != Tunnel {
		return path
	}
	srcs := path.Out.Srcs
	if len(srcs) == 0 {
		srcs = []netip.Addr{p.Src.Addr()}
	}
	for _, dst := range path.Out.Dst {
		if !m.RoutesTo(to, dst.Addr()) {
			continue
		}
		for _, src := range srcs {
			path.In = append(path.In, m.Allowed(backends, to, Packet{
				From: Tunnel, Cluster: from, Protocol: p.Protocol, Src: netip.AddrPortFrom(src, p.Src.Port()), Dst: dst,
			}))
		}
	}
	return path
}

// Delivered reports whether the packet arrives at a pod or a ClusterIP.
func (w Path) Delivered() bool {
	return slices.ContainsFunc(w.In, func(v Verdict) bool { return v.To == Pod || v.To == Service })
}

// ExportsAt returns the exports with an address: a clusterset IP, or the address of a part or a
// host.
func (m *Model) ExportsAt(a netip.Addr) []*fabric.Export {
	return slices.DeleteFunc(slices.Clone(m.exportsAt[a]), func(e *fabric.Export) bool { return e.Dynamic })
}

// RoutesTo reports whether other clusters route an address to a cluster.
func (m *Model) RoutesTo(cluster string, a netip.Addr) bool {
	c := m.clusters[cluster]
	return c != nil && (inAny(c.GlobalCIDRs, a) || !c.IsGlobalnet(fabric.Family(a)) && inAny(slices.Concat(c.PodCIDRs,
		c.ServiceCIDRs), a))
}

// Owner returns the cluster to which another cluster routes an address, or "".
func (m *Model) Owner(a netip.Addr, from string) string {
	for _, owner := range m.blocks.ownersOf(a, from) {
		return owner
	}
	for prefix, owner := range m.flat.ownersOf(a, from) {
		if own := m.clusters[from]; own != nil && (&gatewayView{Model: m, cluster: own}).isUntranslated(m.clusters[owner], prefix) {
			return owner
		}
	}
	return ""
}

// SamplePod returns an address of a pod of a cluster in each family. If the cluster has no
// podCIDRs, it returns documentation addresses.
func SamplePod(c *fabric.Cluster) []netip.Addr {
	var out []netip.Addr
	for _, p := range c.PodCIDRs {
		if a := sampleAddr(p); !slices.ContainsFunc(out, func(o netip.Addr) bool { return o.Is4() == a.Is4() }) {
			out = append(out, a)
		}
	}
	if len(c.PodCIDRs) == 0 {
		out = []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, 1}), netip.MustParseAddr("2001:db8::1")}
	}
	return out
}

// sampleAddr returns the second address of a prefix, or the only one.
func sampleAddr(p netip.Prefix) netip.Addr {
	if a := p.Masked().Addr().Next(); p.Contains(a) {
		return a
	}
	return p.Addr()
}

// remoteAddr returns the address of a pod in other clusters.
func remoteAddr(c *fabric.Cluster, a netip.Addr) (netip.Addr, bool) {
	if !c.IsGlobalnet(fabric.Family(a)) {
		return a, true
	}
	for _, m := range c.Mappings {
		if m.Pods.Contains(a) {
			return translate(a, m.Global), true
		}
	}
	return netip.Addr{}, false
}
