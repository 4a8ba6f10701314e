package round

import (
	"time"

	"hawser.dev/hawser/nodeagent/model"
)

// heard is what other clusters said before the agent was started. It counts for
// those that were not heard since, as long as what a lost feed said would.
type heard struct {
	Began time.Time             `json:"began"`
	Kept  map[string]model.Live `json:"kept,omitempty"` // replaced as a whole

	live map[string]model.Live // as it is now
}

// follow takes over what is heard now, and says whether clusters that are silent are
// lost: without having been heard for the time after which a lost feed does not count.
func (h heard) follow(others int, live map[string]model.Live, stale time.Duration, now time.Time) (next heard, settled bool) {
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
		kept := make(map[string]model.Live, len(h.Kept))
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
func (h heard) kept() map[string]model.Live {
	all := map[string]model.Live{}
	for _, source := range []map[string]model.Live{h.Kept, h.live} {
		for cluster, live := range source {
			if slim := offered(live); len(slim.Exports) > 0 {
				all[cluster] = slim
			}
		}
	}
	return all
}

// offered leaves what has to outlive the agent: exports with an offer, and hosts.
func offered(live model.Live) model.Live {
	out := model.Live{Cluster: live.Cluster}
	for _, e := range live.Exports {
		if e.Offer != nil || len(e.Hosts) > 0 {
			out.Exports = append(out.Exports, e)
		}
	}
	return out
}
