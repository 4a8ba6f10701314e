package wire

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"testing"
)

// examples returns one message of each kind, and one with all TLVs that can be combined.
func examples() map[string]*Message {
	return map[string]*Message{
		"probe":   {From: 4, To: 5, Probe: &Probe{Sequence: 1, Nonce: 2, Triggered: true}, Advert: &Advert{LinkAdvert: LinkAdvert{Rank: 3, InUse: true}, Token: 9}},
		"sibling": {From: 4, To: 5, Probe: &Probe{Sequence: 1, Nonce: 2}, List: &LinkStateList{Generation: 6}},
		"reply": {From: 1<<64 - 1, Probe: &Probe{Reply: true, Sequence: 1<<32 - 1, Unsolicited: true}, Advert: &Advert{LinkAdvert: LinkAdvert{Rank: 7, AcceptsTransit: true}},
			List: &LinkStateList{Page: 1, Pages: 2, Entries: []Entry{{ID: 1}, {1<<64 - 1, LinkAdvert{Rank: 4, InUse: true}}}}},
		"changes":   {Probe: &Probe{Reply: true}, List: &LinkStateList{Generation: 8, Base: 7, Pages: 1}},
		"full page": {Probe: &Probe{Reply: true}, Advert: &Advert{}, List: &LinkStateList{Pages: 1, Entries: make([]Entry, MaxEntries)}},
		"tunnels": {From: 10, To: 11, Tunnels: &TunnelReport{WantReply: true, Migrating: true, Seq: 7, AckSeq: 8, ReplyTo: 9, Tunnels: []TunnelState{
			{ID: 12, Available: true, InUse: true}, {ID: 13, Verified: true, Secondary: true},
		}}},
		"most tunnels": {Tunnels: &TunnelReport{Tunnels: make([]TunnelState, MaxTunnels)}},
		"size":         {From: 1, To: 2, Length: 1392, Size: &SizeProbe{Bytes: 1420, Nonce: 1 << 60}},
		"size reply":   {From: 1, To: 2, Size: &SizeProbe{Reply: true, Bytes: 1420, Nonce: 1 << 60}},
		"all":          {From: 1, To: 2, Length: 500, Probe: &Probe{}, Advert: &Advert{}, List: &LinkStateList{}, Tunnels: &TunnelReport{}, Size: &SizeProbe{Bytes: 1}},
		"direct test":  {From: 1, To: 1, Direct: &Direct{Nonce: 7}},
		"direct":       {From: 1, To: 2, Direct: &Direct{Report: true, Receives: true, MAC: [6]byte{2, 0, 0, 0, 0, 9}}},
		"busy direct":  {From: 1, To: 2, Direct: &Direct{Report: true, Traffic: true}},
		"nothing":      {From: 1, To: 2},
	}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for name, want := range examples() {
		raw := want.Encode()
		if len(raw) > 1232 && want.Length == 0 {
			t.Errorf("%s: %d bytes do not fit in the smallest IPv6 packet", name, len(raw))
		}
		if want.Length > 0 && len(raw) != want.Length {
			t.Errorf("%s: %d bytes, want %d", name, len(raw), want.Length)
		}
		want.Length = len(raw)
		have, err := Decode(raw)
		if err != nil || !reflect.DeepEqual(want, have) {
			t.Errorf("%s: got %+v, %v, want %+v", name, have, err, want)
		}
	}
	if raw := (&Message{Size: &SizeProbe{}}).Encode(); len(raw) != MinSizeProbe {
		t.Errorf("the smallest size probe has %d bytes, want %d", len(raw), MinSizeProbe)
	}
}

// TestCut checks that a truncated message is malformed, unless the rest is padding or the cut is
// between two TLVs.
func TestCut(t *testing.T) {
	t.Parallel()
	for name, m := range examples() {
		raw := m.Encode()
		ends := map[int]bool{headerLength: true}
		for at := headerLength; at < len(raw) && raw[at] != typePadding; {
			at += tlvHeaderLength + int(binary.BigEndian.Uint16(raw[at+1:]))
			ends[at] = true
			if m.Size != nil && raw[min(at, len(raw)-1)] == typePadding {
				break
			}
		}
		for cut := range raw {
			have, err := Decode(raw[:cut])
			padding := m.Size != nil && !m.Size.Reply && cut >= MinSizeProbe && err == nil && have.Size != nil
			// A list without its last entries has a wrong length.
			if err == nil && !ends[cut] && !padding {
				t.Errorf("%s: %d of %d bytes pass", name, cut, len(raw))
			}
		}
	}
}

