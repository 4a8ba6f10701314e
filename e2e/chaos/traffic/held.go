package traffic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Kinds of connections that are held open.
const (
	Busy   = "busy"   // the caller sends, the server answers
	Silent = "silent" // the server sends, the caller never does
	Idle   = "idle"   // nobody sends until the end of a round
)

// Held is one TCP connection that must live for the whole run, and of which not
// one message may be lost or doubled.
type Held struct {
	From   Pod
	To     netip.AddrPort
	Target string
	Kind   string                       // Busy | Silent | Idle
	Died   func(name string, err error) // is told when the connection ends

	received atomic.Int64
	deaths   atomic.Int64
	mu       sync.Mutex
	conn     net.Conn
	sent     uint64
}

// Name says who holds what.
func (h *Held) Name() string {
	return fmt.Sprintf("held tcp, %s, %s -> %s", h.Kind, h.From.Name, h.Target)
}

// Counts tells how many messages came, and how many connections died.
func (h *Held) Counts() Counts { return Counts{h.received.Load(), h.deaths.Load()} }

// Run holds a connection; when it ends another one begins.
func (h *Held) Run(ctx context.Context) {
	for ctx.Err() == nil {
		began, err := h.hold(ctx)
		if ctx.Err() != nil {
			return
		}
		if began {
			h.deaths.Add(1)
			h.Died(h.Name(), err)
		}
		wait(ctx, 50*time.Millisecond)
	}
}

// hold reports whether there was a connection, and why it ended.
func (h *Held) hold(ctx context.Context) (began bool, err error) {
	conn, err := h.From.dial(unix.SOCK_STREAM, h.To)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := h.greet(conn); err != nil {
		return false, err
	}
	h.use(conn)
	defer h.use(nil)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if h.Kind == Busy {
		go h.write(ctx)
	}
	for seq := uint64(1); ; seq++ {
		if err := h.next(conn, seq); err != nil {
			return true, err
		}
	}
}

// greet says who calls and how, and waits for the first message.
func (h *Held) greet(conn net.Conn) error {
	mode := byte(echo)
	if h.Kind == Silent {
		mode = push
	}
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	if _, err := conn.Write(message{who: h.From.Name, mode: mode}.encode()); err != nil {
		return err
	}
	if err := h.next(conn, 0); err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}

// use makes a connection the one that is written to; nil = there is none.
func (h *Held) use(conn net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conn, h.sent = conn, 0
}

var errOrder = errors.New("messages lost or doubled")

func (h *Held) next(conn net.Conn, seq uint64) error {
	m, err := receive(conn)
	if err == nil && m.seq != seq {
		err = fmt.Errorf("%w: got %d, want %d", errOrder, m.seq, seq)
	}
	if err == nil {
		h.received.Add(1)
	}
	return err
}

func (h *Held) write(ctx context.Context) {
	for wait(ctx, callEvery/2) {
		_ = h.send() // the reader sees the same error
	}
}

func (h *Held) send() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conn == nil {
		return errors.New("no connection")
	}
	h.sent++
	_, err := h.conn.Write(message{who: h.From.Name, mode: echo, seq: h.sent}.encode())
	return err
}

// Back waits for messages that came after the call; an idle connection sends one.
func (h *Held) Back(ctx context.Context) error {
	from, need := h.received.Load(), int64(2)
	if h.Kind == Idle {
		need = 1
		for h.send() != nil {
			if !wait(ctx, 10*time.Millisecond) {
				return fmt.Errorf("%s: no connection after the last heal", h.Name())
			}
		}
	}
	for h.received.Load() < from+need {
		if !wait(ctx, 10*time.Millisecond) {
			return fmt.Errorf("%s: nothing came after the last heal", h.Name())
		}
	}
	return nil
}
