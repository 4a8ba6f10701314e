package health

import (
	"reflect"
	"testing"

	"hawser.dev/hawser/nodeagent/peer/wire"
)

func TestMessageRoundTrip(t *testing.T) {
	t.Parallel()
	tests := []message{
		{sequence: 1, nonce: 2, from: 4, to: 5, generation: 6, linkAdvert: linkAdvert{rank: Unsteady, inUse: true}, triggered: true},
		{sequence: 1, nonce: 2, from: 4, to: 5, token: 3, linkAdvert: linkAdvert{rank: Good, acceptsTransit: true}},
		{reply: true, sequence: 1<<32 - 1, page: 1, pages: 2, unsolicited: true, entries: []entry{{hash: 1}, {1<<64 - 1, linkAdvert{rank: Good, inUse: true}}}},
		{reply: true, pages: 1, base: 7, linkAdvert: linkAdvert{rank: Isolated}},
		{reply: true, pages: 1, entries: make([]entry, maxPageEntries)},
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

// TestDecodeRefuses checks messages that package wire accepts and that are no probe or reply.
// Messages that package wire refuses are in its own tests.
func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	probe, advert := &wire.Probe{Reply: true}, &wire.Advert{}
	good := &wire.Message{Probe: probe, Advert: advert, List: &wire.LinkStateList{Pages: 1, Entries: []wire.Entry{{ID: 9}}}}
	if _, err := decode(good.Encode()); err != nil {
		t.Fatal(err)
	}
	tests := map[string]*wire.Message{
		"nothing":     {},
		"no advert":   {Probe: probe},
		"no probe":    {Advert: advert},
		"another's":   {Tunnels: &wire.TunnelReport{WantReply: true}},
		"about sizes": {Size: &wire.SizeProbe{Bytes: 100}},
	}
	for name, w := range tests {
		if m, err := decode(w.Encode()); err == nil {
			t.Errorf("%s: got %+v", name, m)
		}
	}
	far := &wire.Message{Probe: probe, Advert: &wire.Advert{LinkAdvert: wire.LinkAdvert{Rank: 7}}}
	if m, err := decode(far.Encode()); err != nil || m.rank != Good {
		t.Errorf("a rank that does not exist yet is %v, %v", m.rank, err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add((&message{sequence: 1}).encode())
	f.Add((&message{reply: true, pages: 2, page: 1, entries: []entry{{hash: 1, linkAdvert: linkAdvert{rank: Good, inUse: true}}, {hash: 2}}}).encode())
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
