package health

import (
	"encoding/binary"
	"errors"

	"hawser.dev/hawser/internal/spread"
)

// Kinds of message.
const (
	kindProbe = 1 // from a gateway or a node
	kindReply = 2 // to a probe; to a node of the own cluster with a page of the reach list
)

const (
	version    = 2
	headLength = 56
	// maxPage bounds the entries in one reply, so that it fits in the MTU of any link
	// (IPv6 asks for 1280 bytes).
	maxPage     = 128
	entryLength = 9
	maxPacket   = headLength + entryLength*maxPage
)

// Bits of the flags of a message and of an entry. Bits that are not named here
// are left for later: who does not know them ignores them.
const (
	flagRank = 1<<3 - 1 // the rank
	flagUses = 1 << 3
	flagPoke = 1 << 4 // out of turn: no probe whose loss would count, nor its reply
	flagPush = 1 << 5 // a second reply to a probe, as there is news
	// flagTakes: takes what was passed on; of an entry: both ends do.
	flagTakes = 1 << 6
)

// magic begins every packet.
var magic = [4]byte{'h', 'w', 'p', 'b'}

var errMalformed = errors.New("not a probe message of version 2")

// word is what one end says of a link.
type word struct {
	rank Rank
	uses bool // its cluster sends over this link
	// takes says that it takes, over this link, what clusters passed on.
	takes bool
}

// entry is what a gateway says of its link to a remote gateway.
type entry struct {
	hash uint64 // of the remote gateway
	word
}

// message is one packet. A reply echoes sequence, nonce and poke of the probe.
// Layout, big endian: magic 4, version 1, kind 1, page 1, pages 1, sequence 4,
// count 2, flags 1, zero 1, nonce 8, from 8, to 8, generation 8, base 8, entries
// of hash 8 and flags 1.
type message struct {
	kind     byte
	sequence uint32
	nonce    uint64 // of the prober; a guess cannot answer for a peer
	from, to uint64 // hash of the names
	word            // of the sender, about the link that the packet takes
	poke     bool
	push     bool
	// generation names a reach list. A node says which one it has; the reply brings
	// the pages of the current one only when it differs, or just the changes when
	// base is the one that the node has. Between gateways of two clusters base is a
	// token: a reply brings the replier's own, which it gives to this peer alone, and
	// what a probe says counts at once when it brings back that of the other end.
	// Agents before tokens send 0, and are asked instead.
	generation, base uint64
	page, pages      byte
	reach            []entry
}

// hash names a gateway (or a node, whose Gateway is empty) on the wire.
func (p Peer) hash() uint64 { return spread.Hash(p.Cluster + "\n" + p.Gateway) }

func (w word) flags() byte {
	flags := byte(w.rank)
	if w.uses {
		flags |= flagUses
	}
	if w.takes {
		flags |= flagTakes
	}
	return flags
}

func wordOf(flags byte) word {
	return word{rank: min(Rank(flags&flagRank), Good), uses: flags&flagUses != 0, takes: flags&flagTakes != 0}
}

func (m *message) encode() []byte {
	out := make([]byte, headLength, headLength+entryLength*len(m.reach))
	copy(out, magic[:])
	out[4], out[5], out[6], out[7] = version, m.kind, m.page, m.pages
	binary.BigEndian.PutUint32(out[8:], m.sequence)
	binary.BigEndian.PutUint16(out[12:], uint16(len(m.reach)))
	out[14] = m.flags()
	if m.poke {
		out[14] |= flagPoke
	}
	if m.push {
		out[14] |= flagPush
	}
	for i, field := range []uint64{m.nonce, m.from, m.to, m.generation, m.base} {
		binary.BigEndian.PutUint64(out[16+8*i:], field)
	}
	for _, e := range m.reach {
		out = append(binary.BigEndian.AppendUint64(out, e.hash), e.flags())
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
		word:       wordOf(raw[14]),
		poke:       raw[14]&flagPoke != 0,
		push:       raw[14]&flagPush != 0,
		nonce:      binary.BigEndian.Uint64(raw[16:]),
		from:       binary.BigEndian.Uint64(raw[24:]),
		to:         binary.BigEndian.Uint64(raw[32:]),
		generation: binary.BigEndian.Uint64(raw[40:]),
		base:       binary.BigEndian.Uint64(raw[48:]),
	}
	count := int(binary.BigEndian.Uint16(raw[12:]))
	switch {
	case m.kind != kindProbe && m.kind != kindReply,
		count > maxPage, len(raw) != headLength+entryLength*count,
		m.kind == kindProbe && (count > 0 || m.pages > 0 || m.push),
		m.pages > 0 && m.page >= m.pages:
		return message{}, errMalformed
	}
	for at := headLength; at < len(raw); at += entryLength {
		m.reach = append(m.reach, entry{hash: binary.BigEndian.Uint64(raw[at:]), word: wordOf(raw[at+8])})
	}
	return m, nil
}
