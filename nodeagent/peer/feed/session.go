package feed

import (
	"context"
	"errors"
	"net/netip"
	"slices"
)

// session is one subscriber that proved who it is.
type session struct {
	client string
	from   netip.Addr
	node   bool // of this cluster; client is what it says, from is where it is
	epoch  int
	key    PublicKey // by which a peer proved itself
	number uint64
	cancel context.CancelFunc
}

var errFull = errors.New("too many subscribers that are no nodes of this cluster")

// addSession counts the session in; the oldest of the same client gives way when it
// has too many, as a client comes back before the server knows that it was gone. A
// node has no key to prove its name by, so that its address says who it is.
func (s *Server) addSession(open *session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The peers may have changed since the handshake.
	if !open.node && s.peers[open.client].Keys[open.epoch] != open.key {
		return errRefused
	}
	var same []*session
	strangers := 0
	for other := range s.sessions {
		if other.node && !s.nodes[other.from] {
			strangers++
		}
		if other.node == open.node && (open.node && other.from == open.from || !open.node && other.client == open.client) {
			same = append(same, other)
		}
	}
	if open.node && !s.nodes[open.from] && strangers >= maxStrangers {
		return errFull
	}
	if len(same) >= maxPerClient {
		oldest := slices.MinFunc(same, func(a, b *session) int { return int(int64(a.number - b.number)) })
		oldest.cancel()
		delete(s.sessions, oldest)
	}
	s.counter++
	open.number = s.counter
	s.sessions[open] = true
	return nil
}

func (s *Server) removeSession(open *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, open)
}
