package round

import (
	"reflect"

	"hawser.dev/hawser/nodeagent/model"
)

// announcement has other clusters told of this cluster's exports in time: what is gone
// at once, and what is new only when this node carries it. A gateway is asked by those
// who send to it, so that its own round counts.
type announcement struct {
	// Carries says that a round came to its end, or that the node goes on where an agent
	// before this one ended.
	Carries bool        `json:"carries,omitempty"`
	Applied model.Live  `json:"applied"` // that the node carries
	Next    model.Live  `json:"next"`    // of the round under way
	Said    *model.Live `json:"said,omitempty"`
}

// begin takes what the next round brings, and gives what is to be said meanwhile; nil
// where there is nothing new.
func (a announcement) begin(next model.Live) (announcement, *model.Live) {
	a.Next = next
	if !a.Carries {
		// That there are no exports would be believed.
		return a, nil
	}
	if a.Said == nil {
		a.Applied = next
	}
	return a.say(a.Applied.Until(next))
}

// applied follows the round; see begin.
func (a announcement) applied() (announcement, *model.Live) {
	if a.Next.Cluster == "" {
		return a, nil
	}
	a.Carries, a.Applied = true, a.Next
	return a.say(a.Next)
}

func (a announcement) say(live model.Live) (announcement, *model.Live) {
	if a.Said != nil && reflect.DeepEqual(*a.Said, live) {
		return a, nil
	}
	a.Said = &live
	return a, a.Said
}
