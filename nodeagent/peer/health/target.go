package health

import (
	"time"

	"hawser.dev/hawser/internal/timerqueue"
	"hawser.dev/hawser/nodeagent/peer/transport"
	"hawser.dev/hawser/nodeagent/status"
)

// target is the state of one Target. Its methods are pure: the time is an argument. The mutex of
// the Prober guards it.
type target struct {
	Target
	hash uint64 // of the peer's name
	timerqueue.Entry
	wake time.Time // next action: the key in the schedule

	next      time.Time // time of the next probe
	intervals int       // intervals between two probes
	liveness  Liveness
	since     time.Time // of live.State

	sequence           uint64    // of the last probe; its low 32 bits go over the wire
	lastAnswered       uint64    // of the last probe with a reply; 0 = none
	consecutiveReplies int       // up to lastAnswered
	finalProbeAt       time.Time // when the last probe before death was sent; zero = not yet
	postponed          bool      // the check was late and was postponed once
	lastRTT            time.Duration
	probes             [windowSize]probe
	measured           measurement
	damper             flapDamper

	published   publishedState // last published state
	peerAdvert  linkAdvert     // of the peer
	advertFresh bool           // peerAdvert arrived after the link came up
	sentAdvert  linkAdvert     // of the last triggered update
	triggered   triggeredUpdate

	token           uint64                // token that authenticates probes of the peer
	peerToken       uint64                // token that the peer expects; 0 = unknown
	replyLimit      transport.RateLimiter // for probes with the token
	unverifiedLimit transport.RateLimiter // for probes that only have the peer's address

	received receivedLinkStates // list of a sibling
	draining bool               // the sibling drains
}

// triggeredUpdate is an additional probe that reports a change immediately. It is sent up to
// maxUpdateTries times until a reply arrives. After that, regular probes report the change. A
// second update follows the reply, because a reply that the peer sent before the change may arrive
// later.
type triggeredUpdate struct {
	nonce  uint64 // 0 = no update pending
	tries  int
	second bool      // this update follows the reply to the first one
	at     time.Time // of the next try
	sent   time.Time // of the last one
}

// publishedState is the state whose changes are published.
type publishedState struct {
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
	return &target{Target: t, hash: t.Peer.hash(), intervals: 1, liveness: live, since: now, token: newNonce()}
}

// isRemote reports whether the target is a gateway of another cluster.
func (t *target) isRemote() bool { return t.Device == "" }

// firstReplyTimeout is the minimum timeout of a probe while the round trip of the link is unknown.
const firstReplyTimeout = 300 * time.Millisecond

// replyTimeout returns the timeout of the last probe before a link is dead. It is at least a
// quarter of an interval, and at least twice the round trip.
func (t *target) replyTimeout(s Settings) time.Duration {
	if least := t.minRTT(); least > 0 {
		return max(s.Interval/4, 2*least)
	}
	return max(s.Interval, firstReplyTimeout)
}

// probe records that a probe is sent now and returns its sequence number.
func (t *target) probe(now time.Time, nonce uint64, s Settings) uint32 {
	t.sequence++
	t.measured.valid = false
	t.probes[t.sequence%windowSize] = probe{nonce: nonce, sentAt: now}
	if t.sequence-t.lastAnswered == uint64(max(s.Misses, 1)) {
		t.finalProbeAt = now
	}
	return uint32(t.sequence)
}

// checkDead marks the link dead if Misses consecutive probes got no reply and the last one timed
// out. It reports whether it marked the link.
func (t *target) checkDead(now time.Time, s Settings) bool {
	if t.finalProbeAt.IsZero() || t.liveness == Dead {
		return false
	}
	late := now.Sub(t.finalProbeAt) - t.replyTimeout(s)
	if late < 0 {
		return false
	}
	if late > s.Interval/4 && !t.postponed {
		// This process did not run for a while. An unread reply may be queued.
		t.postponed = true
		t.finalProbeAt = now.Add(s.Interval/8 - t.replyTimeout(s))
		return false
	}
	if t.isRemote() && t.liveness.State() == status.Connected {
		t.damper.onFailure(now)
	}
	t.liveness, t.since = Dead, now
	t.advertFresh, t.consecutiveReplies = false, 0
	t.received = receivedLinkStates{}
	return true
}

// onReply records a reply. It reports whether the reply matches a probe and whether the state
// changed. A dead link is alive again after Misses consecutive replies, so that a lossy link does
// not flap.
func (t *target) onReply(now time.Time, m *message, s Settings) (matched, changed bool) {
	seq, ok := t.matchProbe(m)
	if !ok || t.probes[seq%windowSize].answered {
		return false, false
	}
	slot := &t.probes[seq%windowSize]
	slot.answered, slot.rtt = true, max(now.Sub(slot.sentAt), 1)
	t.lastRTT, t.measured.valid = slot.rtt, false
	if seq > t.lastAnswered {
		t.advanceAnswered(seq, now, s)
	}
	switch {
	case t.liveness.State() == status.Connected:
		return true, false
	case t.liveness == Dead && t.consecutiveReplies < max(s.Misses, 1):
		return true, false
	case t.liveness == Dead:
		t.damper.restartHold(now)
	}
	t.liveness, t.since = t.liveness.afterReply(), now
	return true, true
}

// advanceAnswered sets the last probe that got a reply.
func (t *target) advanceAnswered(seq uint64, now time.Time, s Settings) {
	if seq == t.lastAnswered+1 {
		t.consecutiveReplies++
	} else {
		t.consecutiveReplies = 1
	}
	t.lastAnswered, t.finalProbeAt, t.postponed = seq, time.Time{}, false
	if misses := uint64(max(s.Misses, 1)); t.sequence-seq >= misses {
		t.finalProbeAt = now
		if misses < windowSize {
			t.finalProbeAt = t.probes[(seq+misses)%windowSize].sentAt
		}
	}
}

