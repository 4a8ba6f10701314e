package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"hawser.dev/hawser/e2e/traffic"
	"hawser.dev/hawser/lab/whereami"
)

// pod is where sockets are opened.
type pod struct {
	name string // CLUSTER/NAME
	net  string // file that pins its network namespace
}

// socket is patient: TCP repeats at most 1 s apart, which is the least that the kernel takes,
// and gives up after 2 minutes.
func (p pod) socket() traffic.Socket {
	return traffic.Socket{Net: p.net, RetryAtMost: time.Second, GiveUp: 2 * time.Minute}
}

// The ports of every server.
const (
	tcpPort = 8001
	udpPort = 8002
)

// counts of attempts.
type counts struct{ ok, failed int64 }

// flow is one stream of calls that goes on for the whole run.
type flow interface {
	// String says what is called, by whom and how.
	String() string
	// run makes the traffic until the context ends.
	run(ctx context.Context)
	// back returns when the flow works, seen from the time of the call on, or the
	// reason why it did not until the context ended.
	back(ctx context.Context) error
	counts() counts
}

const (
	// callEvery is how often new connections are made and messages sent.
	callEvery = 250 * time.Millisecond
	// impatient is how long a single call waits for its answer.
	impatient = 400 * time.Millisecond
	// proof is how many calls must work one after the other.
	proof = 3
)

// calls are new connections, each with one message and its answer.
type calls struct {
	from   pod
	to     netip.AddrPort
	target string // for people
	udp    bool
	burst  bool // the answer is long
	// web asks a server of the lab itself, over HTTP, and saw is told what that
	// server says: who it is and whom it saw.
	web bool
	saw func(traffic.Seen)

	ok, failed atomic.Int64
}

func (c *calls) String() string {
	kind := "new tcp"
	switch {
	case c.udp:
		kind = "new udp"
	case c.burst:
		kind = "new tcp, long answer,"
	}
	return fmt.Sprintf("%s %s -> %s", kind, c.from.name, c.target)
}

func (c *calls) counts() counts { return counts{c.ok.Load(), c.failed.Load()} }

// run calls at a fixed rate.
func (c *calls) run(ctx context.Context) {
	for wait(ctx, callEvery) {
		_ = c.try() // counted
	}
}

// try makes one call.
func (c *calls) try() error {
	ctx, cancel := context.WithTimeout(context.Background(), impatient)
	defer cancel()
	var err error
	if c.web {
		err = c.ask(ctx)
	} else {
		call := traffic.Call{Target: c.to.String(), Who: c.from.name, UDP: c.udp, Burst: c.burst, Dial: c.from.socket().Dial}
		_, err = call.Make(ctx)
	}
	if err != nil {
		c.failed.Add(1)
		return err
	}
	c.ok.Add(1)
	return nil
}

