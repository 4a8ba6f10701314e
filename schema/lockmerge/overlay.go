// Package lockmerge merges a committed lock onto the published one, so that no merge of
// branches changes a published address.
package lockmerge

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fieldpath"
	"hawser.dev/hawser/schema/lockfile"
)

// CodeWouldMove is the code of findings about lock lines that would change a published
// address.
const CodeWouldMove = "would-move"

// OntoPublished returns l merged onto the published lock: published addresses keep their
// owners, and other addresses of l are kept if they are free in published. It changes
// neither lock.
//
// Only changes that a reviewer sees override the published lock. These are a pin or a pool
// of the topology, and entries in l.Released: allocations that GC removed from l, and
// allocations that allocate.Move moved, which l still reserves.
//
// Errors (CodeWouldMove) report lines of l that would change a published address. The
// returned lock has the published values, so it fixes l. Warnings (lock-conflict) report two
// lines of l with the same address after a merge of two branches. The unpublished one gets
// another address.
func OntoPublished(l *lockfile.Lock, top *schema.ClusterSet, published *lockfile.Lock) (*lockfile.Lock, diag.List) {
	o := &merger{top: top, committed: l, clusters: map[string]*schema.Cluster{}, requestedCounts: map[lockfile.Claim]int{}, duplicates: map[string]bool{},
		owners: map[netip.Prefix]string{}, addrOwners: map[netip.Addr]lockfile.Claim{}, lostBlocks: map[string][]netip.Prefix{}, out: l.Clone()}
	for i := range top.Spec.Clusters {
		o.clusters[top.Spec.Clusters[i].Name] = &top.Spec.Clusters[i]
	}
	for _, d := range lockfile.Requests(top) {
		o.requestedCounts[d.Claim] = d.Count
	}
	for _, d := range l.Conflicts {
		o.duplicates[d.Path] = true
	}
	o.published = o.withoutReleased(published)
	o.index()
	names := slices.Sorted(maps.Keys(o.published.Clusters))
	for _, name := range names {
		o.mergeBlocks(name)
	}
	for _, name := range slices.Sorted(maps.Keys(o.out.Clusters)) {
		o.dropConflicts(name)
	}
	for _, name := range names {
		o.mergeMappings(name)
	}
	o.mergeClaims()
	o.mergeOrdinals()
	o.list.Sort()
	return o.out, o.list
}

// merger is the state of one call of OntoPublished.
type merger struct {
	top             *schema.ClusterSet
	clusters        map[string]*schema.Cluster
	requestedCounts map[lockfile.Claim]int // requested addresses per family
	duplicates      map[string]bool        // paths that occur twice in the committed lock; Read reported them
	committed       *lockfile.Lock
	published       *lockfile.Lock                // without released allocations
	owners          map[netip.Prefix]string       // clusters of the published blocks, extensions and former blocks
	prefixes        []netip.Prefix                // keys of owners, by address
	addrOwners      map[netip.Addr]lockfile.Claim // of published addresses
	lostBlocks      map[string][]netip.Prefix     // committed blocks that a cluster loses
	out             *lockfile.Lock
	list            diag.List
}

// index fills owners, prefixes and holders from the published lock.
func (o *merger) index() {
	for name, c := range o.published.Clusters {
		for _, h := range c.Prefixes() {
			o.owners[h.Prefix] = name
		}
	}
	o.prefixes = slices.SortedFunc(maps.Keys(o.owners), netip.Prefix.Compare)
	for _, s := range o.published.Sorted() {
		for _, addr := range o.published.Addrs[s].Addrs {
			o.addrOwners[addr] = s
		}
	}
}

// conflictingOwner returns a published prefix of another cluster that overlaps p.
func (o *merger) conflictingOwner(name string, p netip.Prefix) (netip.Prefix, bool) {
	i, _ := slices.BinarySearchFunc(o.prefixes, p, func(q, p netip.Prefix) int { return q.Addr().Compare(p.Addr()) })
	for j := max(i-1, 0); j < len(o.prefixes) && o.prefixes[j].Addr().Compare(cidr.Last(p)) <= 0; j++ {
		if q := o.prefixes[j]; q.Overlaps(p) && o.owners[q] != name {
			return q, true
		}
	}
	return netip.Prefix{}, false
}

// isCommittedPrefix reports whether the prefix belongs to the cluster in the committed lock.
func (o *merger) isCommittedPrefix(name string, p netip.Prefix) bool {
	c := o.committed.Clusters[name]
	return c != nil && lockfile.HasPrefix(c.Prefixes(), p)
}

