package transport

import "time"

// Bucket is a token bucket, by which machines bound what they answer. Its zero value is
// full.
type Bucket struct {
	tokens float64
	at     time.Time
}

// Take takes a token from a bucket that is filled at a rate per second, and
// holds as many.
func (b *Bucket) Take(now time.Time, rate float64) bool {
	// Two readers may come with their times in the wrong order: at never goes back.
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