// tlv returns an encoded TLV.
func tlv(kind byte, value []byte) []byte {
	return append(binary.BigEndian.AppendUint16([]byte{kind}, uint16(len(value))), value...)
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	head := (&Message{}).Encode()
	reply := (&Message{Probe: &Probe{Reply: true}, List: &LinkStateList{Pages: 1, Entries: []Entry{{ID: 9}}}}).Encode()
	size := (&Message{Size: &SizeProbe{Reply: true}}).Encode()
	with := func(tlvs ...[]byte) []byte { return append(bytes.Clone(head), bytes.Join(tlvs, nil)...) }
	edit := func(raw []byte, at int, to byte) []byte {
		raw = bytes.Clone(raw)
		raw[at] = to
		return raw
	}
	probe := tlv(typeProbe, make([]byte, probeLength))
	const list = headerLength + tlvHeaderLength + probeLength + tlvHeaderLength
	tests := map[string][]byte{
		"empty":                 nil,
		"short":                 reply[:20],
		"long":                  append(bytes.Clone(reply), 0),
		"magic":                 edit(reply, 0, 'x'),
		"version":               edit(reply, 4, 2),
		"page":                  edit(reply, list+16, 1),
		"pages":                 edit(reply, list+17, 0),
		"list in a probe":       edit(reply, headerLength, typeProbe),
		"list without a probe":  with(tlv(typeList, make([]byte, listLength))),
		"half an entry":         with(tlv(typeReply, make([]byte, probeLength)), tlv(typeList, make([]byte, listLength+4))),
		"too many entries":      with(tlv(typeReply, make([]byte, probeLength)), tlv(typeList, make([]byte, listLength+entryLength*(MaxEntries+1)))),
		"unsolicited probe":     with(tlv(typeProbe, append(make([]byte, probeLength-1), flagUnsolicited))),
		"two probes":            with(probe, probe),
		"probe and reply":       with(probe, tlv(typeReply, make([]byte, probeLength))),
		"two adverts":           with(tlv(typeAdvert, make([]byte, advertLength)), tlv(typeAdvert, make([]byte, advertLength))),
		"two lists":             with(probe, tlv(typeList, make([]byte, listLength)), tlv(typeList, make([]byte, listLength))),
		"two tunnel reports":    with(tlv(typeTunnels, make([]byte, tunnelsLength)), tlv(typeTunnels, make([]byte, tunnelsLength))),
		"short probe":           with(tlv(typeProbe, make([]byte, probeLength-1))),
		"short advert":          with(tlv(typeAdvert, make([]byte, advertLength-1))),
		"short list":            with(probe, tlv(typeList, make([]byte, listLength-1))),
		"short tunnels":         with(tlv(typeTunnels, make([]byte, tunnelsLength-1))),
		"half a tunnel":         with(tlv(typeTunnels, make([]byte, tunnelsLength+4))),
		"too many tunnels":      with(tlv(typeTunnels, make([]byte, tunnelsLength+tunnelLength*(MaxTunnels+1)))),
		"short size":            with(tlv(typeSizeProbe, make([]byte, sizeLength-1))),
		"two sizes":             with(tlv(typeSizeProbe, make([]byte, sizeLength)), tlv(typeSizeReply, make([]byte, sizeLength))),
		"padded reply":          append(bytes.Clone(size), 0, 0, 0, 0),
		"padding first":         with([]byte{0}, probe),
		"length beyond the end": with([]byte{99, 0, 5, 1, 2}),
		"too many TLVs":         with(bytes.Repeat(tlv(99, nil), maxTLVs+1)),
	}
	for name, raw := range tests {
		if m, err := Decode(raw); err == nil {
			t.Errorf("%s: got %+v", name, m)
		}
	}
}

// TestSkips checks that later versions may add TLVs and extend them at the end.
func TestSkips(t *testing.T) {
	t.Parallel()
	for name, want := range examples() {
		if want.Length > 0 || want.List != nil && len(want.List.Entries) > 0 || want.Tunnels != nil {
			continue
		}
		raw := want.Encode()
		later := append(bytes.Clone(raw[:headerLength]), tlv(200, []byte("news"))...)
		for rest := raw[headerLength:]; len(rest) > 0; {
			end := tlvHeaderLength + int(binary.BigEndian.Uint16(rest[1:]))
			kind, value := rest[0], bytes.Clone(rest[tlvHeaderLength:end])
			if kind != typeList {
				value = append(value, "more"...)
			}
			later = append(later, tlv(kind, value)...)
			rest = rest[end:]
		}
		later = append(later, tlv(255, nil)...)
		want.Length = len(later)
		have, err := Decode(later)
		if err != nil || !reflect.DeepEqual(have, want) {
			t.Errorf("%s: got %+v, %v, want %+v", name, have, err, want)
		}
	}
}

func TestID(t *testing.T) {
	t.Parallel()
	seen := map[uint64]string{}
	for _, name := range []string{"g1/a", "g1/b", "g2/a", "g1/", "g1a/", "/g1a"} {
		if other, known := seen[HashID(name)]; known {
			t.Errorf("%q and %q have the same ID", name, other)
		}
		seen[HashID(name)] = name
	}
}

func FuzzDecode(f *testing.F) {
	for _, m := range examples() {
		f.Add(m.Encode())
	}
	f.Add(append((&Message{}).Encode(), tlv(99, []byte("later"))...))
	f.Add([]byte("hwlk"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := Decode(raw)
		if err != nil {
			return
		}
		if m.Length != len(raw) {
			t.Fatalf("%d bytes decoded with length %d", len(raw), m.Length)
		}
		if m.Size == nil || m.Size.Reply {
			m.Length = 0 // skipped TLVs are not encoded again
		}
		out := m.Encode()
		if len(out) > len(raw) {
			t.Fatalf("%d bytes became %d", len(raw), len(out))
		}
		m.Length = len(out)
		again, err := Decode(out)
		if err != nil || !reflect.DeepEqual(m, again) {
			t.Fatalf("%+v became %+v, %v", m, again, err)
		}
	})
}
