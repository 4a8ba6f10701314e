package traffic

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Mark is the start of every message. Captures search for it: it must not leave a host unencrypted.
const Mark = "hawser traffic7\n"

// header is the size of a message without its body, in bytes.
const header = 64

// maxBody bounds the body of a message on a connection, in bytes.
const maxBody = 64 << 10

// Modes of messages. The first message of a connection selects the mode, and the server
// answers it with its name in the body.
const (
	modeEcho   = 'e' // the server echoes each message
	modeCount  = 'c' // the server counts numbered messages and sends nothing
	modeReport = 'a' // after modeCount: the server returns the count and the longest silence
	modePush   = 'p' // the server sends a numbered message every arg ns
	modeOnce   = 'o' // one message and one answer
	modeBurst  = 'b' // the server sends many messages at once, in packets of full size
	modePacket = 'd' // a datagram, which the server echoes
)

// burst is the number of messages of modeBurst: 32 KiB.
const burst = 512

// message is the only format: the mark (16 bytes), arg (8), seq (8), the length of the body
// (4), the mode (1), the sender's name (27), and on connections the body. A datagram may be
// shorter; its name is then truncated.
type message struct {
	who  string // sender, at most 27 bytes
	mode byte
	seq  uint64
	arg  uint64
	body []byte
}

// minDatagram is the length of the shortest datagram in bytes: mark, arg, seq, length, mode.
const minDatagram = 37

func (m message) encode() []byte {
	out := make([]byte, header, header+len(m.body))
	copy(out, Mark)
	binary.BigEndian.PutUint64(out[16:], m.arg)
	binary.BigEndian.PutUint64(out[24:], m.seq)
	binary.BigEndian.PutUint32(out[32:], uint32(len(m.body)))
	out[36] = m.mode
	copy(out[minDatagram:], m.who)
	return append(out, m.body...)
}

var errNoMessage = errors.New("not a traffic message")

// decode decodes a datagram, or the header of a message on a connection. The caller reads
// the body, whose length it returns.
func decode(raw []byte) (m message, body int, err error) {
	if len(raw) < minDatagram || string(raw[:16]) != Mark {
		return message{}, 0, fmt.Errorf("%w: %q", errNoMessage, raw[:min(len(raw), header)])
	}
	body = int(binary.BigEndian.Uint32(raw[32:]))
	if body > maxBody {
		return message{}, 0, fmt.Errorf("%w: a body of %d bytes", errNoMessage, body)
	}
	who, _, _ := bytes.Cut(raw[minDatagram:min(len(raw), header)], []byte{0})
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
