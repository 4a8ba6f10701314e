package render

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/linkconfig"
	"hawser.dev/hawser/schema/lockfile"
	"hawser.dev/hawser/schema/overlap"
)

// KeySource returns the public keys of a gateway for an epoch. A key is empty if unknown.
type KeySource func(cluster, gateway string, epoch int) (fabric.Key, error)

// Fabric compiles the fabric of a clusterset. The lock must be up to date: a missing allocation is
// an error (code lock-stale). An unknown key is an error, too (code no-root-key).
func Fabric(top *schema.ClusterSet, lock *lockfile.Lock, public KeySource) (*fabric.Fabric, diag.List) {
	b := &builder{top: top, lock: lock, keySource: public, globalnet: overlap.MappedClusters(top), globalnetFamilies: overlap.MappedFamilies(top), links: linkconfig.Resolve(top),
		blocks: map[string][]netip.Prefix{}}
	s := &top.Spec
	f := &fabric.Fabric{
		APIVersion: fabric.APIVersion, Name: top.Metadata.Name, Domain: s.Domain, ExtraDomains: sorted(s.ExtraDomains),
		GlobalPools: maskedSorted(top.GlobalPools()), ServicePools: maskedSorted(top.ServicePools()), TunnelPools: maskedSorted(top.TunnelPools()),
		Tunnel: fabric.TunnelDefaults{Driver: s.Tunnel.Driver, MTU: s.Tunnel.MTU, Keepalive: *s.Tunnel.Keepalive,
			IPsec: fabric.IPsec{Encapsulation: s.Tunnel.IPsec.Encapsulation, IKEPort: s.Tunnel.IPsec.IKEPort, NATPort: s.Tunnel.IPsec.NATPort,
				Proposals: s.Tunnel.IPsec.Proposals, Rekey: s.Tunnel.IPsec.Rekey}},
		Links:          b.links.Overrides(),
		Shape:          linkconfig.Shape(top),
		Health:         fabric.Health{Interval: s.Health.Interval, Misses: s.Health.Misses},
		Limits:         fabric.Limits{Connections: *s.Limits.Connections},
		DNS:            fabric.DNS{ClusterNames: *s.DNS.ClusterNames, TTL: *s.DNS.TTL, Address: s.DNS.Address, IPv6Address: s.DNS.IPv6Address},
		Epochs:         sorted(s.Keys.Epochs),
		Decommission:   s.Decommission,
		DynamicExports: dynamicExports(top),
		Clusters:       make([]fabric.Cluster, len(s.Clusters)),
	}
	for i := range s.Clusters {
		b.globalBlocks(s.Clusters[i].Name)
	}
	// Derive keys concurrently, because it takes longer than all other steps together.
	found := make([]diag.List, len(s.Clusters))
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range s.Clusters {
		group.Go(func() error {
			clusterBuilder := *b
			f.Clusters[i] = clusterBuilder.cluster(&s.Clusters[i])
			found[i] = clusterBuilder.list
			return nil
		})
	}
	_ = group.Wait()
	b.list = slices.Concat(found...)
	slices.SortFunc(f.Clusters, func(x, y fabric.Cluster) int { return cmp.Compare(x.Name, y.Name) })
	b.rejectSharedKeys(f)
	for i := range s.Exports {
		f.Exports = append(f.Exports, b.export(&s.Exports[i]))
	}
	slices.SortFunc(f.Exports, func(x, y fabric.Export) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	b.list.Sort()
	return f, b.list
}

type builder struct {
	top               *schema.ClusterSet
	lock              *lockfile.Lock
	keySource         KeySource
	globalnet         map[string]bool             // clusters with globalnet
	globalnetFamilies map[string]overlap.Families // clusters with globalnet, by family
	links             *linkconfig.Settings
	blocks            map[string][]netip.Prefix // of the families with a pool, by cluster
	list              diag.List
}

func (b *builder) cluster(c *schema.Cluster) fabric.Cluster {
	path := fmt.Sprintf("clusters[%s]", c.Name)
	blocks := b.globalBlocks(c.Name)
	if len(blocks) < len(b.top.GlobalPools()) {
		b.addStale(path, "a global block")
	}
	out := fabric.Cluster{
		Name: c.Name, PodCIDRs: maskedSorted(c.PodCIDRs), ServiceCIDRs: maskedSorted(c.ServiceCIDRs), Globalnet: b.globalnet[c.Name],
		GlobalCIDRs: blocks, EgressMode: fabric.EgressShared,
		EgressIPs: b.lockedAddrs(path, b.lock.Egress(c.Name), b.top.Spec.Globalnet.EgressIPs, blocks),
	}
	out.Dynamic = b.lock.DynamicRanges(b.top, c.Name)
	switch c.DNS {
	case fabric.DNSNone:
	case fabric.DNSAuto: // older agents ignore PreferCustomDNS and write ClusterDNS
		out.ClusterDNS, out.PreferCustomDNS = fabric.DNSCoreDNS, true
	default:
		out.ClusterDNS = c.DNS
	}
	if c.NodeNetwork != fabric.NodeTunnel {
		out.NodeNetwork = c.NodeNetwork
	}
	if out.Globalnet {
		for _, family := range []int{4, 6} {
			if out.Has(family) && !b.usesGlobalnet(c.Name, family) {
				out.FlatFamilies = append(out.FlatFamilies, family)
			}
		}
	}
	if b.lock.Mapped(b.top, c) {
		out.EgressMode = fabric.EgressMapped
		out.Mappings = b.mappings(c, out.PodCIDRs)
		out.GlobalCIDRs = withExtensionBlocks(blocks, out.Mappings)
	}
	for _, r := range c.Egress {
		rule := fabric.EgressRule{Name: r.Name, Namespace: r.Namespace,
			IPs: b.lockedAddrs(fmt.Sprintf("%s.egress[%s]", path, r.Name), b.lock.EgressRule(c.Name, r.Name), r.IPs, blocks)}
		if r.PodSelector != nil {
			rule.MatchLabels = maps.Clone(r.PodSelector.MatchLabels)
		}
		out.EgressRules = append(out.EgressRules, rule)
	}
	slices.SortFunc(out.EgressRules, func(x, y fabric.EgressRule) int { return cmp.Compare(x.Name, y.Name) })
	for _, g := range c.AllGateways() {
		out.Gateways = append(out.Gateways, b.gateway(c, &g))
	}
	slices.SortFunc(out.Gateways, func(x, y fabric.Gateway) int { return cmp.Compare(x.Name, y.Name) })
	return out
}

// dynamicExports returns the rules with sorted patterns, so that the order in the file has no
// effect.
func dynamicExports(top *schema.ClusterSet) *fabric.DynamicExports {
	d := top.Spec.DynamicExports
	if d == nil {
		return nil
	}
	out := &fabric.DynamicExports{VIPs: maskedSorted(top.DynamicVIPs())}
	var namespaces []string
	for _, rule := range d.Rules {
		namespaces = append(namespaces, rule.Namespaces...)
		if len(rule.Clusters) > 0 {
			out.Restrictions = append(out.Restrictions, fabric.DynamicRestriction{Namespaces: sorted(rule.Namespaces), Clusters: sorted(rule.Clusters)})
		}
	}
	out.Namespaces = slices.Compact(sorted(namespaces))
	slices.SortFunc(out.Restrictions, func(a, b fabric.DynamicRestriction) int {
		return cmp.Or(slices.Compare(a.Namespaces, b.Namespaces), slices.Compare(a.Clusters, b.Clusters))
	})
	return out
}

// withExtensionBlocks adds a cluster's extension blocks to its blocks. These are the mapped
// prefixes outside of the blocks.
func withExtensionBlocks(blocks []netip.Prefix, mappings []fabric.Mapping) []netip.Prefix {
	out := slices.Clone(blocks)
	for _, m := range mappings {
		if !slices.ContainsFunc(blocks, m.Global.Overlaps) {
			out = append(out, m.Global)
		}
	}
	slices.SortStableFunc(out, func(x, y netip.Prefix) int { return cmp.Compare(x.Addr().BitLen(), y.Addr().BitLen()) })
	return out
}

// usesGlobalnet reports whether a cluster uses globalnet for a family.
func (b *builder) usesGlobalnet(cluster string, family int) bool {
	if family == 4 {
		return b.globalnetFamilies[cluster].IPv4
	}
	return b.globalnetFamilies[cluster].IPv6
}

// mappings returns the mapping of each pod prefix. A flat cluster has no mappings: its pods use
// their own addresses.
func (b *builder) mappings(c *schema.Cluster, pods []netip.Prefix) []fabric.Mapping {
	if !b.globalnet[c.Name] {
		return nil
	}
	var out []fabric.Mapping
	for _, p := range slices.Compact(slices.Clone(pods)) {
		if m, ok := b.lock.Mapping(c.Name, p); ok && b.usesGlobalnet(c.Name, fabric.Family(p.Addr())) {
			out = append(out, fabric.Mapping{Pods: p, Global: m})
		}
	}
	return out
}

func (b *builder) gateway(c *schema.Cluster, g *schema.Gateway) fabric.Gateway {
	path := fmt.Sprintf("clusters[%s].gateways[%s]", c.Name, g.Name)
	out := fabric.Gateway{
		Name: g.Name, Node: g.Node, NodeSelector: maps.Clone(g.NodeSelector), Endpoints: g.Endpoints, Port: b.top.GatewayPort(c, g),
		Addresses: b.lockedAddrs(path, b.lock.Gateway(c.Name, g.Name), 1,
			maskedSorted(b.top.TunnelPools())),
	}
	ordinal, ok := b.lock.Ordinal(c.Name, g.Name)
	if !ok {
		b.addStale(path, "its ordinal")
	}
	out.Ordinal = ordinal
	for _, epoch := range sorted(b.top.Spec.Keys.Epochs) {
		out.Keys = append(out.Keys, b.key(c.Name, g, path, epoch))
	}
	return out
}

// rejectSharedKeys rejects a gateway with the public key of another gateway. Agents identify peers
// by their keys, so the gateway would replace the other one. Users can write a gateway's key into
// the topology, and anyone can copy another gateway's derived key there.
func (b *builder) rejectSharedKeys(f *fabric.Fabric) {
	owners := map[string]string{}
	for i := range f.Clusters {
		for _, g := range f.Clusters[i].Gateways {
			path := fmt.Sprintf("clusters[%s].gateways[%s]", f.Clusters[i].Name, g.Name)
			fromTopology := b.top.Cluster(f.Clusters[i].Name).Gateway(g.Name)
			for _, k := range g.Keys {
				for _, part := range []struct{ key, field, fromTopology string }{
					{k.Public, ".publicKey", fromTopology.PublicKey}, {k.Ed25519, ".ikePublicKey", fromTopology.IKEPublicKey},
				} {
					other, exists := owners[part.key]
					if part.key == "" || part.key == KnownAfterPublish || other == path {
						continue
					}
					if !exists {
						owners[part.key] = path
						continue
					}
					reportedPath, relatedPath := path, other
					if part.fromTopology == "" {
						reportedPath, relatedPath = other, path
					}
					b.list = append(b.list, diag.Diagnostic{Severity: diag.Error, Code: "duplicate", Path: reportedPath + part.field,
						Summary: "another gateway has the same public key",
						Related: []diag.Related{{Path: relatedPath}}})
				}
			}
		}
	}
}

// key returns the public keys of a gateway for all drivers. A link that changes its driver needs
// the tunnels of both drivers during the change. Keys from the topology are valid in every epoch,
// and no key is derived for such a gateway.
func (b *builder) key(cluster string, g *schema.Gateway, path string, epoch int) fabric.Key {
	fromTopology := fabric.Key{Epoch: epoch, Public: strings.TrimSpace(g.PublicKey), Ed25519: strings.TrimSpace(g.IKEPublicKey)}
	if fromTopology.Public != "" {
		return fromTopology
	}
	key, err := b.keySource(cluster, g.Name, epoch)
	key.Epoch, key.Ed25519 = epoch, cmp.Or(fromTopology.Ed25519, key.Ed25519)
	if err != nil {
		b.list = append(b.list, diag.Diagnostic{Severity: diag.Error, Code: "bad-key", Path: path, Summary: err.Error()})
	} else if key.Public == "" || key.Ed25519 == "" {
		b.list = append(b.list, rootKeyNeeded(path, "its tunnel keys are not published yet, and only the root key can derive them"))
	}
	return key
}

// rootKeyNeeded returns the finding for an operation that requires the root key.
func rootKeyNeeded(path, summary string) diag.Diagnostic {
	return diag.Diagnostic{Severity: diag.Error, Code: "no-root-key", Path: path, Summary: summary,
		Hint: "give the root key; hawser keys root makes one for a new clusterset"}
}

// globalBlocks returns a cluster's blocks within the current pools.
func (b *builder) globalBlocks(cluster string) []netip.Prefix {
	if cached, ok := b.blocks[cluster]; ok {
		return cached
	}
	var out []netip.Prefix
	for _, block := range b.lock.Blocks(cluster) {
		if slices.ContainsFunc(b.top.GlobalPools(), func(p netip.Prefix) bool { return p.Overlaps(block) }) {
			out = append(out, block)
		}
	}
	b.blocks[cluster] = out
	return out
}

// lockedAddrs returns the first n addresses of each family from the lock, and reports missing ones.
func (b *builder) lockedAddrs(path string, addrs []netip.Addr, n int, pools []netip.Prefix) []netip.Addr {
	out := lockfile.FirstPerFamily(addrs, n, pools)
	if len(out) < n*len(pools) {
		b.addStale(path, fmt.Sprintf("%d of %d addresses", n*len(pools)-len(out), n*len(pools)))
	}
	return out
}

func (b *builder) addStale(path, what string) {
	b.list = append(b.list, diag.Diagnostic{Severity: diag.Error, Code: "lock-stale", Path: path,
		Summary: "the lock lacks " + what, Hint: "run hawser allocate, and commit the lock"})
}

func sorted[T cmp.Ordered](list []T) []T {
	return sortedFunc(list, cmp.Compare[T])
}

// sortedFunc returns a sorted copy of a list.
func sortedFunc[T any](list []T, compare func(a, b T) int) []T {
	out := slices.Clone(list)
	slices.SortFunc(out, compare)
	return out
}

// maskedSorted returns the prefixes without host bits, sorted: IPv4 first.
func maskedSorted(prefixes []netip.Prefix) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(prefixes))
	for _, p := range prefixes {
		out = append(out, p.Masked())
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return out
}
