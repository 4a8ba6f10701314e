package kernel

import "time"

// handshakeAge is how long a handshake proves that a peer is where the kernel
// says: WireGuard drops a session after REJECT_AFTER_TIME = 180 s (the
// WireGuard paper, section 6.1).
const handshakeAge = 180 * time.Second

// handshakes tells which peers answered recently. WireGuard gives the time of
// the last handshake by the wall clock, which jumps; so it counts when a new one
// was seen, by the clock that does not.
type handshakes map[string]handshake

type handshake struct {
	told time.Time // by WireGuard
	seen time.Time // by us
}

// note takes what WireGuard reports about a peer (zero = none yet) and reports
// whether the last handshake is recent. now has a monotonic part.
func (h handshakes) note(key string, told, now time.Time) bool {
	if told.IsZero() {
		delete(h, key)
		return false
	}
	last, known := h[key]
	switch {
	case !known: // of one from before our start only the wall clock is known
		last = handshake{told: told, seen: now.Add(-max(now.Sub(told), 0))}
	case !told.Equal(last.told):
		last = handshake{told: told, seen: now}
	}
	h[key] = last
	return now.Sub(last.seen) < handshakeAge
}
