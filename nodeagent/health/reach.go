package health

import (
	"encoding/binary"
	"hash/fnv"
	"slices"
)

// reachList is what this gateway tells the nodes of its cluster: the hashes of
// the remote gateways that it reaches, sorted, and the name of that content.
type reachList struct {
	hashes     []uint64
	generation uint64 // never 0, which a node sends that has no list yet
}

func newReachList(hashes []uint64) reachList {
	slices.Sort(hashes)
	hashes = slices.Compact(hashes)
	sum := fnv.New64a()
	for _, hash := range hashes {
		_, _ = sum.Write(binary.BigEndian.AppendUint64(nil, hash))
	}
	return reachList{hashes: hashes, generation: max(sum.Sum64(), 1)}
}

// maxPages is what the page counter of a message can count.
const maxPages = 255

// pages gives the list cut to the size of a packet; an empty list has one page.
func (r reachList) pages() [][]uint64 {
	out := slices.Collect(slices.Chunk(r.hashes, maxPage))
	if len(out) == 0 {
		return [][]uint64{nil}
	}
	return out[:min(len(out), maxPages)]
}

// pages gathers the pages of one generation at a node.
type pages struct {
	generation uint64
	got        [][]uint64 // nil = not here yet
}

// add notes a page and gives the whole list once all pages are here.
func (p *pages) add(m *message) (map[uint64]struct{}, bool) {
	if p.generation != m.generation || len(p.got) != int(m.pages) {
		*p = pages{generation: m.generation, got: make([][]uint64, m.pages)}
	}
	if p.got[m.page] == nil {
		p.got[m.page] = append([]uint64{}, m.reach...)
	}
	reach := map[uint64]struct{}{}
	for _, page := range p.got {
		if page == nil {
			return nil, false
		}
		for _, hash := range page {
			reach[hash] = struct{}{}
		}
	}
	*p = pages{}
	return reach, true
}
