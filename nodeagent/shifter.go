package nodeagent

import (
	"sync/atomic"
	"time"

	"hawser.dev/hawser/nodeagent/project"
	"hawser.dev/hawser/schema/fabric"
)

// shifter keeps the shape that clusters leave, until all of them have gone over
// and nobody was on a former way for a while. Only the engine's goroutine uses it,
// but for keep.
type shifter struct {
	have    *fabric.Shape
	before  *fabric.Shape
	since   time.Time
	awaited time.Time // when somebody was last seen who had not gone over
	kept    atomic.Pointer[keptShape]
}

// keptShape is what the next run has to know of the shapes.
type keptShape struct {
	Shape  *fabric.Shape `json:"shape,omitempty"`
	Before *fabric.Shape `json:"before,omitempty"` // that is left
	Since  time.Time     `json:"since,omitzero"`
}

// restore begins with the shapes of the run before: an agent that starts in the
// middle of a change, or after one that it slept through, has what the others
// still use.
func (l *shifter) restore(kept keptShape, now time.Time) {
	l.have, l.before, l.since, l.awaited = kept.Shape, kept.Before, kept.Since, now
	l.kept.Store(&kept)
}

// keep gives what the next run has to know. It may be called from any goroutine.
func (l *shifter) keep() keptShape {
	if kept := l.kept.Load(); kept != nil {
		return *kept
	}
	return keptShape{}
}

// follow takes over what was published, and gives the shape that is left; nil = none.
func (l *shifter) follow(next *fabric.Fabric, former bool, live map[string]project.Live, now time.Time) *fabric.Shape {
	if l.have != nil && !project.SameShape(*l.have, next.Shape) {
		l.before, l.since, l.awaited = l.have, now, now
	}
	if l.have == nil || !project.SameShape(*l.have, next.Shape) {
		shape := next.Shape
		l.have = &shape
	}
	l.expire(next, former, live, now)
	l.kept.Store(&keptShape{Shape: l.have, Before: l.before, Since: l.since})
	return l.before
}

// expire gives up the shape that is left when its time is over.
func (l *shifter) expire(next *fabric.Fabric, former bool, live map[string]project.Live, now time.Time) {
	if l.before == nil {
		return
	}
	want := project.ShapeDigest(next.Shape)
	for i := range next.Clusters {
		said, heard := live[next.Clusters[i].Name]
		former = former || heard && said.Shape != want
	}
	if former {
		l.awaited = now
	}
	window := next.Health.Interval.Std()*time.Duration(max(next.Health.Misses, 1)) + lingerLeast
	if now.Sub(l.awaited) >= window || now.Sub(l.since) >= lingerMost {
		l.before, l.since = nil, time.Time{}
	}
}
