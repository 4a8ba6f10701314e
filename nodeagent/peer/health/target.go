package health

import (
	"time"

	"hawser.dev/hawser/internal/timerqueue"
	"hawser.dev/hawser/nodeagent/peer/transport"
	"hawser.dev/hawser/nodeagent/status"
)

// target is the state of one Target. Its methods are pure: the time is an argument. The Prober's mutex
// guards it.
type target struct {
	Target
	hash uint64 // of the peer's name
	timerqueue.Entry
	wake time.Time // next action: the key in the schedule

	next    time.Time // time of the next probe
	stretch int       // intervals between two probes
	live    Liveness
	since   time.Time // of live.State

	sequence     uint64    // of the last probe; its low 32 bits go over the wire
	answered     uint64    // of the last probe with a reply; 0 = none
	streak       int       // consecutive replies up to answered
	deathProbeAt time.Time // when the last probe before the verdict was sent; zero = not yet
	excused      bool      // the check ran late and was postponed once
	last         time.Duration
	probes       [window]probe
	measured     measurement
	damper       flapDamper

	shown       reported   // last published state
	peerAdvert  linkAdvert // of the peer
	advertFresh bool       // peerAdvert arrived since the link is alive
	sentAdvert  linkAdvert // of the last triggered update
	triggered   triggeredUpdate

	token      uint64                // token that probes of the peer must contain to be trusted
	peerToken  uint64                // token that the peer expects; 0 = unknown
	replyLimit transport.RateLimiter // for probes with the token
	unproven   transport.RateLimiter // for probes that only have the peer's address

	received receivedList // list of a sibling
	draining bool         // the sibling drains
}

// triggeredUpdate is an additional probe that reports a change immediately. It is repeated up to
// maxUpdateTries times until a reply arrives; after that, regular probes report the change. A second
// one follows the reply, because a reply that was created before the change may arrive later.
type triggeredUpdate struct {
	nonce uint64 // 0 = no update pending
	tries int
	again bool      // a second update follows the reply
	at    time.Time // of the next try
	sent  time.Time // of the last one
}

// reported is the state whose changes are published.
type reported struct {
	live           Liveness
	rank           Rank
	uses           bool
	acceptsTransit bool
	traffic        bool // of the peer
}

// maxUpdateTries limits how often a triggered update is sent.
const maxUpdateTries = 4

func newTarget(t Target, now time.Time, first bool) *target {
	live := Unproven
	if first {
		live = Assumed
	}
	return &target{Target: t, hash: t.Peer.hash(), stretch: 1, live: live, since: now, token: nonce()}
}

// isRemote reports whether the target is a gateway of another cluster.
func (t *target) isRemote() bool { return t.Device == "" }

// unknownTimeout is the minimum timeout of the first probe of a link, whose round trip is unknown.
const unknownTimeout = 300 * time.Millisecond

// replyTimeout returns the timeout of the last probe before a link is dead: longer than the round
// trip, but shorter than an interval.
func (t *target) replyTimeout(s Settings) time.Duration {
	if least := t.minRTT(); least > 0 {
		return max(s.Interval/4, 2*least)
	}
	return max(s.Interval, unknownTimeout)
}

// probe records that a probe is sent now and returns its sequence number.
func (t *target) probe(now time.Time, nonce uint64, s Settings) uint32 {
	t.sequence++
	t.measured.valid = false
	t.probes[t.sequence%window] = probe{nonce: nonce, at: now}
	if t.sequence-t.answered == uint64(max(s.Misses, 1)) {
		t.deathProbeAt = now
	}
	return uint32(t.sequence)
}

// checkDead marks the link dead if the allowed number of consecutive probes got no reply and the last
// one timed out. It reports whether that happened.
func (t *target) checkDead(now time.Time, s Settings) bool {
	if t.deathProbeAt.IsZero() || t.live == Dead {
		return false
	}
	late := now.Sub(t.deathProbeAt) - t.replyTimeout(s)
	if late < 0 {
		return false
	}
	if late > s.Interval/4 && !t.excused {
		// This process did not run for a while; an unread reply may be queued.
		t.excused = true
		t.deathProbeAt = now.Add(s.Interval/8 - t.replyTimeout(s))
		return false
	}
	if t.isRemote() && t.live.State() == status.Connected {
		t.damper.onFailure(now)
	}
	t.live, t.since = Dead, now
	t.advertFresh, t.streak = false, 0
	t.received = receivedList{}
	return true
}

// onReply records a reply. It reports whether it matches a probe and whether the state changed. A dead
// link needs as many consecutive replies to return as it had misses, so that a bad line does not
// flap.
func (t *target) onReply(now time.Time, m *message, s Settings) (matched, changed bool) {
	number, ok := t.matchProbe(m)
	if !ok || t.probes[number%window].done {
		return false, false
	}
	slot := &t.probes[number%window]
	slot.done, slot.rtt = true, max(now.Sub(slot.at), 1)
	t.last, t.measured.valid = slot.rtt, false
	if number > t.answered {
		t.advanceAnswered(number, now, s)
	}
	switch {
	case t.live == Dead && t.streak < max(s.Misses, 1), t.live.State() == status.Connected:
		return true, false
	case t.live == Dead:
		t.damper.restartHold(now)
	}
	t.live, t.since = t.live.afterReply(), now
	return true, true
}

