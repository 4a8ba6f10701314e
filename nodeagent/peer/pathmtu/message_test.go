package pathmtu

import (
	"net/netip"
	"testing"

	"hawser.dev/hawser/nodeagent/peer/transport"
	"hawser.dev/hawser/nodeagent/peer/wire"
)

var (
	v4 = netip.MustParseAddr("241.0.0.2")
	v6 = netip.MustParseAddr("fd00:41::2")
)

func TestMessage(t *testing.T) {
	t.Parallel()
	for _, a := range []netip.Addr{v4, v6} {
		for _, size := range []int{minProbeSize(a), minProbeSize(a) + 1, minProbeSize(a) + 2, 576, 1280, 1420, 65_535} {
			raw := encodeProbe(1, 2, a, sizeProbe{size: size, nonce: 1 << 60})
			if len(raw)+overhead(a) != size {
				t.Errorf("a probe of %d bytes has %d", size, len(raw)+overhead(a))
			}
			got, err := wire.Decode(raw)
			if err != nil || got.From != 1 || got.To != 2 || *got.Size != (wire.SizeProbe{Bytes: uint16(size), Nonce: 1 << 60}) || !isComplete(got, a) {
				t.Errorf("decoded %+v %v", got, err)
			}
			if cut, err := wire.Decode(raw[:len(raw)-1]); err == nil && isComplete(cut, a) {
				t.Errorf("a probe of %d bytes cut by one is accepted", size)
			}
		}
	}
}

// FuzzReceive checks that a reply is at most as large as the probe, for any message from a
// gateway's address. Truncated probes get no reply.
func FuzzReceive(f *testing.F) {
	finders := map[netip.Addr]*Finder{}
	for _, a := range []netip.Addr{v4, v6} {
		finders[a] = New(Config{Port: 4804})
		finders[a].Set("g1/a", nil, []Link{{Peer: "g2/a", Source: a, Addr: a, MTU: 1420}})
		from, to := wire.HashID("g2/a"), wire.HashID("g1/a")
		f.Add(encodeProbe(from, to, a, sizeProbe{size: 100, nonce: 1}), a == v6)
		f.Add((&wire.Message{From: from, To: to, Size: &wire.SizeProbe{Reply: true, Bytes: 1420, Nonce: 2}}).Encode(), a == v6)
		f.Add(encodeProbe(to, from, a, sizeProbe{size: 1420}), a == v6)
	}
	f.Fuzz(func(t *testing.T, raw []byte, six bool) {
		a := v4
		if six {
			a = v6
		}
		m, err := wire.Decode(raw)
		if err != nil {
			return
		}
		answers := finders[a].Receive(testStart, transport.Packet{From: netip.AddrPortFrom(a, 4804), Message: m})
		if len(answers) > 0 && int(m.Size.Bytes) != len(raw)+overhead(a) {
			t.Errorf("a probe of %d bytes states %d", len(raw)+overhead(a), m.Size.Bytes)
		}
		for _, answer := range answers {
			if len(answer.Raw) > len(raw) || len(answers) > 1 {
				t.Errorf("%d replies of %d bytes to %d", len(answers), len(answer.Raw), len(raw))
			}
		}
	})
}
