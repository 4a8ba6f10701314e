package flows

import "time"

// Knocks leave in bursts, so that neither this node nor the gateway, which makes
// an entry for each, stalls on them.
const (
	burst    = 128
	interval = 10 * time.Millisecond
	// maxKnocks bounds one round. TCP comes first, then UDP that was answered.
	maxKnocks = 50_000
)

// pause is how long to wait before the next knock, when so many were sent in
// the time since the first.
func pause(sent int, since time.Duration) time.Duration {
	return max(time.Duration(sent/burst)*interval-since, 0)
}
