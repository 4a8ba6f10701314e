package health

import (
	"cmp"
	"maps"
	"slices"

	"hawser.dev/hawser/internal/stablehash"
)

// reachList is the list of link states that this gateway sends to the nodes of its cluster: links that are
// not down or that the peer uses, sorted by hash.
type reachList struct {
	entries    []entry
	generation uint64 // of the content; never 0, which means no list
	// base is the previous generation. changes has the difference to it, with a Down entry for a
	// link that left the list; nil if the difference is too large.
	base    uint64
	changes []entry
}

// maxPages is the largest value of the page counter of a message.
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

// withDelta returns the list with its difference to the previous one.
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

// replies returns the packets that update a node from its generation to this one. Each has the fields of
// head.
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

// receivedList is the list of link states of a sibling. The map is never changed in place: snapshots share
// it.
type receivedList struct {
	reach      map[uint64]linkAdvert // nil before the first list
	generation uint64
	gathering  uint64    // generation of the pages in got
	got        [][]entry // pages; nil = missing
}

// addPage adds a page or applies changes. changed reports a list that differs in more than the traffic;
// lost reports that the changes are for a list that this node does not have.
func (h *receivedList) addPage(m *message) (changed, lost bool) {
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

func (h *receivedList) change(m *message) (changed, lost bool) {
	if m.base != h.generation || len(h.reach) > maxPage*maxPages {
		return false, true
	}
	reach := maps.Clone(h.reach)
	for _, e := range m.reach {
		before, now := reach[e.hash], e.linkAdvert
		before.traffic, now.traffic = false, false
		changed = changed || before != now
		if e.linkAdvert == (linkAdvert{}) {
			delete(reach, e.hash)
		} else {
			reach[e.hash] = e.linkAdvert
		}
	}
	*h = receivedList{reach: reach, generation: m.generation}
	return changed, false
}
