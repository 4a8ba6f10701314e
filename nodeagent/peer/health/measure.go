package health

import (
	"math"
	"time"

	"hawser.dev/hawser/nodeagent/status"
)

// window is the number of probes in the statistics. recent is the number of latest probes; their
// shortest round trip determines the timeout of a probe.
const (
	window = 64
	recent = 32
)

// probe is one slot of the window.
type probe struct {
	nonce uint64
	at    time.Time // zero = never used
	rtt   time.Duration
	done  bool
}

// minRTT returns the shortest round trip of the recent probes; 0 without replies.
func (t *target) minRTT() time.Duration {
	low := time.Duration(math.MaxInt64)
	for back := range uint64(min(recent, t.sequence)) {
		if p := &t.probes[(t.sequence-back)%window]; p.done {
			low = min(low, p.rtt)
		}
	}
	if low == math.MaxInt64 {
		return 0
	}
	return low
}

// measurement caches the last result of measure, because most links change seldom.
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

// measure computes the statistics of the window. It ignores probes that still may get a reply.
func (t *target) measure(now time.Time, deadline time.Duration) (*status.RTT, float64) {
	var answered, lost int
	var sum, squares float64
	low, high := time.Duration(math.MaxInt64), time.Duration(0)
	for i := range t.probes {
		p := &t.probes[i]
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
