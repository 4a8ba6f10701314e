package feed

import (
	"maps"
	"sync"
	"time"
)

const (
	// claimSlack bounds how much older than its first sight an export may claim to be. Clusters that
	// receive it at slightly different times agree.
	claimSlack = time.Minute
	// minRetained is the number of removed exports of a cluster that are retained at least. Beyond
	// it, as many are retained as the cluster has exports.
	minRetained = 1024
)

// firstSeen stores since when the exports of other clusters count. The oldest export of a name
// wins conflicts, so a cluster must not claim later that its export is older: an export that
// appears on a running feed counts from then on. A cluster that is new to this agent is believed
// once, because nothing else is known.
type firstSeen struct {
	now      func() time.Time
	onChange func() // may be nil

	mu       sync.Mutex
	clusters map[string]map[string]time.Time // by cluster and namespace/name
}

func newFirstSeen(now func() time.Time, onChange func()) *firstSeen {
	return &firstSeen{now: now, onChange: onChange, clusters: map[string]map[string]time.Time{}}
}

// restore loads the times that a previous agent saved.
func (f *firstSeen) restore(saved map[string]map[string]time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for cluster, exports := range saved {
		f.clusters[cluster] = maps.Clone(exports)
	}
}

// saved returns a copy for restore.
func (f *firstSeen) saved() map[string]map[string]time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make(map[string]map[string]time.Time, len(f.clusters))
	for cluster, exports := range f.clusters {
		out[cluster] = maps.Clone(exports)
	}
	return out
}

// knows reports whether the state of a cluster was received before.
func (f *firstSeen) knows(cluster string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.clusters[cluster] != nil
}

// created returns since when an export counts that claims a creation time. A trusted claim counts
// unless the export is known to be younger.
func (f *firstSeen) created(cluster, export string, claimed time.Time, trusted bool) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	since, known := f.clusters[cluster][export]
	switch {
	case known && !claimed.After(since):
		return since
	case known, trusted:
		since = claimed
	default:
		if since = f.now().UTC().Truncate(time.Second); claimed.After(since.Add(-claimSlack)) {
			since = claimed
		}
	}
	if f.clusters[cluster] == nil {
		f.clusters[cluster] = map[string]time.Time{}
	}
	f.clusters[cluster][export] = since
	return since
}

// retain records that the state of a cluster is complete. It removes the oldest entries of removed
// exports if there are too many.
func (f *firstSeen) retain(cluster string, present map[string]receivedExport) {
	f.mu.Lock()
	known := f.clusters[cluster]
	if known == nil {
		known = map[string]time.Time{}
		f.clusters[cluster] = known
	}
	if len(known) > 2*len(present)+minRetained {
		maps.DeleteFunc(known, func(export string, _ time.Time) bool { _, exists := present[export]; return !exists })
	}
	f.mu.Unlock()
	if f.onChange != nil {
		f.onChange()
	}
}
