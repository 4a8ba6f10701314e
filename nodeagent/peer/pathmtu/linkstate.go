package pathmtu

import (
	"time"

	"hawser.dev/hawser/internal/timerqueue"
	"hawser.dev/hawser/nodeagent/peer/wire"
)

// Times and counts of the search.
const (
	activeInterval      = 5 * time.Second        // between tries of a link in use with traffic
	minStandbyInterval  = 60 * time.Second       // minimum between tries of other links
	recoveryInterval    = 20 * time.Second       // between tries of full size in a black hole
	recoveriesPerSearch = 10                     // recovery phases before a new search
	minNoReplyBackoff   = 2 * time.Second        // after a try without a reply; doubles up to the interval
	defaultReplyTimeout = 500 * time.Millisecond // while the round-trip time is unknown
	minReplyTimeout     = 150 * time.Millisecond // lower bound of the reply timeout, which is four round-trip times
	maxReplyTimeout     = time.Second
	maxFailures         = 3 // failed tries of a size, while small probes pass
	maxConfirmFailures  = 6 // the same in phaseConfirm, to exclude packet loss
)

// Phases of the search for the MTU of a link.
const (
	phaseSteady   = iota // tries the current size at intervals
	phaseSuspect         // the current size failed once
	phaseSearch          // searches the largest size that passes
	phaseConfirm         // verifies that the size that failed still fails
	phaseRecovery        // in a black hole, tries full size
)

// sizeProbe is a probe in flight.
type sizeProbe struct {
	nonce    uint64
	size     int
	at       time.Time
	answered bool
}

// linkState is the state of a link. It has no clock and no I/O: its caller provides time, nonces
// and replies, and sends its probes.
type linkState struct {
	timerqueue.Entry
	LinkMTU
	peerID   uint64        // of the peer
	interval time.Duration // between tries in the steady phase
	// idleInterval is the interval without traffic.
	idleInterval time.Duration
	next         time.Time // when the next try starts, or the current one ends
	trying       bool
	sizeTest     sizeProbe
	liveTest     sizeProbe
	rtt          time.Duration // smoothed; 0 = unknown

	phase       int
	silentTries int // consecutive tries without a reply
	failedTries int // failed tries of the size while small probes passed
	low         int // largest size that passed in this search; at its start the minimum
	high        int // smallest size that failed in this search
	failedSize  int // the failed size that started the search
	recoveries  int // recovery phases in this black hole
	recoverAt   time.Time
}

func newLinkState(now time.Time, l Link, interval, first time.Duration) *linkState {
	return &linkState{
		LinkMTU: LinkMTU{Link: l, State: Unknown, PathMTU: l.MTU, Since: now}, peerID: wire.HashID(l.Peer),
		interval: interval, idleInterval: interval, next: now.Add(first),
	}
}

// setTraffic sets the interval for a link with or without traffic. It reports whether it became
// shorter.
func (p *linkState) setTraffic(traffic bool) bool {
	before := p.interval
	p.interval = p.idleInterval
	if traffic {
		p.interval = activeInterval
	}
	return p.interval < before
}

// size returns the packet size of the next try.
func (p *linkState) size() int {
	switch p.phase {
	case phaseSearch:
		return (p.low + p.high) / 2
	case phaseConfirm:
		return p.failedSize
	case phaseRecovery:
		return p.MTU
	default:
		return p.PathMTU
	}
}

// tick ends the current try, or starts the next one and returns its probes. It reports whether
// State or PathMTU changed. In the steady phase, a try is one probe of the size under test. In
// other phases a small probe is sent with it, which distinguishes a black hole from a dead link.
func (p *linkState) tick(now time.Time, nonce func() uint64) (out []sizeProbe, changed bool) {
	if p.next.After(now) {
		return nil, false
	}
	if p.trying {
		changed = p.finishTry(now)
	}
	if p.next.After(now) {
		return nil, changed
	}
	if p.phase == phaseSteady && p.State == BlackHole && !p.recoverAt.After(now) {
		p.phase, p.failedTries = phaseRecovery, 0
	}
	p.trying = true
	p.sizeTest, p.liveTest = sizeProbe{nonce: nonce(), size: p.size(), at: now}, sizeProbe{}
	out = append(out, p.sizeTest)
	if p.phase != phaseSteady {
		p.liveTest = sizeProbe{nonce: nonce(), size: minProbeSize(p.Addr), at: now}
		out = append(out, p.liveTest)
	}
	p.next = now.Add(p.replyTimeout())
	return out, changed
}

func (p *linkState) replyTimeout() time.Duration {
	if p.rtt == 0 {
		return defaultReplyTimeout
	}
	return min(max(4*p.rtt, minReplyTimeout), maxReplyTimeout)
}

