package allocate

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fieldpath"
	"hawser.dev/hawser/schema/lockfile"
	"hawser.dev/hawser/schema/overlap"
)

// allocateMappings maps each pod prefix to a part of the upper half of the cluster's
// block, if all prefixes of the cluster fit.
func (a *allocator) allocateMappings() {
	for name, c := range a.lock.Clusters {
		a.retainMappings(name, c)
	}
	if a.top.Spec.Globalnet.Egress == fabric.EgressShared {
		return
	}
	used := map[string][]netip.Addr{} // addresses of claims in each cluster's block
	for s, h := range a.lock.Addrs {
		if s.Kind != lockfile.ClaimGateway && s.Kind != lockfile.ClaimClusterSetIP {
			used[s.Cluster] = append(used[s.Cluster], h.Addrs...)
		}
	}
	for i := range a.top.Spec.Clusters {
		c := &a.top.Spec.Clusters[i]
		a.mapCluster(c, used[c.Name])
	}
}

// reportUnreachablePods warns of headless exports without hostnames in clusters whose pods share
// egress addresses. With mapped egress every pod has its own global address, as pods of dynamic
// exports do.
func (a *allocator) reportUnreachablePods() {
	globalnet := overlap.MappedClusters(a.top)
	for i := range a.top.Spec.Exports {
		e := &a.top.Spec.Exports[i]
		if !e.Headless() || e.Hostnames.Count != 0 || len(e.Hostnames.Names) > 0 {
			continue
		}
		for _, name := range e.Clusters {
			c := a.clusters[name]
			if c == nil || !globalnet[name] || a.lock.Mapped(a.top, c) {
				continue
			}
			a.list = append(a.list, diag.Diagnostic{Severity: diag.Warning, Code: "no-hostnames", Path: fieldpath.Key("exports", e.ID()),
				Summary: fmt.Sprintf("other clusters cannot reach the pods in cluster %s: they share egress addresses and have no global address of their own", name),
				Hint:    "set hostnames to the number of the StatefulSet's replicas, or to a list of hostnames"})
		}
	}
}

// retainMappings drops mappings outside the cluster's blocks and extensions. Of two
// overlapping mappings (after a merge of two branches) it drops the later one; pod
// prefixes of the topology come before removed ones.
func (a *allocator) retainMappings(name string, c *lockfile.Cluster) {
	var podCIDRs []netip.Prefix
	if member := a.clusters[name]; member != nil {
		podCIDRs = a.top.MappablePodCIDRs(member)
	}
	order := lockfile.SortedPrefixes(c.Mappings)
	isCurrent := func(p netip.Prefix) bool { return slices.Contains(podCIDRs, p) }
	order = slices.Concat(filter(order, isCurrent), filter(order, func(p netip.Prefix) bool { return !isCurrent(p) }))
	var retained []netip.Prefix
	for _, pods := range order {
		m := c.Mappings[pods]
		if !c.Contains(m.Prefix) {
			delete(c.Mappings, pods)
			continue
		}
		if i := slices.IndexFunc(retained, func(k netip.Prefix) bool { return c.Mappings[k].Prefix.Overlaps(m.Prefix) }); i >= 0 {
			other := c.Mappings[retained[i]]
			delete(c.Mappings, pods)
			path := fieldpath.Key("clusters", name) + ".mappings"
			a.list = append(a.list, diag.Diagnostic{Severity: diag.Warning, Code: "lock-conflict", Path: fieldpath.Key(path, pods.String()), Pos: m.Pos,
				Related: []diag.Related{{Path: fieldpath.Key(path, retained[i].String()), Pos: other.Pos}},
				Summary: fmt.Sprintf("is mapped to %s, which belongs to %s; it gets another", m.Prefix, retained[i])})
			continue
		}
		retained = append(retained, pods)
	}
}

// mapCluster maps all pod prefixes that are not mapped yet, or none of them. The
// mappings of removed prefixes stay reserved; if they leave no room in the block, new
// prefixes are mapped to extensions.
func (a *allocator) mapCluster(c *schema.Cluster, used []netip.Addr) {
	entry, live := a.lock.Cluster(c.Name), a.top.MappablePodCIDRs(c)
	missing := filter(live, func(p netip.Prefix) bool { return !entry.Mapped(p) })
	if len(missing) == 0 {
		return
	}
	slices.SortFunc(missing, func(x, y netip.Prefix) int { return cmp.Or(cmp.Compare(x.Bits(), y.Bits()), x.Compare(y)) })
	found := allocateSameSize(missing, upperHalves(entry, used))
	if found == nil && len(entry.Mappings) > 0 {
		found = a.extendBlock(c.Name, entry, missing, upperHalves(entry, used))
	}
	if found == nil {
		a.reportUnmappable(c)
		return
	}
	for i, p := range missing {
		entry.Mappings[p] = lockfile.PrefixAllocation{Prefix: found[i]}
		a.added = append(a.added, fieldpath.Key(fieldpath.Key("clusters", c.Name)+".mappings", p.String()))
	}
	a.reportExtensions(c, missing, found)
	entry.SortExtensionBlocks()
}

