package traffic

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"time"
)

// Kind is who speaks on a connection.
type Kind string

// The kinds of connections. All but Idle carry a message each interval.
const (
	Idle       Kind = "idle"        // nobody, until one exchange at the end
	Busy       Kind = "busy"        // the client asks, the server answers
	ClientPush Kind = "client-push" // the client; the server is silent
	ServerPush Kind = "server-push" // the server; the client is silent for ever
)

// Kinds lists them.
func Kinds() []Kind { return []Kind{Idle, Busy, ClientPush, ServerPush} }

// Connection is a TCP connection that is kept. All messages on it are numbered. One
// goroutine may send and another one receive.
type Connection struct {
	Kind   Kind
	Server string    // who answered
	Opened time.Time // when

	conn     net.Conn
	messages io.Reader
	who      string
	sent     uint64 // next number
	received uint64 // likewise
}

// Open connects within the time of a context and says what the connection is for; on one of
// ServerPush the server sends every interval. who is the client, in at most 27 bytes.
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
	if c.Server, err = greet(ctx, conn, c.messages, hello); err != nil {
		_ = conn.Close()
		return nil, err
	}
	c.Opened = time.Now()
	return c, conn.SetDeadline(time.Time{})
}

// greet sends the first message of a connection and gives the server's name.
func greet(ctx context.Context, conn net.Conn, messages io.Reader, hello message) (server string, err error) {
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

// Send sends the next message, of size bytes or as short as can be.
func (c *Connection) Send(size int) error {
	m := message{who: c.who, mode: modeEcho, seq: c.sent, body: make([]byte, max(0, size-header))}
	c.sent++
	_, err := c.conn.Write(m.encode())
	return err
}

// Receive takes the next message. One that was lost, doubled or changed places is an error.
func (c *Connection) Receive() error {
	m, err := receive(c.messages)
	if err == nil && m.seq != c.received {
		err = fmt.Errorf("messages lost or doubled: got %d, want %d", m.seq, c.received)
	}
	c.received++
	return err
}

// Exchange sends a message of size bytes, or as short as can be, and takes its answer.
func (c *Connection) Exchange(size int) error {
	if err := c.Send(size); err != nil {
		return err
	}
	return c.Receive()
}

// counted asks the server of a ClientPush connection whether it has all that was sent, and
// gives the longest silence that it heard.
func (c *Connection) counted() (silence time.Duration, err error) {
	if _, err := c.conn.Write(message{who: c.who, mode: modeAsk}.encode()); err != nil {
		return 0, err
	}
	m, err := receive(c.messages)
	if err == nil && m.seq != c.sent {
		err = fmt.Errorf("the server has counted %d of %d messages", m.seq, c.sent)
	}
	return time.Duration(m.arg), err
}

// Within bounds all that is sent and received from now on; the zero time = nothing does.
func (c *Connection) Within(deadline time.Time) error { return c.conn.SetDeadline(deadline) }

// Close ends the connection.
func (c *Connection) Close() error { return c.conn.Close() }

// reset has a connection end with a reset when it is closed: nothing is left to be said, and
// its port is free at once.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // the port is free later otherwise
	}
}