// reportMove reports a line that would change the published value now to then.
func (o *merger) reportMove(path string, line, published diag.Pos, now, then string) {
	if o.duplicates[path] {
		return
	}
	hint := "run hawser allocate, which keeps published addresses, and commit the lock; " +
		"to change an address on purpose use hawser allocate --move"
	if strings.HasSuffix(path, ".blocks") {
		hint += ", or a pin (globalCIDR) for a block of your choice"
	}
	o.list = append(o.list, diag.Diagnostic{Severity: diag.Error, Code: CodeWouldMove, Path: path, Pos: line,
		Related: []diag.Related{{Path: path, Pos: published}},
		Summary: fmt.Sprintf("would change from the published %s to %s", now, then), Hint: hint})
}

// reportOwned reports a line whose address is published for another claim. If both claims
// are in the committed lock, a git merge produced the conflict: it warns instead.
func (o *merger) reportOwned(path string, line diag.Pos, what, holder string, published diag.Pos, merged bool) {
	d := diag.Diagnostic{Severity: diag.Error, Code: CodeWouldMove, Path: path, Pos: line,
		Related: []diag.Related{{Path: holder, Pos: published}},
		Summary: fmt.Sprintf("has %s, which is published for %s", what, holder),
		Hint:    "run hawser allocate to allocate a new one, and commit the lock"}
	if merged {
		d.Severity, d.Code = diag.Warning, "lock-conflict"
		d.Summary += "; it gets another"
		d.Hint = "both were allocated on different branches; the published one does not change"
	}
	o.list = append(o.list, d)
}

// poolFor returns the global pool of a prefix's family.
func (o *merger) poolFor(p netip.Prefix) (netip.Prefix, bool) {
	for _, pool := range o.top.GlobalPools() {
		if pool.Addr().Is4() == p.Addr().Is4() {
			return pool, true
		}
	}
	return netip.Prefix{}, false
}

// releasedBlocks returns the cluster's released blocks in the committed lock.
func (o *merger) releasedBlocks(name string) []lockfile.PrefixAllocation {
	if r := o.committed.Released; r != nil && r.Clusters[name] != nil {
		return r.Clusters[name].Blocks
	}
	return nil
}

// mergeBlocks restores the published blocks of a cluster, and reserves its former blocks.
func (o *merger) mergeBlocks(name string) {
	published, c, member := o.published.Clusters[name], o.out.Cluster(name), o.clusters[name]
	path := fieldpath.Key("clusters", name) + ".blocks"
	for _, b := range published.Blocks {
		i := slices.IndexFunc(c.Blocks, func(h lockfile.PrefixAllocation) bool { return h.Prefix.Addr().Is4() == b.Prefix.Addr().Is4() })
		if i < 0 {
			c.Blocks = append(c.Blocks, b)
			continue
		}
		current := c.Blocks[i]
		if current.Prefix == b.Prefix {
			continue
		}
		pin := member.PinInFamily(b.Prefix)
		pool, ok := o.poolFor(b.Prefix)
		moves := lockfile.HasPrefix(o.releasedBlocks(name), b.Prefix) && lockfile.HasPrefix(c.Former, b.Prefix)
		if member != nil && (moves || pin.IsValid() && pin != b.Prefix || !pin.IsValid() && ok && !cidr.Contains(pool, b.Prefix)) {
			if !cidr.Contains(current.Prefix, b.Prefix) && !lockfile.HasPrefix(c.Former, b.Prefix) {
				c.Former = append(c.Former, b)
			}
			continue
		}
		c.Blocks[i] = b
		c.Former = slices.DeleteFunc(c.Former, func(h lockfile.PrefixAllocation) bool { return h.Prefix == b.Prefix })
		o.lostBlocks[name] = append(o.lostBlocks[name], current.Prefix)
		if _, hasPool := o.poolFor(b.Prefix); member == nil || !hasPool || pin.IsValid() {
			continue
		}
		if q, is := o.conflictingOwner(name, current.Prefix); is && o.isCommittedPrefix(o.owners[q], q) {
			o.reportOwned(path, current.Pos, current.Prefix.String(), fieldpath.Key("clusters", o.owners[q])+".blocks", b.Pos, true)
			continue
		}
		o.reportMove(path, current.Pos, b.Pos, b.Prefix.String(), current.Prefix.String())
	}
	for _, f := range published.Former {
		if !lockfile.HasPrefix(c.Prefixes(), f.Prefix) {
			c.Former = append(c.Former, f)
		}
	}
}

