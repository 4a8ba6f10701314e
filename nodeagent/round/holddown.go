package round

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"hawser.dev/hawser/nodeagent/model"
)

// holdDownTime is the time that a path has to live again before clusterset addresses
// use its cluster. Thousands of slots change at that moment. That must not delay what
// the path itself needs, nor happen for a path that is lost again.
const holdDownTime = 5 * time.Second

// holdDown has, by remote cluster, since when a path lives that was down; zero = it is
// still down. A path that comes up for the first time is not held down. During the
// first moments of an agent every path counts as one of these.
type holdDown map[string]time.Time

// update returns the state after a selection of paths, and the clusters whose paths
// live and are held down. began is the start of the agent, last the selection before.
// The first of them expires after a time; 0 = none.
func (h holdDown) update(began time.Time, last map[string]activePath, paths map[string]model.Path, now time.Time) (next holdDown, held []string, expires time.Duration) {
	for _, remote := range slices.Sorted(maps.Keys(paths)) {
		since, wasDown := h[remote]
		have, known := last[remote]
		lost := known && !have.Down && now.Sub(began) >= holdDownTime
		switch {
		case paths[remote].Down && (wasDown || lost):
			since = time.Time{}
		case paths[remote].Down || !wasDown:
			continue
		default:
			if since.IsZero() {
				since = now
			}
			left := since.Add(holdDownTime).Sub(now)
			if left <= 0 {
				continue
			}
			held = append(held, remote)
			expires = min(cmp.Or(expires, left), left)
		}
		if next == nil {
			next = holdDown{}
		}
		next[remote] = since
	}
	return next, held, expires
}
