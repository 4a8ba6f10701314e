package traffic

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"time"
)

// Kind names which end of a connection sends.
type Kind string

// Kinds of connections. All but Idle transfer a message each interval.
const (
	Idle       Kind = "idle"        // silent until one exchange at the end
	Busy       Kind = "busy"        // the client sends, the server answers
	ClientPush Kind = "client-push" // only the client sends
	ServerPush Kind = "server-push" // only the server sends
)

// Kinds lists all kinds.
func Kinds() []Kind { return []Kind{Idle, Busy, ClientPush, ServerPush} }

// Connection is a long-lived TCP connection with numbered messages. One goroutine may send
// while a second one receives.
type Connection struct {
	Kind   Kind
	Server string // name of the server that answered
	Opened time.Time

	conn     net.Conn
	messages io.Reader
	who      string
	sent     uint64 // number of the next message to send
	received uint64 // number of the next message to receive
}

// Open connects and announces the kind of the connection. The server sends every interval on
// a ServerPush connection. who is the client's name, at most 27 bytes.
func Open(ctx context.Context, dial Dialer, target string, kind Kind, who string, interval time.Duration) (*Connection, error) {
	conn, err := dial.orPlain()(ctx, "tcp", target)
	if err != nil {
		return nil, err
	}
	hello := message{who: who, mode: modeEcho}
	switch kind {
	case ClientPush:
		hello.mode = modeCount
	case ServerPush:
		hello.mode, hello.arg = modePush, uint64(interval)
	}
	c := &Connection{Kind: kind, conn: conn, messages: bufio.NewReader(conn), who: who}
	if c.Server, err = handshake(ctx, conn, c.messages, hello); err != nil {
		_ = conn.Close()
		return nil, err
	}
	c.Opened = time.Now()
	return c, conn.SetDeadline(time.Time{})
}

// handshake sends the first message of a connection and returns the server's name.
func handshake(ctx context.Context, conn net.Conn, messages io.Reader, hello message) (server string, err error) {
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return "", err
		}
	}
	if _, err := conn.Write(hello.encode()); err != nil {
		return "", err
	}
	m, err := receive(messages)
	return string(m.body), err
}

// Send sends the next message, of size bytes or the shortest possible.
func (c *Connection) Send(size int) error {
	m := message{who: c.who, mode: modeEcho, seq: c.sent, body: make([]byte, max(0, size-header))}
	c.sent++
	_, err := c.conn.Write(m.encode())
	return err
}

// Receive reads the next message. It fails if a message was lost, duplicated or reordered.
func (c *Connection) Receive() error {
	m, err := receive(c.messages)
	if err == nil && m.seq != c.received {
		err = fmt.Errorf("messages lost or doubled: got %d, want %d", m.seq, c.received)
	}
	c.received++
	return err
}

// Exchange sends a message of size bytes, or the shortest possible, and reads the answer.
func (c *Connection) Exchange(size int) error {
	if err := c.Send(size); err != nil {
		return err
	}
	return c.Receive()
}

// counted checks that the server of a ClientPush connection received every message. It
// returns the longest silence that the server saw.
func (c *Connection) counted() (silence time.Duration, err error) {
	if _, err := c.conn.Write(message{who: c.who, mode: modeReport}.encode()); err != nil {
		return 0, err
	}
	m, err := receive(c.messages)
	if err == nil && m.seq != c.sent {
		err = fmt.Errorf("the server received %d of %d messages", m.seq, c.sent)
	}
	return time.Duration(m.arg), err
}

// SetDeadline bounds all sending and receiving from now on; the zero time removes the bound.
func (c *Connection) SetDeadline(deadline time.Time) error { return c.conn.SetDeadline(deadline) }

// Close closes the connection.
func (c *Connection) Close() error { return c.conn.Close() }

// reset makes Close send a reset, which frees the local port at once.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
}
