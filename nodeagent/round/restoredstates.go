package round

import (
	"time"

	"hawser.dev/hawser/nodeagent/model"
)

// restoredClusterStates has the saved states of other clusters. A saved state is valid until the
// cluster sends a state, for at most Observed.StaleAfter.
type restoredClusterStates struct {
	StartedAt time.Time                     `json:"startedAt"`
	Saved     map[string]model.ClusterState `json:"saved,omitempty"` // never changed in place

	received map[string]model.ClusterState // by cluster
}

// update sets the received states. synced reports whether the states are complete: each cluster
// sent a state, or the saved states have expired.
func (h restoredClusterStates) update(others int, received map[string]model.ClusterState, staleAfter time.Duration, now time.Time) (next restoredClusterStates, synced bool) {
	synced = now.Sub(h.StartedAt) >= staleAfter
	if synced {
		h.Saved = nil
	}
	again := false
	for cluster := range h.Saved {
		_, is := received[cluster]
		again = again || is
	}
	if again {
		saved := make(map[string]model.ClusterState, len(h.Saved))
		for cluster := range h.Saved {
			if _, is := received[cluster]; !is {
				saved[cluster] = h.Saved[cluster]
			}
		}
		h.Saved = saved
	}
	h.received = received
	return h, synced || len(received) >= others
}

// saved returns the states for the next agent: received states, and saved states of silent
// clusters.
func (h restoredClusterStates) saved() map[string]model.ClusterState {
	all := map[string]model.ClusterState{}
	for _, source := range []map[string]model.ClusterState{h.Saved, h.received} {
		for cluster, state := range source {
			if slim := trimForSave(state); len(slim.Exports) > 0 {
				all[cluster] = slim
			}
		}
	}
	return all
}

// trimForSave returns the part of a state to save: exports with an offer, hosts or limited families.
func trimForSave(state model.ClusterState) model.ClusterState {
	out := model.ClusterState{Cluster: state.Cluster}
	for _, e := range state.Exports {
		if e.Offer != nil || len(e.Hosts)+len(e.Families) > 0 {
			out.Exports = append(out.Exports, e)
		}
	}
	return out
}
