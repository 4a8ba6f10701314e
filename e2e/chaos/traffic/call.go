package traffic

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/lab/whereami"
)

// Counts of attempts.
type Counts struct{ OK, Failed int64 }

// Flow is one stream of calls that goes on for the whole run.
type Flow interface {
	// Name says what is called, by whom and how.
	Name() string
	// Run makes the traffic until the context ends.
	Run(ctx context.Context)
	// Back returns when the flow works, seen from the time of the call on, or the
	// reason why it did not until the context ended.
	Back(ctx context.Context) error
	Counts() Counts
}

const (
	// callEvery is how often new connections are made and messages sent.
	callEvery = 250 * time.Millisecond
	// impatient is how long a single call waits for its answer.
	impatient = 400 * time.Millisecond
	// proof is how many calls must work one after the other.
	proof = 3
)

// Calls are new connections, each with one message and its answer.
type Calls struct {
	From   Pod
	To     netip.AddrPort
	Target string // for people
	UDP    bool
	Bulk   bool // the answer is long
	// Web asks a server of the lab itself, over HTTP, and Saw is told what that
	// server says: who it is and whom it saw.
	Web bool
	Saw func(caller, server string, from netip.Addr)

	ok, failed atomic.Int64
}

// Name says who calls what.
func (c *Calls) Name() string {
	kind := "new tcp"
	switch {
	case c.UDP:
		kind = "new udp"
	case c.Bulk:
		kind = "new tcp, long answer,"
	}
	return fmt.Sprintf("%s %s -> %s", kind, c.From.Name, c.Target)
}

// Counts tells how many calls worked.
func (c *Calls) Counts() Counts { return Counts{c.ok.Load(), c.failed.Load()} }

// Run calls at a fixed rate.
func (c *Calls) Run(ctx context.Context) {
	for wait(ctx, callEvery) {
		_ = c.Try() // counted
	}
}

// Try makes one call.
func (c *Calls) Try() error {
	err := c.try()
	if err != nil {
		c.failed.Add(1)
		return err
	}
	c.ok.Add(1)
	return nil
}

func (c *Calls) try() error {
	kind := unix.SOCK_STREAM
	if c.UDP {
		kind = unix.SOCK_DGRAM
	}
	conn, err := c.From.dial(kind, c.To)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(impatient)); err != nil {
		return err
	}
	if c.Web {
		return c.ask(conn)
	}
	mode, answers := byte(echo), 1
	if c.Bulk {
		mode, answers = bulk, bulkOf
	}
	if _, err := conn.Write(message{who: c.From.Name, mode: mode}.encode()); err != nil {
		return err
	}
	for range answers {
		if _, err = receive(conn); err != nil {
			return err
		}
	}
	return nil
}

// ask wants to know of a whereami server who it is.
func (c *Calls) ask(conn net.Conn) error {
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.0\r\nX-Mark: %s\r\n\r\n", strings.TrimSpace(Mark)); err != nil {
		return err
	}
	reply, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	var answer whereami.Answer
	if err := json.NewDecoder(io.LimitReader(reply.Body, 1<<20)).Decode(&answer); err != nil {
		return err
	}
	from, err := netip.ParseAddr(answer.Client)
	if err != nil {
		return err
	}
	c.Saw(c.From.Name, answer.Cluster+"/"+answer.Pod, from)
	return nil
}

// Back calls until proof calls have worked one after the other.
func (c *Calls) Back(ctx context.Context) error {
	var err error
	for good := 0; good < proof; {
		if err = c.Try(); err == nil {
			good++
			continue
		}
		good = 0
		if !wait(ctx, 20*time.Millisecond) {
			return fmt.Errorf("%s: %w", c.Name(), err)
		}
	}
	return nil
}

// Datagrams are numbered datagrams of one socket that stays open.
type Datagrams struct {
	From   Pod
	To     netip.AddrPort
	Target string

	sent, back atomic.Uint64 // numbers of the last ones
	ok         atomic.Int64
}

// Name says who sends to whom.
func (d *Datagrams) Name() string { return fmt.Sprintf("held udp %s -> %s", d.From.Name, d.Target) }

// Counts tells how many datagrams were answered.
func (d *Datagrams) Counts() Counts {
	ok := d.ok.Load()
	return Counts{ok, int64(d.sent.Load()) - ok}
}

// Run sends at a fixed rate.
func (d *Datagrams) Run(ctx context.Context) {
	var conn net.Conn
	for conn == nil {
		conn, _ = d.From.dial(unix.SOCK_DGRAM, d.To)
		if !wait(ctx, 10*time.Millisecond) {
			break
		}
	}
	if conn == nil {
		return
	}
	defer conn.Close()
	go d.read(conn)
	for wait(ctx, callEvery/5) {
		// An error is an ICMP message about an earlier datagram.
		_, _ = conn.Write(message{who: d.From.Name, mode: echo, seq: d.sent.Add(1)}.encode())
	}
}

func (d *Datagrams) read(conn net.Conn) {
	for {
		m, err := receive(conn)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			d.ok.Add(1)
			d.back.Store(max(d.back.Load(), m.seq))
		}
	}
}

// Back waits for the answers to datagrams that were sent after the call.
func (d *Datagrams) Back(ctx context.Context) error {
	from := d.sent.Load()
	for d.back.Load() < from+proof {
		if !wait(ctx, 10*time.Millisecond) {
			return fmt.Errorf("%s: no answer to what was sent after the last heal", d.Name())
		}
	}
	return nil
}

// wait reports whether the time passed before the context ended.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func receive(conn net.Conn) (message, error) {
	raw := make([]byte, size)
	if _, err := io.ReadFull(conn, raw); err != nil {
		return message{}, err
	}
	return decode(raw)
}
