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

// pod identifies the network namespace of a pod.
type pod struct {
	name string // CLUSTER/NAME
	net  string // file that pins its network namespace
}

// socket returns the options of the pod's sockets. TCP retransmits at least every second, the
// kernel's minimum for this option, and times out after 2 minutes.
func (p pod) socket() traffic.Socket {
	return traffic.Socket{Net: p.net, RetryAtMost: time.Second, GiveUp: 2 * time.Minute}
}

// Ports of every server.
const (
	tcpPort = 8001
	udpPort = 8002
)

// counts holds numbers of attempts.
type counts struct{ ok, failed int64 }

// flow is one stream of traffic that lasts for the whole run.
type flow interface {
	// String returns the kind, the caller and the target.
	String() string
	// run sends until the context is done.
	run(ctx context.Context)
	// awaitRecovery waits until traffic sent after the call succeeds. It returns the last
	// error if the context is done first.
	awaitRecovery(ctx context.Context) error
	counts() counts
}

const (
	// callEvery is the interval of new connections and of messages.
	callEvery = 250 * time.Millisecond
	// callTimeout bounds a single call.
	callTimeout = 400 * time.Millisecond
	// requiredSuccesses is the number of consecutive calls that must succeed.
	requiredSuccesses = 3
)

// calls makes new connections at a fixed rate, each with one message and its answer.
type calls struct {
	from   pod
	to     netip.AddrPort
	target string // readable name
	udp    bool
	burst  bool // the answer is long
	// web calls an HTTP server of the lab. saw is called with the server's name and the
	// client address in its answer.
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
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	var err error
	if c.web {
		err = c.callWeb(ctx)
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

// callWeb calls a whereami server, and passes its answer to saw.
func (c *calls) callWeb(ctx context.Context) error {
	conn, err := c.from.socket().Dial(ctx, "tcp", c.to.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(callTimeout)); err != nil {
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

// awaitRecovery calls until requiredSuccesses consecutive calls succeed.
func (c *calls) awaitRecovery(ctx context.Context) error {
	for good := 0; good < requiredSuccesses; {
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

// datagrams sends numbered datagrams from one socket.
type datagrams struct {
	from   pod
	to     netip.AddrPort
	target string

	flow atomic.Pointer[traffic.Flow]
}

func (d *datagrams) String() string {
	return fmt.Sprintf("long-lived udp %s -> %s", d.from.name, d.target)
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
			_ = f.Close() // the run is over
			return
		}
		if !wait(ctx, 10*time.Millisecond) {
			return
		}
	}
}

// awaitRecovery waits for answers to datagrams sent after the call.
func (d *datagrams) awaitRecovery(ctx context.Context) error {
	from := -1 // every datagram of a flow that starts now is new
	if f := d.flow.Load(); f != nil {
		_, sent, _ := f.Counts()
		from = sent - 1
	}
	for {
		if f := d.flow.Load(); f != nil {
			if newest, _, _ := f.Counts(); newest >= from+requiredSuccesses {
				return nil
			}
		}
		if !wait(ctx, 10*time.Millisecond) {
			return fmt.Errorf("%s: no answer to datagrams sent after the last heal", d)
		}
	}
}

// longLived is a TCP connection that must last for the whole run, without a lost or
// duplicated message.
type longLived struct {
	from   pod
	to     netip.AddrPort
	target string
	kind   traffic.Kind                 // Busy, ServerPush or Idle
	died   func(name string, err error) // called when the connection ends

	received atomic.Int64
	deaths   atomic.Int64
	mu       sync.Mutex
	open     *traffic.Connection // nil if not connected
}

func (h *longLived) String() string {
	return fmt.Sprintf("long-lived tcp, %s, %s -> %s", h.kind, h.from.name, h.target)
}

// counts returns the numbers of received messages and of failed connections.
func (h *longLived) counts() counts { return counts{h.received.Load(), h.deaths.Load()} }

// run opens a connection, and a new one after each failure.
func (h *longLived) run(ctx context.Context) {
	for ctx.Err() == nil {
		connected, err := h.runConnection(ctx)
		if ctx.Err() != nil {
			return
		}
		if connected {
			h.deaths.Add(1)
			h.died(h.String(), err)
		}
		wait(ctx, 50*time.Millisecond)
	}
}

// runConnection opens one connection and uses it. It reports whether it was established, and
// returns the reason for its end.
func (h *longLived) runConnection(ctx context.Context) (connected bool, err error) {
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
	h.setOpen(c)
	defer h.setOpen(nil)
	if h.kind == traffic.Busy {
		go func() {
			for wait(ctx, callEvery/2) {
				_ = h.send() // the receiver sees the same error
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

// pushEvery is the interval at which the server sends on a ServerPush connection.
const pushEvery = 100 * time.Millisecond

func (h *longLived) setOpen(c *traffic.Connection) {
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

// awaitRecovery waits for messages received after the call. An idle connection sends one first.
func (h *longLived) awaitRecovery(ctx context.Context) error {
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
			return fmt.Errorf("%s: no message after the last heal", h)
		}
	}
	return nil
}

// refused calls a target that the caller must not reach, for the whole run.
type refused struct {
	calls
	reached func(name string) // called on every answer

	tries atomic.Int64
}

func (r *refused) String() string {
	return fmt.Sprintf("forbidden (udp %t) %s -> %s", r.udp, r.from.name, r.target)
}

// run calls until the context is done.
func (r *refused) run(ctx context.Context) {
	for wait(ctx, callEvery) {
		if r.try() == nil {
			r.reached(r.String())
		}
		r.tries.Add(1)
	}
}

// wait waits for d. It reports false if the context is done first.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