// onReply handles a reply. It reports whether the reply matches a probe in flight, and whether
// State or PathMTU changed.
func (p *linkState) onReply(now time.Time, m wire.SizeProbe) (matched, changed bool) {
	if !p.trying {
		return false, false
	}
	for _, s := range []*sizeProbe{&p.sizeTest, &p.liveTest} {
		if s.nonce != m.Nonce || s.size != int(m.Bytes) || s.answered || s.at.IsZero() {
			continue
		}
		s.answered, matched = true, true
		sample := now.Sub(s.at)
		if p.rtt == 0 {
			p.rtt = sample
		}
		p.rtt += (sample - p.rtt) / 8
	}
	if matched && p.sizeTest.answered {
		changed = p.finishTry(now)
	}
	return matched, changed
}

// finishTry ends a try and sets the time of the next one. It reports whether State or PathMTU
// changed.
func (p *linkState) finishTry(now time.Time) bool {
	p.trying = false
	passed, failed := p.sizeTest.answered, !p.sizeTest.answered && p.liveTest.answered
	if !passed && !failed && p.phase != phaseSteady {
		return p.onSilence(now)
	}
	p.next, p.silentTries = now, 0
	switch p.phase {
	case phaseSteady:
		return p.onSteadyResult(now, passed)
	case phaseSuspect:
		return p.onSuspectResult(now, passed)
	case phaseSearch:
		return p.onSearchResult(now, passed)
	case phaseConfirm:
		return p.onConfirmResult(now, passed)
	default:
		return p.onRecoveryResult(now, passed)
	}
}

// onSilence handles a try without any reply. The link may be down, so the try proves nothing about
// sizes. The current phase continues when the link is up again.
func (p *linkState) onSilence(now time.Time) bool {
	wait := minNoReplyBackoff << min(p.silentTries, 16)
	p.next = now.Add(min(wait, max(p.interval, minNoReplyBackoff)))
	p.silentTries++
	if p.phase == phaseSuspect {
		p.failedTries = 0
	}
	return false
}

// enterSteady returns to the steady phase.
func (p *linkState) enterSteady(now time.Time) {
	p.phase, p.failedTries = phaseSteady, 0
	p.next = now.Add(p.interval)
	if p.State == BlackHole && p.recoverAt.Before(p.next) {
		p.next = p.recoverAt
	}
}

func (p *linkState) onSteadyResult(now time.Time, passed bool) bool {
	if !passed {
		p.phase, p.failedTries = phaseSuspect, 0
		return false
	}
	p.enterSteady(now)
	return p.State == Unknown && p.setResult(now, OK, p.MTU)
}

func (p *linkState) onSuspectResult(now time.Time, passed bool) bool {
	if passed {
		p.enterSteady(now)
		return p.State == Unknown && p.setResult(now, OK, p.MTU)
	}
	if p.failedTries++; p.failedTries < maxFailures {
		return false
	}
	if p.PathMTU <= MinMTU {
		p.enterSteady(now)
		return false
	}
	p.startSearch(MinMTU, p.PathMTU)
	return p.setResult(now, Searching, p.PathMTU)
}

// startSearch starts a search between a size that should pass and a size that does not pass.
func (p *linkState) startSearch(low, high int) {
	p.phase, p.failedTries = phaseSearch, 0
	p.low, p.high, p.failedSize = min(low, high-1), high, high
}

func (p *linkState) onSearchResult(now time.Time, passed bool) bool {
	if passed {
		p.low, p.failedTries = p.size(), 0
	} else if p.failedTries++; p.failedTries >= maxFailures {
		p.high, p.failedTries = p.size(), 0
	}
	if p.high-p.low > 1 {
		return false
	}
	p.phase, p.failedTries = phaseConfirm, 0
	return false
}

// onConfirmResult ends a search. If the size that started the search passes now, the failure was
// packet loss.
func (p *linkState) onConfirmResult(now time.Time, passed bool) bool {
	if passed {
		p.low = p.failedSize
	} else if p.failedTries++; p.failedTries < maxConfirmFailures {
		return false
	}
	p.recoverAt = now.Add(recoveryInterval)
	state := BlackHole
	if p.low >= p.MTU {
		state = OK
	}
	changed := p.setResult(now, state, min(p.low, p.MTU))
	p.enterSteady(now)
	return changed
}

func (p *linkState) onRecoveryResult(now time.Time, passed bool) bool {
	if passed {
		changed := p.setResult(now, OK, p.MTU)
		p.recoveries = 0
		p.enterSteady(now)
		return changed
	}
	if p.failedTries++; p.failedTries < maxFailures {
		return false
	}
	p.recoverAt = now.Add(recoveryInterval)
	if p.recoveries++; p.recoveries%recoveriesPerSearch == 0 && p.MTU-p.PathMTU > 1 {
		p.startSearch(p.PathMTU, p.MTU)
		return false
	}
	p.enterSteady(now)
	return false
}

func (p *linkState) setResult(now time.Time, state string, mtu int) bool {
	if p.State == state && p.PathMTU == mtu {
		return false
	}
	p.State, p.PathMTU, p.Since = state, mtu, now
	return true
}
