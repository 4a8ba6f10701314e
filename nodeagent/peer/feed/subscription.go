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
	"time"

	"hawser.dev/hawser/internal/socket"
	"hawser.dev/hawser/internal/trigger"
)

// subscription receives the feed of one gateway. The mutex of the Client guards its fields.
type subscription struct {
	peer   Peer
	cancel context.CancelFunc // nil: not started

	endSession    context.CancelCauseFunc // of the current session; nil: no session
	authenticated bool                    // the current session is authenticated
	retryNow      trigger.Trigger         // ends the wait for the next attempt

	connected bool
	since     time.Time // when connected changed
	err       string    // why it is not connected
	warned    map[string]bool
	states    map[string]RemoteState // nil: not connected; never changed in place
}

var (
	// errReconnect ends a session that is not authenticated yet. Its packets may be lost.
	errReconnect = errors.New("the gateway is reachable again: reconnecting")
	errLinkDown  = errors.New("the link is down")
)

// Disconnect ends the sessions with a gateway whose link is down. A feed has no frequent
// keepalives, because the probes of the links detect failures.
func (c *Client) Disconnect(cluster, gateway string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, sub := range c.subscriptions {
		if key.cluster == cluster && key.gateway == gateway && sub.endSession != nil {
			sub.endSession(errLinkDown)
		}
	}
}

// Reconnect retries a gateway that is reachable again. Packets to the gateway may have been lost,
// and TCP doubles the time between retransmissions. Reconnect replaces a session that is not
// authenticated yet.
func (c *Client) Reconnect(cluster, gateway string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, sub := range c.subscriptions {
		switch {
		case key.cluster != cluster || key.gateway != gateway:
		case sub.endSession == nil:
			sub.retryNow.Fire()
		case !sub.authenticated:
			sub.endSession(errReconnect)
		}
	}
}

// subscribe connects a subscription, again after each failure, until ctx is done.
func (c *Client) subscribe(ctx context.Context, sub *subscription) {
	timing := &c.config.Timing
	backoff := timing.BackoffMin
	for attempt := 0; ctx.Err() == nil; {
		authenticated, err := c.runSession(ctx, sub, attempt)
		c.recordDisconnect(ctx, sub, err)
		reconnect := errors.Is(err, errReconnect)
		switch {
		case authenticated:
			attempt, backoff = 0, timing.BackoffMin
		case reconnect: // with the same epoch
			backoff = timing.BackoffMin
		default:
			attempt++
		}
		if reconnect {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(backoff/2 + rand.N(backoff/2+1)):
			backoff = min(2*backoff, timing.BackoffMax)
		case <-sub.retryNow:
			backoff = timing.BackoffMin
		}
	}
}

// runSession connects and reads updates until the connection fails. It reports whether both ends
// were authenticated.
func (c *Client) runSession(ctx context.Context, sub *subscription, attempt int) (authenticated bool, err error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	c.mu.Lock()
	id := c.identity
	sub.endSession, sub.authenticated = end, false
	select {
	case <-sub.retryNow: // this attempt is the retry
	default:
	}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		sub.endSession = nil
		c.mu.Unlock()
		if cause := context.Cause(ctx); errors.Is(cause, errReconnect) || errors.Is(cause, errLinkDown) {
			err = cause
		}
	}()
	epochs := commonEpochs(id, sub.peer)
	if len(epochs) == 0 {
		return false, errors.New("no key epoch in common")
	}
	// A peer with an older fabric may not know the newest epoch yet.
	epoch := epochs[attempt%len(epochs)]
	conn, err := c.connect(ctx, sub.peer, func(conn *tls.Conn) error { return clientHandshake(conn, id, sub.peer, epoch) })
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.NetConn().Close() }()
	return true, c.readUpdates(ctx, conn, sub)
}

// commonEpochs returns the epochs for which both ends have a key, newest first. A node has no key
// and needs only a key of the gateway.
func commonEpochs(id Identity, peer Peer) []int {
	var epochs []int
	for _, epoch := range slices.Backward(slices.Sorted(maps.Keys(peer.Keys))) {
		if _, exists := id.Keys[epoch]; exists || peer.Device != "" {
			epochs = append(epochs, epoch)
		}
	}
	return epochs
}

