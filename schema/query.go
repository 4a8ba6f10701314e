package schema

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fieldpath"
)

// Cluster returns the cluster with a name; nil if absent.
func (s *ClusterSet) Cluster(name string) *Cluster {
	i := slices.IndexFunc(s.Spec.Clusters, func(c Cluster) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &s.Spec.Clusters[i]
}

// ClusterNames returns the names of the clusters in the order of the topology.
func (s *ClusterSet) ClusterNames() []string {
	names := make([]string, len(s.Spec.Clusters))
	for i := range names {
		names[i] = s.Spec.Clusters[i].Name
	}
	return names
}

// GlobalPools returns the pools of global blocks, IPv4 first.
func (s *ClusterSet) GlobalPools() []netip.Prefix {
	return validPrefixes(s.Spec.Globalnet.CIDR, s.Spec.Globalnet.IPv6CIDR)
}

// ServicePools returns the pools of clusterset IPs, IPv4 first.
func (s *ClusterSet) ServicePools() []netip.Prefix {
	return validPrefixes(s.Spec.Services.CIDR, s.Spec.Services.IPv6CIDR)
}

// TunnelPools returns the pools of tunnel addresses, IPv4 first.
func (s *ClusterSet) TunnelPools() []netip.Prefix {
	return validPrefixes(s.Spec.Tunnel.CIDR, s.Spec.Tunnel.IPv6CIDR)
}

// TunnelOf returns spec.tunnel with the overrides of a cluster. The receiver must have
// its defaults.
func (s *ClusterSet) TunnelOf(c *Cluster) Tunnel {
	t := s.Spec.Tunnel
	t.Driver = cmp.Or(c.Tunnel.Driver, t.Driver)
	t.Port = cmp.Or(c.Tunnel.Port, t.Port)
	t.MTU = cmp.Or(c.Tunnel.MTU, t.MTU)
	t.Keepalive = cmp.Or(c.Tunnel.Keepalive, t.Keepalive)
	return t
}

// GatewayPort returns the first UDP port on which a gateway of a cluster listens.
func (s *ClusterSet) GatewayPort(c *Cluster, g *Gateway) int {
	return cmp.Or(g.Port, s.TunnelOf(c).Port)
}

// Gateway returns the gateway of AllGateways with a name; nil if absent.
func (c *Cluster) Gateway(name string) *Gateway {
	all := c.AllGateways()
	i := slices.IndexFunc(all, func(g Gateway) bool { return g.Name == name })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// AllGateways returns the cluster's gateways. An entry with nodeSelector expands to
// count gateways, named <name>-1 and so on.
func (c *Cluster) AllGateways() []Gateway {
	var out []Gateway
	for _, g := range c.Gateways {
		if len(g.NodeSelector) == 0 {
			out = append(out, g)
			continue
		}
		for i := range g.Size() {
			gateway := g
			gateway.Name, gateway.Count = fmt.Sprintf("%s-%d", g.Name, i+1), nil
			out = append(out, gateway)
		}
	}
	return out
}

// Size returns the number of gateways of an entry of the topology: 0 to
// fabric.MaxGateways.
func (g *Gateway) Size() int {
	if len(g.NodeSelector) == 0 || g.Count == nil {
		return 1
	}
	return min(max(*g.Count, 0), fabric.MaxGateways)
}

// Pins returns the cluster's fixed blocks of the global pools, IPv4 first.
func (c *Cluster) Pins() []netip.Prefix { return validPrefixes(c.GlobalCIDR, c.GlobalIPv6CIDR) }

// PinInFamily returns the cluster's fixed block in the family of p, without host bits. It
// is invalid if the cluster has none, or if c is nil.
func (c *Cluster) PinInFamily(p netip.Prefix) netip.Prefix {
	if c == nil {
		return netip.Prefix{}
	}
	if p.Addr().Is4() {
		return c.GlobalCIDR.Masked()
	}
	return c.GlobalIPv6CIDR.Masked()
}

// CIDRs returns the cluster's own prefixes, pods first.
func (c *Cluster) CIDRs() []netip.Prefix { return slices.Concat(c.PodCIDRs, c.ServiceCIDRs) }

// ID returns namespace/name.
func (e *Export) ID() string { return e.Namespace + "/" + e.Name }

// Headless reports whether the export has no clusterset IP.
func (e *Export) Headless() bool { return e.Type == fabric.Headless }

func validPrefixes(prefixes ...netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(prefixes, func(p netip.Prefix) bool { return !p.IsValid() })
}

// HasOwners reports whether the topology names any owners. Without owners every signer may
// change everything.
func (s *ClusterSet) HasOwners() bool {
	return len(s.Spec.Trust.Owners)+len(s.Spec.Trust.Namespaces) > 0 ||
		slices.ContainsFunc(s.Spec.Clusters, func(c Cluster) bool { return len(c.Owners) > 0 })
}

// ClusterOwners returns the owners of a cluster, without trust.owners: patterns of
// principals. It is nil for an unknown cluster.
func (s *ClusterSet) ClusterOwners(name string) []string {
	if c := s.Cluster(name); c != nil {
		return c.Owners
	}
	return nil
}

// NamespaceOwners returns the owners of the exports of a namespace, without trust.owners:
// patterns of principals. For a pattern it returns the owners of all namespaces that the
// pattern matches.
func (s *ClusterSet) NamespaceOwners(pattern string) []string {
	var out []string
	for _, n := range s.Spec.Trust.Namespaces {
		if slices.ContainsFunc(n.Names, func(name string) bool { return fabric.MatchesPattern(name, pattern) }) {
			out = append(out, n.Owners...)
		}
	}
	return out
}

// HasStaticEndpoint reports whether the topology has an address or name for the gateway,
// and not only sources of discovered endpoints (fabric.IsEndpointSource).
func (g *Gateway) HasStaticEndpoint() bool {
	return slices.ContainsFunc(g.Endpoints, func(text string) bool { return !fabric.IsEndpointSource(text) })
}

// HasDiscoveredEndpoint reports whether the gateway has a source of discovered endpoints.
func (g *Gateway) HasDiscoveredEndpoint() bool {
	return slices.ContainsFunc(g.Endpoints, fabric.IsEndpointSource)
}

// ClusterPaths returns the path of each cluster.
func (s *ClusterSet) ClusterPaths() []string {
	return fieldpath.Items("clusters", s.Spec.Clusters, func(c *Cluster) string { return c.Name })
}

// ExportPaths returns the path of each export.
func (s *ClusterSet) ExportPaths() []string {
	return fieldpath.Items("exports", s.Spec.Exports, func(e *Export) string { return fieldpath.Name(e.Namespace, e.Name) })
}

// GatewayPaths returns the path of each gateway of the cluster at path.
func (c *Cluster) GatewayPaths(path string) []string {
	return fieldpath.Items(path+".gateways", c.Gateways, func(g *Gateway) string { return g.Name })
}

// EgressPaths returns the path of each egress rule of the cluster at path.
func (c *Cluster) EgressPaths(path string) []string {
	return fieldpath.Items(path+".egress", c.Egress, func(r *EgressRule) string { return r.Name })
}

// MappablePodCIDRs returns the distinct pod prefixes of a cluster in the families that
// have a global pool. Unless egress is mapped, it omits an IPv6 prefix as large as the
// pool: it would use up the pool, and no other cluster could be mapped.
func (s *ClusterSet) MappablePodCIDRs(c *Cluster) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range c.PodCIDRs {
		p = p.Masked()
		inPool := func(pool netip.Prefix) bool {
			fits := pool.Addr().Is4() || s.Spec.Globalnet.Egress == fabric.EgressMapped || cidr.HostBits(p) < cidr.HostBits(pool)
			return pool.Addr().Is4() == p.Addr().Is4() && fits
		}
		if slices.ContainsFunc(s.GlobalPools(), inPool) && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}
