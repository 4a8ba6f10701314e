package health

import (
	"cmp"
	"maps"
	"slices"

	"hawser.dev/hawser/internal/stablehash"
)

// reachList is what this gateway tells the nodes of its cluster of its links:
// those that are not down, or that the other end uses, sorted by hash, and the
// name of that content.
type reachList struct {
	entries    []entry
	generation uint64 // never 0, which a node sends that has no list yet
	// base is the generation before this one, and changes what differs from it: a
	// link that went down is an entry that says so. Nil when too much differs.
	base    uint64
	changes []entry
}

// maxPages is what the page counter of a message can count.
const maxPages = 255

func newReachList(entries []entry) reachList {
	byHash := func(a, b entry) int { return cmp.Compare(a.hash, b.hash) }
	if !slices.IsSortedFunc(entries, byHash) {
		slices.SortFunc(entries, byHash)
	}
	entries = slices.CompactFunc(entries, func(a, b entry) bool { return a.hash == b.hash })
	sum := uint64(len(entries))
	for _, e := range entries {
		sum = stablehash.Mix64(sum ^ e.hash + e.number())
	}
	return reachList{entries: entries, generation: max(sum, 1)}
}

// withDelta notes what differs from the list before.
func (r reachList) withDelta(before reachList) reachList {
	var changes []entry
	old := before.entries
	for _, e := range r.entries {
		for ; len(old) > 0 && old[0].hash < e.hash; old = old[1:] {
			changes = append(changes, entry{hash: old[0].hash})
		}
		if len(old) == 0 || old[0] != e {
			changes = append(changes, e)
		}
		if len(old) > 0 && old[0].hash == e.hash {
			old = old[1:]
		}
	}
	for _, e := range old {
		changes = append(changes, entry{hash: e.hash})
	}
	if len(changes) > 0 && len(changes) <= maxPage {
		r.base, r.changes = before.generation, changes
	}
	return r
}

func reachMap(entries []entry) map[uint64]linkAdvert {
	out := make(map[uint64]linkAdvert, len(entries))
	for _, e := range entries {
		out[e.hash] = e.linkAdvert
	}
	return out
}

// replies gives the packets that bring a node from the generation it has to this
// one, each made from the same head.
func (r reachList) replies(has uint64, head message) []message {
	head.generation = r.generation
	switch {
	case has == r.generation:
		return []message{head}
	case has == r.base && r.changes != nil:
		head.base, head.pages, head.reach = r.base, 1, r.changes
		return []message{head}
	}
	cut := slices.Collect(slices.Chunk(r.entries, maxPage))
	if len(cut) == 0 {
		cut = [][]entry{nil}
	}
	cut = cut[:min(len(cut), maxPages)]
	out := make([]message, len(cut))
	for i := range cut {
		out[i] = head
		out[i].page, out[i].pages, out[i].reach = byte(i), byte(len(cut)), cut[i]
	}
	return out
}

// receivedList is the reach list of a gateway as a node of its cluster has it. The map
// is replaced, never changed: snapshots share it.
type receivedList struct {
	reach      map[uint64]linkAdvert // nil = nothing heard yet
	generation uint64
	gathering  uint64    // the generation whose pages are coming
	got        [][]entry // nil = not here yet
}

// addPage notes a page or a list of changes. fresh means that the list is now
// another one; lost that it is a change of a list that this node does not have.
func (h *receivedList) addPage(m *message) (fresh, lost bool) {
	if m.pages == 0 || m.generation == h.generation {
		return false, false
	}
	if m.base != 0 {
		return h.change(m)
	}
	if h.gathering != m.generation || len(h.got) != int(m.pages) {
		h.gathering, h.got = m.generation, make([][]entry, m.pages)
	}
	if h.got[m.page] == nil {
		h.got[m.page] = append([]entry{}, m.reach...)
	}
	if slices.ContainsFunc(h.got, func(page []entry) bool { return page == nil }) {
		return false, false
	}
	*h = receivedList{reach: reachMap(slices.Concat(h.got...)), generation: m.generation}
	return true, false
}

func (h *receivedList) change(m *message) (fresh, lost bool) {
	if m.base != h.generation || len(h.reach) > maxPage*maxPages {
		return false, true
	}
	reach := maps.Clone(h.reach)
	for _, e := range m.reach {
		if e.linkAdvert == (linkAdvert{}) {
			delete(reach, e.hash)
		} else {
			reach[e.hash] = e.linkAdvert
		}
	}
	*h = receivedList{reach: reach, generation: m.generation}
	return true, false
}
