package round

import (
	"cmp"
	"time"

	"hawser.dev/hawser/nodeagent/model"
)

// holdDownTime is how long the path to a cluster lives again before clusterset addresses use that
// cluster as well: each of thousands of slots changes then, which must not hold up what the
// return of the path itself asks for, nor happen for a path that is lost again.
const holdDownTime = 5 * time.Second

// holdDown is since when paths live again, by remote cluster, for rejoin; the zero time for those
// that lived and are down. One that comes up for the first time has nothing to prove, and in
// the first moments of an agent it is not known which those are.
type holdDown map[string]time.Time

// apply marks the paths as down that were down a moment ago; last are those before, and the
// agent began at a time. It says when the next of them is not any more; 0 = there is none.
func (b holdDown) apply(began time.Time, last map[string]activePath, paths map[string]model.Path, now time.Time) (next holdDown, again time.Duration) {
	for remote, path := range paths {
		since, was := b[remote]
		have, known := last[remote]
		switch {
		case path.Down && (was || known && !have.Down && now.Sub(began) >= holdDownTime):
			since, was = time.Time{}, true
		case since.IsZero():
			since = now
		}
		left := since.Add(holdDownTime).Sub(now)
		if !was || !path.Down && left <= 0 {
			continue
		}
		if next == nil {
			next = holdDown{}
		}
		next[remote] = since
		if path.Down {
			continue
		}
		again = min(cmp.Or(again, left), left)
		path.Down = true
		paths[remote] = path
	}
	return next, again
}
