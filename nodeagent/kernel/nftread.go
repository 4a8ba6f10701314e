package kernel

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/desired"
)

// observeElements reads all elements of all sets of ours.
func (s *nftSocket) observeElements() ([]desired.Element, error) {
	var all []desired.Element
	for _, set := range nftSets() {
		if set.Dynamic {
			continue
		}
		var err error
		if all, err = s.appendElements(all, set); err != nil {
			return nil, fmt.Errorf("read elements of %s: %w", set.Name, err)
		}
	}
	return all, nil
}

// nftBound is one element of a set of ranges: where a range begins, or where it
// has ended (the first value behind it).
type nftBound struct {
	nftElem
	isEnd bool
}

// appendElements reads one set. A set or table that does not exist holds
// nothing.
func (s *nftSocket) appendElements(all []desired.Element, set nftSet) ([]desired.Element, error) {
	begin := len(all)
	ranges := set.Interval && !set.concatenatedRanges()
	var bounds []nftBound
	add := func(e nftElem) {
		all = append(all, desired.Element{
			Set: set.Set.Name, Family: set.Family, ID: set.keyText(e), Value: set.valueText(e),
		})
	}
	err := s.eachElement(set, func(e nftBound, _ []byte) {
		if !ranges {
			add(e.nftElem)
			return
		}
		// They point into the receive buffer.
		e.key, e.end, e.data = bytes.Clone(e.key), bytes.Clone(e.end), bytes.Clone(e.data)
		bounds = append(bounds, e)
	})
	if errors.Is(err, unix.ENOENT) {
		return all, nil
	}
	if err != nil {
		return all, err
	}
	// A range without an end reaches to the highest address.
	slices.SortFunc(bounds, func(a, b nftBound) int {
		if c := bytes.Compare(a.key, b.key); c != 0 {
			return c
		}
		// Where one range ends and the next begins, the end is first.
		return cmp.Compare(nftRank(a.isEnd), nftRank(b.isEnd))
	})
	for i, b := range bounds {
		if b.isEnd {
			continue
		}
		e := b.nftElem
		if i+1 < len(bounds) {
			e.end = nftBefore(bounds[i+1].key)
		} else {
			e.end = bytes.Repeat([]byte{0xff}, len(b.key))
		}
		add(e)
	}
	// A dump that holds an element twice may lack others: a hash table that just grew orders
	// its elements anew, also between two parts of one dump, and the generation does not tell.
	seen := make(map[string]struct{}, len(all)-begin)
	for _, e := range all[begin:] {
		seen[e.ID] = struct{}{}
	}
	if len(seen) < len(all)-begin {
		return all, errNftInterrupted
	}
	return all, nil
}

// eachElement reads one set. What visit gets is valid during the call only.
func (s *nftSocket) eachElement(set nftSet, visit func(e nftBound, raw []byte)) error {
	request := nftGet(unix.NFT_MSG_GETSETELEM, true, func(a *nftAttrs) {
		a.text(unix.NFTA_SET_ELEM_LIST_TABLE, desired.TableName)
		a.text(unix.NFTA_SET_ELEM_LIST_SET, set.Name)
	})
	return s.request(request, func(body []byte) error {
		return nftEach(nftFind(body, unix.NFTA_SET_ELEM_LIST_ELEMENTS), func(_ uint16, b []byte) error {
			e, err := nftDecode(b)
			if err == nil {
				visit(e, b)
			}
			return err
		})
	})
}

// nftDecode reads one element; its bytes are those of b.
func nftDecode(b []byte) (nftBound, error) {
	var e nftBound
	err := nftEach(b, func(typ uint16, value []byte) error {
		switch typ {
		case unix.NFTA_SET_ELEM_KEY:
			e.key = nftFind(value, unix.NFTA_DATA_VALUE)
		case nftElemKeyEnd:
			e.end = nftFind(value, unix.NFTA_DATA_VALUE)
		case unix.NFTA_SET_ELEM_FLAGS:
			e.isEnd = nftUint32(value)&unix.NFT_SET_ELEM_INTERVAL_END != 0
		case unix.NFTA_SET_ELEM_DATA:
			e.data = nftFind(value, unix.NFTA_DATA_VALUE)
			if verdict := nftFind(value, unix.NFTA_DATA_VERDICT); verdict != nil {
				e.chain = nftVerdictText(verdict)
			}
		}
		return nil
	})
	if e.end == nil {
		e.end = e.key
	}
	return e, err
}

// nftVerdictText names the chain to go to. What is no such verdict is told so
// that it differs from all that is ever wanted.
func nftVerdictText(verdict []byte) string {
	code := int32(nftUint32(nftFind(verdict, unix.NFTA_VERDICT_CODE)))
	chain := nftText(nftFind(verdict, unix.NFTA_VERDICT_CHAIN))
	if code == unix.NFT_GOTO {
		return chain
	}
	return fmt.Sprintf("verdict %d %s", code, chain)
}

func nftRank(isEnd bool) int {
	if isEnd {
		return 0
	}
	return 1
}

// nftBefore gives the value before v, as numbers.
func nftBefore(v []byte) []byte {
	v = bytes.Clone(v)
	for i := len(v) - 1; i >= 0; i-- {
		v[i]--
		if v[i] != 0xff {
			break
		}
	}
	return v
}

// nftAfter gives the value behind v; false behind the highest.
func nftAfter(v []byte) ([]byte, bool) {
	v = bytes.Clone(v)
	for i := len(v) - 1; i >= 0; i-- {
		v[i]++
		if v[i] != 0 {
			return v, true
		}
	}
	return nil, false
}
