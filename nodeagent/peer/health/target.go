package health

import (
	"time"

	"hawser.dev/hawser/internal/timerqueue"
	"hawser.dev/hawser/nodeagent/peer/transport"
	"hawser.dev/hawser/nodeagent/status"
)

// target is the state of one Target. All its methods are pure: they know the
// time only as an argument. The Prober's mutex guards it.
type target struct {
	Target
	hash uint64 // of the peer's name
	timerqueue.Entry
	wake time.Time // when there is something to do: its place in the schedule

	next  time.Time // of the next probe
	every int       // how many intervals lie between two probes now
	live  Liveness
	since time.Time // of live.State

	sequence     uint64    // of the last probe; its low 32 bits go over the wire
	answered     uint64    // of the last probe that was answered, 0 = none
	streak       int       // answers in a row up to that one
	deathProbeAt time.Time // when the probe was sent whose loss makes the link dead; zero = not yet
	excused      bool      // the verdict came late and was put off once
	last         time.Duration
	probes       [window]probe
	summed       summed
	damper       flapDamper

	shown       reported   // what was last reported
	peerAdvert  linkAdvert // what the other end says
	advertFresh bool       // it said something since the link lives
	sentAdvert  linkAdvert // what this end said when it last poked
	poke        triggeredUpdate

	token    uint64                // what a probe of the other end must bring to be believed
	theirs   uint64                // what the other end wants to be brought; 0 = not known
	answers  transport.RateLimiter // to probes that bring the token
	unproven transport.RateLimiter // to those that come from its address only

	heard   receivedList // of gateways of the own cluster
	leaving bool         // one of them that said that it drains
}

// triggeredUpdate is a probe out of turn that tells the other end at once what changed. It
// is repeated until answered, a few times; after that the probes in turn do. An
// answered one is followed by another, as a reply that was made before the change
// may have overtaken it.
type triggeredUpdate struct {
	nonce uint64 // 0 = nothing to tell
	tries int
	again bool      // one was answered
	at    time.Time // of the next try
	sent  time.Time // of the last one
}

// reported is what others learn of when it changes.
type reported struct {
	live  Liveness
	rank  Rank
	uses  bool
	takes bool
}

// pokeTries bounds how often a poke is sent.
const pokeTries = 4

func newTarget(t Target, now time.Time, first bool) *target {
	live := Unproven
	if first {
		live = Assumed
	}
	return &target{Target: t, hash: t.Peer.hash(), every: 1, live: live, since: now, token: nonce()}
}

// isRemote reports whether the target is a gateway of another cluster.
func (t *target) isRemote() bool { return t.Device == "" }

// unknownPatience is how long to wait for the very first answer of a link at
// least, as its round trip is not known yet.
const unknownPatience = 300 * time.Millisecond

// replyTimeout is how long the last probe before the verdict may take: longer than
// the round trip, but not a whole interval.
func (t *target) replyTimeout(s Settings) time.Duration {
	if least := t.least(); least > 0 {
		return max(s.Interval/4, 2*least)
	}
	return max(s.Interval, unknownPatience)
}

// probe notes that a probe goes out now and gives its sequence number.
func (t *target) probe(now time.Time, nonce uint64, s Settings) uint32 {
	t.sequence++
	t.summed.valid = false
	t.probes[t.sequence%window] = probe{nonce: nonce, at: now}
	if t.sequence-t.answered == uint64(max(s.Misses, 1)) {
		t.deathProbeAt = now
	}
	return uint32(t.sequence)
}

// checkDead makes the link dead when as many probes as allowed went unanswered in a
// row, and the last of them had its time. It reports whether that happened.
func (t *target) checkDead(now time.Time, s Settings) bool {
	if t.deathProbeAt.IsZero() || t.live == Dead {
		return false
	}
	late := now.Sub(t.deathProbeAt) - t.replyTimeout(s)
	if late < 0 {
		return false
	}
	if late > s.Interval/4 && !t.excused {
		// This process did not run for a while, so the answer may be here unread.
		t.excused = true
		t.deathProbeAt = now.Add(s.Interval/8 - t.replyTimeout(s))
		return false
	}
	if t.isRemote() && t.live.State() == status.Connected {
		t.damper.fall(now)
	}
	t.live, t.since = Dead, now
	t.advertFresh, t.streak = false, 0
	t.heard = receivedList{}
	return true
}

// onReply notes a reply to a probe. It reports whether the reply matches one, and
// whether the state changed. A dead link needs as many answers in a row to come
// back as it needed misses to die, so that a bad line does not flap.
func (t *target) onReply(now time.Time, m *message, s Settings) (matched, changed bool) {
	number, ok := t.matchProbe(m)
	if !ok || t.probes[number%window].done {
		return false, false
	}
	slot := &t.probes[number%window]
	slot.done, slot.rtt = true, max(now.Sub(slot.at), 1)
	t.last, t.summed.valid = slot.rtt, false
	if number > t.answered {
		t.advanceAnswered(number, now, s)
	}
	switch {
	case t.live == Dead && t.streak < max(s.Misses, 1), t.live.State() == status.Connected:
		return true, false
	case t.live == Dead:
		t.damper.hold(now)
	}
	t.live, t.since = t.live.afterReply(), now
	return true, true
}

