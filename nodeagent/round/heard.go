package round

import (
	"time"

	"hawser.dev/hawser/nodeagent/model"
)

// restoredLive has the saved states of other clusters. The state of a cluster without a message since
// the start is valid for the same time as after the loss of its feed.
type restoredLive struct {
	Began time.Time                     `json:"began"`
	Kept  map[string]model.ClusterState `json:"kept,omitempty"` // never changed in place

	live map[string]model.ClusterState // current states
}

// update sets the received states. settled reports whether the states are complete: each cluster sent one, or
// the saved states expired.
func (h restoredLive) update(others int, live map[string]model.ClusterState, stale time.Duration, now time.Time) (next restoredLive, settled bool) {
	settled = now.Sub(h.Began) >= stale
	if settled {
		h.Kept = nil
	}
	again := false
	for cluster := range h.Kept {
		_, is := live[cluster]
		again = again || is
	}
	if again {
		kept := make(map[string]model.ClusterState, len(h.Kept))
		for cluster := range h.Kept {
			if _, is := live[cluster]; !is {
				kept[cluster] = h.Kept[cluster]
			}
		}
		h.Kept = kept
	}
	h.live = live
	return h, settled || len(live) >= others
}

// kept returns the states for the next agent: the received ones, and the saved ones of silent clusters.
func (h restoredLive) kept() map[string]model.ClusterState {
	all := map[string]model.ClusterState{}
	for _, source := range []map[string]model.ClusterState{h.Kept, h.live} {
		for cluster, live := range source {
			if slim := trimForSave(live); len(slim.Exports) > 0 {
				all[cluster] = slim
			}
		}
	}
	return all
}

// trimForSave returns the part of a state to save: exports with an offer, and hosts.
func trimForSave(live model.ClusterState) model.ClusterState {
	out := model.ClusterState{Cluster: live.Cluster}
	for _, e := range live.Exports {
		if e.Offer != nil || len(e.Hosts) > 0 {
			out.Exports = append(out.Exports, e)
		}
	}
	return out
}
