package pathmtu

import (
	"time"

	"hawser.dev/hawser/internal/timerqueue"
	"hawser.dev/hawser/nodeagent/peer/wire"
)

// Times and counts of the search.
const (
	activeInterval    = 5 * time.Second        // between looks at a link that carries
	standby           = 60 * time.Second       // at one that does not, at least
	recoveryInterval  = 20 * time.Second       // between looks for full size in a black hole
	recoveryPerSearch = 10                     // every so many of them, search anew what passes
	silentRetry       = 2 * time.Second        // before the next try while nothing passes at all; doubles up to the interval
	patience          = 500 * time.Millisecond // for an answer, while the round trip is not known
	quickest          = 150 * time.Millisecond // bounds of four round trips
	slowest           = time.Second
	misses            = 3 // tries of one size that fail while small ones pass
	confirmMisses     = 6 // the same for the size that began a search, at its end: loss is no black hole
)

// Phases of a path.
const (
	phaseSteady   = iota // looks at the size in force now and then
	phaseSuspect         // it failed once
	phaseSearch          // looks for the largest size that passes
	phaseConfirm         // found one; does the one above really not pass?
	phaseRecovery        // in a black hole, tries full size
)

// sent is a probe on its way.
type sent struct {
	nonce    uint64
	size     int
	at       time.Time
	answered bool
}

// linkState is the state of a link. It is pure: its owner brings time and nonces,
// sends what it says and hands in the answers.
type linkState struct {
	timerqueue.Entry
	LinkMTU
	id       uint64        // of the peer
	interval time.Duration // between looks in the steady phase
	due      time.Time     // when a try begins, or the one that goes on ends
	trying   bool
	big      sent
	small    sent
	rtt      time.Duration // smoothed; 0 = not known

	phase   int
	quiet   int // tries in a row of which nothing came back
	fails   int // tries of the size that failed while small ones passed
	low     int // largest size that passed in this search
	high    int // smallest that did not
	top     int // the size that failed and began the search
	returns int // times that full size was tried in this black hole
	back    time.Time
}

func newPath(now time.Time, l Link, interval, first time.Duration) *linkState {
	return &linkState{
		LinkMTU: LinkMTU{Link: l, State: Unknown, PathMTU: l.MTU, Since: now}, id: wire.HashID(l.Peer), interval: interval, due: now.Add(first),
	}
}

// size is what the next try is about.
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

// tick does what is due: it ends a try, or begins one and gives its probes. It
// reports whether state or value changed. A look at what is well is one probe;
// only in doubt a small one goes with it, which tells a black hole from silence.
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
	if p.phase == phaseSteady && p.State == BlackHole && !p.back.After(now) {
		p.phase, p.fails = phaseRecovery, 0
	}
	p.trying = true
	p.big, p.small = sent{nonce: nonce(), size: p.size(), at: now}, sent{}
	out = append(out, p.big)
	if p.phase != phaseSteady {
		p.small = sent{nonce: nonce(), size: smallest(p.Addr), at: now}
		out = append(out, p.small)
	}
	p.due = now.Add(p.patience())
	return out, changed
}

func (p *linkState) patience() time.Duration {
	if p.rtt == 0 {
		return patience
	}
	return min(max(4*p.rtt, quickest), slowest)
}

// answer takes a reply. It reports whether it belongs to a probe on its way, and
// whether state or value changed.
func (p *linkState) answer(now time.Time, m wire.SizeProbe) (known, changed bool) {
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

// conclude ends a try and sets when the next one begins.
func (p *linkState) conclude(now time.Time) bool {
	p.trying = false
	passed, failed := p.big.answered, !p.big.answered && p.small.answered
	if !passed && !failed && p.phase != phaseSteady {
		return p.silence(now)
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

// silence is a try of which nothing came back: the link is down, and there is
// nothing to learn of sizes. What was begun goes on when it is up.
func (p *linkState) silence(now time.Time) bool {
	p.due = now.Add(min(silentRetry<<min(p.quiet, 16), max(p.interval, silentRetry)))
	p.quiet++
	if p.phase == phaseSuspect {
		p.fails = 0
	}
	return false
}

// rest goes back to the steady phase.
func (p *linkState) rest(now time.Time) {
	p.phase, p.fails = phaseSteady, 0
	p.due = now.Add(p.interval)
	if p.State == BlackHole && p.back.Before(p.due) {
		p.due = p.back
	}
}

func (p *linkState) onSteadyResult(now time.Time, passed bool) bool {
	if !passed {
		p.phase, p.fails = phaseSuspect, 0
		return false
	}
	p.rest(now)
	return p.State == Unknown && p.set(now, OK, p.MTU)
}

func (p *linkState) onSuspectResult(now time.Time, passed bool) bool {
	if passed {
		p.rest(now)
		return p.State == Unknown && p.set(now, OK, p.MTU)
	}
	if p.fails++; p.fails < misses {
		return false
	}
	if p.PathMTU <= MinMTU {
		p.rest(now)
		return false
	}
	p.search(MinMTU, p.PathMTU)
	return p.set(now, Searching, p.PathMTU)
}

// search begins one between a size that is taken to pass and one that does not.
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

// onConfirmResult ends a search. If the size that began it passes now, it was loss.
func (p *linkState) onConfirmResult(now time.Time, passed bool) bool {
	if passed {
		p.low = p.top
	} else if p.fails++; p.fails < confirmMisses {
		return false
	}
	p.back = now.Add(recoveryInterval)
	state := BlackHole
	if p.low >= p.MTU {
		state = OK
	}
	changed := p.set(now, state, min(p.low, p.MTU))
	p.rest(now)
	return changed
}

func (p *linkState) onRecoveryResult(now time.Time, passed bool) bool {
	if passed {
		changed := p.set(now, OK, p.MTU)
		p.returns = 0
		p.rest(now)
		return changed
	}
	if p.fails++; p.fails < misses {
		return false
	}
	p.back = now.Add(recoveryInterval)
	if p.returns++; p.returns%recoveryPerSearch == 0 && p.MTU-p.PathMTU > 1 {
		p.search(p.PathMTU, p.MTU)
		return false
	}
	p.rest(now)
	return false
}

func (p *linkState) set(now time.Time, state string, value int) bool {
	if p.State == state && p.PathMTU == value {
		return false
	}
	p.State, p.PathMTU, p.Since = state, value, now
	return true
}