// dropConflicts removes prefixes of a cluster that are published for another cluster.
func (o *merger) dropConflicts(name string) {
	c := o.out.Clusters[name]
	drop := func(list []lockfile.PrefixAllocation, path string, live bool) []lockfile.PrefixAllocation {
		return slices.DeleteFunc(list, func(h lockfile.PrefixAllocation) bool {
			q, is := o.conflictingOwner(name, h.Prefix)
			if !is {
				return false
			}
			o.lostBlocks[name] = append(o.lostBlocks[name], h.Prefix)
			if live && o.clusters[name].PinInFamily(h.Prefix) != h.Prefix { // allocate reports a conflicting pin
				owner := o.owners[q]
				i := slices.IndexFunc(o.published.Clusters[owner].Prefixes(), func(p lockfile.PrefixAllocation) bool { return p.Prefix == q })
				o.reportOwned(fieldpath.Key("clusters", name)+path, h.Pos, "the block "+h.Prefix.String(), fieldpath.Key("clusters", owner)+".blocks",
					o.published.Clusters[owner].Prefixes()[i].Pos, o.isCommittedPrefix(owner, q))
			}
			return true
		})
	}
	live := o.clusters[name] != nil
	c.Blocks = drop(c.Blocks, ".blocks", live)
	c.ExtensionBlocks = drop(c.ExtensionBlocks, ".extensionBlocks", live)
	c.Former = drop(c.Former, ".former", false)
}

// mergeMappings restores the published mappings and extensions of a cluster. It skips
// mappings outside of its current blocks and extensions.
func (o *merger) mergeMappings(name string) {
	published, c := o.published.Clusters[name], o.out.Cluster(name)
	for _, a := range published.ExtensionBlocks {
		if !c.Contains(a.Prefix) {
			c.ExtensionBlocks = append(c.ExtensionBlocks, a)
		}
	}
	c.SortExtensionBlocks()
	var podCIDRs []netip.Prefix
	if member := o.clusters[name]; member != nil {
		podCIDRs = o.top.MappablePodCIDRs(member)
	}
	retained := map[netip.Prefix]netip.Prefix{} // pods by what they are mapped to
	for _, pods := range lockfile.SortedPrefixes(published.Mappings) {
		m := published.Mappings[pods]
		if !c.Contains(m.Prefix) {
			continue
		}
		retained[m.Prefix] = pods
		current, has := c.Mappings[pods]
		c.Mappings[pods] = m
		if has && current.Prefix == m.Prefix {
			c.Mappings[pods] = current
		} else if has && c.Contains(current.Prefix) && slices.Contains(podCIDRs, pods) {
			path := fieldpath.Key(fieldpath.Key("clusters", name)+".mappings", pods.String())
			o.reportMove(path, current.Pos, m.Pos, m.Prefix.String(), current.Prefix.String())
		}
	}
	for pods, m := range c.Mappings {
		if _, is := published.Mappings[pods]; is && retained[m.Prefix] == pods {
			continue
		}
		if o.mappingConflicts(name, pods, m, retained) {
			delete(c.Mappings, pods)
		}
	}
}

// mappingConflicts reports whether an unpublished mapping overlaps a published mapping or
// address, and adds the finding.
func (o *merger) mappingConflicts(name string, pods netip.Prefix, m lockfile.PrefixAllocation, retained map[netip.Prefix]netip.Prefix) bool {
	path := fieldpath.Key("clusters", name) + ".mappings"
	for q, owner := range retained {
		if q.Overlaps(m.Prefix) {
			published := o.published.Clusters[name].Mappings[owner]
			committed, both := o.committed.Mapping(name, owner)
			o.reportOwned(fieldpath.Key(path, pods.String()), m.Pos, m.Prefix.String(), fieldpath.Key(path, owner.String()), published.Pos, both && committed == q)
			return true
		}
	}
	for addr, s := range o.addrOwners {
		if s.Pool() == name && m.Prefix.Contains(addr) {
			o.reportOwned(fieldpath.Key(path, pods.String()), m.Pos, addr.String(), s.Path(), o.published.Addrs[s].Pos,
				slices.Contains(o.committed.Addrs[s].Addrs, addr))
			return true
		}
	}
	return false
}