// allocateSameSize allocates a prefix of the same size for each prefix. It returns nil if one does
// not fit.
func allocateSameSize(prefixes []netip.Prefix, halves map[bool]*prefixPool) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(prefixes))
	for _, p := range prefixes {
		half := halves[p.Addr().Is4()]
		if half == nil {
			return nil
		}
		m, ok := half.find(cidr.HostBits(p))
		if !ok {
			return nil
		}
		half.markUsed(m)
		out = append(out, m)
	}
	return out
}

// upperHalves returns the upper half of the cluster's block of each family, with its
// mappings and single addresses marked as used.
func upperHalves(c *lockfile.Cluster, used []netip.Addr) map[bool]*prefixPool {
	out := map[bool]*prefixPool{}
	for _, b := range c.Blocks {
		if cidr.HostBits(b.Prefix) == 0 {
			continue
		}
		lower := netip.PrefixFrom(b.Prefix.Addr(), b.Prefix.Bits()+1)
		half := newPrefixPool(netip.PrefixFrom(cidr.Last(lower).Next(), lower.Bits()))
		usedPrefixes := make([]netip.Prefix, 0, len(c.Mappings))
		for _, m := range c.Mappings {
			usedPrefixes = append(usedPrefixes, m.Prefix)
		}
		for _, addr := range used {
			usedPrefixes = append(usedPrefixes, cidr.Single(addr))
		}
		slices.SortFunc(usedPrefixes, netip.Prefix.Compare)
		for _, p := range usedPrefixes {
			if _, clash := half.overlap(p); !clash && half.pool.Overlaps(p) {
				half.markUsed(p)
			}
		}
		out[b.Prefix.Addr().Is4()] = half
	}
	return out
}

// reportUnmappable reports a cluster whose pod prefixes do not fit: an error with egress
// mapped, a warning if the cluster was mapped before. With egress auto it is shared.
func (a *allocator) reportUnmappable(c *schema.Cluster) {
	required := a.top.Spec.Globalnet.Egress == fabric.EgressMapped
	pods := a.top.MappablePodCIDRs(c)
	wasMapped := slices.ContainsFunc(pods, func(p netip.Prefix) bool {
		_, ok := a.lock.Mapping(c.Name, p)
		return ok
	})
	if !required && !wasMapped || len(a.lock.Clusters[c.Name].Blocks) == 0 {
		return
	}
	d := diag.Diagnostic{Severity: diag.Warning, Code: "becomes-shared", Path: fieldpath.Key("clusters", c.Name) + ".podCIDRs",
		Hint: "pin a larger globalCIDR, or use globalnet.egress: auto or shared"}
	if required {
		d.Severity, d.Code = diag.Error, "block-too-small"
	} else {
		d.Hint = "its pods share the egress addresses; a larger globalCIDR would map them, and move the cluster"
	}
	d.Summary = fmt.Sprintf("the block %s is too small to map %s: half of it is for the pods, so it needs a /%d",
		humanize.Join(a.lock.Blocks(c.Name), ", "), humanize.Join(pods, ", "), pods[0].Addr().BitLen()-1-cidr.SumBits(pods))
	a.list = append(a.list, d)
}

// shortage counts the addresses that do not fit into one pool.
type shortage struct {
	count int
	first lockfile.Request
}

func addShortage(full map[*addrPool]*shortage, a *addrPool, d lockfile.Request) {
	if full[a] == nil {
		full[a] = &shortage{first: d}
	}
	full[a].count++
}

// reportShortages reports for each full pool the missing, used and reserved addresses.
func (a *allocator) reportShortages(full map[*addrPool]*shortage) {
	for pool, s := range full {
		reserved := 0
		for _, owner := range pool.used {
			if !a.requested[owner] {
				reserved++
			}
		}
		code, what, hint := "block-full", "the block "+pool.block.String()+" of clusters["+s.first.Cluster+"]",
			"pin a larger globalCIDR that contains it, or free the addresses of removed items with hawser allocate --gc"
		switch s.first.Pool() {
		case lockfile.TunnelPool:
			code, what, hint = "pool-exhausted", "the pool tunnel.cidr "+pool.block.String(), "make the pool larger"
		case lockfile.VIPPool:
			code, what, hint = "pool-exhausted", "the pool services.cidr "+pool.block.String(),
				"make the pool larger, or free the addresses of removed items with hawser allocate --gc"
		}
		if pool.reserved.IsValid() {
			what += fmt.Sprintf(" (without %s for dynamic exports)", pool.reserved)
		}
		a.list = append(a.list, diag.Diagnostic{Severity: diag.Error, Code: code, Path: s.first.Path,
			Summary: fmt.Sprintf("%s is full: %d more needed, %d in use, %d reserved for removed items",
				what, s.count, len(pool.used)-reserved, reserved), Hint: hint})
	}
}

func filter[T any](list []T, match func(T) bool) []T {
	var out []T
	for _, e := range list {
		if match(e) {
			out = append(out, e)
		}
	}
	return out
}
