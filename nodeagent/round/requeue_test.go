package round

import (
	"testing"
	"time"
)

// TestAgainAfterStart checks that a round is due when saved values of the previous agent expire,
// even without another trigger.
func TestAgainAfterStart(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	in := Observed{Fabric: gatewaysOf("g1: a/0"), Digest: "1", Cluster: "g1", Node: "node-b", StaleAfter: 30 * time.Second}
	state := NewState("g1", Saved{}, start)
	for _, tt := range []struct{ after, want time.Duration }{
		{0, SettleTime},
		{time.Second, SettleTime - time.Second},
		{SettleTime, in.StaleAfter - SettleTime},
		{in.StaleAfter - 1, 1},
		{in.StaleAfter, 0},
		{time.Hour, 0},
	} {
		var do Effects
		state, do = StepUntilStable(state, func() Observed { return in }, func(a *PeerSpec) { in.Peers.Spec = a }, start.Add(tt.after))
		if do.Requeue != tt.want {
			t.Errorf("%v after the start, the next round is due in %v, want %v", tt.after, do.Requeue, tt.want)
		}
	}
}
