package schema

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema/fabric"
)

// mappable gives the pod prefixes of a cluster in the families that have a
// global pool, without repetition. An IPv6 prefix that is as large as the pool is
// left out where nobody asks for it, as it would keep the others from being mapped.
func mappable(top *ClusterSet, c *Cluster) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range c.PodCIDRs {
		p = p.Masked()
		has := func(pool netip.Prefix) bool {
			fits := pool.Addr().Is4() || top.Spec.Globalnet.Egress == fabric.EgressMapped || hostBits(p) < hostBits(pool)
			return pool.Addr().Is4() == p.Addr().Is4() && fits
		}
		if slices.ContainsFunc(top.GlobalPools(), has) && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// allocateMappings gives each pod prefix its part of the upper half of the
// cluster's block, when all of them fit.
func (a *allocator) allocateMappings() {
	for name, c := range a.lock.clusters {
		a.keepMappings(name, c)
	}
	if a.top.Spec.Globalnet.Egress == fabric.EgressShared {
		return
	}
	used := a.usedByCluster()
	for i := range a.top.Spec.Clusters {
		c := &a.top.Spec.Clusters[i]
		a.mapCluster(c, used[c.Name])
	}
}

// keepMappings drops what lies outside the cluster's blocks and annexes, and of two
// mappings to the same place (a merge of two branches) the later one; pod
// prefixes that the topology still has come first.
func (a *allocator) keepMappings(name string, c *lockedCluster) {
	var live []netip.Prefix
	if member := a.members[name]; member != nil {
		live = mappable(a.top, member)
	}
	order := sortedPrefixes(c.mappings)
	isLive := func(p netip.Prefix) bool { return slices.Contains(live, p) }
	order = slices.Concat(filter(order, isLive), filter(order, func(p netip.Prefix) bool { return !isLive(p) }))
	var kept []netip.Prefix
	for _, pods := range order {
		m := c.mappings[pods]
		if !c.holds(m.prefix) {
			delete(c.mappings, pods)
			continue
		}
		if i := slices.IndexFunc(kept, func(k netip.Prefix) bool { return c.mappings[k].prefix.Overlaps(m.prefix) }); i >= 0 {
			other := c.mappings[kept[i]]
			delete(c.mappings, pods)
			path := at("clusters", name) + ".mappings"
			a.list = append(a.list, diag.Diagnostic{Severity: diag.Warning, Code: "lock-conflict", Path: at(path, pods.String()), Pos: m.pos,
				Related: []diag.Related{{Path: at(path, kept[i].String()), Pos: other.pos}},
				Summary: fmt.Sprintf("is mapped to %s, which belongs to %s; it gets another", m.prefix, kept[i])})
			continue
		}
		kept = append(kept, pods)
	}
}

func filter[T any](list []T, keep func(T) bool) []T {
	var out []T
	for _, e := range list {
		if keep(e) {
			out = append(out, e)
		}
	}
	return out
}

// usedByCluster gives the addresses that the slots of each cluster's block have.
func (a *allocator) usedByCluster() map[string][]netip.Addr {
	used := map[string][]netip.Addr{}
	for s, h := range a.lock.addrs {
		if s.kind != slotGateway && s.kind != slotVIP {
			used[s.cluster] = append(used[s.cluster], h.addrs...)
		}
	}
	return used
}

// mapCluster maps all pod prefixes that are not mapped yet, or none of them. What
// is still reserved for prefixes that the cluster no longer has stays reserved:
// where it leaves no room in the block, the new ones are mapped beside it.
func (a *allocator) mapCluster(c *Cluster, used []netip.Addr) {
	entry, live := a.lock.cluster(c.Name), mappable(a.top, c)
	missing := filter(live, func(p netip.Prefix) bool { return !entry.mapped(p) })
	if len(missing) == 0 {
		return
	}
	slices.SortFunc(missing, func(x, y netip.Prefix) int { return cmp.Or(cmp.Compare(x.Bits(), y.Bits()), x.Compare(y)) })
	found := place(missing, entry.upperHalves(entry.mappings, used))
	if found == nil && len(entry.mappings) > 0 {
		found = a.annex(c.Name, entry, missing, entry.upperHalves(entry.mappings, used))
	}
	if found == nil {
		a.cannotMap(c)
		return
	}
	for i, p := range missing {
		entry.mappings[p] = heldPrefix{prefix: found[i]}
		a.added = append(a.added, at(at("clusters", c.Name)+".mappings", p.String()))
	}
	a.reportAnnexes(c, missing, found)
	entry.sortAnnexes()
}

func (c *lockedCluster) mapped(pods netip.Prefix) bool {
	_, ok := c.mappings[pods]
	return ok
}

// place finds room for each prefix, as large as it is; nil when one does not fit.
func place(prefixes []netip.Prefix, halves map[bool]*space) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(prefixes))
	for _, p := range prefixes {
		half := halves[p.Addr().Is4()]
		if half == nil {
			return nil
		}
		m, ok := half.find(hostBits(p))
		if !ok {
			return nil
		}
		half.take(m)
		out = append(out, m)
	}
	return out
}

