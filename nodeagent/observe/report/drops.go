package report

import (
	"sync"
	"time"

	"hawser.dev/hawser/nodeagent/status"
)

// dropWindow is the time for which the agent reports dropped packets after the last drop.
const dropWindow = time.Minute

// recentDrops tracks the counters of dropped packets. It is safe for concurrent use.
type recentDrops struct {
	mu       sync.Mutex
	counters map[string]dropCounter // by reason
}

type dropCounter struct {
	packets     uint64
	increasedAt time.Time // time of the last increase; zero = none
}

// reasons returns the reasons whose counter increased within dropWindow. The first value of a
// counter is only a baseline, because the packets may be old. A counter restarts at zero when the
// agent writes the rules again.
func (d *recentDrops) reasons(dropped []status.Dropped, now time.Time) map[string]bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[string]bool{}
	if d.counters == nil {
		d.counters = map[string]dropCounter{}
	}
	for _, drop := range dropped {
		c, known := d.counters[drop.Reason]
		if known && drop.Packets > c.packets {
			c.increasedAt = now
		}
		c.packets = drop.Packets
		d.counters[drop.Reason] = c
	}
	for reason, c := range d.counters {
		if !c.increasedAt.IsZero() && now.Sub(c.increasedAt) < dropWindow {
			out[reason] = true
		}
	}
	return out
}
