package main

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"hawser.dev/hawser/e2e/traffic"
)

// callLog is a list of requests or new connections that grows while others read it.
type callLog struct {
	mu   sync.Mutex
	list []traffic.Attempt
}

func (c *callLog) record(a traffic.Attempt) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, a)
	return nil
}

// begun gives those that began from..to and have ended.
func (c *callLog) begun(from, to time.Time) []traffic.Attempt {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []traffic.Attempt
	for _, a := range c.list {
		if !a.At.Before(from) && a.At.Before(to) {
			out = append(out, a)
		}
	}
	return out
}

// background is what runs until it is closed.
type background struct {
	callLog
	cancel context.CancelFunc
	group  sync.WaitGroup
}

func inBackground(run func(context.Context, *callLog)) *background {
	b := &background{}
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	b.group.Go(func() { run(ctx, &b.callLog) })
	return b
}

// Close ends it and waits for what was begun.
func (b *background) Close() error {
	b.cancel()
	b.group.Wait()
	return nil
}

// patience is how long one request may take. TCP sends again after 0.2 s, 0.4 s,
// 0.8 s and so on, so a stall of one second costs two.
const patience = 10 * time.Second

// startRequests begins a stream of small requests over one TCP connection, with a pause
// between an answer and the next request. A connection that breaks is an error of the
// request, and a new one follows.
func startRequests(from traffic.Socket, to netip.AddrPort, pause time.Duration) *background {
	return inBackground(func(ctx context.Context, log *callLog) {
		var conn *traffic.Connection
		once := func() (err error) {
			attempt, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			if conn == nil {
				if conn, err = traffic.Open(attempt, from.Dial, to.String(), traffic.Busy, "requests", 0); err != nil {
					return err
				}
			}
			if err = conn.SetDeadline(time.Now().Add(patience)); err == nil {
				stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
				defer stop()
				err = conn.Exchange(0)
			}
			if err != nil {
				_ = conn.Close() // broken already
				conn = nil
			}
			return err
		}
		for ctx.Err() == nil {
			a := traffic.Attempt{At: time.Now()}
			if err := once(); err != nil {
				a.Error = err.Error()
			}
			a.Long = traffic.Millis(time.Since(a.At))
			_ = log.record(a) // never fails
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
		if conn != nil {
			_ = conn.Close() // nothing more is asked
		}
	})
}

// dialPatience is how long a new connection may take to give its first answer:
// room for a second and a third SYN, which follow after 1 s and 2 s more.
const dialPatience = 4 * time.Second

// Ports of new connections, each in turn: below those that the kernel takes by itself.
const (
	firstPort = 10_000
	endPort   = 32_768
)

// dialer is who makes new connections.
const dialer = "dials"

// startDials begins a stream with the given number of new connections a second, each with
// one message and its answer.
func startDials(from traffic.Socket, to netip.AddrPort, rate int) *background {
	return inBackground(func(ctx context.Context, log *callLog) {
		// Without the resets, fifty ports a second would wait for a minute each.
		call := traffic.Call{Target: to.String(), Who: dialer, Reset: true, Dial: from.Ports(firstPort, endPort)}
		_, _ = traffic.Calls{Call: call, Rate: rate, Timeout: dialPatience, OnAttempt: log.record}.Run(ctx) // the log is the report
	})
}

// startPackets begins a flow of datagrams of 64 bytes.
func startPackets(from traffic.Socket, to netip.AddrPort, rate int) (*traffic.Flow, error) {
	return traffic.UDP{Target: to.String(), Who: "packets", Rate: rate, Size: 64, Dial: from.Dial}.Start(context.Background())
}
