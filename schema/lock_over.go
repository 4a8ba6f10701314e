package schema

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/diag"
)

// CodeWouldMove marks a line of a lock that would move something published.
const CodeWouldMove = "would-move"

// Over gives the lock with everything that is published in its place: what
// published holds stays with its holder, and what l has besides is kept where
// nobody holds it there. Neither lock is changed.
//
// Only what a person reads in a review goes before what is published: a pin or a
// pool of the topology, and lines of l under released: of what GC took out, which
// is nowhere else in l then, and of what Move moved, which is reserved in l.
//
// Errors (CodeWouldMove) are for lines of l that say otherwise: whoever took them
// at their word would move what is published. The lock that comes with them has
// the published values, so that it mends l. Warnings (lock-conflict) are for two
// lines of l that hold the same, as a merge of two branches leaves them: the one
// that is not published gets another.
func (l *Lock) Over(top *ClusterSet, published *Lock) (*Lock, diag.List) {
	o := &overlay{top: top, committed: l, members: map[string]*Cluster{}, counts: map[slot]int{}, twice: map[string]bool{},
		owners: map[netip.Prefix]string{}, holders: map[netip.Addr]slot{}, lost: map[string][]netip.Prefix{}, out: l.clone()}
	for i := range top.Spec.Clusters {
		o.members[top.Spec.Clusters[i].Name] = &top.Spec.Clusters[i]
	}
	for _, d := range demandsOf(top) {
		o.counts[d.slot] = d.count
	}
	for _, d := range l.conflicts {
		o.twice[d.Path] = true
	}
	o.published = o.unreleased(published)
	o.index()
	names := slices.Sorted(maps.Keys(o.published.clusters))
	for _, name := range names {
		o.keepBlocks(name)
	}
	for _, name := range slices.Sorted(maps.Keys(o.out.clusters)) {
		o.dropForeign(name)
	}
	for _, name := range names {
		o.keepMappings(name)
	}
	o.keepSlots()
	o.keepLanes()
	o.list.Sort()
	return o.out, o.list
}

// overlay is the state of one call of Over.
type overlay struct {
	top       *ClusterSet
	members   map[string]*Cluster
	counts    map[slot]int    // addresses of each family that the topology asks for
	twice     map[string]bool // paths that stand in the committed lock twice, so that none of the two was chosen
	committed *Lock
	published *Lock                     // less what was released
	owners    map[netip.Prefix]string   // clusters of the published blocks, annexes and former blocks
	prefixes  []netip.Prefix            // keys of owners, by address
	holders   map[netip.Addr]slot       // of published addresses
	lost      map[string][]netip.Prefix // committed blocks that a cluster does not get
	out       *Lock
	list      diag.List
}

// prefixes gives the blocks of a cluster, annexes and former ones too.
func (c *lockedCluster) prefixes() []heldPrefix { return slices.Concat(c.blocks, c.annexes, c.former) }

func hasPrefix(list []heldPrefix, p netip.Prefix) bool {
	return slices.ContainsFunc(list, func(h heldPrefix) bool { return h.prefix == p })
}

// index makes published things found by what they are.
func (o *overlay) index() {
	for name, c := range o.published.clusters {
		for _, h := range c.prefixes() {
			o.owners[h.prefix] = name
		}
	}
	o.prefixes = slices.SortedFunc(maps.Keys(o.owners), netip.Prefix.Compare)
	for _, s := range o.published.sorted() {
		for _, addr := range o.published.addrs[s].addrs {
			o.holders[addr] = s
		}
	}
}

// foreign gives a published prefix of another cluster that overlaps p.
func (o *overlay) foreign(name string, p netip.Prefix) (netip.Prefix, bool) {
	i, _ := slices.BinarySearchFunc(o.prefixes, p, func(q, p netip.Prefix) int { return q.Addr().Compare(p.Addr()) })
	for j := max(i-1, 0); j < len(o.prefixes) && o.prefixes[j].Addr().Compare(lastOf(p)) <= 0; j++ {
		if q := o.prefixes[j]; q.Overlaps(p) && o.owners[q] != name {
			return q, true
		}
	}
	return netip.Prefix{}, false
}

// claims reports whether the committed lock, too, gives a prefix to a cluster.
func (o *overlay) claims(name string, p netip.Prefix) bool {
	c := o.committed.clusters[name]
	return c != nil && hasPrefix(c.prefixes(), p)
}

