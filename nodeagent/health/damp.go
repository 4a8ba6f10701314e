package health

import (
	"fmt"
	"time"
)

// A link that fell fallsAllowed times within fallsWithin is held back as
// Unsteady until it was up for holdFor.
const (
	fallsAllowed = 3
	fallsWithin  = time.Minute
	holdFor      = 30 * time.Second
)

// damper remembers the falls of a link.
type damper struct {
	falls [8]time.Time // the last ones, as a ring
	next  int
	held  time.Time // Unsteady until then; zero = never was
	many  int       // falls that led to it
}

func (d *damper) fall(now time.Time) {
	d.falls[d.next%len(d.falls)] = now
	d.next++
	d.hold(now)
}

// hold begins the time anew: after a fall, and when the link comes back.
func (d *damper) hold(now time.Time) {
	if many := d.count(now); many >= fallsAllowed {
		d.held, d.many = now.Add(holdFor), many
	}
}

// count counts the falls of the last minute; more than it remembers do not matter.
func (d *damper) count(now time.Time) int {
	many := 0
	for _, at := range d.falls {
		if !at.IsZero() && now.Sub(at) < fallsWithin {
			many++
		}
	}
	return many
}

func (d *damper) holds(now time.Time) bool { return now.Before(d.held) }

func (d *damper) why() string {
	return fmt.Sprintf("%d falls in 60 s, held until %s", d.many, d.held.UTC().Format(time.TimeOnly))
}
