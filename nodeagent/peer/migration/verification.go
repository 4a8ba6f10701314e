package migration

import "time"

const (
	verifyReplies = 2 // consecutive replies that verify a tunnel
	// A tunnel is silent after maxUnanswered consecutive probes without a reply, if the last
	// reply is older than minSilence.
	maxUnanswered = 4
	minSilence    = 2 * time.Second
	probeHistory  = 32 // number of latest probes whose replies count
)

// verification is the result of the probes over one tunnel. A reply is sent over the tunnel of its
// probe, so it verifies both directions.
type verification struct {
	probes     [probeHistory]uint64 // sequence numbers, as a ring; 0 = answered
	sent       int
	replies    int // consecutive
	unanswered int // probes after the last answered one
	lastReply  time.Time
}

// restart discards all replies: the tunnel must be verified again.
func (v *verification) restart(now time.Time) {
	v.replies, v.unanswered, v.lastReply = 0, 0, now
}

// onProbe records a sent probe. Sequence numbers start at 1.
func (v *verification) onProbe(seq uint64, now time.Time) {
	if v.isSilent(now) {
		v.replies = 0
	}
	v.probes[v.sent%probeHistory] = seq
	v.sent++
	v.unanswered++
}

// onReply records the reply to a probe. It returns false for an unknown or repeated reply.
func (v *verification) onReply(seq uint64, now time.Time) bool {
	for later := range min(probeHistory, v.sent) {
		slot := &v.probes[(v.sent-1-later)%probeHistory]
		if *slot != seq || seq == 0 {
			continue
		}
		*slot = 0
		v.replies++
		v.unanswered, v.lastReply = min(v.unanswered, later), now
		return true
	}
	return false
}

// isVerified reports whether packets arrive in both directions.
func (v *verification) isVerified(now time.Time) bool {
	return v.replies >= verifyReplies && !v.isSilent(now)
}

// isSilent reports whether the tunnel no longer works.
func (v *verification) isSilent(now time.Time) bool {
	return v.unanswered >= maxUnanswered && now.Sub(v.lastReply) > minSilence
}
