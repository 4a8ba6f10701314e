package health

import (
	"bytes"
	"reflect"
	"testing"
)

func TestMessageRoundTrip(t *testing.T) {
	t.Parallel()
	tests := []message{
		{kind: kindProbe, sequence: 1, nonce: 2, from: 4, to: 5, generation: 6, word: word{rank: Unsteady, uses: true}, poke: true},
		{kind: kindReply, sequence: 1<<32 - 1, page: 1, pages: 2, push: true, reach: []entry{{hash: 1}, {1<<64 - 1, word{rank: Good, uses: true}}}},
		{kind: kindReply, pages: 1, base: 7, word: word{rank: Alone}},
		{kind: kindReply, pages: 1, reach: make([]entry, maxPage)},
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

func edited(raw []byte, at int, to byte) []byte {
	raw = bytes.Clone(raw)
	raw[at] = to
	return raw
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	good := (&message{kind: kindReply, pages: 1, reach: []entry{{hash: 9}}}).encode()
	edit := func(at int, to byte) []byte { return edited(good, at, to) }
	tests := map[string][]byte{
		"empty": nil, "short": good[:20], "cut": good[:len(good)-1], "long": append(bytes.Clone(good), 0),
		"magic": edit(0, 'x'), "version": edit(4, 1), "kind": edit(5, 3), "page": edit(6, 1), "count": edit(12, 255),
		"list in a probe": edit(5, kindProbe),
		"probe as a push": edited((&message{kind: kindProbe}).encode(), 14, flagPush),
	}
	for name, raw := range tests {
		if m, err := decode(raw); err == nil {
			t.Errorf("%s: got %+v", name, m)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add((&message{kind: kindProbe, sequence: 1}).encode())
	f.Add((&message{kind: kindReply, pages: 2, page: 1, reach: []entry{{hash: 1, word: word{rank: Good, uses: true}}, {hash: 2}}}).encode())
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
