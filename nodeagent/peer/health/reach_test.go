package health

import (
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

func listOf(n uint64) []entry {
	var out []entry
	for i := range n {
		out = append(out, entry{i * 7, linkAdvert{rank: Good}}, entry{i * 7, linkAdvert{rank: Good}})
	}
	return out
}

func TestReachPages(t *testing.T) {
	t.Parallel()
	list := newLinkStateList(listOf(3*maxPageEntries + 5))
	cut := list.replies(0, message{reply: true})
	if len(cut) != 4 {
		t.Fatalf("%d pages", len(cut))
	}
	stale := newLinkStateList(listOf(3)).replies(0, message{reply: true})[0]
	var h receivedLinkStates
	// The pages arrive out of order, one of them twice. A page of an older list arrives first.
	h.addPage(&stale)
	for _, i := range []int{2, 0, 0, 3, 1} {
		if changed, lost := h.addPage(&cut[i]); changed != (i == 1) || lost {
			t.Fatalf("page %d: changed is %v, lost is %v", i, changed, lost)
		}
	}
	if len(h.linkStates) != len(list.entries) || slices.ContainsFunc(list.entries, func(e entry) bool { return h.linkStates[e.hash] != e.linkAdvert }) {
		t.Errorf("%d of %d arrived", len(h.linkStates), len(list.entries))
	}
	if changed, _ := h.addPage(&cut[0]); changed {
		t.Error("the same list is a change")
	}
	empty := newLinkStateList(nil)
	if empty.generation == 0 || len(empty.replies(0, message{})) != 1 {
		t.Error("an empty list must differ from no list")
	}
	again := listOf(9)
	slices.Reverse(again)
	if newLinkStateList(listOf(9)).generation != newLinkStateList(again).generation {
		t.Error("the same list has two generations")
	}
	again[3].inUse = true
	if newLinkStateList(listOf(9)).generation == newLinkStateList(again).generation {
		t.Error("the use of a link must be part of the list")
	}
}

// TestReachChanges checks that a node follows a list that changes at random while packets are lost.
func TestReachChanges(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 5))
	now, list := map[uint64]linkAdvert{}, newLinkStateList(nil)
	var h receivedLinkStates
	deltas, losses := 0, 0
	for round := range 800 {
		for range r.IntN(4) {
			hash := r.Uint64N(400)
			if w := (linkAdvert{rank: Rank(r.IntN(5)), inUse: r.IntN(2) == 0}); w == (linkAdvert{}) {
				delete(now, hash)
			} else {
				now[hash] = w
			}
		}
		var entries []entry
		for hash, w := range now {
			entries = append(entries, entry{hash, w})
		}
		if next := newLinkStateList(entries); next.generation != list.generation {
			list = next.withDelta(list)
		}
		if r.IntN(10) == 0 {
			continue // lost
		}
		for _, m := range list.replies(h.generation, message{reply: true}) {
			raw := m.encode()
			m, err := decode(raw)
			if err != nil {
				t.Fatal(err)
			}
			if m.base != 0 {
				deltas++
			}
			if _, lost := h.addPage(&m); lost {
				losses++
			}
		}
		want := advertsByHash(list.entries)
		if !maps.Equal(h.linkStates, want) {
			t.Fatalf("round %d: the node has %v, the gateway %v",
				round, h.linkStates, want)
		}
	}
	if deltas < 400 || losses != 0 {
		t.Errorf("%d deltas, %d of them for another list", deltas, losses)
	}
	foreign := message{reply: true, pages: 1, base: h.generation ^ 1, generation: 5, entries: []entry{{1, linkAdvert{rank: Good, inUse: true}}}}
	before := h
	if changed, lost := h.addPage(&foreign); changed || !lost || !reflect.DeepEqual(before, h) {
		t.Error("the delta of a list that the node does not have was applied")
	}
}
