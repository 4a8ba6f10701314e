package health

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
)

// Kinds of message.
const (
	kindProbe = 1 // from a gateway or a node
	kindReply = 2 // to a probe; to a node of the own cluster with a page of the reach list
)

const (
	version    = 1
	headLength = 56
	// maxPage bounds the hashes in one reply, so that it fits in the MTU of any link
	// (IPv6 asks for 1280 bytes).
	maxPage   = 128
	maxPacket = headLength + 8*maxPage
)

// magic begins every packet.
var magic = [4]byte{'h', 'w', 'p', 'b'}

var errMalformed = errors.New("not a probe message of version 1")

// message is one packet. A reply echoes sequence, nonce and sent of the probe.
// Layout, big endian: magic 4, version 1, kind 1, page 1, pages 1, sequence 4,
// count 2, zero 2, nonce 8, sent 8, from 8, to 8, generation 8, hashes.
type message struct {
	kind     byte
	sequence uint32
	nonce    uint64 // of the sender; a guess cannot answer for a peer
	sent     int64  // sender's monotonic clock, nanoseconds
	from, to uint64 // hash of the names
	// generation names a reach list. A node says which one it has; the reply brings
	// the pages of the current one only when it differs.
	generation  uint64
	page, pages byte
	reach       []uint64
}

// hash names a gateway (or a node, whose Gateway is empty) on the wire.
func (p Peer) hash() uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(p.Cluster + "\n" + p.Gateway))
	return h.Sum64()
}

func (m *message) encode() []byte {
	out := make([]byte, headLength, headLength+8*len(m.reach))
	copy(out, magic[:])
	out[4], out[5], out[6], out[7] = version, m.kind, m.page, m.pages
	binary.BigEndian.PutUint32(out[8:], m.sequence)
	binary.BigEndian.PutUint16(out[12:], uint16(len(m.reach)))
	binary.BigEndian.PutUint64(out[16:], m.nonce)
	binary.BigEndian.PutUint64(out[24:], uint64(m.sent))
	binary.BigEndian.PutUint64(out[32:], m.from)
	binary.BigEndian.PutUint64(out[40:], m.to)
	binary.BigEndian.PutUint64(out[48:], m.generation)
	for _, hash := range m.reach {
		out = binary.BigEndian.AppendUint64(out, hash)
	}
	return out
}

func decode(raw []byte) (message, error) {
	if len(raw) < headLength || [4]byte(raw) != magic || raw[4] != version {
		return message{}, errMalformed
	}
	m := message{
		kind:       raw[5],
		page:       raw[6],
		pages:      raw[7],
		sequence:   binary.BigEndian.Uint32(raw[8:]),
		nonce:      binary.BigEndian.Uint64(raw[16:]),
		sent:       int64(binary.BigEndian.Uint64(raw[24:])),
		from:       binary.BigEndian.Uint64(raw[32:]),
		to:         binary.BigEndian.Uint64(raw[40:]),
		generation: binary.BigEndian.Uint64(raw[48:]),
	}
	count := int(binary.BigEndian.Uint16(raw[12:]))
	switch {
	case m.kind != kindProbe && m.kind != kindReply,
		count > maxPage, len(raw) != headLength+8*count,
		m.kind == kindProbe && (count > 0 || m.pages > 0),
		m.pages > 0 && m.page >= m.pages:
		return message{}, errMalformed
	}
	for i := range count {
		m.reach = append(m.reach, binary.BigEndian.Uint64(raw[headLength+8*i:]))
	}
	return m, nil
}