// mergeClaims restores every published address to its owner.
func (o *merger) mergeClaims() {
	for _, s := range o.out.Sorted() {
		h := o.out.Addrs[s]
		_, live := o.requestedCounts[s]
		remaining := slices.DeleteFunc(slices.Clone(h.Addrs), func(addr netip.Addr) bool {
			owner, is := o.addrOwners[addr]
			if is && owner == s {
				return false
			}
			inside := func(p netip.Prefix) bool { return p.Contains(addr) }
			if slices.ContainsFunc(o.lostBlocks[s.Pool()], inside) || !is && live && o.insidePublishedMapping(s, addr) {
				return true
			}
			if !is {
				return false
			}
			if live {
				o.reportOwned(s.Path(), h.Pos, addr.String(), owner.Path(), o.published.Addrs[owner].Pos,
					slices.Contains(o.committed.Addrs[owner].Addrs, addr))
			}
			return true
		})
		o.out.Addrs[s] = lockfile.Allocation{Addrs: remaining, Pos: h.Pos}
		if len(remaining) == 0 {
			delete(o.out.Addrs, s)
		}
	}
	for _, s := range o.published.Sorted() {
		o.mergeClaim(s)
	}
}

// insidePublishedMapping reports whether an unpublished address lies in a published
// mapping, and adds the finding.
func (o *merger) insidePublishedMapping(s lockfile.Claim, addr netip.Addr) bool {
	published := o.published.Clusters[s.Pool()]
	if published == nil {
		return false
	}
	for pods, m := range published.Mappings {
		if m.Prefix.Contains(addr) && o.out.Clusters[s.Cluster].Mappings[pods].Prefix == m.Prefix {
			path := fieldpath.Key(fieldpath.Key("clusters", s.Cluster)+".mappings", pods.String())
			committed, both := o.committed.Mapping(s.Cluster, pods)
			o.reportOwned(s.Path(), o.out.Addrs[s].Pos, addr.String(), path, m.Pos, both && committed == m.Prefix)
			return true
		}
	}
	return false
}

