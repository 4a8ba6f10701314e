package change

import (
	"encoding/binary"
	"errors"
)

// Message is what one end tells the other: what it has, in full.
type Message struct {
	Ask      bool   // asks for an answer
	Changes  bool   // the sender is not where it should be, and asks to be asked
	Number   uint64 // of the sender's messages, growing
	Read     uint64 // the highest number that the sender has from the other end
	Answers  uint64 // the number of the message that this one answers; 0 = none
	From, To uint64 // hash of the gateways' names
	says     []word
}

// word is what is said of one cable.
type word struct {
	cable uint64 // hash
	said
}

const (
	version    = 1
	headLength = 48
	wordLength = 9
	// maxWords bounds the cables of a message.
	maxWords  = 16
	maxPacket = headLength + maxWords*wordLength
)

// Bits of a word. What is not named here is left for later.
const (
	flagStanding = 1 << iota
	flagProved
	flagUses
	flagLeaving
	flagWished
)

var magic = [4]byte{'h', 'w', 'c', 'b'}

var errMalformed = errors.New("not a cable message of version 1")

func (s said) flags() byte {
	var out byte
	for i, set := range []bool{s.standing, s.proved, s.uses, s.leaving, s.wished} {
		if set {
			out |= 1 << i
		}
	}
	return out
}

func saidOf(flags byte) said {
	return said{
		standing: flags&flagStanding != 0, proved: flags&flagProved != 0,
		uses: flags&flagUses != 0, leaving: flags&flagLeaving != 0, wished: flags&flagWished != 0,
	}
}

// Bits of the second byte of the head.
const (
	flagAsk = 1 << iota
	flagChanges
)

// encode gives the datagram. Layout, big endian: magic 4, version 1, flags 1,
// count 1, zero 1, number 8, read 8, answers 8, from 8, to 8, words of cable 8
// and flags 1.
func (m *Message) encode() []byte {
	out := make([]byte, headLength, headLength+wordLength*len(m.says))
	copy(out, magic[:])
	out[4], out[6] = version, byte(len(m.says))
	if m.Ask {
		out[5] |= flagAsk
	}
	if m.Changes {
		out[5] |= flagChanges
	}
	for i, field := range []uint64{m.Number, m.Read, m.Answers, m.From, m.To} {
		binary.BigEndian.PutUint64(out[8+8*i:], field)
	}
	for _, w := range m.says {
		out = append(binary.BigEndian.AppendUint64(out, w.cable), w.flags())
	}
	return out
}

func decode(raw []byte) (Message, error) {
	if len(raw) < headLength || [4]byte(raw) != magic || raw[4] != version {
		return Message{}, errMalformed
	}
	count := int(raw[6])
	if count > maxWords || len(raw) != headLength+wordLength*count {
		return Message{}, errMalformed
	}
	m := Message{Ask: raw[5]&flagAsk != 0, Changes: raw[5]&flagChanges != 0}
	for i, field := range []*uint64{&m.Number, &m.Read, &m.Answers, &m.From, &m.To} {
		*field = binary.BigEndian.Uint64(raw[8+8*i:])
	}
	for at := headLength; at < len(raw); at += wordLength {
		m.says = append(m.says, word{cable: binary.BigEndian.Uint64(raw[at:]), said: saidOf(raw[at+8])})
	}
	return m, nil
}