// advanceAnswered moves the mark of the last answered probe.
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

// onPacketWhileDead brings the next probe of a dead link forward when something came over it, in either
// direction: it follows a quarter of an interval after the one before. It reports whether it did.
func (t *target) onPacketWhileDead(now time.Time, s Settings) bool {
	return t.live == Dead && t.sooner(now, s.Interval/4)
}

// sooner has the next probe go out at a time after the latest one, or now, where it would go
// out later. It reports whether it would.
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

// matchProbe finds the probe of the window that a reply belongs to.
func (t *target) matchProbe(m *message) (number uint64, ok bool) {
	back := uint64(uint32(t.sequence) - m.sequence)
	if back >= window || back >= t.sequence {
		return 0, false
	}
	number = t.sequence - back
	return number, t.probes[number%window].nonce == m.nonce
}

// setPeerAdvert notes what the other end says. It reports whether that is new.
func (t *target) setPeerAdvert(w linkAdvert) bool {
	fresh := t.peerAdvert != w
	t.peerAdvert, t.advertFresh = w, true
	return fresh
}

// effectiveAdvert is what counts of what the other end said: nothing once the link is dead.
func (t *target) effectiveAdvert() linkAdvert {
	if !t.advertFresh {
		return linkAdvert{rank: Good}
	}
	return t.peerAdvert
}

// needsFullRate reports whether the next answers decide something, so that they
// must come at the full rate: a new link, one that missed an answer, or one that
// comes back.
func (t *target) needsFullRate(now time.Time, s Settings) bool {
	switch {
	case t.live.State() == status.Connecting:
		return true
	case t.live == Dead:
		return t.streak > 0 && t.sequence-t.answered <= uint64(max(s.Misses, 1))
	}
	return t.overdue(now, s)
}

// overdue reports whether a probe waits for its answer longer than one should take.
func (t *target) overdue(now time.Time, s Settings) bool {
	return t.sequence > t.answered && now.Sub(t.probes[(t.answered+1)%window].at) >= t.replyTimeout(s)
}

// plan sets when there is something to do next.
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
		if waits := t.probes[(t.answered+1)%window].at; t.every > 1 && t.sequence > t.answered {
			sooner(waits.Add(t.replyTimeout(s)))
		}
	}
	if t.damper.isActive(now) {
		sooner(t.damper.held)
	}
	if t.poke.nonce != 0 {
		sooner(t.poke.at)
	}
}

// condition is what holds for all links of a gateway.
type condition struct {
	rank  Rank
	why   string
	takes bool
}

// link gives what is known of the target.
func (t *target) link(now time.Time, s Settings, own condition) Link {
	out := Link{
		Target: t.Target, Liveness: t.live, Since: t.since,
		Flaps: t.damper.count(now), LeastRTT: t.least(),
		linkStates: t.heard.reach, peerUses: t.effectiveAdvert().inUse, transitOK: own.takes && t.effectiveAdvert().acceptsTransit,
	}
	if t.damper.isActive(now) {
		out.Held = t.damper.held
	}
	if t.answered > 0 && t.sequence-t.answered < window {
		out.Answered = t.probes[t.answered%window].at
	}
	out.RTT, out.Loss = t.summary(now, s.Interval*time.Duration(max(s.Misses, 1)))
	out.Rank, out.Why = t.rank(now, own), t.why(now, own)
	return out
}

// offPathTime is for how long the answer to a probe off the path counts.
const offPathTime = 3 * time.Second

// offPath is a probe that went over another link than its link.
type offPath struct {
	to, from uint64 // hash of the peer; a number in place of the own name
	sent     time.Time
	answered func()
}

// NewOffPathProbe makes a probe of a gateway that somebody else sends, over another link than the
// link to it takes. It says nothing of the link, here or at the other end, which
// answers by its own way. answered is called at most once, under a lock: it must
// neither block nor call the prober.
func (p *Prober) NewOffPathProbe(to GatewayID, answered func()) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	for number, a := range p.offPaths {
		if now.Sub(a.sent) > offPathTime {
			delete(p.offPaths, number)
		}
	}
	m := message{nonce: nonce(), from: nonce(), to: to.hash()}
	p.offPaths[m.nonce] = offPath{to: m.to, from: m.from, sent: now, answered: answered}
	return m.encode()
}

// asked takes a reply to a probe off the path, and reports whether it is one.
func (p *Prober) asked(now time.Time, m *message) bool {
	a, known := p.offPaths[m.nonce]
	if !known || m.from != a.to || m.to != a.from {
		return false
	}
	delete(p.offPaths, m.nonce)
	if now.Sub(a.sent) <= offPathTime {
		a.answered()
	}
	return true
}
