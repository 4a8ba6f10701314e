package transport

import (
	"testing"
	"time"
)

// TestBucket checks that a flood gets one burst and the rate, even if the times of two readers
// interleave.
func TestBucket(t *testing.T) {
	t.Parallel()
	const rate, flood = 2000, 20000
	for _, skew := range []time.Duration{0, time.Millisecond, time.Second} {
		var b RateLimiter
		allowed, now := 0, time.Unix(1e9, 0)
		for i := range 5 * flood {
			now = now.Add(time.Second / flood)
			at := now
			if i%2 == 1 {
				at = now.Add(-skew)
			}
			if b.Allow(at, rate) {
				allowed++
			}
		}
		if want := rate + 5*rate; allowed < want-1 || allowed > want {
			t.Errorf("times %s apart: %d allowed, want %d", skew, allowed, want)
		}
	}
}
