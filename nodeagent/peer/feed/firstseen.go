package feed

import (
	"maps"
	"sync"
	"time"
)

const (
	// ageSlack is how long before it is seen an export may say that it was made, so
	// that clusters which hear of it a little apart agree.
	ageSlack = time.Minute
	// maxGone is how many exports of one cluster that are gone are remembered at
	// least; beyond that at most as many as there are.
	maxGone = 1024
)

// firstSeen remembers since when exports of other clusters count. The oldest export of a
// name has its way, so a cluster must not say later that it was there before: what
// appears in a feed that stood counts from then on. Of a cluster that was never heard
// nothing is known, and what it says first counts.
type firstSeen struct {
	now     func() time.Time
	changed func() // may be nil

	mu    sync.Mutex
	since map[string]map[string]time.Time // by cluster and namespace/name
}

func newAges(now func() time.Time) *firstSeen {
	return &firstSeen{now: now, since: map[string]map[string]time.Time{}}
}

// restore begins with what kept gave once.
func (a *firstSeen) restore(since map[string]map[string]time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for cluster, exports := range since {
		a.since[cluster] = maps.Clone(exports)
	}
}

// kept gives a copy of all that is remembered.
func (a *firstSeen) kept() map[string]map[string]time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make(map[string]map[string]time.Time, len(a.since))
	for cluster, exports := range a.since {
		out[cluster] = maps.Clone(exports)
	}
	return out
}

// knows reports whether a cluster was heard before.
func (a *firstSeen) knows(cluster string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.since[cluster] != nil
}

// of gives since when an export counts that says when it was made. With trust it
// counts as it says, unless it is known to be younger.
func (a *firstSeen) of(cluster, key string, said time.Time, trust bool) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	since, known := a.since[cluster][key]
	switch {
	case known && !said.After(since):
		return since
	case known, trust:
		since = said
	default:
		if since = a.now().UTC().Truncate(time.Second); said.After(since.Add(-ageSlack)) {
			since = said
		}
	}
	if a.since[cluster] == nil {
		a.since[cluster] = map[string]time.Time{}
	}
	a.since[cluster][key] = since
	return since
}

// heard notes that all is here that a cluster said, and forgets what went long ago.
func (a *firstSeen) heard(cluster string, present map[string]sized) {
	a.mu.Lock()
	known := a.since[cluster]
	if known == nil {
		known = map[string]time.Time{}
		a.since[cluster] = known
	}
	if len(known) > 2*len(present)+maxGone {
		maps.DeleteFunc(known, func(key string, _ time.Time) bool { _, stays := present[key]; return !stays })
	}
	a.mu.Unlock()
	if a.changed != nil {
		a.changed()
	}
}
