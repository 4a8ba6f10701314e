package health

import (
	"math"
	"time"

	"hawser.dev/hawser/nodeagent/status"
)

// window is the number of probes that the statistics cover. It is a power of
// two, so that the sequence number may wrap around.
const window = 64

// target is the state of one Target. The Prober's mutex guards it.
type target struct {
	Target
	due   time.Time
	index int // in the schedule; -1 = not in it

	state    string
	since    time.Time
	initial  bool
	missed   int // probes in a row without an answer
	answered int // probes in a row with one
	sequence uint32
	last     time.Duration // of the last answered probe; 0 = none yet
	probes   [window]probe

	reach      map[uint64]struct{}
	generation uint64
	pages      pages
}

// probe is one slot of the window.
type probe struct {
	nonce uint64
	at    time.Time // zero = never used
	rtt   time.Duration
	done  bool
}

func newTarget(t Target, now time.Time, initial bool) *target {
	return &target{Target: t, state: status.Connecting, since: now, initial: initial, index: -1}
}

// tick notes that the next probe is due and makes it. It reports whether the
// state changed, because the probes before it went unanswered.
func (t *target) tick(now time.Time, nonce uint64, misses int) (changed bool) {
	if t.sequence > 0 && !t.probes[t.sequence%window].done {
		t.missed++
		t.answered = 0
	}
	if t.missed >= max(misses, 1) && t.state != status.Disconnected {
		t.set(status.Disconnected, now)
		t.reach, t.generation, t.pages = nil, 0, pages{}
		changed = true
	}
	if t.sequence++; t.sequence == 0 {
		t.sequence = window // 0 means that no probe was sent yet
	}
	t.probes[t.sequence%window] = probe{nonce: nonce, at: now}
	return changed
}

// answer notes a reply. It reports whether the reply matches a probe, and
// whether the state changed. A dead link needs as many answers in a row to come
// back as it needed misses to die, so that a bad line does not flap.
func (t *target) answer(now time.Time, m *message, misses int) (matched, changed bool) {
	slot := &t.probes[m.sequence%window]
	if !t.accepts(m) || slot.done {
		return false, false
	}
	slot.done, slot.rtt = true, now.Sub(slot.at)
	t.last = slot.rtt
	t.missed = 0
	t.answered++
	if t.state == status.Connecting || t.state == status.Disconnected && t.answered >= max(misses, 1) {
		t.set(status.Connected, now)
		return true, true
	}
	return true, false
}

// accepts reports whether a reply belongs to a probe of the window.
func (t *target) accepts(m *message) bool {
	slot := &t.probes[m.sequence%window]
	return t.sequence-m.sequence < window && !slot.at.IsZero() && slot.nonce == m.nonce
}

func (t *target) set(state string, now time.Time) {
	t.state, t.since, t.initial = state, now, false
}

func (t *target) link(now time.Time, deadline time.Duration) Link {
	out := Link{Target: t.Target, State: t.state, Since: t.since, Initial: t.initial, reach: t.reach}
	out.RTT, out.Loss = t.measure(now, deadline)
	if out.Rank = Good; !out.Alive() {
		out.Rank, out.Why = Down, "no answer"
	}
	if out.RTT != nil {
		out.LeastRTT = time.Duration(out.RTT.Min) * time.Microsecond
	}
	return out
}

// measure sums up the window. Probes that may still be answered do not count.
func (t *target) measure(now time.Time, deadline time.Duration) (*status.RTT, float64) {
	var answered, lost int
	var sum, squares float64
	low, high := time.Duration(math.MaxInt64), time.Duration(0)
	for _, p := range t.probes {
		switch {
		case p.done:
			answered++
			micros := float64(p.rtt) / float64(time.Microsecond)
			sum += micros
			squares += micros * micros
			low, high = min(low, p.rtt), max(high, p.rtt)
		case !p.at.IsZero() && now.Sub(p.at) >= deadline:
			lost++
		}
	}
	if answered+lost == 0 {
		return nil, 0
	}
	loss := float64(lost) / float64(answered+lost)
	if answered == 0 {
		return nil, loss
	}
	mean := sum / float64(answered)
	return &status.RTT{
		Last:   t.last.Microseconds(),
		Min:    low.Microseconds(),
		Avg:    int64(mean),
		Max:    high.Microseconds(),
		StdDev: int64(math.Sqrt(max(squares/float64(answered)-mean*mean, 0))),
	}, loss
}