// refuse notes a line that would move what is published at now, elsewhere.
func (o *overlay) refuse(path string, line, published diag.Pos, now, then string) {
	if o.twice[path] {
		return
	}
	hint := "run hawser allocate, which keeps what is published, and commit the lock; " +
		"hawser allocate --move moves what is named"
	if strings.HasSuffix(path, ".blocks") {
		hint += ", and a pin (globalCIDR) moves a cluster to the block that you choose"
	}
	o.list = append(o.list, diag.Diagnostic{Severity: diag.Error, Code: CodeWouldMove, Path: path, Pos: line,
		Related: []diag.Related{{Path: path, Pos: published}},
		Summary: fmt.Sprintf("would move from %s, where it is published, to %s", now, then), Hint: hint})
}

// taken notes a line with what is published for another holder. When that one has
// it in the committed lock, too, then a merge brought both lines together.
func (o *overlay) taken(path string, line diag.Pos, what, holder string, published diag.Pos, both bool) {
	d := diag.Diagnostic{Severity: diag.Error, Code: CodeWouldMove, Path: path, Pos: line,
		Related: []diag.Related{{Path: holder, Pos: published}},
		Summary: fmt.Sprintf("has %s, which is published as that of %s", what, holder),
		Hint:    "run hawser allocate, which gives it another, and commit the lock"}
	if both {
		d.Severity, d.Code = diag.Warning, "lock-conflict"
		d.Summary += "; it gets another"
		d.Hint = "both were allocated on different branches; what is published stays"
	}
	o.list = append(o.list, d)
}

// pool gives the global pool of a prefix's family.
func (o *overlay) pool(p netip.Prefix) (netip.Prefix, bool) {
	for _, pool := range o.top.GlobalPools() {
		if pool.Addr().Is4() == p.Addr().Is4() {
			return pool, true
		}
	}
	return netip.Prefix{}, false
}

// releasedBlocks gives the blocks that the committed lock says a cluster leaves.
func (o *overlay) releasedBlocks(name string) []heldPrefix {
	if r := o.committed.released; r != nil && r.clusters[name] != nil {
		return r.clusters[name].blocks
	}
	return nil
}

// pinOf gives a member's pin in the family of a block.
func pinOf(member *Cluster, block netip.Prefix) netip.Prefix {
	if member != nil {
		for _, pin := range member.Pins() {
			if pin.Addr().Is4() == block.Addr().Is4() {
				return pin.Masked()
			}
		}
	}
	return netip.Prefix{}
}

// keepBlocks puts the published blocks of a cluster into force, and reserves
// those that it left.
func (o *overlay) keepBlocks(name string) {
	from, c, member := o.published.clusters[name], o.out.cluster(name), o.members[name]
	path := at("clusters", name) + ".blocks"
	for _, b := range from.blocks {
		i := slices.IndexFunc(c.blocks, func(h heldPrefix) bool { return h.prefix.Addr().Is4() == b.prefix.Addr().Is4() })
		if i < 0 {
			c.blocks = append(c.blocks, b)
			continue
		}
		mine := c.blocks[i]
		if mine.prefix == b.prefix {
			continue
		}
		pin := pinOf(member, b.prefix)
		pool, ok := o.pool(b.prefix)
		moves := hasPrefix(o.releasedBlocks(name), b.prefix) && hasPrefix(c.former, b.prefix)
		if member != nil && (moves || pin.IsValid() && pin != b.prefix || !pin.IsValid() && ok && !contains(pool, b.prefix)) {
			if !contains(mine.prefix, b.prefix) && !hasPrefix(c.former, b.prefix) {
				c.former = append(c.former, b)
			}
			continue
		}
		c.blocks[i] = b
		c.former = slices.DeleteFunc(c.former, func(h heldPrefix) bool { return h.prefix == b.prefix })
		o.lost[name] = append(o.lost[name], mine.prefix)
		if _, inForce := o.pool(b.prefix); member == nil || !inForce || pin.IsValid() {
			continue
		}
		if q, is := o.foreign(name, mine.prefix); is && o.claims(o.owners[q], q) {
			o.taken(path, mine.pos, mine.prefix.String(), at("clusters", o.owners[q])+".blocks", b.pos, true)
			continue
		}
		o.refuse(path, mine.pos, b.pos, b.prefix.String(), mine.prefix.String())
	}
	for _, f := range from.former {
		if !hasPrefix(c.prefixes(), f.prefix) {
			c.former = append(c.former, f)
		}
	}
}

