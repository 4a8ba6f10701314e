package health

import (
	"cmp"
	"maps"
	"slices"

	"hawser.dev/hawser/internal/stablehash"
)

// linkStateList has the link states that this gateway sends to the nodes of its cluster. It has the
// links that are not down or that the peer uses, sorted by hash.
type linkStateList struct {
	entries    []entry
	generation uint64 // of the content; never 0, which means no list
	// base is the previous generation. changes has the difference to base, with a Down entry
	// for each removed link; nil if the difference is too large.
	base    uint64
	changes []entry
}

// maxPages is the largest value of the page counter of a message.
const maxPages = 255

func newLinkStateList(entries []entry) linkStateList {
	byHash := func(a, b entry) int { return cmp.Compare(a.hash, b.hash) }
	if !slices.IsSortedFunc(entries, byHash) {
		slices.SortFunc(entries, byHash)
	}
	entries = slices.CompactFunc(entries, func(a, b entry) bool { return a.hash == b.hash })
	sum := uint64(len(entries))
	for _, e := range entries {
		sum = stablehash.Mix64(sum ^ e.hash + e.bits())
	}
	return linkStateList{entries: entries, generation: max(sum, 1)}
}

// withDelta returns the list with its difference to the previous one.
func (l linkStateList) withDelta(previous linkStateList) linkStateList {
	var changes []entry
	old := previous.entries
	for _, e := range l.entries {
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
	if len(changes) > 0 && len(changes) <= maxPageEntries {
		l.base, l.changes = previous.generation, changes
	}
	return l
}

func advertsByHash(entries []entry) map[uint64]linkAdvert {
	out := make(map[uint64]linkAdvert, len(entries))
	for _, e := range entries {
		out[e.hash] = e.linkAdvert
	}
	return out
}

// replies returns the messages that update a node from its generation to this one. Each has the
// fields of header.
func (l linkStateList) replies(haveGeneration uint64, header message) []message {
	header.generation = l.generation
	switch {
	case haveGeneration == l.generation:
		return []message{header}
	case haveGeneration == l.base && l.changes != nil:
		header.base, header.pages, header.entries = l.base, 1, l.changes
		return []message{header}
	}
	pages := slices.Collect(slices.Chunk(l.entries, maxPageEntries))
	if len(pages) == 0 {
		pages = [][]entry{nil}
	}
	pages = pages[:min(len(pages), maxPages)]
	out := make([]message, len(pages))
	for i := range pages {
		out[i] = header
		out[i].page, out[i].pages, out[i].entries = byte(i), byte(len(pages)), pages[i]
	}
	return out
}

// receivedLinkStates has the link states that a sibling sent. The map is never changed in place,
// because snapshots share it.
type receivedLinkStates struct {
	linkStates        map[uint64]linkAdvert // nil before the first list
	generation        uint64
	pendingGeneration uint64    // generation of the pages in got
	pages             [][]entry // pages; nil = missing
}

// addPage adds a page or applies changes. changed reports whether more than the traffic bits
// differ. missingBase reports that the changes are for a list that this node does not have.
func (r *receivedLinkStates) addPage(m *message) (changed, missingBase bool) {
	if m.pages == 0 || m.generation == r.generation {
		return false, false
	}
	if m.base != 0 {
		return r.applyChanges(m)
	}
	if r.pendingGeneration != m.generation || len(r.pages) != int(m.pages) {
		r.pendingGeneration, r.pages = m.generation, make([][]entry, m.pages)
	}
	if r.pages[m.page] == nil {
		r.pages[m.page] = append([]entry{}, m.entries...)
	}
	if slices.ContainsFunc(r.pages, func(page []entry) bool { return page == nil }) {
		return false, false
	}
	*r = receivedLinkStates{
		linkStates: advertsByHash(slices.Concat(r.pages...)), generation: m.generation,
	}
	return true, false
}

func (r *receivedLinkStates) applyChanges(m *message) (changed, missingBase bool) {
	if m.base != r.generation || len(r.linkStates) > maxPageEntries*maxPages {
		return false, true
	}
	linkStates := maps.Clone(r.linkStates)
	for _, e := range m.entries {
		before, now := linkStates[e.hash], e.linkAdvert
		before.traffic, now.traffic = false, false
		changed = changed || before != now
		if e.linkAdvert == (linkAdvert{}) {
			delete(linkStates, e.hash)
		} else {
			linkStates[e.hash] = e.linkAdvert
		}
	}
	*r = receivedLinkStates{linkStates: linkStates, generation: m.generation}
	return changed, false
}
