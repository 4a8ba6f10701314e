package round

import (
	"time"

	"hawser.dev/hawser/nodeagent/model"
)

// restoredLive is what other clusters said before the agent was started. It counts for
// those that were not heard since, as long as what a lost feed said would.
type restoredLive struct {
	Began time.Time                     `json:"began"`
	Kept  map[string]model.ClusterState `json:"kept,omitempty"` // replaced as a whole

	live map[string]model.ClusterState // as it is now
}

// follow takes over what is heard now, and says whether clusters that are silent are
// lost: without having been heard for the time after which a lost feed does not count.
func (h restoredLive) follow(others int, live map[string]model.ClusterState, stale time.Duration, now time.Time) (next restoredLive, settled bool) {
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

// kept gives what the next run has to know: what is kept until a cluster is heard anew,
// and what is heard.
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

// trimForSave leaves what has to outlive the agent: exports with an offer, and hosts.
func trimForSave(live model.ClusterState) model.ClusterState {
	out := model.ClusterState{Cluster: live.Cluster}
	for _, e := range live.Exports {
		if e.Offer != nil || len(e.Hosts) > 0 {
			out.Exports = append(out.Exports, e)
		}
	}
	return out
}
