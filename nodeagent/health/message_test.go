package health

import (
	"bytes"
	"reflect"
	"slices"
	"testing"
)

func TestMessageRoundTrip(t *testing.T) {
	t.Parallel()
	tests := []message{
		{kind: kindProbe, sequence: 1, nonce: 2, sent: -3, from: 4, to: 5, generation: 6},
		{kind: kindReply, sequence: 1<<32 - 1, page: 1, pages: 2, reach: []uint64{1, 1<<64 - 1}},
		{kind: kindReply, pages: 1},
		{kind: kindReply, pages: 1, reach: make([]uint64, maxPage)},
	}
	for _, want := range tests {
		raw := want.encode()
		if len(raw) > 1232 {
			t.Errorf("%d bytes do not fit in the smallest IPv6 packet", len(raw))
		}
		have, err := decode(raw)
		if err != nil || !reflect.DeepEqual(want, have) {
			t.Errorf("got %+v, %v, want %+v", have, err, want)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	good := (&message{kind: kindReply, pages: 1, reach: []uint64{9}}).encode()
	edit := func(at int, to byte) []byte {
		raw := bytes.Clone(good)
		raw[at] = to
		return raw
	}
	tests := map[string][]byte{
		"empty": nil, "short": good[:20], "cut": good[:len(good)-1], "long": append(bytes.Clone(good), 0),
		"magic": edit(0, 'x'), "version": edit(4, 2), "kind": edit(5, 3), "page": edit(6, 1), "count": edit(12, 255),
		"list in a probe": edit(5, kindProbe),
	}
	for name, raw := range tests {
		if m, err := decode(raw); err == nil {
			t.Errorf("%s: got %+v", name, m)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add((&message{kind: kindProbe, sequence: 1}).encode())
	f.Add((&message{kind: kindReply, pages: 2, page: 1, reach: []uint64{1, 2}}).encode())
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := decode(raw)
		if err != nil {
			return
		}
		again, err := decode(m.encode())
		if err != nil || !reflect.DeepEqual(m, again) {
			t.Fatalf("%+v became %+v, %v", m, again, err)
		}
	})
}

func TestReachPages(t *testing.T) {
	t.Parallel()
	var hashes []uint64
	for i := range uint64(3*maxPage + 5) {
		hashes = append(hashes, i*7, i*7)
	}
	list := newReachList(hashes)
	cut := list.pages()
	if len(cut) != 4 {
		t.Fatalf("%d pages", len(cut))
	}
	var p pages
	var whole map[uint64]struct{}
	// Out of order, one twice, and one of an older list between.
	for _, i := range []int{2, 0, 0, 3, 1} {
		reach, done := p.add(&message{generation: list.generation, page: byte(i), pages: 4, reach: cut[i]})
		if done != (i == 1) {
			t.Fatalf("page %d: done is %v", i, done)
		}
		whole = reach
	}
	if len(whole) != len(list.hashes) || slices.ContainsFunc(list.hashes, func(h uint64) bool { _, is := whole[h]; return !is }) {
		t.Errorf("%d of %d arrived", len(whole), len(list.hashes))
	}
	empty := newReachList(nil)
	if empty.generation == 0 || len(empty.pages()) != 1 {
		t.Error("an empty list must be told from no list")
	}
	if newReachList([]uint64{1, 2}).generation != newReachList([]uint64{2, 1, 1}).generation {
		t.Error("the same list has two generations")
	}
}