// mergeClaim restores the published addresses of one claim, unless the committed lock
// releases them for a move.
func (o *merger) mergeClaim(s lockfile.Claim) {
	published, current := o.published.Addrs[s], o.out.Addrs[s]
	if len(current.Addrs) == 0 {
		o.out.Addrs[s] = published
		return
	}
	count := o.requestedCounts[s]
	moved := false
	var released []netip.Addr
	if r := o.committed.Released; r != nil {
		released = r.Addrs[s].Addrs
	}
	for _, is4 := range []bool{true, false} {
		before := o.activeAddrs(s, published.Addrs, is4, count)
		after := o.activeAddrs(s, current.Addrs, is4, count)
		for i := range min(len(before), len(after)) {
			if before[i] == after[i] {
				continue
			}
			moved = slices.Contains(released, before[i]) && slices.Contains(current.Addrs, before[i])
			if !moved {
				o.reportMove(s.Path(), current.Pos, published.Pos, before[i].String(), after[i].String())
				o.out.Addrs[s] = lockfile.Allocation{Addrs: published.Addrs, Pos: current.Pos}
				return
			}
		}
	}
	first, second := published.Addrs, current.Addrs
	if moved {
		first, second = second, first
	}
	addrs := slices.Clone(first)
	for _, addr := range second {
		if !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	o.out.Addrs[s] = lockfile.Allocation{Addrs: addrs, Pos: current.Pos}
}

// activeAddrs returns the active addresses of a claim in one family: the first count ones in
// its current pool or block.
func (o *merger) activeAddrs(
	s lockfile.Claim, addrs []netip.Addr, is4 bool, count int,
) []netip.Addr {
	var blocks []netip.Prefix
	switch s.Kind {
	case lockfile.ClaimGateway:
		blocks = o.top.TunnelPools()
	case lockfile.ClaimClusterSetIP:
		blocks = o.top.ServicePools()
	default:
		blocks = o.out.Blocks(s.Cluster)
	}
	blocks = slices.DeleteFunc(blocks, func(p netip.Prefix) bool { return p.Addr().Is4() != is4 })
	return lockfile.FirstPerFamily(addrs, count, blocks)
}

// mergeOrdinals restores every published ordinal to its gateway.
func (o *merger) mergeOrdinals() {
	type slot struct {
		cluster string
		ordinal int
	}
	owners := map[slot]lockfile.Claim{}
	for s, h := range o.published.Ordinals {
		owners[slot{s.Cluster, h.Ordinal}] = s
	}
	for _, s := range o.out.SortedOrdinals() {
		h := o.out.Ordinals[s]
		owner, is := owners[slot{s.Cluster, h.Ordinal}]
		if !is || owner == s {
			continue
		}
		delete(o.out.Ordinals, s)
		if _, live := o.requestedCounts[s]; live {
			committed, both := o.committed.Ordinals[owner]
			o.reportOwned(s.OrdinalPath(), h.Pos, fmt.Sprintf("ordinal %d", h.Ordinal), owner.Path(), o.published.Ordinals[owner].Pos,
				both && committed.Ordinal == h.Ordinal)
		}
	}
	for _, s := range o.published.SortedOrdinals() {
		published := o.published.Ordinals[s]
		current, has := o.out.Ordinals[s]
		o.out.Ordinals[s] = lockfile.OrdinalAllocation{Ordinal: published.Ordinal, Pos: current.Pos}
		if _, live := o.requestedCounts[s]; live && has && current.Ordinal != published.Ordinal {
			o.reportMove(s.OrdinalPath(), current.Pos, published.Pos, fmt.Sprintf("ordinal %d", published.Ordinal), fmt.Sprintf("ordinal %d", current.Ordinal))
		}
	}
}

// withoutReleased returns the published lock without the allocations that the committed lock
// releases. It ignores releases of allocations that the topology or the committed lock has
// again, because a later merge may have added them back.
func (o *merger) withoutReleased(published *lockfile.Lock) *lockfile.Lock {
	released := o.committed.Released
	if released == nil {
		return published
	}
	out := published.Clone()
	for s, h := range released.Addrs {
		current := published.Addrs[s]
		active := lockfile.KeepFirst(current.Addrs, o.requestedCounts[s])
		addrs := slices.DeleteFunc(slices.Clone(current.Addrs), func(a netip.Addr) bool {
			return slices.Contains(h.Addrs, a) && !slices.Contains(o.committed.Addrs[s].Addrs, a) && !slices.Contains(active, a)
		})
		out.Addrs[s] = lockfile.Allocation{Addrs: addrs, Pos: current.Pos}
		if len(addrs) == 0 {
			delete(out.Addrs, s)
		}
	}
	for s := range released.Ordinals {
		_, live := o.requestedCounts[s]
		if _, has := o.committed.Ordinals[s]; !live && !has {
			delete(out.Ordinals, s)
		}
	}
	inUse := map[string]bool{}
	for s := range out.Addrs {
		inUse[s.Pool()] = true
	}
	for name, c := range released.Clusters {
		if entry := out.Clusters[name]; entry != nil {
			o.releaseCluster(name, c, entry, inUse[name])
		}
	}
	return out
}

// releaseCluster removes released allocations from a cluster's published entry. It keeps
// a block that still has published addresses (inUse) or mappings.
func (o *merger) releaseCluster(name string, released, entry *lockfile.Cluster, inUse bool) {
	member, committed := o.clusters[name], o.committed.Clusters[name]
	if committed == nil {
		committed = &lockfile.Cluster{}
	}
	var podCIDRs []netip.Prefix
	if member != nil {
		podCIDRs = o.top.MappablePodCIDRs(member)
	}
	maps.DeleteFunc(entry.Mappings, func(pods netip.Prefix, m lockfile.PrefixAllocation) bool {
		return released.Mappings[pods].Prefix == m.Prefix &&
			committed.Mappings[pods].Prefix != m.Prefix && !slices.Contains(podCIDRs, pods)
	})
	removeReleased := func(list, released []lockfile.PrefixAllocation, inUse func(netip.Prefix) bool) []lockfile.PrefixAllocation {
		return slices.DeleteFunc(list, func(h lockfile.PrefixAllocation) bool {
			return lockfile.HasPrefix(released, h.Prefix) && !lockfile.HasPrefix(committed.Prefixes(), h.Prefix) && !inUse(h.Prefix)
		})
	}
	mapped := func(p netip.Prefix) bool {
		for _, m := range entry.Mappings {
			if p.Overlaps(m.Prefix) {
				return true
			}
		}
		return false
	}
	entry.Blocks = removeReleased(entry.Blocks, released.Blocks, func(p netip.Prefix) bool {
		return member != nil || inUse || mapped(p)
	})
	notInUse := func(netip.Prefix) bool { return false }
	entry.Former = removeReleased(entry.Former, released.Former, notInUse)
	entry.ExtensionBlocks = removeReleased(entry.ExtensionBlocks, released.ExtensionBlocks, mapped)
}
