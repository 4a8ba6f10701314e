package round

import (
	"time"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/schema/fabric"
)

// transition has the former shape until no cluster has used it for a while, for at most removalMax.
type transition struct {
	Shape    *fabric.Shape `json:"shape,omitempty"`
	Before   *fabric.Shape `json:"before,omitempty"` // former shape; nil = none
	Since    time.Time     `json:"since,omitzero"`
	LastUsed time.Time     `json:"lastUsed,omitzero"` // when a cluster last used the former shape
	// Former reports whether this node used a path of the former shape in the last round.
	Former bool `json:"former,omitempty"`
}

// SavedShape is the saved transition.
type SavedShape struct {
	Shape  *fabric.Shape `json:"shape,omitempty"`
	Before *fabric.Shape `json:"before,omitempty"` // former topology
	Since  time.Time     `json:"since,omitzero"`
}

// restoreTransition starts with the saved shapes. An agent that starts during a change, or missed a
// change, then knows the paths that other clusters still use.
func restoreTransition(saved SavedShape, now time.Time) transition {
	return transition{Shape: saved.Shape, Before: saved.Before, Since: saved.Since, LastUsed: now}
}

// saved returns the shapes for the next agent.
func (l transition) saved() SavedShape {
	return SavedShape{Shape: l.Shape, Before: l.Before, Since: l.Since}
}

// update applies a published fabric.
func (l transition) update(next *fabric.Fabric, states map[string]model.ClusterState, now time.Time) transition {
	if l.Shape == nil || !projection.SameShape(*l.Shape, next.Shape) {
		if l.Shape != nil {
			l.Before, l.Since, l.LastUsed = l.Shape, now, now
		}
		shape := next.Shape
		l.Shape = &shape
	}
	if l.Before == nil {
		return l
	}
	former, want := l.Former, projection.ShapeDigest(next.Shape)
	for i := range next.Clusters {
		state, ok := states[next.Clusters[i].Name]
		former = former || ok && state.Shape != want
	}
	if former {
		l.LastUsed = now
	}
	window := next.Health.Interval.Std()*time.Duration(max(next.Health.Misses, 1)) + removalMin
	if now.Sub(l.LastUsed) >= window || now.Sub(l.Since) >= removalMax {
		l.Before, l.Since = nil, time.Time{}
	}
	return l
}
