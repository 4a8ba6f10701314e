package feed

import (
	"context"
	"errors"
	"slices"
)

// session is one subscriber that proved who it is.
type session struct {
	client string
	node   bool
	epoch  int
	key    PublicKey // by which a peer proved itself
	number uint64
	cancel context.CancelFunc
}

var errFull = errors.New("too many subscribers")

// enter counts the session in; the oldest of the same client gives way when it
// has too many, as a client comes back before the server knows that it was gone.
func (s *Server) enter(open *session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The peers may have changed since the handshake.
	if !open.node && s.peers[open.client].Keys[open.epoch] != open.key {
		return errRefused
	}
	var same []*session
	for other := range s.sessions {
		if other.client == open.client && other.node == open.node {
			same = append(same, other)
		}
	}
	if len(same) >= maxPerClient {
		oldest := slices.MinFunc(same, func(a, b *session) int { return int(int64(a.number - b.number)) })
		oldest.cancel()
		delete(s.sessions, oldest)
	}
	if len(s.sessions) >= maxSessions {
		return errFull
	}
	s.counter++
	open.number = s.counter
	s.sessions[open] = true
	return nil
}

func (s *Server) leave(open *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, open)
}
