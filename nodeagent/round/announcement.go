package round

import (
	"reflect"

	"hawser.dev/hawser/nodeagent/model"
)

// exportAnnouncement decides when this node announces changed exports to other clusters. It
// announces removals at once, and new exports after this node has applied them. Other clusters read
// the state from the gateway to which they send, so each gateway waits for its own round.
type exportAnnouncement struct {
	// Active reports whether a round has completed, or the previous agent left tunnels in use.
	Active    bool                `json:"active,omitempty"`
	Applied   model.ClusterState  `json:"applied"` // by this node
	Next      model.ClusterState  `json:"next"`    // of the current round
	Announced *model.ClusterState `json:"announced,omitempty"`
}

// startRound starts a round with new exports and returns the state to announce during it; nil if
// unchanged.
func (a exportAnnouncement) startRound(next model.ClusterState) (exportAnnouncement, *model.ClusterState) {
	a.Next = next
	if !a.Active {
		// If the state were empty, other clusters would remove all exports of this cluster.
		return a, nil
	}
	if a.Announced == nil {
		a.Applied = next
	}
	return a.announce(a.Applied.Intersect(next))
}

// finishRound returns the state to announce after the round; nil if unchanged.
func (a exportAnnouncement) finishRound() (exportAnnouncement, *model.ClusterState) {
	if a.Next.Cluster == "" {
		return a, nil
	}
	a.Active, a.Applied = true, a.Next
	return a.announce(a.Next)
}

func (a exportAnnouncement) announce(state model.ClusterState) (exportAnnouncement, *model.ClusterState) {
	if a.Announced != nil && reflect.DeepEqual(*a.Announced, state) {
		return a, nil
	}
	a.Announced = &state
	return a, a.Announced
}
