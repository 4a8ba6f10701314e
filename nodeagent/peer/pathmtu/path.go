package pathmtu

import (
	"time"

	"hawser.dev/hawser/internal/timerqueue"
	"hawser.dev/hawser/nodeagent/peer/wire"
)

// Times and counts of the search.
const (
	activeInterval    = 5 * time.Second        // between tries of an active link with traffic
	standby           = 60 * time.Second       // minimum for other links
	recoveryInterval  = 20 * time.Second       // between tries of full size in a black hole
	recoveryPerSearch = 10                     // after this many of them, search again
	silentRetry       = 2 * time.Second        // before the next try while no probe gets a reply; doubles up to the interval
	defaultReplyTime  = 500 * time.Millisecond // for a reply, while the round-trip time is unknown
	quickest          = 150 * time.Millisecond // minimum of four round-trip times
	slowest           = time.Second
	misses            = 3 // failed tries of one size, while small probes pass
	confirmMisses     = 6 // the same for the size that started a search, at its end: loss is no black hole
)

// Phases of a path.
const (
	phaseSteady   = iota // tries the current size at intervals
	phaseSuspect         // the current size failed once
	phaseSearch          // searches the largest size that passes
	phaseConfirm         // verifies that the size that failed still fails
	phaseRecovery        // in a black hole, tries full size
)

// sent is a probe in flight.
type sent struct {
	nonce    uint64
	size     int
	at       time.Time
	answered bool
}

// linkState is the state of a link. It is pure: its owner passes in time, nonces and replies,
// and sends its probes.
type linkState struct {
	timerqueue.Entry
	LinkMTU
	id       uint64        // of the peer
	interval time.Duration // between tries in the steady phase
	// idleInterval is the interval without traffic.
	idleInterval time.Duration
	due          time.Time // when the next try starts, or the current one ends
	trying       bool
	big          sent
	small        sent
	rtt          time.Duration // smoothed; 0 = unknown

	phase   int
	quiet   int // consecutive tries without a reply
	fails   int // failed tries of the size while small probes passed
	low     int // largest size that passed in this search
	high    int // smallest size that failed
	top     int // the failed size that started the search
	returns int // tries of full size in this black hole
	retryAt time.Time
}

func newPath(now time.Time, l Link, interval, first time.Duration) *linkState {
	return &linkState{
		LinkMTU: LinkMTU{Link: l, State: Unknown, PathMTU: l.MTU, Since: now}, id: wire.HashID(l.Peer),
		interval: interval, idleInterval: interval, due: now.Add(first),
	}
}

// setTraffic sets the interval for a link with or without traffic. It reports whether it became shorter.
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
		return p.top
	case phaseRecovery:
		return p.MTU
	default:
		return p.PathMTU
	}
}

// tick ends the current try or starts the next one and returns its probes. It reports whether
// state or value changed. In the steady phase, a try is one full-size probe. In the other
// phases a small probe goes with it, which distinguishes a black hole from a dead link.
func (p *linkState) tick(now time.Time, nonce func() uint64) (out []sent, changed bool) {
	if p.due.After(now) {
		return nil, false
	}
	if p.trying {
		changed = p.conclude(now)
	}
	if p.due.After(now) {
		return nil, changed
	}
	if p.phase == phaseSteady && p.State == BlackHole && !p.retryAt.After(now) {
		p.phase, p.fails = phaseRecovery, 0
	}
	p.trying = true
	p.big, p.small = sent{nonce: nonce(), size: p.size(), at: now}, sent{}
	out = append(out, p.big)
	if p.phase != phaseSteady {
		p.small = sent{nonce: nonce(), size: smallest(p.Addr), at: now}
		out = append(out, p.small)
	}
	p.due = now.Add(p.replyTimeout())
	return out, changed
}

func (p *linkState) replyTimeout() time.Duration {
	if p.rtt == 0 {
		return defaultReplyTime
	}
	return min(max(4*p.rtt, quickest), slowest)
}