// dropForeign takes from a cluster what is published as another's.
func (o *overlay) dropForeign(name string) {
	c := o.out.clusters[name]
	drop := func(list []heldPrefix, path string, live bool) []heldPrefix {
		return slices.DeleteFunc(list, func(h heldPrefix) bool {
			q, is := o.foreign(name, h.prefix)
			if !is {
				return false
			}
			o.lost[name] = append(o.lost[name], h.prefix)
			if live && pinOf(o.members[name], h.prefix) != h.prefix { // a pin is refused as such
				owner := o.owners[q]
				i := slices.IndexFunc(o.published.clusters[owner].prefixes(), func(p heldPrefix) bool { return p.prefix == q })
				o.taken(at("clusters", name)+path, h.pos, "the block "+h.prefix.String(), at("clusters", owner)+".blocks",
					o.published.clusters[owner].prefixes()[i].pos, o.claims(owner, q))
			}
			return true
		})
	}
	live := o.members[name] != nil
	c.blocks = drop(c.blocks, ".blocks", live)
	c.annexes = drop(c.annexes, ".annexes", live)
	c.former = drop(c.former, ".former", false)
}

// keepMappings puts the published mappings of a cluster into force, with their
// annexes, as far as the cluster still has the block that they lie in.
func (o *overlay) keepMappings(name string) {
	from, c := o.published.clusters[name], o.out.cluster(name)
	for _, a := range from.annexes {
		if !c.holds(a.prefix) {
			c.annexes = append(c.annexes, a)
		}
	}
	c.sortAnnexes()
	var live []netip.Prefix
	if member := o.members[name]; member != nil {
		live = mappable(o.top, member)
	}
	kept := map[netip.Prefix]netip.Prefix{} // pods by what they are mapped to
	for _, pods := range sortedPrefixes(from.mappings) {
		m := from.mappings[pods]
		if !c.holds(m.prefix) {
			continue
		}
		kept[m.prefix] = pods
		mine, has := c.mappings[pods]
		c.mappings[pods] = m
		if has && mine.prefix == m.prefix {
			c.mappings[pods] = mine
		} else if has && c.holds(mine.prefix) && slices.Contains(live, pods) {
			path := at(at("clusters", name)+".mappings", pods.String())
			o.refuse(path, mine.pos, m.pos, m.prefix.String(), mine.prefix.String())
		}
	}
	for pods, m := range c.mappings {
		if _, is := from.mappings[pods]; is && kept[m.prefix] == pods {
			continue
		}
		if o.mapsAway(name, pods, m, kept) {
			delete(c.mappings, pods)
		}
	}
}

// mapsAway reports, and notes, that a mapping which is not published lies where
// something published does.
func (o *overlay) mapsAway(name string, pods netip.Prefix, m heldPrefix, kept map[netip.Prefix]netip.Prefix) bool {
	path := at("clusters", name) + ".mappings"
	for q, owner := range kept {
		if q.Overlaps(m.prefix) {
			from := o.published.clusters[name].mappings[owner]
			there, both := o.committed.Mapping(name, owner)
			o.taken(at(path, pods.String()), m.pos, m.prefix.String(), at(path, owner.String()), from.pos, both && there == q)
			return true
		}
	}
	for addr, s := range o.holders {
		if s.area() == name && m.prefix.Contains(addr) {
			o.taken(at(path, pods.String()), m.pos, addr.String(), s.path(), o.published.addrs[s].pos,
				slices.Contains(o.committed.addrs[s].addrs, addr))
			return true
		}
	}
	return false
}

// keepSlots leaves every published address with its holder.
func (o *overlay) keepSlots() {
	for _, s := range o.out.sorted() {
		h := o.out.addrs[s]
		_, live := o.counts[s]
		mine := slices.DeleteFunc(slices.Clone(h.addrs), func(addr netip.Addr) bool {
			owner, is := o.holders[addr]
			if is && owner == s {
				return false
			}
			inside := func(p netip.Prefix) bool { return p.Contains(addr) }
			if slices.ContainsFunc(o.lost[s.area()], inside) || !is && live && o.mappedOver(s, addr) {
				return true
			}
			if !is {
				return false
			}
			if live {
				o.taken(s.path(), h.pos, addr.String(), owner.path(), o.published.addrs[owner].pos,
					slices.Contains(o.committed.addrs[owner].addrs, addr))
			}
			return true
		})
		o.out.addrs[s] = held{addrs: mine, pos: h.pos}
		if len(mine) == 0 {
			delete(o.out.addrs, s)
		}
	}
	for _, s := range o.published.sorted() {
		o.keepSlot(s)
	}
}

