package round

import (
	"time"

	"hawser.dev/hawser/nodeagent/model"
)

// rejoin is how long the path to a cluster lives again before clusterset addresses use that
// cluster as well: each of thousands of slots changes then, which must not hold up what the
// return of the path itself asks for, nor happen for a path that is lost again.
const rejoin = 5 * time.Second

// back is since when paths live again, by remote cluster, for rejoin.
type back map[string]time.Time

// follow marks the paths as down that were down a moment ago; last are those before. It says
// when the next of them is not any more; 0 = there is none.
func (b back) follow(last map[string]chosen, paths map[string]model.Path, now time.Time) (next back, again time.Duration) {
	for remote, path := range paths {
		since, was := b[remote]
		if have, known := last[remote]; known && have.Down && !path.Down {
			since, was = now, true
		}
		left := since.Add(rejoin).Sub(now)
		if !was || path.Down || left <= 0 {
			continue
		}
		if next == nil {
			next = back{}
		}
		if again == 0 || left < again {
			again = left
		}
		path.Down = true
		next[remote], paths[remote] = since, path
	}
	return next, again
}
