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
	// maxSessionsPerAddr bounds the connections from one address.
	maxSessionsPerAddr = 8
	// maxUnknownSessions bounds the connections from all unknown addresses together.
	maxUnknownSessions = 64
)

// session is a connection to a Server. The mutex of the Server guards its fields.
type session struct {
	conn   net.Conn
	remote netip.Addr

	authenticated bool
	isNode        bool   // of this cluster: a client without a key
	client        string // cluster/gateway
	epoch         int
	key           PublicKey // public key of the private key that the client proved to have
}

var errConnectionLimit = errors.New("too many connections from unknown addresses")

// addSession adds a connection. Each address has a separate limit. At the limit, a new connection
// replaces the oldest unauthenticated connection, or else the oldest one. Thus idle connections do
// not block clients at other addresses, and block clients at the same address only briefly. All
// unknown addresses share another limit. addSession returns nil at that limit.
func (s *Server) addSession(conn net.Conn) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	added := &session{conn: conn, remote: remoteAddr(conn)}
	var sameSource []*session
	unknown := 0
	for _, other := range s.sessions {
		if other.remote == added.remote {
			sameSource = append(sameSource, other)
		}
		if !s.isKnown(other.remote) {
			unknown++
		}
	}
	if len(sameSource) >= maxSessionsPerAddr {
		oldest := sameSource[max(0, slices.IndexFunc(sameSource, func(other *session) bool { return !other.authenticated }))]
		s.endSession(oldest)
	} else if !s.isKnown(added.remote) && unknown >= maxUnknownSessions {
		return nil
	}
	s.sessions = append(s.sessions, added)
	return added
}

// endSession closes and removes a session. s.mu must be held.
func (s *Server) endSession(ended *session) {
	_ = ended.conn.Close()
	s.sessions = slices.DeleteFunc(s.sessions, func(other *session) bool { return other == ended })
}

// remoteAddr returns the remote address of a connection.
func remoteAddr(conn net.Conn) netip.Addr {
	if from, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		return from.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

// serve serves a session until the client disconnects or ctx is done. If node is true, the client
// is a node of this cluster. Otherwise it is a gateway of another cluster.
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
	return s.sendUpdates(ctx, conn, s.local)
}

// authenticate performs the TLS handshake and the proof of the client within Timing.Handshake.
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
		// Once the client has the reply, its session must count as authenticated.
		refused = s.admitSession(session, client, h.Epoch, a)
	}
	if err := writeFrame(conn, newWelcome(proof, refused)); err != nil {
		return err
	}
	return refused
}

// admitSession marks a session as authenticated. It returns errRefused if SetPeers removed the
// client since the check of its hello.
func (s *Server) admitSession(session *session, client string, epoch int, a admission) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	session.authenticated, session.isNode, session.client = true, a.node, client
	session.epoch, session.key = epoch, a.peers[client].Keys[epoch]
	if !s.isAllowed(session) {
		return errRefused
	}
	return nil
}

// isAllowed reports whether the peers still include the gateway and the key of a session. s.mu must
// be held.
func (s *Server) isAllowed(session *session) bool {
	return session.isNode || s.peers[session.client].Keys[session.epoch] == session.key
}

// sendUpdates replies to the polls of a client. It returns an error if a poll is overdue or
// invalid, or if the client does not read a reply in time.
func (s *Server) sendUpdates(ctx context.Context, conn *tls.Conn, p *publication) error {
	var position cursor
	for {
		var request poll
		_ = conn.SetDeadline(time.Now().Add(s.config.Timing.FrameTimeout))
		if err := readFrame(conn, maxSmallFrame, &request); err != nil {
			return err
		}
		if err := position.check(request); err != nil {
			return err
		}
		current, replaced := p.load()
		if position.isAt(current) {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-replaced:
			case <-time.After(s.config.Timing.Heartbeat):
			}
			current, _ = p.load()
		}
		frames, err := position.advance(current)
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

// isAt reports whether the subscriber has a version.
func (c *cursor) isAt(s *snapshot) bool { return c.sent == s }

// advance moves the subscriber to the next version. It returns the frames of the update.
func (c *cursor) advance(next *snapshot) ([][]byte, error) {
	frames, err := next.updateFrom(c.sent)
	c.sent = next
	return frames, err
}
