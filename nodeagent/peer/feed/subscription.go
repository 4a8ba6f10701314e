package feed

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"hawser.dev/hawser/internal/socket"
)

// errReached ends what waits for a gateway that can be reached again.
var errReached = errors.New("the gateway is reached again: asking it anew")

// Reconnect says that a gateway can be reached again. What was sent to it before got lost, and TCP
// sends again after pauses that double: a connection that is being made, or over which nothing
// came for longer than heartbeats take, is given up for a new one.
func (c *Client) Reconnect(cluster, gateway string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, f := range c.feeds {
		if key.cluster == cluster && key.gateway == gateway {
			f.reconnect.Fire()
		}
	}
}

// subscribe keeps one subscription up until ctx ends.
func (c *Client) subscribe(ctx context.Context, f *subscription) {
	wait := c.config.Timing.BackoffMin
	for attempt := 0; ctx.Err() == nil; attempt++ {
		stood, err := c.session(ctx, f, attempt)
		c.lost(ctx, f, err)
		again := errors.Is(err, errReached)
		switch {
		case stood:
			wait, attempt = c.config.Timing.BackoffMin, -1
		case again: // with the same epoch
			wait, attempt = c.config.Timing.BackoffMin, attempt-1
		}
		if again {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait/2 + rand.N(wait/2+1)):
			wait = min(2*wait, c.config.Timing.BackoffMax)
		case <-f.reconnect:
			wait = c.config.Timing.BackoffMin
		}
	}
}

// session connects and takes frames until something breaks. It reports
// whether the peer let this end in.
func (c *Client) session(ctx context.Context, f *subscription, attempt int) (stood bool, err error) {
	c.mu.Lock()
	id := c.identity
	c.mu.Unlock()
	// The epochs in which both ends have a key, newest first. A node has none of its own and needs
	// the gateway's only.
	var possible []int
	for _, epoch := range slices.Backward(slices.Sorted(maps.Keys(f.peer.Keys))) {
		if _, have := id.Keys[epoch]; have || f.peer.Device != "" {
			possible = append(possible, epoch)
		}
	}
	if len(possible) == 0 {
		return false, errors.New("no key epoch in common")
	}
	var group sync.WaitGroup
	defer group.Wait()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	f.heardAt.Store(0)
	group.Go(func() { // A session that still waits ends when the gateway is reached again.
		for {
			select {
			case <-ctx.Done():
				return
			case <-f.reconnect:
			}
			if time.Since(time.Unix(0, f.heardAt.Load())) > c.config.Timing.Heartbeat*3/2 {
				end(errReached)
				return
			}
		}
	})
	defer func() {
		if errors.Is(context.Cause(ctx), errReached) {
			err = errReached
		}
	}()
	// A peer whose fabric is older may not know the newest epoch yet.
	conn, err := c.connect(ctx, f.peer, func(conn *tls.Conn) error {
		return clientHandshake(conn, id, f.peer, possible[attempt%len(possible)])
	})
	if err != nil {
		return false, err
	}
	f.heardAt.Store(time.Now().UnixNano())
	defer func() { _ = conn.NetConn().Close() }()
	group.Go(func() {
		defer func() { _ = conn.NetConn().Close() }()
		// The server learns that this end is alive.
		raw, err := pack(frame{Kind: kindHeartbeat})
		ticker := time.NewTicker(c.config.Timing.Heartbeat)
		defer ticker.Stop()
		for err == nil {
			_ = conn.SetWriteDeadline(time.Now().Add(c.config.Timing.FrameTimeout))
			if _, err = conn.Write(raw); err != nil {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	})
	return true, c.readFrames(ctx, conn, f)
}

// connect calls the peer and greets it, within the time for it.
func (c *Client) connect(ctx context.Context, peer Peer, greet func(*tls.Conn) error) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timing.Handshake)
	defer cancel()
	dialer := net.Dialer{Control: socket.Options{Device: peer.Device}.Control}
	if peer.Source.IsValid() {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(peer.Source, 0))
	}
	raw, err := dial(ctx, &dialer, peer.Addr)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	// The end of ctx also ends a read that waits.
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	conn := tls.Client(raw, clientTLS())
	if err = conn.HandshakeContext(ctx); err == nil {
		err = greet(conn)
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	return conn, nil
}

// dialFirst is how long the first attempt to connect waits for an answer, each further one
// twice as long. TCP would send a SYN that got lost again after a second (RFC 6298, section 2).
const dialFirst = 250 * time.Millisecond

func dial(ctx context.Context, dialer *net.Dialer, to netip.AddrPort) (net.Conn, error) {
	for patience := dialFirst; ; patience *= 2 {
		attempt, cancel := context.WithTimeout(ctx, patience)
		conn, err := dialer.DialContext(attempt, socket.Network("tcp", to.Addr()), to.String())
		silent := attempt.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil || !silent {
			return conn, err
		}
	}
}

// readFrames applies frames until the feed is silent or broken.
func (c *Client) readFrames(ctx context.Context, conn *tls.Conn, f *subscription) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.NetConn().Close() })
	defer stop()
	c.mu.Lock()
	box := &receiver{peer: f.peer, own: c.identity.Cluster, states: f.heard, ages: c.ages}
	c.mu.Unlock()
	box.warn = func(reason string) { // Once a reason.
		c.mu.Lock()
		known := f.warned[reason] || len(f.warned) >= maxWarned
		if !known {
			f.warned[reason] = true
		}
		c.mu.Unlock()
		if !known {
			c.config.Log.Warn("feed content refused", "cluster", f.peer.Cluster, "gateway", f.peer.Gateway, "reason", reason)
		}
	}
	for {
		var content frame
		_ = conn.SetReadDeadline(time.Now().Add(c.config.Timing.FrameTimeout))
		if err := readFrame(conn, maxFrame, &content); err != nil {
			return err
		}
		f.heardAt.Store(time.Now().UnixNano())
		changed, err := box.apply(content)
		if err != nil {
			return err
		}
		if box.complete {
			c.heard(ctx, f, box.states, changed)
		}
	}
}

// heard makes what came in count. The feed stands from its first whole snapshot.
func (c *Client) heard(ctx context.Context, f *subscription, heard map[string]RemoteState, changed bool) {
	c.mu.Lock()
	first := !f.connected
	// A feed that SetPeers replaced has nothing more to say.
	if ctx.Err() != nil {
		c.mu.Unlock()
		return
	}
	if first {
		f.connected, f.since, f.err = true, time.Now(), ""
	}
	f.heard = heard
	c.mu.Unlock()
	if first {
		c.config.Log.Info("feed connected", "cluster", f.peer.Cluster, "gateway", f.peer.Gateway)
	}
	if first || changed {
		c.notify()
	}
}

// lost notes that the feed broke; what it said stays for a while.
func (c *Client) lost(ctx context.Context, f *subscription, err error) {
	c.mu.Lock()
	stood := f.connected
	if stood {
		f.connected, f.since = false, time.Now()
	}
	repeated := !stood && f.err == err.Error()
	f.err = err.Error()
	c.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	if !repeated {
		c.config.Log.Warn("feed lost", "cluster", f.peer.Cluster, "gateway", f.peer.Gateway, "err", err)
	}
	if stood {
		c.notify()
	}
}
