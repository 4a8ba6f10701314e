package main

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"hawser.dev/hawser/e2e/traffic"
)

// callLog is a list of requests or new connections. It is safe for concurrent use.
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

// begun returns the completed calls that started in from..to.
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

// background is a stream of calls that runs until Close.
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

// Close ends the stream and waits for pending calls.
func (b *background) Close() error {
	b.cancel()
	b.group.Wait()
	return nil
}

// requestTimeout bounds one request. TCP retransmits after 0.2 s, 0.4 s, 0.8 s and so on, so a
// stall of one second may cost two.
const requestTimeout = 10 * time.Second

// startRequests starts a stream of small requests over one TCP connection, with a pause between
// an answer and the next request. If the connection breaks, the request fails, and the next one
// opens a new connection.
func startRequests(from traffic.Socket, to netip.AddrPort, pause time.Duration) *background {
	return inBackground(func(ctx context.Context, log *callLog) {
		var conn *traffic.Connection
		once := func() (err error) {
			attempt, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			if conn == nil {
				if conn, err = traffic.Open(attempt, from.Dial, to.String(), traffic.Busy, "requests", 0); err != nil {
					return err
				}
			}
			if err = conn.SetDeadline(time.Now().Add(requestTimeout)); err == nil {
				stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
				defer stop()
				err = conn.Exchange(0)
			}
			if err != nil {
				_ = conn.Close() // already broken
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
			_ = conn.Close()
		}
	})
}

// dialTimeout bounds a new connection and its first answer. It allows a second and a third SYN,
// which follow after 1 s and 2 s more.
const dialTimeout = 4 * time.Second

// Ports of new connections, used in rotation: below the kernel's ephemeral ports.
const (
	firstPort = 10_000
	endPort   = 32_768
)

// dialer is the caller's name of new connections.
const dialer = "dials"

// startDials starts a stream of rate new connections a second, each with one message and its
// answer.
func startDials(from traffic.Socket, to netip.AddrPort, rate int) *background {
	return inBackground(func(ctx context.Context, log *callLog) {
		// Without resets, fifty ports a second would stay in TIME_WAIT for a minute each.
		call := traffic.Call{Target: to.String(), Who: dialer, Reset: true, Dial: from.Ports(firstPort, endPort)}
		_, _ = traffic.Calls{Call: call, Rate: rate, Timeout: dialTimeout, OnAttempt: log.record}.Run(ctx) // the log is the report
	})
}

// startPackets starts a flow of datagrams of 64 bytes.
func startPackets(from traffic.Socket, to netip.AddrPort, rate int) (*traffic.Flow, error) {
	return traffic.UDP{Target: to.String(), Who: "packets", Rate: rate, Size: 64, Dial: from.Dial}.Start(context.Background())
}
