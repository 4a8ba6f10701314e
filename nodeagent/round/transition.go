package round

import (
	"time"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/schema/fabric"
)

// transition is the shape that clusters leave, until all of them have gone over and
// nobody was on a former path for a while.
type transition struct {
	Shape   *fabric.Shape `json:"shape,omitempty"`
	Before  *fabric.Shape `json:"before,omitempty"` // that is left; nil = none
	Since   time.Time     `json:"since,omitzero"`
	Awaited time.Time     `json:"awaited,omitzero"` // when somebody was last seen who had not gone over
	// Former says that this node used a path of the shape that is left.
	Former bool `json:"former,omitempty"`
}

// KeptShape is what the next run has to know of the shapes.
type KeptShape struct {
	Shape  *fabric.Shape `json:"shape,omitempty"`
	Before *fabric.Shape `json:"before,omitempty"` // that is left
	Since  time.Time     `json:"since,omitzero"`
}

// restoreTransition begins with the shapes of the run before: an agent that starts in
// the middle of a change, or after one that it slept through, has what the others
// still use.
func restoreTransition(kept KeptShape, now time.Time) transition {
	return transition{Shape: kept.Shape, Before: kept.Before, Since: kept.Since, Awaited: now}
}

// kept gives what the next run has to know.
func (l transition) kept() KeptShape {
	return KeptShape{Shape: l.Shape, Before: l.Before, Since: l.Since}
}

// follow takes over what was published.
func (l transition) follow(next *fabric.Fabric, live map[string]model.ClusterState, now time.Time) transition {
	if l.Shape == nil || !projection.SameShape(*l.Shape, next.Shape) {
		if l.Shape != nil {
			l.Before, l.Since, l.Awaited = l.Shape, now, now
		}
		shape := next.Shape
		l.Shape = &shape
	}
	if l.Before == nil {
		return l
	}
	former, want := l.Former, projection.ShapeDigest(next.Shape)
	for i := range next.Clusters {
		said, heard := live[next.Clusters[i].Name]
		former = former || heard && said.Shape != want
	}
	if former {
		l.Awaited = now
	}
	window := next.Health.Interval.Std()*time.Duration(max(next.Health.Misses, 1)) + removalLeast
	if now.Sub(l.Awaited) >= window || now.Sub(l.Since) >= removalMost {
		l.Before, l.Since = nil, time.Time{}
	}
	return l
}