// onPacketWhileDead handles a packet over a dead link. It moves the next probe to a quarter of an
// interval after the last one, and reports whether it did.
func (t *target) onPacketWhileDead(now time.Time, s Settings) bool {
	return t.liveness == Dead && t.advanceProbe(now, s.Interval/4)
}

// sooner moves the next probe forward to a time after the last one, but not before now. It
// reports whether it did.
func (t *target) advanceProbe(now time.Time, after time.Duration) bool {
	due := t.probes[t.sequence%windowSize].sentAt.Add(after)
	if due.Before(now) {
		due = now
	}
	if !due.Before(t.next) {
		return false
	}
	t.next = due
	return true
}

// matchProbe returns the sequence number of the probe that a reply belongs to.
func (t *target) matchProbe(m *message) (seq uint64, ok bool) {
	age := uint64(uint32(t.sequence) - m.sequence)
	if age >= windowSize || age >= t.sequence {
		return 0, false
	}
	seq = t.sequence - age
	return seq, t.probes[seq%windowSize].nonce == m.nonce
}

// setPeerAdvert stores the advert of the peer and reports whether it changed.
func (t *target) setPeerAdvert(advert linkAdvert) bool {
	changed := t.peerAdvert != advert
	t.peerAdvert, t.advertFresh = advert, true
	return changed
}

// effectiveAdvert returns the advert of the peer. Without an advert since the link came up, it
// returns rank Good.
func (t *target) effectiveAdvert() linkAdvert {
	if !t.advertFresh {
		return linkAdvert{rank: Good}
	}
	return t.peerAdvert
}

// needsFullRate reports whether the next replies decide the state of the link: it is new, missed a
// reply, or is recovering.
func (t *target) needsFullRate(now time.Time, s Settings) bool {
	switch {
	case t.liveness.State() == status.Connecting:
		return true
	case t.liveness == Dead:
		missed := t.sequence - t.lastAnswered
		return t.consecutiveReplies > 0 && missed <= uint64(max(s.Misses, 1))
	}
	return t.overdue(now, s)
}

// overdue reports whether a reply is later than expected.
func (t *target) overdue(now time.Time, s Settings) bool {
	return t.sequence > t.lastAnswered && now.Sub(t.probes[(t.lastAnswered+1)%windowSize].sentAt) >= t.replyTimeout(s)
}

// setWake sets the time of the next action.
func (t *target) setWake(now time.Time, s Settings) {
	t.wake = t.next
	wakeBy := func(at time.Time) {
		if at.Before(t.wake) {
			t.wake = at
		}
	}
	if t.liveness != Dead {
		if !t.finalProbeAt.IsZero() {
			wakeBy(t.finalProbeAt.Add(t.replyTimeout(s)))
		}
		if firstUnanswered := t.probes[(t.lastAnswered+1)%windowSize].sentAt; t.intervals > 1 && t.sequence > t.lastAnswered {
			wakeBy(firstUnanswered.Add(t.replyTimeout(s)))
		}
	}
	if t.damper.isActive(now) {
		wakeBy(t.damper.heldUntil)
	}
	if t.triggered.nonce != 0 {
		wakeBy(t.triggered.at)
	}
}

// condition is the state of a gateway that applies to all its links.
type condition struct {
	rank           Rank
	reason         string
	acceptsTransit bool
}

// link returns the state of the target.
func (t *target) link(now time.Time, s Settings, gateway condition) Link {
	out := Link{
		Target: t.Target, Liveness: t.liveness, Since: t.since,
		Flaps: t.damper.recentFailures(now), LeastRTT: t.minRTT(),
		linkStates: t.received.linkStates, peerUses: t.effectiveAdvert().inUse, transitOK: gateway.acceptsTransit && t.effectiveAdvert().acceptsTransit,
	}
	if t.damper.isActive(now) {
		out.Held = t.damper.heldUntil
	}
	if t.lastAnswered > 0 && t.sequence-t.lastAnswered < windowSize {
		out.Answered = t.probes[t.lastAnswered%windowSize].sentAt
	}
	out.RTT, out.Loss = t.summary(now, s.Interval*time.Duration(max(s.Misses, 1)))
	out.Rank, out.Reason = t.rank(now, gateway), t.reason(now, gateway)
	return out
}

// offPathTimeout is the time for which a reply to an off-path probe is accepted.
const offPathTimeout = 3 * time.Second

// offPath is a probe to a gateway that was sent over another link than that gateway's.
type offPath struct {
	to, from uint64 // hash of the peer; random number instead of the own hash
	sent     time.Time
	onReply  func()
}

// NewOffPathProbe returns a probe to a gateway that the caller sends over another link. The probe
// affects no link state at either end, and the peer replies over its own path. onReply runs at most
// once and holds a lock: it must neither block nor call the prober.
func (p *Prober) NewOffPathProbe(to GatewayID, onReply func()) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	for key, probe := range p.offPaths {
		if now.Sub(probe.sent) > offPathTimeout {
			delete(p.offPaths, key)
		}
	}
	m := message{nonce: newNonce(), from: newNonce(), to: to.hash()}
	p.offPaths[m.nonce] = offPath{to: m.to, from: m.from, sent: now, onReply: onReply}
	return m.encode()
}

// handleOffPathReply handles a reply to an off-path probe and reports whether m is one.
func (p *Prober) handleOffPathReply(now time.Time, m *message) bool {
	probe, known := p.offPaths[m.nonce]
	if !known || m.from != probe.to || m.to != probe.from {
		return false
	}
	delete(p.offPaths, m.nonce)
	if now.Sub(probe.sent) <= offPathTimeout {
		probe.onReply()
	}
	return true
}
