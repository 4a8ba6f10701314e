package pathmtu

import (
	"encoding/binary"
	"errors"
	"net/netip"
)

// Kinds of message.
const (
	kindProbe = 1 // padded to its size
	kindReply = 2 // never padded
)

const (
	version    = 1
	headLength = 16
)

// magic begins every packet.
var magic = [4]byte{'h', 'w', 'm', 't'}

var errMalformed = errors.New("not a path mtu message of version 1")

// message is one datagram. A reply echoes nonce and size of the probe. Layout,
// big endian: magic 4, version 1, kind 1, size 2, nonce 8, and in a probe zeros
// up to its size.
type message struct {
	kind  byte
	size  uint16 // of the probe's IP packet
	nonce uint64
}

// overhead is the size of the headers around a datagram, bytes.
func overhead(a netip.Addr) int {
	const udp = 8
	if a.Is4() {
		return 20 + udp
	}
	return 40 + udp
}

// smallest is the size of a probe without padding.
func smallest(a netip.Addr) int { return overhead(a) + headLength }

// encode gives the datagram, padded so that its IP packet to the address has
// the size that it says.
func (m *message) encode(to netip.Addr) []byte {
	length := headLength
	if m.kind == kindProbe {
		length = max(int(m.size)-overhead(to), headLength)
	}
	out := make([]byte, length)
	copy(out, magic[:])
	out[4], out[5] = version, m.kind
	binary.BigEndian.PutUint16(out[6:], m.size)
	binary.BigEndian.PutUint64(out[8:], m.nonce)
	return out
}

// decode reads a datagram that came from an address. What says another size
// than it has is no probe: only what arrived whole counts.
func decode(raw []byte, from netip.Addr) (message, error) {
	if len(raw) < headLength || [4]byte(raw) != magic || raw[4] != version {
		return message{}, errMalformed
	}
	m := message{kind: raw[5], size: binary.BigEndian.Uint16(raw[6:]), nonce: binary.BigEndian.Uint64(raw[8:])}
	want := headLength
	switch m.kind {
	case kindProbe:
		want = int(m.size) - overhead(from)
	case kindReply:
	default:
		return message{}, errMalformed
	}
	if len(raw) != want {
		return message{}, errMalformed
	}
	return m, nil
}
