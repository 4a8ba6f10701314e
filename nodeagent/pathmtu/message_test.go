package pathmtu

import (
	"net/netip"
	"testing"
)

var (
	v4 = netip.MustParseAddr("241.0.0.2")
	v6 = netip.MustParseAddr("fd00:41::2")
)

func TestMessage(t *testing.T) {
	t.Parallel()
	for _, a := range []netip.Addr{v4, v6} {
		for _, size := range []int{smallest(a), 576, 1280, 1420, 65_535} {
			probe := message{kind: kindProbe, size: uint16(size), nonce: 1 << 60}
			raw := probe.encode(a)
			if len(raw)+overhead(a) != size {
				t.Errorf("a probe of %d bytes is %d", size, len(raw)+overhead(a))
			}
			if got, err := decode(raw, a); err != nil || got != probe {
				t.Errorf("decoded %+v %v", got, err)
			}
			if _, err := decode(raw[:len(raw)-1], a); err == nil {
				t.Errorf("a probe of %d bytes cut by one is taken", size)
			}
			reply := message{kind: kindReply, size: uint16(size), nonce: 1}
			if raw := reply.encode(a); len(raw) != headLength {
				t.Errorf("a reply of %d bytes", len(raw))
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, m := range []message{{kind: kindProbe, size: 100, nonce: 1}, {kind: kindReply, size: 1420, nonce: 2}, {kind: 3}} {
		f.Add(m.encode(v4), false)
		f.Add(m.encode(v6), true)
	}
	f.Fuzz(func(t *testing.T, raw []byte, six bool) {
		a := v4
		if six {
			a = v6
		}
		m, err := decode(raw, a)
		if err != nil {
			return
		}
		if m.kind == kindProbe && int(m.size) != len(raw)+overhead(a) {
			t.Errorf("a probe of %d bytes says %d", len(raw)+overhead(a), m.size)
		}
		if reply := (&message{kind: kindReply, size: m.size, nonce: m.nonce}).encode(a); len(reply) > len(raw) {
			t.Errorf("an answer of %d bytes to %d", len(reply), len(raw))
		}
	})
}
