package kernel

import (
	"cmp"
	"slices"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/desired"
)

// nftPlace is where a write stands in a transaction.
type nftPlace struct {
	message, offset int
	write           *nftWrite
	removing        bool
}

// nftPlaces are in the order of the transaction.
type nftPlaces []nftPlace

// find gives the write whose element was refused; nil when the fault is not
// that of an element.
func (p nftPlaces) find(f nftFault) (w *nftWrite, removing bool) {
	at, found := slices.BinarySearchFunc(p, f, func(place nftPlace, f nftFault) int {
		return cmp.Or(cmp.Compare(place.message, f.message), cmp.Compare(place.offset, f.offset))
	})
	if !found {
		return nil, false
	}
	return p[at].write, p[at].removing
}

// nftElementBatch writes all removals and then all additions, so that an
// interval can take the place of another one. Generation is that of nftNewBatch.
func nftElementBatch(writes []*nftWrite, generation uint32) (*nftBatch, nftPlaces) {
	b := nftNewBatch(generation)
	var places nftPlaces
	for _, removing := range []bool{true, false} {
		// A message is for one set, and holds not too many.
		bySet := map[string][]*nftWrite{}
		var names []string
		for _, w := range writes {
			if (removing && w.remove == nil) || (!removing && w.add == nil) {
				continue
			}
			if bySet[w.set.Name] == nil {
				names = append(names, w.set.Name)
			}
			bySet[w.set.Name] = append(bySet[w.set.Name], w)
		}
		for _, name := range names {
			for group := range slices.Chunk(bySet[name], nftPerMessage) {
				places = b.elements(group, removing, places)
			}
		}
	}
	return b, places
}

// elements appends one message for writes of the same set.
func (b *nftBatch) elements(writes []*nftWrite, removing bool, places nftPlaces) nftPlaces {
	typ, flags := uint16(unix.NFT_MSG_NEWSETELEM), uint16(unix.NLM_F_CREATE)
	if removing {
		typ, flags = unix.NFT_MSG_DELSETELEM, 0
	}
	number := len(b.starts)
	set := writes[0].set
	b.setElements(typ, flags, desired.TableName, set.Name, func() {
		for _, w := range writes {
			e := w.add
			if removing {
				e = w.remove
			}
			mark := func() {
				places = append(places, nftPlace{number, len(b.buf) - b.last, w, removing})
			}
			b.element(set, *e, mark)
		}
	})
	return places
}

// element writes one element; mark is called where each of its one or two
// attributes begins. A removal has no data.
func (b *nftBatch) element(set nftSet, e nftElem, mark func()) {
	mark()
	b.nest(unix.NFTA_LIST_ELEM, func() {
		b.data(unix.NFTA_SET_ELEM_KEY, e.key)
		if set.concatenatedRanges() {
			b.data(nftElemKeyEnd, e.end)
		}
		switch {
		case e.chain != "":
			b.nest(unix.NFTA_SET_ELEM_DATA, func() {
				b.nest(unix.NFTA_DATA_VERDICT, func() {
					b.u32(unix.NFTA_VERDICT_CODE, nftGoto)
					b.text(unix.NFTA_VERDICT_CHAIN, e.chain)
				})
			})
		case e.data != nil:
			b.data(unix.NFTA_SET_ELEM_DATA, e.data)
		}
	})
	if !set.Interval || set.concatenatedRanges() {
		return
	}
	behind, ok := nftAfter(e.end)
	if !ok {
		return // the range reaches to the highest address and needs no end
	}
	mark()
	b.nest(unix.NFTA_LIST_ELEM, func() {
		b.u32(unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END)
		b.data(unix.NFTA_SET_ELEM_KEY, behind)
	})
}

const nftGoto = 0xffffffff + 1 + unix.NFT_GOTO // a negative number in 32 bits
