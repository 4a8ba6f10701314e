package kernel

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/kernel/nftables"
)

// nftObserveElements reads the elements of all our sets, except the sets that rules fill.
func nftObserveElements(conn *nftables.Conn) ([]desired.Element, error) {
	var all []desired.Element
	for _, set := range nftSets() {
		if set.Dynamic {
			continue
		}
		var err error
		if all, err = nftAppendElements(conn, all, set); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// nftBound is one element of a set of ranges: the first value of a range, or the first value
// after it.
type nftBound struct {
	nftElement
	isEnd   bool
	counter *nftables.Counter
}

// nftAppendElements reads one set. A set or table that does not exist has no elements.
func nftAppendElements(conn *nftables.Conn, all []desired.Element, set nftSet) ([]desired.Element, error) {
	begin := len(all)
	err := set.read(conn, func(e nftElement, _ *nftables.Counter) {
		all = append(all, desired.Element{
			Set: set.Set.Name, Family: set.Family, ID: set.keyText(e), Value: set.valueText(e),
		})
	})
	if errors.Is(err, unix.ENOENT) {
		return all, nil
	}
	if err != nil {
		return all, err
	}
	// A read that contains an element twice may lack others (nftables.Conn.Elements).
	seen := make(map[string]struct{}, len(all)-begin)
	for _, e := range all[begin:] {
		seen[e.ID] = struct{}{}
	}
	if len(seen) < len(all)-begin {
		return all, nftables.ErrInterrupted
	}
	return all, nil
}

// read calls add for each element of the set. The bytes of an element are only valid during
// the call.
func (s nftSet) read(conn *nftables.Conn, add func(nftElement, *nftables.Counter)) error {
	ranges := s.Interval && !s.concatenatedRanges()
	var bounds []nftBound
	err := conn.Elements(s.name(), func(from nftables.Element) error {
		e := nftFromElement(from)
		if !ranges {
			add(e, from.Counter)
			return nil
		}
		// The slices refer to the receive buffer.
		e.key, e.end, e.data = bytes.Clone(e.key), bytes.Clone(e.end), bytes.Clone(e.data)
		bounds = append(bounds, nftBound{e, from.IntervalEnd, from.Counter})
		return nil
	})
	if err != nil {
		return err
	}
	// A range without an end reaches to the highest address.
	slices.SortFunc(bounds, func(a, b nftBound) int {
		if c := bytes.Compare(a.key, b.key); c != 0 {
			return c
		}
		// If one range ends where the next begins, the end sorts first.
		return cmp.Compare(nftRank(a.isEnd), nftRank(b.isEnd))
	})
	for i, b := range bounds {
		if b.isEnd {
			continue
		}
		e := b.nftElement
		if i+1 < len(bounds) {
			e.end = nftPredecessor(bounds[i+1].key)
		} else {
			e.end = bytes.Repeat([]byte{0xff}, len(b.key))
		}
		add(e, b.counter)
	}
	return nil
}

// nftFromElement converts e without copying its bytes.
func nftFromElement(e nftables.Element) nftElement {
	out := nftElement{key: e.Key, end: e.KeyEnd, data: e.Data}
	if e.KeyEnd == nil {
		out.end = e.Key
	}
	if e.Verdict != nil {
		out.chain = nftVerdictText(*e.Verdict)
	}
	return out
}

// nftVerdictText returns the chain of a goto. The text of any other verdict differs from all
// desired values.
func nftVerdictText(v nftables.Verdict) string {
	if v.Code == unix.NFT_GOTO {
		return v.Chain
	}
	return fmt.Sprintf("verdict %d %s", v.Code, v.Chain)
}

func nftRank(isEnd bool) int {
	if isEnd {
		return 0
	}
	return 1
}

// nftPredecessor returns the value before v in numerical order.
func nftPredecessor(v []byte) []byte {
	v = bytes.Clone(v)
	for i := len(v) - 1; i >= 0; i-- {
		v[i]--
		if v[i] != 0xff {
			break
		}
	}
	return v
}

// nftSuccessor returns the value after v. It reports false for the highest value.
func nftSuccessor(v []byte) ([]byte, bool) {
	v = bytes.Clone(v)
	for i := len(v) - 1; i >= 0; i-- {
		v[i]++
		if v[i] != 0 {
			return v, true
		}
	}
	return nil, false
}