// onReply handles a reply. It reports whether it matches a probe in flight, and whether state or
// value changed.
func (p *linkState) onReply(now time.Time, m wire.SizeProbe) (known, changed bool) {
	if !p.trying {
		return false, false
	}
	for _, s := range []*sent{&p.big, &p.small} {
		if s.nonce != m.Nonce || s.size != int(m.Bytes) || s.answered || s.at.IsZero() {
			continue
		}
		s.answered, known = true, true
		sample := now.Sub(s.at)
		if p.rtt == 0 {
			p.rtt = sample
		}
		p.rtt += (sample - p.rtt) / 8
	}
	if known && p.big.answered {
		changed = p.conclude(now)
	}
	return known, changed
}

// conclude ends a try and sets the time of the next one.
func (p *linkState) conclude(now time.Time) bool {
	p.trying = false
	passed, failed := p.big.answered, !p.big.answered && p.small.answered
	if !passed && !failed && p.phase != phaseSteady {
		return p.onSilence(now)
	}
	p.due, p.quiet = now, 0
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

// onSilence handles a try without any reply: the link is down and the try proves nothing about
// sizes. The current phase continues when the link is up.
func (p *linkState) onSilence(now time.Time) bool {
	p.due = now.Add(min(silentRetry<<min(p.quiet, 16), max(p.interval, silentRetry)))
	p.quiet++
	if p.phase == phaseSuspect {
		p.fails = 0
	}
	return false
}

// toSteady returns to the steady phase.
func (p *linkState) toSteady(now time.Time) {
	p.phase, p.fails = phaseSteady, 0
	p.due = now.Add(p.interval)
	if p.State == BlackHole && p.retryAt.Before(p.due) {
		p.due = p.retryAt
	}
}

func (p *linkState) onSteadyResult(now time.Time, passed bool) bool {
	if !passed {
		p.phase, p.fails = phaseSuspect, 0
		return false
	}
	p.toSteady(now)
	return p.State == Unknown && p.set(now, OK, p.MTU)
}

func (p *linkState) onSuspectResult(now time.Time, passed bool) bool {
	if passed {
		p.toSteady(now)
		return p.State == Unknown && p.set(now, OK, p.MTU)
	}
	if p.fails++; p.fails < misses {
		return false
	}
	if p.PathMTU <= MinMTU {
		p.toSteady(now)
		return false
	}
	p.search(MinMTU, p.PathMTU)
	return p.set(now, Searching, p.PathMTU)
}

// search starts a search between a size that should pass and a size that does not.
func (p *linkState) search(low, high int) {
	p.phase, p.fails = phaseSearch, 0
	p.low, p.high, p.top = min(low, high-1), high, high
}

func (p *linkState) onSearchResult(now time.Time, passed bool) bool {
	if passed {
		p.low, p.fails = p.size(), 0
	} else if p.fails++; p.fails >= misses {
		p.high, p.fails = p.size(), 0
	}
	if p.high-p.low > 1 {
		return false
	}
	p.phase, p.fails = phaseConfirm, 0
	return false
}

// onConfirmResult ends a search. If the size that started it passes now, the failure was packet
// loss.
func (p *linkState) onConfirmResult(now time.Time, passed bool) bool {
	if passed {
		p.low = p.top
	} else if p.fails++; p.fails < confirmMisses {
		return false
	}
	p.retryAt = now.Add(recoveryInterval)
	state := BlackHole
	if p.low >= p.MTU {
		state = OK
	}
	changed := p.set(now, state, min(p.low, p.MTU))
	p.toSteady(now)
	return changed
}

func (p *linkState) onRecoveryResult(now time.Time, passed bool) bool {
	if passed {
		changed := p.set(now, OK, p.MTU)
		p.returns = 0
		p.toSteady(now)
		return changed
	}
	if p.fails++; p.fails < misses {
		return false
	}
	p.retryAt = now.Add(recoveryInterval)
	if p.returns++; p.returns%recoveryPerSearch == 0 && p.MTU-p.PathMTU > 1 {
		p.search(p.PathMTU, p.MTU)
		return false
	}
	p.toSteady(now)
	return false
}

func (p *linkState) set(now time.Time, state string, value int) bool {
	if p.State == state && p.PathMTU == value {
		return false
	}
	p.State, p.PathMTU, p.Since = state, value, now
	return true
}
