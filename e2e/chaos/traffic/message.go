// Package traffic makes the traffic of a chaos run: servers and callers inside
// pods, whose sockets all belong to one process. Every message is marked, says
// who sent it and is numbered, so that what gets lost, doubled or leaked shows.
package traffic

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// Mark begins every message; it never appears on the wire outside a tunnel.
const Mark = "hawser chaos 73\n"

// size of every message, in bytes.
const size = 64

// How a server deals with a connection.
const (
	echo = 'e' // each message is answered
	push = 'p' // messages come without being asked for
	bulk = 'b' // many messages at once, in packets as long as they may be
)

// bulkOf is how many messages come at once.
const bulkOf = 512

// message is all that is ever sent.
type message struct {
	who  string // of at most 31 bytes
	mode byte
	seq  uint64
}

func (m message) encode() []byte {
	out := make([]byte, size)
	copy(out, Mark)
	copy(out[16:47], m.who)
	out[47] = m.mode
	binary.BigEndian.PutUint64(out[48:], m.seq)
	return out
}

var errNoMessage = errors.New("no message of ours")

func decode(raw []byte) (message, error) {
	if len(raw) != size || string(raw[:16]) != Mark {
		return message{}, fmt.Errorf("%w: %q", errNoMessage, raw)
	}
	who, _, _ := bytes.Cut(raw[16:47], []byte{0})
	return message{who: string(who), mode: raw[47], seq: binary.BigEndian.Uint64(raw[48:])}, nil
}
