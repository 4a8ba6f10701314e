package round

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"hawser.dev/hawser/nodeagent/model"
)

// holdDownTime is the time for which a path must be up again before clusterset IPs use its cluster.
// Then thousands of map slots change. This must not delay the changes of the path itself, and must
// not happen for a path that fails again.
const holdDownTime = 5 * time.Second

// holdDown has, by remote cluster, the time since which a path that was down is up again; zero =
// still down. A path that comes up for the first time is not held down. Neither is a path that goes
// down within holdDownTime after the start of the agent.
type holdDown map[string]time.Time

// update returns the state after a selection of paths, and the clusters whose paths are up and held
// down. startedAt is the start of the agent, last the previous selection. expires is the time until
// the first hold-down ends; 0 = no hold-down.
func (h holdDown) update(startedAt time.Time, last map[string]activePath, paths map[string]model.Path, now time.Time) (next holdDown, held []string, expires time.Duration) {
	for _, remote := range slices.Sorted(maps.Keys(paths)) {
		since, wasDown := h[remote]
		have, known := last[remote]
		lost := known && !have.Down && now.Sub(startedAt) >= holdDownTime
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
