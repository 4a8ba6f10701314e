package transport

import "time"

// RateLimiter is a token bucket that limits replies. The zero value is full. It is not safe for
// concurrent use. Times may be out of order, because goroutines that read different sockets read
// the clock before they lock.
type RateLimiter struct {
	tokens     float64
	lastRefill time.Time
}

// Allow removes a token and reports whether there was one. rate is the number of tokens per second,
// and the size of the bucket.
func (l *RateLimiter) Allow(now time.Time, rate float64) bool {
	// lastRefill never goes back, so that no time is counted twice.
	if l.lastRefill.IsZero() {
		l.tokens, l.lastRefill = rate, now
	} else if elapsed := now.Sub(l.lastRefill); elapsed > 0 {
		l.tokens, l.lastRefill = min(l.tokens+elapsed.Seconds()*rate, rate), now
	}
	if l.tokens < 1 {
		return false
	}
	l.tokens--
	return true
}
