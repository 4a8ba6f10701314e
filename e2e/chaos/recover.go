package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// recovery is how one flow came back.
type recovery struct {
	name string
	took time.Duration // after the last heal
	err  error         // it was late
	back bool          // but it came
}

func (r recovery) end() string {
	if r.back {
		return fmt.Sprintf("back after %.1fs", r.took.Seconds())
	}
	return fmt.Sprintf("not back after %.0fs", r.took.Seconds())
}

// recover waits for every flow; soon and soonHeld end when they are late. What is
// late is waited for nevertheless, to tell late from never.
func (s *scene) recover(soon, soonHeld context.Context, healed time.Time) []recovery {
	out := make([]recovery, len(s.flows))
	var group sync.WaitGroup
	for i, f := range s.flows {
		group.Go(func() {
			limit := soon
			if _, isHeld := f.(*held); isHeld {
				limit = soonHeld
			}
			r := recovery{name: f.String(), back: true}
			if r.err = f.back(limit); r.err != nil {
				long, cancel := context.WithTimeout(context.WithoutCancel(soon), reallyLate)
				defer cancel()
				r.back = f.back(long) == nil
			}
			r.took = time.Since(healed)
			out[i] = r
		})
	}
	group.Wait()
	return out
}

func slowest(all []recovery) recovery {
	var out recovery
	for _, r := range all {
		if r.took > out.took {
			out = r
		}
	}
	return out
}
