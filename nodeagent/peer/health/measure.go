package health

import (
	"math"
	"time"

	"hawser.dev/hawser/nodeagent/status"
)

// window is the number of probes in the statistics. recentProbes is the number of latest probes
// whose shortest round trip determines the timeout of a probe.
const (
	windowSize   = 64
	recentProbes = 32
)

// probe is one slot of the window.
type probe struct {
	nonce    uint64
	sentAt   time.Time // zero = never used
	rtt      time.Duration
	answered bool
}

// minRTT returns the shortest round trip of the recent probes; 0 without replies.
func (t *target) minRTT() time.Duration {
	low := time.Duration(math.MaxInt64)
	for age := range uint64(min(recentProbes, t.sequence)) {
		if p := &t.probes[(t.sequence-age)%windowSize]; p.answered {
			low = min(low, p.rtt)
		}
	}
	if low == math.MaxInt64 {
		return 0
	}
	return low
}

// measurement caches the last result of measure.
type measurement struct {
	valid bool
	rtt   *status.RTT
	loss  float64
}

// summary returns the statistics as of the last probe or reply.
func (t *target) summary(now time.Time, deadline time.Duration) (*status.RTT, float64) {
	if !t.measured.valid {
		t.measured.rtt, t.measured.loss = t.measure(now, deadline)
		t.measured.valid = true
	}
	return t.measured.rtt, t.measured.loss
}

// measure computes the statistics of the window. It ignores probes whose reply may still arrive.
func (t *target) measure(now time.Time, deadline time.Duration) (*status.RTT, float64) {
	var answered, lost int
	var sum, squares float64
	low, high := time.Duration(math.MaxInt64), time.Duration(0)
	for i := range t.probes {
		p := &t.probes[i]
		switch {
		case p.answered:
			answered++
			micros := float64(p.rtt) / float64(time.Microsecond)
			sum += micros
			squares += micros * micros
			low, high = min(low, p.rtt), max(high, p.rtt)
		case !p.sentAt.IsZero() && now.Sub(p.sentAt) >= deadline:
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
		Last:   t.lastRTT.Microseconds(),
		Min:    low.Microseconds(),
		Avg:    int64(mean),
		Max:    high.Microseconds(),
		StdDev: int64(math.Sqrt(max(squares/float64(answered)-mean*mean, 0))),
	}, loss
}
