package nodeagent

import (
	"reflect"

	"hawser.dev/hawser/nodeagent/project"
)

// announcer has other clusters told of this cluster's exports in time: what is gone at
// once, and what is new only when this node carries it. A gateway is asked by those who
// send to it, so that its own pass counts. Only the engine's goroutine uses it.
type announcer struct {
	carries bool         // a pass came to its end, or the node goes on where an agent before this one ended
	applied project.Live // that the node carries
	next    project.Live // of the pass under way
	said    *project.Live
}

// begin takes what the next pass brings, and gives what is to be said meanwhile; not
// ok where there is nothing new.
func (a *announcer) begin(next project.Live) (say project.Live, ok bool) {
	a.next = next
	if !a.carries {
		// That there are no exports would be believed.
		return project.Live{}, false
	}
	if a.said == nil {
		a.applied = next
	}
	return a.tell(a.applied.Until(next))
}

// passed follows the pass; see begin.
func (a *announcer) passed() (say project.Live, ok bool) {
	if a.next.Cluster == "" {
		return project.Live{}, false
	}
	a.carries, a.applied = true, a.next
	return a.tell(a.next)
}

func (a *announcer) tell(say project.Live) (project.Live, bool) {
	if a.said != nil && reflect.DeepEqual(*a.said, say) {
		return say, false
	}
	a.said = &say
	return say, true
}