// ask wants to know of a whereami server who it is.
func (c *calls) ask(ctx context.Context) error {
	conn, err := c.from.socket().Dial(ctx, "tcp", c.to.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(impatient)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.0\r\nX-Mark: %s\r\n\r\n", strings.TrimSpace(traffic.Mark)); err != nil {
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
	c.saw(traffic.Seen{Caller: c.from.name, Server: answer.Cluster + "/" + answer.Pod, From: from})
	return nil
}

// back calls until proof calls have worked one after the other.
func (c *calls) back(ctx context.Context) error {
	for good := 0; good < proof; {
		err := c.try()
		if err == nil {
			good++
			continue
		}
		good = 0
		if !wait(ctx, 20*time.Millisecond) {
			return fmt.Errorf("%s: %w", c, err)
		}
	}
	return nil
}

// datagrams are numbered datagrams of one socket that stays open.
type datagrams struct {
	from   pod
	to     netip.AddrPort
	target string

	flow atomic.Pointer[traffic.Flow]
}

func (d *datagrams) String() string {
	return fmt.Sprintf("held udp %s -> %s", d.from.name, d.target)
}

func (d *datagrams) counts() counts {
	if f := d.flow.Load(); f != nil {
		_, sent, answered := f.Counts()
		return counts{int64(answered), int64(sent - answered)}
	}
	return counts{}
}

// run sends at a fixed rate.
func (d *datagrams) run(ctx context.Context) {
	udp := traffic.UDP{Target: d.to.String(), Who: d.from.name, Rate: 20, Size: 64, Dial: d.from.socket().Dial}
	for {
		f, err := udp.Start(ctx)
		if err == nil {
			d.flow.Store(f)
			<-ctx.Done()
			_ = f.Close() // nothing more is asked of it
			return
		}
		if !wait(ctx, 10*time.Millisecond) {
			return
		}
	}
}

// back waits for the answers to datagrams that were sent after the call.
func (d *datagrams) back(ctx context.Context) error {
	from := -1 // what a flow sends that begins only now is new
	if f := d.flow.Load(); f != nil {
		_, sent, _ := f.Counts()
		from = sent - 1
	}
	for {
		if f := d.flow.Load(); f != nil {
			if newest, _, _ := f.Counts(); newest >= from+proof {
				return nil
			}
		}
		if !wait(ctx, 10*time.Millisecond) {
			return fmt.Errorf("%s: no answer to what was sent after the last heal", d)
		}
	}
}

// longLived is one TCP connection that must live for the whole run, and of which not
// one message may be lost or doubled.
type longLived struct {
	from   pod
	to     netip.AddrPort
	target string
	kind   traffic.Kind                 // Busy, ServerPush or Idle
	died   func(name string, err error) // is told when the connection ends

	received atomic.Int64
	deaths   atomic.Int64
	mu       sync.Mutex
	open     *traffic.Connection // that is written to; nil = there is none
}

func (h *longLived) String() string {
	return fmt.Sprintf("held tcp, %s, %s -> %s", h.kind, h.from.name, h.target)
}

// counts reports how many messages came, and how many connections died.
func (h *longLived) counts() counts { return counts{h.received.Load(), h.deaths.Load()} }

// run holds a connection; when it ends another one begins.
func (h *longLived) run(ctx context.Context) {
	for ctx.Err() == nil {
		began, err := h.hold(ctx)
		if ctx.Err() != nil {
			return
		}
		if began {
			h.deaths.Add(1)
			h.died(h.String(), err)
		}
		wait(ctx, 50*time.Millisecond)
	}
}

// hold reports whether there was a connection, and why it ended.
func (h *longLived) hold(ctx context.Context) (began bool, err error) {
	attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
	c, err := traffic.Open(attempt, h.from.socket().Dial, h.to.String(), h.kind, h.from.name, pushEvery)
	cancel()
	if err != nil {
		return false, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	ctx, cancel = context.WithCancel(ctx)
	defer cancel()
	h.use(c)
	defer h.use(nil)
	if h.kind == traffic.Busy {
		go func() {
			for wait(ctx, callEvery/2) {
				_ = h.send() // who receives sees the same error
			}
		}()
	}
	for {
		if err := c.Receive(); err != nil {
			return true, err
		}
		h.received.Add(1)
	}
}

// pushEvery is how often the server sends on a connection of ServerPush.
const pushEvery = 100 * time.Millisecond

func (h *longLived) use(c *traffic.Connection) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = c
}

func (h *longLived) send() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open == nil {
		return net.ErrClosed
	}
	return h.open.Send(0)
}

// back waits for messages that came after the call; an idle connection sends one.
func (h *longLived) back(ctx context.Context) error {
	from, need := h.received.Load(), int64(2)
	if h.kind == traffic.Idle {
		need = 1
		for h.send() != nil {
			if !wait(ctx, 10*time.Millisecond) {
				return fmt.Errorf("%s: no connection after the last heal", h)
			}
		}
	}
	for h.received.Load() < from+need {
		if !wait(ctx, 10*time.Millisecond) {
			return fmt.Errorf("%s: nothing came after the last heal", h)
		}
	}
	return nil
}

// refused are calls to what the caller must not reach, all the time.
type refused struct {
	calls
	reached func(name string) // is told when there was an answer

	tries atomic.Int64
}

func (r *refused) String() string {
	return fmt.Sprintf("forbidden (udp %t) %s -> %s", r.udp, r.from.name, r.target)
}

// run calls until the context ends.
func (r *refused) run(ctx context.Context) {
	for wait(ctx, callEvery) {
		if r.try() == nil {
			r.reached(r.String())
		}
		r.tries.Add(1)
	}
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