// advanceAnswered sets the last probe that got a reply.
func (t *target) advanceAnswered(number uint64, now time.Time, s Settings) {
	if number == t.answered+1 {
		t.streak++
	} else {
		t.streak = 1
	}
	t.answered, t.deathProbeAt, t.excused = number, time.Time{}, false
	if misses := uint64(max(s.Misses, 1)); t.sequence-number >= misses {
		t.deathProbeAt = now
		if misses < window {
			t.deathProbeAt = t.probes[(number+misses)%window].at
		}
	}
}

// onPacketWhileDead moves the next probe of a dead link to a quarter of an interval after the last
// one, because a packet used the link. It reports whether it did.
func (t *target) onPacketWhileDead(now time.Time, s Settings) bool {
	return t.live == Dead && t.sooner(now, s.Interval/4)
}

// sooner moves the next probe to a time after the last one, but not before now. It reports whether
// the probe was later.
func (t *target) sooner(now time.Time, after time.Duration) bool {
	soon := t.probes[t.sequence%window].at.Add(after)
	if soon.Before(now) {
		soon = now
	}
	if !soon.Before(t.next) {
		return false
	}
	t.next = soon
	return true
}

// matchProbe returns the probe of the window for a reply.
func (t *target) matchProbe(m *message) (number uint64, ok bool) {
	back := uint64(uint32(t.sequence) - m.sequence)
	if back >= window || back >= t.sequence {
		return 0, false
	}
	number = t.sequence - back
	return number, t.probes[number%window].nonce == m.nonce
}

// setPeerAdvert stores the advert of the peer and reports whether it changed.
func (t *target) setPeerAdvert(w linkAdvert) bool {
	changed := t.peerAdvert != w
	t.peerAdvert, t.advertFresh = w, true
	return changed
}

// effectiveAdvert returns the advert of the peer; zero if the link is dead.
func (t *target) effectiveAdvert() linkAdvert {
	if !t.advertFresh {
		return linkAdvert{rank: Good}
	}
	return t.peerAdvert
}

// needsFullRate reports whether the next replies decide about the state: for a new link, after a
// missed reply, and while a link returns.
func (t *target) needsFullRate(now time.Time, s Settings) bool {
	switch {
	case t.live.State() == status.Connecting:
		return true
	case t.live == Dead:
		return t.streak > 0 && t.sequence-t.answered <= uint64(max(s.Misses, 1))
	}
	return t.overdue(now, s)
}

// overdue reports whether a reply is later than expected.
func (t *target) overdue(now time.Time, s Settings) bool {
	return t.sequence > t.answered && now.Sub(t.probes[(t.answered+1)%window].at) >= t.replyTimeout(s)
}

// plan sets the time of the next action.
func (t *target) plan(now time.Time, s Settings) {
	t.wake = t.next
	sooner := func(at time.Time) {
		if at.Before(t.wake) {
			t.wake = at
		}
	}
	if t.live != Dead {
		if !t.deathProbeAt.IsZero() {
			sooner(t.deathProbeAt.Add(t.replyTimeout(s)))
		}
		if waits := t.probes[(t.answered+1)%window].at; t.stretch > 1 && t.sequence > t.answered {
			sooner(waits.Add(t.replyTimeout(s)))
		}
	}
	if t.damper.isActive(now) {
		sooner(t.damper.held)
	}
	if t.triggered.nonce != 0 {
		sooner(t.triggered.at)
	}
}

// condition is the state of a gateway that applies to all its links.
type condition struct {
	rank           Rank
	why            string
	acceptsTransit bool
}

// link returns the state of the target.
func (t *target) link(now time.Time, s Settings, own condition) Link {
	out := Link{
		Target: t.Target, Liveness: t.live, Since: t.since,
		Flaps: t.damper.recent(now), LeastRTT: t.minRTT(),
		linkStates: t.received.reach, peerUses: t.effectiveAdvert().inUse, transitOK: own.acceptsTransit && t.effectiveAdvert().acceptsTransit,
	}
	if t.damper.isActive(now) {
		out.Held = t.damper.held
	}
	if t.answered > 0 && t.sequence-t.answered < window {
		out.Answered = t.probes[t.answered%window].at
	}
	out.RTT, out.Loss = t.summary(now, s.Interval*time.Duration(max(s.Misses, 1)))
	out.Rank, out.Reason = t.rank(now, own), t.why(now, own)
	return out
}

// offPathTime is the time in which a reply to an off-path probe is accepted.
const offPathTime = 3 * time.Second

// offPath is a probe that was sent over another link than its own.
type offPath struct {
	to, from uint64 // hash of the peer; random number instead of the own hash
	sent     time.Time
	onReply  func()
}

// NewOffPathProbe returns a probe of a gateway for a caller that sends it over another link. It affects no
// link state at either end; the peer replies over its own path. onReply runs at most once,
// under a lock: it must neither block nor call the prober.
func (p *Prober) NewOffPathProbe(to GatewayID, onReply func()) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	for number, a := range p.offPaths {
		if now.Sub(a.sent) > offPathTime {
			delete(p.offPaths, number)
		}
	}
	m := message{nonce: nonce(), from: nonce(), to: to.hash()}
	p.offPaths[m.nonce] = offPath{to: m.to, from: m.from, sent: now, onReply: onReply}
	return m.encode()
}

// handleOffPathReply handles a reply to an off-path probe and reports whether m is one.
func (p *Prober) handleOffPathReply(now time.Time, m *message) bool {
	a, known := p.offPaths[m.nonce]
	if !known || m.from != a.to || m.to != a.from {
		return false
	}
	delete(p.offPaths, m.nonce)
	if now.Sub(a.sent) <= offPathTime {
		a.onReply()
	}
	return true
}
