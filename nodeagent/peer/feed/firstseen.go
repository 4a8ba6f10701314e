package feed

import (
	"maps"
	"sync"
	"time"
)

const (
	// claimSlack is how much earlier than first seen the claimed creation time of an export may
	// be. Thus clusters that receive the export at slightly different times agree on its age.
	claimSlack = time.Minute
	// minRetained is how many removed exports of a cluster are retained, in addition to as many
	// as the cluster has exports.
	minRetained = 1024
)

// firstSeen stores the effective creation times of the exports of other clusters. The oldest export
// of a name wins conflicts, so a cluster must not be able to backdate an export. An export that
// appears on a running feed counts from that time. The claims of a cluster that is new to this
// agent count once, because no ages are known.
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

// hasCluster reports whether the state of a cluster was received before.
func (f *firstSeen) hasCluster(cluster string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.clusters[cluster] != nil
}

// creationTime returns the effective creation time of an export that claims a creation time. A
// trusted claim counts unless the export is known to be younger.
func (f *firstSeen) creationTime(
	cluster, export string, claimed time.Time, trusted bool,
) time.Time {
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

// retain records that the state of a cluster is complete. It removes all entries of removed exports
// if there are too many.
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
