package round

import (
	"reflect"

	"hawser.dev/hawser/nodeagent/model"
)

// exportAnnouncement has other clusters told of this cluster's exports in time: what is gone
// at once, and what is new only when this node carries it. A gateway is asked by those
// who send to it, so that its own round counts.
type exportAnnouncement struct {
	// Carries says that a round came to its end, or that the node goes on where an agent
	// before this one ended.
	Carries   bool                `json:"carries,omitempty"`
	Applied   model.ClusterState  `json:"applied"` // that the node carries
	Next      model.ClusterState  `json:"next"`    // of the round under way
	Published *model.ClusterState `json:"said,omitempty"`
}

// begin takes what the next round brings, and gives what is to be said meanwhile; nil
// where there is nothing new.
func (a exportAnnouncement) begin(next model.ClusterState) (exportAnnouncement, *model.ClusterState) {
	a.Next = next
	if !a.Carries {
		// That there are no exports would be believed.
		return a, nil
	}
	if a.Published == nil {
		a.Applied = next
	}
	return a.say(a.Applied.Intersect(next))
}

// applied follows the round; see begin.
func (a exportAnnouncement) applied() (exportAnnouncement, *model.ClusterState) {
	if a.Next.Cluster == "" {
		return a, nil
	}
	a.Carries, a.Applied = true, a.Next
	return a.say(a.Next)
}

func (a exportAnnouncement) say(live model.ClusterState) (exportAnnouncement, *model.ClusterState) {
	if a.Published != nil && reflect.DeepEqual(*a.Published, live) {
		return a, nil
	}
	a.Published = &live
	return a, a.Published
}
