package pathmtu

import (
	"net/netip"

	"hawser.dev/hawser/nodeagent/wire"
)

// overhead is the size of the headers around a datagram, bytes.
func overhead(a netip.Addr) int {
	const udp = 8
	if a.Is4() {
		return 20 + udp
	}
	return 40 + udp
}

// smallest is the size of a probe without padding.
func smallest(a netip.Addr) int { return overhead(a) + wire.Smallest }

// probe gives the datagram to an address whose IP packet has a size.
func probe(from, to uint64, addr netip.Addr, s sent) []byte {
	m := wire.Message{
		From: from, To: to, Length: max(s.size-overhead(addr), wire.Smallest),
		Size: &wire.Size{Bytes: uint16(s.size), Nonce: s.nonce},
	}
	return m.Encode()
}

// whole reports whether a probe that came from an address has the size that it says: only
// what arrived whole counts.
func whole(m *wire.Message, from netip.Addr) bool {
	return int(m.Size.Bytes) == m.Length+overhead(from)
}
