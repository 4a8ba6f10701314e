package feed

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"
)

const (
	// maxPerSource bounds the connections from one address.
	maxPerSource = 8
	// maxUnknownSources bounds the connections from all unknown addresses together.
	maxUnknownSources = 64
)

// session is a connection to a Server. The mutex of the Server guards its fields.
type session struct {
	conn net.Conn
	from netip.Addr

	authenticated bool
	node          bool   // of this cluster: a client without a key
	client        string // cluster/gateway
	epoch         int
	key           PublicKey // that the client proved to have
}

var errFull = errors.New("too many connections from unknown addresses")

// addSession adds a connection. Each address has a separate limit: beyond it, a new connection
// replaces the oldest one without authentication, or the oldest one. Idle connections thus keep out
// no client at other addresses, and clients at their own address only briefly. Unknown addresses
// also share one limit; addSession returns nil beyond it.
func (s *Server) addSession(conn net.Conn) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	added := &session{conn: conn, from: source(conn)}
	var same []*session
	strangers := 0
	for _, other := range s.sessions {
		if other.from == added.from {
			same = append(same, other)
		}
		if !s.knows(other.from) {
			strangers++
		}
	}
	if len(same) >= maxPerSource {
		oldest := same[max(0, slices.IndexFunc(same, func(other *session) bool { return !other.authenticated }))]
		s.endSession(oldest)
	} else if !s.knows(added.from) && strangers >= maxUnknownSources {
		return nil
	}
	s.sessions = append(s.sessions, added)
	return added
}

// endSession closes and removes a session. The caller holds the mutex.
func (s *Server) endSession(ended *session) {
	_ = ended.conn.Close()
	s.sessions = slices.DeleteFunc(s.sessions, func(other *session) bool { return other == ended })
}

// source returns the address that a connection comes from.
func source(conn net.Conn) netip.Addr {
	if from, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		return from.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

// serve serves a session until the client disconnects or ctx is done. With node, the client is a
// node of this cluster; otherwise it is a gateway of another cluster.
func (s *Server) serve(ctx context.Context, session *session, config *tls.Config, node bool) error {
	stop := context.AfterFunc(ctx, func() { _ = session.conn.Close() })
	defer stop()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.endSession(session)
	}()
	conn := tls.Server(session.conn, config)
	if err := s.authenticate(ctx, session, conn, node); err != nil {
		return err
	}
	if node {
		return s.sendUpdates(ctx, conn, s.relay)
	}
	return s.sendUpdates(ctx, conn, s.own)
}

// authenticate does the handshakes within Timing.Handshake.
func (s *Server) authenticate(ctx context.Context, session *session, conn *tls.Conn, node bool) error {
	if err := conn.SetDeadline(time.Now().Add(s.config.Timing.Handshake)); err != nil {
		return err
	}
	if err := conn.HandshakeContext(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	a := admission{id: s.identity, peers: s.peers, node: node}
	s.mu.Unlock()
	var h hello
	if err := readFrame(conn, maxSmallFrame, &h); err != nil {
		return err
	}
	proof, client, refused := a.admit(conn, h)
	if refused == nil {
		// Before the reply: a client that has it must not count as one without authentication.
		refused = s.admitSession(session, client, h.Epoch, a)
	}
	if err := writeFrame(conn, replyTo(proof, refused)); err != nil {
		return err
	}
	return refused
}

// admitSession marks a session as authenticated. It returns errRefused if the peers have changed
// since the hello was checked, so that they no longer include the client.
func (s *Server) admitSession(session *session, client string, epoch int, a admission) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	session.authenticated, session.node, session.client = true, a.node, client
	session.epoch, session.key = epoch, a.peers[client].Keys[epoch]
	if !s.allows(session) {
		return errRefused
	}
	return nil
}

// allows reports whether the peers still include the gateway and the key of a session. The caller
// holds the mutex.
func (s *Server) allows(session *session) bool {
	return session.node || s.peers[session.client].Keys[session.epoch] == session.key
}

// sendUpdates replies to the polls of a client. It returns an error when a poll is overdue or
// invalid, or when the client does not read a reply in time.
func (s *Server) sendUpdates(ctx context.Context, conn *tls.Conn, p *publication) error {
	var at cursor
	for {
		var request poll
		_ = conn.SetDeadline(time.Now().Add(s.config.Timing.FrameTimeout))
		if err := readFrame(conn, maxSmallFrame, &request); err != nil {
			return err
		}
		if err := at.check(request); err != nil {
			return err
		}
		current, replaced := p.load()
		if at.has(current) {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-replaced:
			case <-time.After(s.config.Timing.Heartbeat):
			}
			current, _ = p.load()
		}
		frames, err := at.advance(current)
		if err != nil {
			return err
		}
		for _, raw := range frames {
			_ = conn.SetDeadline(time.Now().Add(s.config.Timing.FrameTimeout))
			if _, err := conn.Write(raw); err != nil {
				return err
			}
		}
	}
}

// cursor is the position of a subscriber in a publication.
type cursor struct {
	sent *snapshot // nil: nothing was sent
}

// check returns an error unless a poll names the version that was sent.
func (c *cursor) check(p poll) error {
	sent := uint64(0)
	if c.sent != nil {
		sent = c.sent.version
	}
	if p.Version != sent {
		return fmt.Errorf("poll names version %d, not %d", p.Version, sent)
	}
	return nil
}

// has reports whether the subscriber has a version.
func (c *cursor) has(s *snapshot) bool { return c.sent == s }

// advance moves the subscriber to a version, and returns the frames of the update.
func (c *cursor) advance(to *snapshot) ([][]byte, error) {
	frames, err := to.updateFrom(c.sent)
	c.sent = to
	return frames, err
}