// mappedOver reports, and notes, that an address which is not published lies in a
// published mapping.
func (o *overlay) mappedOver(s slot, addr netip.Addr) bool {
	from := o.published.clusters[s.area()]
	if from == nil {
		return false
	}
	for pods, m := range from.mappings {
		if m.prefix.Contains(addr) && o.out.clusters[s.cluster].mappings[pods].prefix == m.prefix {
			path := at(at("clusters", s.cluster)+".mappings", pods.String())
			there, both := o.committed.Mapping(s.cluster, pods)
			o.taken(s.path(), o.out.addrs[s].pos, addr.String(), path, m.pos, both && there == m.prefix)
			return true
		}
	}
	return false
}

func (o *overlay) keepSlot(s slot) {
	from, mine := o.published.addrs[s], o.out.addrs[s]
	if len(mine.addrs) == 0 {
		o.out.addrs[s] = from
		return
	}
	count := o.counts[s]
	moved := false
	var given []netip.Addr
	if r := o.committed.released; r != nil {
		given = r.addrs[s].addrs
	}
	for _, is4 := range []bool{true, false} {
		was, will := o.inForce(s, from.addrs, is4, count), o.inForce(s, mine.addrs, is4, count)
		for i := range min(len(was), len(will)) {
			if was[i] == will[i] {
				continue
			}
			if moved = slices.Contains(given, was[i]) && slices.Contains(mine.addrs, was[i]); !moved {
				o.refuse(s.path(), mine.pos, from.pos, was[i].String(), will[i].String())
				o.out.addrs[s] = held{addrs: from.addrs, pos: mine.pos}
				return
			}
		}
	}
	first, then := from.addrs, mine.addrs
	if moved {
		first, then = then, first
	}
	addrs := slices.Clone(first)
	for _, addr := range then {
		if !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	o.out.addrs[s] = held{addrs: addrs, pos: mine.pos}
}

// inForce gives the addresses of one family that a slot has in force, of those
// that the lock holds for it.
func (o *overlay) inForce(s slot, addrs []netip.Addr, is4 bool, count int) []netip.Addr {
	var blocks []netip.Prefix
	switch s.kind {
	case slotGateway:
		blocks = o.top.TunnelPools()
	case slotVIP:
		blocks = o.top.ServicePools()
	default:
		blocks = o.out.Blocks(s.cluster)
	}
	blocks = slices.DeleteFunc(blocks, func(p netip.Prefix) bool { return p.Addr().Is4() != is4 })
	return Take(addrs, count, blocks)
}

// keepLanes leaves every published lane with its gateway.
func (o *overlay) keepLanes() {
	type place struct {
		cluster string
		lane    int
	}
	holder := map[place]slot{}
	for s, h := range o.published.lanes {
		holder[place{s.cluster, h.lane}] = s
	}
	for _, s := range o.out.sortedLanes() {
		h := o.out.lanes[s]
		owner, is := holder[place{s.cluster, h.lane}]
		if !is || owner == s {
			continue
		}
		delete(o.out.lanes, s)
		if _, live := o.counts[s]; live {
			there, both := o.committed.lanes[owner]
			o.taken(s.lanePath(), h.pos, fmt.Sprintf("lane %d", h.lane), owner.path(), o.published.lanes[owner].pos,
				both && there.lane == h.lane)
		}
	}
	for _, s := range o.published.sortedLanes() {
		from := o.published.lanes[s]
		mine, has := o.out.lanes[s]
		o.out.lanes[s] = heldLane{lane: from.lane, pos: mine.pos}
		if _, live := o.counts[s]; live && has && mine.lane != from.lane {
			o.refuse(s.lanePath(), mine.pos, from.pos, fmt.Sprintf("lane %d", from.lane), fmt.Sprintf("lane %d", mine.lane))
		}
	}
}