// upperHalves gives the upper half of the cluster's block of each family, less
// the mappings there and what single addresses occupy.
func (c *lockedCluster) upperHalves(mappings map[netip.Prefix]heldPrefix, used []netip.Addr) map[bool]*space {
	out := map[bool]*space{}
	for _, b := range c.blocks {
		if hostBits(b.prefix) == 0 {
			continue
		}
		lower := netip.PrefixFrom(b.prefix.Addr(), b.prefix.Bits()+1)
		half := &space{pool: netip.PrefixFrom(lastOf(lower).Next(), lower.Bits())}
		taken := make([]netip.Prefix, 0, len(mappings))
		for _, m := range mappings {
			taken = append(taken, m.prefix)
		}
		for _, addr := range used {
			taken = append(taken, netip.PrefixFrom(addr, addr.BitLen()))
		}
		slices.SortFunc(taken, netip.Prefix.Compare)
		for _, p := range taken {
			if _, clash := half.overlap(p); !clash && half.pool.Overlaps(p) {
				half.take(p)
			}
		}
		out[b.prefix.Addr().Is4()] = half
	}
	return out
}

// cannotMap reports a cluster that does not fit: an error when it must be
// mapped, a warning when it was. With egress auto it is shared instead.
func (a *allocator) cannotMap(c *Cluster) {
	must := a.top.Spec.Globalnet.Egress == fabric.EgressMapped
	pods := mappable(a.top, c)
	was := slices.ContainsFunc(pods, func(p netip.Prefix) bool {
		_, ok := a.lock.Mapping(c.Name, p)
		return ok
	})
	if !must && !was || len(a.lock.clusters[c.Name].blocks) == 0 {
		return
	}
	d := diag.Diagnostic{Severity: diag.Warning, Code: "becomes-shared", Path: at("clusters", c.Name) + ".podCIDRs",
		Hint: "pin a larger globalCIDR, or use globalnet.egress: auto or shared"}
	if must {
		d.Severity, d.Code = diag.Error, "block-too-small"
	} else {
		d.Hint = "its pods share the egress addresses; a larger globalCIDR would map them, and move the cluster"
	}
	d.Summary = fmt.Sprintf("the block %s is too small to map %s: half of it is for the pods, so it takes a /%d",
		list(a.lock.Blocks(c.Name)), list(pods), pods[0].Addr().BitLen()-1-sumBits(pods))
	a.list = append(a.list, d)
}

func list(prefixes []netip.Prefix) string {
	texts := make([]string, len(prefixes))
	for i, p := range prefixes {
		texts[i] = p.String()
	}
	return strings.Join(texts, ", ")
}

// shortage is what does not fit into one area.
type shortage struct {
	count int
	first demand
}

func noteShortage(full map[*area]*shortage, a *area, d demand) {
	if full[a] == nil {
		full[a] = &shortage{first: d}
	}
	full[a].count++
}

// reportShortages tells for each full area how much is missing, and who uses it.
func (a *allocator) reportShortages(full map[*area]*shortage) {
	live := make(map[slot]bool, len(a.demands))
	for _, d := range a.demands {
		live[d.slot] = true
	}
	for area, s := range full {
		reserved := 0
		for _, owner := range area.used {
			if !live[owner] {
				reserved++
			}
		}
		code, what, hint := "block-full", "the block "+area.block.String()+" of clusters["+s.first.cluster+"]",
			"pin a larger globalCIDR that contains it, or free what was removed with hawser allocate --gc"
		switch s.first.area() {
		case tunnelArea:
			code, what, hint = "pool-exhausted", "the pool tunnel.cidr "+area.block.String(), "make the pool larger"
		case vipArea:
			code, what, hint = "pool-exhausted", "the pool services.cidr "+area.block.String(),
				"make the pool larger, or free what was removed with hawser allocate --gc"
		}
		if area.spare.IsValid() {
			what += fmt.Sprintf(" (without %s, which is for dynamic exports)", area.spare)
		}
		a.list = append(a.list, diag.Diagnostic{Severity: diag.Error, Code: code, Path: s.first.path,
			Summary: fmt.Sprintf("%s is full: %d more needed, %d in use, %d reserved for what was removed",
				what, s.count, len(area.used)-reserved, reserved), Hint: hint})
	}
}
