package health

import "hawser.dev/hawser/nodeagent/status"

// Liveness says whether a link is alive and how the prober knows.
type Liveness uint8

const (
	// Unproven is a link that was added after the start of the agent and has had no reply yet.
	// It does not count as alive.
	Unproven Liveness = iota
	// Assumed is a link that existed when the agent started and has had no reply yet. It counts
	// as alive until it is dead, so that a restart moves no traffic.
	Assumed
	// Unbroken is a link that existed when the agent started and never died. Links that its
	// gateway has not reported yet count as good, for the same reason.
	Unbroken
	// Proven is a link that came up later. Links of its gateway count only after a report.
	Proven
	// Dead is a link whose probes no longer get replies.
	Dead
)

// afterReply returns the liveness of a link that comes up.
func (l Liveness) afterReply() Liveness {
	switch l {
	case Assumed, Unbroken:
		return Unbroken
	}
	return Proven
}

// IsAlive reports whether traffic may use the link.
func (l Liveness) IsAlive() bool { return l == Assumed || l == Unbroken || l == Proven }

// assumesReports reports whether missing reports of the gateway count as good.
func (l Liveness) assumesReports() bool { return l == Assumed || l == Unbroken }

// State returns the state for the agent's status.
func (l Liveness) State() string {
	switch l {
	case Unproven, Assumed:
		return status.Connecting
	case Dead:
		return status.Disconnected
	}
	return status.Connected
}

// recordedLiveness returns the liveness of a recorded state.
func recordedLiveness(state string, assumesReports bool) Liveness {
	for l := range Dead + 1 {
		if l.State() == state && (l == Dead || l.assumesReports() == assumesReports) {
			return l
		}
	}
	return Unproven
}
