package health

import (
	"testing"

	"hawser.dev/hawser/nodeagent/status"
)

// TestLiveness checks the properties of each state and the state after a reply.
func TestLiveness(t *testing.T) {
	t.Parallel()
	tests := []struct {
		is      Liveness
		state   string
		alive   bool
		assumes bool
		reply   Liveness
	}{
		{Unproven, status.Connecting, false, false, Proven},
		{Assumed, status.Connecting, true, true, Unbroken},
		{Unbroken, status.Connected, true, true, Unbroken},
		{Proven, status.Connected, true, false, Proven},
		{Dead, status.Disconnected, false, false, Proven},
	}
	for _, tt := range tests {
		if tt.is.State() != tt.state || tt.is.IsAlive() != tt.alive || tt.is.assumesReports() != tt.assumes || tt.is.afterReply() != tt.reply {
			t.Errorf("%d: %s, alive %t, assumes reports %t, after a reply %d", tt.is, tt.is.State(), tt.is.IsAlive(), tt.is.assumesReports(), tt.is.afterReply())
		}
		if again := recordedLiveness(tt.state, tt.assumes); again != tt.is {
			t.Errorf("%d was recorded as %d", tt.is, again)
		}
	}
	if l := recordedLiveness("", true); l.IsAlive() {
		t.Error("a record without a state is alive")
	}
}
