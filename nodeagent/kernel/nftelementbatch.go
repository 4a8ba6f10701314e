package kernel

import (
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/kernel/nftables"
)

// nftOrigin is the write that an element of a transaction belongs to.
type nftOrigin struct {
	write    *nftElementWrite
	removing bool
}

// nftOrigins maps the positions of a transaction's elements to their writes.
type nftOrigins map[nftables.Position]nftOrigin

// nftElementBatch encodes all removals and then all additions, so that an interval can
// replace another interval. For the generation see nftables.NewBatch.
func nftElementBatch(writes []*nftElementWrite, generation uint32) (*nftables.Batch, nftOrigins) {
	b := nftables.NewBatch(generation)
	origins := make(nftOrigins, len(writes))
	for _, removing := range []bool{true, false} {
		// One message changes one set.
		bySet := map[string][]*nftElementWrite{}
		var names []string
		for _, w := range writes {
			if (removing && w.removal == nil) || (!removing && w.addition == nil) {
				continue
			}
			if bySet[w.set.Name] == nil {
				names = append(names, w.set.Name)
			}
			bySet[w.set.Name] = append(bySet[w.set.Name], w)
		}
		for _, name := range names {
			origins.encode(b, bySet[name], removing)
		}
	}
	return b, origins
}

// encode adds writes of one set to the batch.
func (o nftOrigins) encode(b *nftables.Batch, writes []*nftElementWrite, removing bool) {
	set := writes[0].set
	elements := make([]nftables.Element, 0, len(writes))
	owners := make([]*nftElementWrite, 0, len(writes)) // by element
	for _, w := range writes {
		e := w.addition
		if removing {
			e = w.removal
		}
		elements = set.appendElement(elements, *e)
		for len(owners) < len(elements) {
			owners = append(owners, w)
		}
	}
	var positions []nftables.Position
	if removing {
		positions = b.DeleteElements(set.name(), elements)
	} else {
		positions = b.AddElements(set.name(), 0, elements)
	}
	for i, position := range positions {
		o[position] = nftOrigin{owners[i], removing}
	}
}

// appendElement appends the one or two kernel elements for e.
func (s nftSet) appendElement(elements []nftables.Element, e nftElement) []nftables.Element {
	element := nftables.Element{Key: e.key, Data: e.data}
	if s.concatenatedRanges() {
		element.KeyEnd = e.end
	}
	if e.chain != "" {
		element.Verdict = &nftables.Verdict{Code: unix.NFT_GOTO, Chain: e.chain}
	}
	elements = append(elements, element)
	if !s.Interval || s.concatenatedRanges() {
		return elements
	}
	if after, ok := nftSuccessor(e.end); ok { // a range up to the highest address needs no end
		elements = append(elements, nftables.Element{Key: after, IntervalEnd: true})
	}
	return elements
}
