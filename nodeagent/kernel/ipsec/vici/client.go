package vici

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"hawser.dev/hawser/internal/unixsocket"
)

// Types of vici packets.
const (
	cmdRequest      = 0
	cmdResponse     = 1
	cmdUnknown      = 2
	eventRegister   = 3
	eventUnregister = 4
	eventConfirm    = 5
	eventUnknown    = 6
	event           = 7
)

// maxSegment is the maximum size of a packet in bytes, without its length field.
const maxSegment = 512 << 10

// ErrRefused means that charon understood a command and refused it.
var ErrRefused = errors.New("charon refuses")

// Client is a connection to charon. It is not safe for concurrent use. After any error other
// than ErrRefused it must be closed.
type Client struct{ conn net.Conn }

// Dial connects to charon's vici socket.
func Dial(ctx context.Context, socket string) (*Client, error) {
	conn, err := unixsocket.Dial(ctx, socket)
	if err != nil {
		return nil, fmt.Errorf("connect to vici socket %s: %w", socket, err)
	}
	return &Client{conn: conn}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Call sends a command and returns the response, or ErrRefused if charon refused the command.
func (c *Client) Call(ctx context.Context, command string, args Section) (Section, error) {
	return c.call(ctx, command, args, nil)
}

// Stream sends a command that charon answers with events and then a response. It calls visit for
// each event with the given name.
func (c *Client) Stream(ctx context.Context, command, name string, args Section, visit func(Section) error) error {
	if err := c.register(ctx, eventRegister, name); err != nil {
		return err
	}
	if _, err := c.call(ctx, command, args, visit); err != nil {
		return err
	}
	return c.register(ctx, eventUnregister, name)
}

// Listen calls visit for each event with one of the names. It returns if ctx is done, or if the
// connection or visit fails.
func (c *Client) Listen(ctx context.Context, names []string, visit func(name string, message Section) error) error {
	for _, name := range names {
		if err := c.register(ctx, eventRegister, name); err != nil {
			return err
		}
	}
	defer c.abortOnDone(ctx)()
	for {
		p, err := c.receive()
		if err != nil {
			return errors.Join(ctx.Err(), err)
		}
		if p.kind != event {
			return fmt.Errorf("listen to charon: packet of type %d", p.kind)
		}
		if err := visit(p.name, p.message); err != nil {
			return err
		}
	}
}

func (c *Client) call(ctx context.Context, command string, args Section, visit func(Section) error) (Section, error) {
	defer c.abortOnDone(ctx)()
	fail := func(err error) (Section, error) {
		return nil, fmt.Errorf("vici command %s: %w", command, errors.Join(ctx.Err(), err))
	}
	if err := c.send(cmdRequest, command, args); err != nil {
		return fail(err)
	}
	for {
		p, err := c.receive()
		switch {
		case err != nil:
			return fail(err)
		case p.kind == event && visit != nil:
			if err := visit(p.message); err != nil {
				return fail(err)
			}
		case p.kind == cmdUnknown:
			return fail(fmt.Errorf("%w: unknown command", ErrRefused))
		case p.kind == cmdResponse && p.message.Text("success") == "no":
			return fail(fmt.Errorf("%w: %s", ErrRefused, p.message.Text("errmsg")))
		case p.kind == cmdResponse:
			return p.message, nil
		case p.kind != event:
			return fail(fmt.Errorf("packet of type %d", p.kind))
		}
	}
}

func (c *Client) register(ctx context.Context, kind byte, name string) error {
	defer c.abortOnDone(ctx)()
	if err := c.send(kind, name, nil); err != nil {
		return fmt.Errorf("register vici event %s: %w", name, errors.Join(ctx.Err(), err))
	}
	for {
		p, err := c.receive()
		switch {
		case err != nil:
			return fmt.Errorf("register vici event %s: %w", name, errors.Join(ctx.Err(), err))
		case p.kind == eventConfirm:
			return nil
		case p.kind != event: // an event may precede the confirmation
			return fmt.Errorf("register vici event %s: packet of type %d", name, p.kind)
		}
	}
}

// abortOnDone aborts reads and writes once ctx is done. After release, ctx has no effect.
func (c *Client) abortOnDone(ctx context.Context) (release func()) {
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
	return func() { stop() }
}

func (c *Client) send(kind byte, name string, message Section) error {
	if len(name) == 0 || len(name) > maxName {
		return fmt.Errorf("name has %d bytes (minimum 1, maximum %d)", len(name), maxName)
	}
	raw := appendName(make([]byte, 4, 64), kind, name)
	raw, err := encode(raw, message)
	if err != nil {
		return err
	}
	if len(raw)-4 > maxSegment {
		return fmt.Errorf("message has %d bytes (maximum %d)", len(raw)-4, maxSegment)
	}
	binary.BigEndian.PutUint32(raw, uint32(len(raw)-4))
	_, err = c.conn.Write(raw)
	return err
}

type packet struct {
	kind    byte
	name    string
	message Section
}

func (c *Client) receive() (packet, error) {
	var header [4]byte
	if _, err := io.ReadFull(c.conn, header[:]); err != nil {
		return packet{}, err
	}
	length := binary.BigEndian.Uint32(header[:])
	if length > maxSegment {
		return packet{}, fmt.Errorf("%w: has %d bytes (maximum %d)", ErrFormat, length, maxSegment)
	}
	raw := make([]byte, length)
	if _, err := io.ReadFull(c.conn, raw); err != nil {
		return packet{}, err
	}
	return parse(raw)
}

// parse decodes a packet without its length field.
func parse(raw []byte) (packet, error) {
	if len(raw) == 0 {
		return packet{}, fmt.Errorf("%w: empty", ErrFormat)
	}
	p := packet{kind: raw[0]}
	r := reader{raw: raw[1:]}
	var err error
	switch p.kind {
	case event:
		if p.name, err = r.text(1); err != nil {
			return packet{}, fmt.Errorf("%w: %w", ErrFormat, err)
		}
		p.message, err = decode(r.raw)
	case cmdResponse:
		p.message, err = decode(r.raw)
	case cmdUnknown, eventConfirm, eventUnknown:
	default:
		err = fmt.Errorf("%w: packet of type %d", ErrFormat, p.kind)
	}
	return p, err
}
