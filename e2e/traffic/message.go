package traffic

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Mark begins every message; it never appears on the wire outside a tunnel that encrypts.
const Mark = "hawser traffic7\n"

// header is the size of a message without its body, in bytes.
const header = 64

// mostBody bounds the body of a message on a connection, in bytes.
const mostBody = 64 << 10

// What a message is for. On a connection the first one says what it is of, and the
// server answers with its name in the body.
const (
	modeEcho   = 'e' // each message is answered with the same
	modeCount  = 'c' // numbered messages are counted in silence
	modeAsk    = 'a' // of modeCount: the server says how many came, and the longest silence
	modePush   = 'p' // numbered messages come without being asked for, one each arg ns
	modeOnce   = 'o' // nothing more follows
	modeBurst  = 'b' // many messages come at once, in packets as long as they may be
	modePacket = 'd' // a datagram, which is sent back as it is
)

// burst is how many messages come at once: 32 KiB.
const burst = 512

// message is all that is ever sent: a mark (16 bytes), arg (8), seq (8), the length of the
// body (4), the mode (1), who sent it (27), and on connections the body. A datagram is as
// long as it was made; what does not fit of the name is cut off.
type message struct {
	who  string // of at most 27 bytes
	mode byte
	seq  uint64
	arg  uint64
	body []byte
}

// leastDatagram is how short a datagram may be, in bytes: mark, arg, seq, length, mode.
const leastDatagram = 37

func (m message) encode() []byte {
	out := make([]byte, header, header+len(m.body))
	copy(out, Mark)
	binary.BigEndian.PutUint64(out[16:], m.arg)
	binary.BigEndian.PutUint64(out[24:], m.seq)
	binary.BigEndian.PutUint32(out[32:], uint32(len(m.body)))
	out[36] = m.mode
	copy(out[leastDatagram:], m.who)
	return append(out, m.body...)
}

var errNoMessage = errors.New("no message of ours")

// decode reads a datagram, or the header of a message on a connection, whose body is
// left to the caller.
func decode(raw []byte) (m message, body int, err error) {
	if len(raw) < leastDatagram || string(raw[:16]) != Mark {
		return message{}, 0, fmt.Errorf("%w: %q", errNoMessage, raw[:min(len(raw), header)])
	}
	body = int(binary.BigEndian.Uint32(raw[32:]))
	if body > mostBody {
		return message{}, 0, fmt.Errorf("%w: a body of %d bytes", errNoMessage, body)
	}
	who, _, _ := bytes.Cut(raw[leastDatagram:min(len(raw), header)], []byte{0})
	return message{
		who: string(who), mode: raw[36], arg: binary.BigEndian.Uint64(raw[16:]), seq: binary.BigEndian.Uint64(raw[24:]),
	}, body, nil
}

// receive reads the next message of a connection.
func receive(from io.Reader) (message, error) {
	var raw [header]byte
	if _, err := io.ReadFull(from, raw[:]); err != nil {
		return message{}, err
	}
	m, body, err := decode(raw[:])
	if err != nil || body == 0 {
		return m, err
	}
	m.body = make([]byte, body)
	_, err = io.ReadFull(from, m.body)
	return m, err
}
