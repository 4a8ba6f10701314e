package round

import (
	"time"

	"hawser.dev/hawser/nodeagent/model"
)

// restoredLive has the saved states of other clusters. A saved state is valid until the cluster
// sends a state, for at most Observed.Stale.
type restoredLive struct {
	StartedAt time.Time                     `json:"startedAt"`
	Saved     map[string]model.ClusterState `json:"saved,omitempty"` // never changed in place

	live map[string]model.ClusterState // current states
}

// update sets the received states. synced reports whether the states are complete: each cluster
// sent a state, or the saved states have expired.
func (h restoredLive) update(others int, live map[string]model.ClusterState, stale time.Duration, now time.Time) (next restoredLive, synced bool) {
	synced = now.Sub(h.StartedAt) >= stale
	if synced {
		h.Saved = nil
	}
	again := false
	for cluster := range h.Saved {
		_, is := live[cluster]
		again = again || is
	}
	if again {
		saved := make(map[string]model.ClusterState, len(h.Saved))
		for cluster := range h.Saved {
			if _, is := live[cluster]; !is {
				saved[cluster] = h.Saved[cluster]
			}
		}
		h.Saved = saved
	}
	h.live = live
	return h, synced || len(live) >= others
}

// saved returns the states for the next agent: received states, and saved states of silent
// clusters.
func (h restoredLive) saved() map[string]model.ClusterState {
	all := map[string]model.ClusterState{}
	for _, source := range []map[string]model.ClusterState{h.Saved, h.live} {
		for cluster, live := range source {
			if slim := trimForSave(live); len(slim.Exports) > 0 {
				all[cluster] = slim
			}
		}
	}
	return all
}

// trimForSave returns the part of a state to save: exports with an offer, hosts or limited families.
func trimForSave(live model.ClusterState) model.ClusterState {
	out := model.ClusterState{Cluster: live.Cluster}
	for _, e := range live.Exports {
		if e.Offer != nil || len(e.Hosts)+len(e.Families) > 0 {
			out.Exports = append(out.Exports, e)
		}
	}
	return out
}