// connect connects to a peer and performs the handshakes within Timing.Handshake.
func (c *Client) connect(ctx context.Context, peer Peer, handshake func(*tls.Conn) error) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timing.Handshake)
	defer cancel()
	dialer := net.Dialer{Control: socket.Options{Device: peer.Device}.Control}
	if peer.Source.IsValid() {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(peer.Source, 0))
	}
	tcpConn, err := dialWithRetry(ctx, &dialer, peer.Addr)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	// Close ends a pending read.
	stop := context.AfterFunc(ctx, func() { _ = tcpConn.Close() })
	conn := tls.Client(tcpConn, clientTLS())
	if err = conn.HandshakeContext(ctx); err == nil {
		err = handshake(conn)
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = tcpConn.Close()
		return nil, err
	}
	return conn, nil
}

// firstDialTimeout is the timeout of the first attempt to connect. It doubles for each further
// attempt. TCP would retransmit a lost SYN only after a second (RFC 6298, section 2).
const firstDialTimeout = 250 * time.Millisecond

func dialWithRetry(ctx context.Context, dialer *net.Dialer, to netip.AddrPort) (net.Conn, error) {
	for timeout := firstDialTimeout; ; timeout *= 2 {
		attemptCtx, cancel := context.WithTimeout(ctx, timeout)
		conn, err := dialer.DialContext(attemptCtx, socket.Network("tcp", to.Addr()), to.String())
		timedOut := attemptCtx.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil || !timedOut {
			return conn, err
		}
	}
}

// readUpdates requests and applies updates until the connection fails or a frame is overdue.
func (c *Client) readUpdates(ctx context.Context, conn *tls.Conn, sub *subscription) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.NetConn().Close() })
	defer stop()
	c.mu.Lock()
	sub.authenticated = true
	localCluster := c.identity.Cluster
	c.mu.Unlock()
	r := newReceiver(sub.peer, localCluster, c.firstSeen, func(reason string) { c.warn(sub, reason) })
	for {
		_ = conn.SetDeadline(time.Now().Add(c.config.Timing.FrameTimeout))
		if err := writeFrame(conn, poll{Version: r.version}); err != nil {
			return err
		}
		changed := false
		_ = conn.SetDeadline(time.Now().Add(c.config.Timing.Heartbeat + c.config.Timing.FrameTimeout))
		for more := true; more; {
			var u update
			if err := readFrame(conn, maxFrame, &u); err != nil {
				return err
			}
			_ = conn.SetDeadline(time.Now().Add(c.config.Timing.FrameTimeout))
			var err error
			if changed, err = r.apply(u); err != nil {
				return err
			}
			more = u.More
		}
		c.storeStates(ctx, sub, r.states, changed)
	}
}

// warn logs why content was refused. It logs each reason once.
func (c *Client) warn(sub *subscription, reason string) {
	c.mu.Lock()
	known := sub.warned[reason] || len(sub.warned) >= maxLoggedRefusals
	if !known {
		sub.warned[reason] = true
	}
	c.mu.Unlock()
	if !known {
		c.config.Log.Warn("feed content refused", "cluster", sub.peer.Cluster, "gateway", sub.peer.Gateway, "reason", reason)
	}
}

// storeStates stores the states of a complete update. The first update marks the subscription as
// connected.
func (c *Client) storeStates(ctx context.Context, sub *subscription, states map[string]RemoteState, changed bool) {
	c.mu.Lock()
	if ctx.Err() != nil { // SetPeers replaced the subscription
		c.mu.Unlock()
		return
	}
	first := !sub.connected
	if first {
		sub.connected, sub.since, sub.err = true, time.Now(), ""
	}
	sub.states = states
	for cluster := range states {
		delete(c.lastStates, lastStateKey{cluster, sub.isDirect()})
	}
	c.mu.Unlock()
	if first {
		c.config.Log.Info("feed connected", "cluster", sub.peer.Cluster, "gateway", sub.peer.Gateway)
	}
	if first || changed {
		c.changed.Fire()
	}
}

// recordDisconnect records why a session ended.
func (c *Client) recordDisconnect(ctx context.Context, sub *subscription, err error) {
	c.mu.Lock()
	wasConnected := sub.connected
	c.disconnect(sub, time.Now())
	repeated := !wasConnected && sub.err == err.Error()
	sub.err = err.Error()
	c.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	if !repeated {
		c.config.Log.Warn("feed lost", "cluster", sub.peer.Cluster, "gateway", sub.peer.Gateway, "err", err)
	}
	if wasConnected {
		c.changed.Fire()
	}
}
