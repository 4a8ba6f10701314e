package transport

import "time"

// RateLimiter is a token bucket that limits replies. The zero value is full. It is not safe for
// concurrent use, but its callers may pass times out of order: goroutines that read several sockets
// take their times before they lock.
type RateLimiter struct {
	tokens float64
	at     time.Time
}

// Allow takes a token and reports whether there was one. The bucket is refilled at a rate per second,
// and has as many tokens at most.
func (b *RateLimiter) Allow(now time.Time, rate float64) bool {
	// at never goes back: a second of the past would be refilled twice.
	if b.at.IsZero() {
		b.tokens, b.at = rate, now
	} else if passed := now.Sub(b.at); passed > 0 {
		b.tokens, b.at = min(b.tokens+passed.Seconds()*rate, rate), now
	}
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
