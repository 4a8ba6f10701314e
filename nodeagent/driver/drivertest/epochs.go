package drivertest

import (
	"os"
	"slices"
	"testing"

	"hawser.dev/hawser/nodeagent/status"
)

// epochs rotates keys while both gateways send. The link moves to the new epoch; the tunnel of
// a driver without keys does not change. The test logs the lost packets. With QUIET set, at
// least one of three rotations must lose none: a busy machine loses packets for lack of CPU
// time.
func epochs(t *testing.T, r *env) {
	turns := 1
	quiet := os.Getenv("QUIET") != ""
	if quiet {
		turns = 3
	}
	for turn := range turns {
		lost := r.rotateOnce(turn + 1)
		t.Logf("from epoch %d to %d: %d packets lost", turn+1, turn+2, lost)
		if lost == 0 {
			return
		}
	}
	if quiet {
		t.Errorf("packets were lost in each of %d rotations", turns)
	}
}

// rotateOnce activates a new epoch, removes the previous one, and returns the number of lost
// packets.
func (r *env) rotateOnce(epoch int) (lost int) {
	r.t.Helper()
	a, b := r.gateways["a"], r.gateways["b"]
	was := map[*gateway][]string{a: a.tunnels(), b: b.tunnels()}
	flows := []*flow{a.flow(b), b.flow(a)}
	for _, inForce := range [][]int{{epoch, epoch + 1}, {epoch + 1}} {
		r.rotate(inForce...)
		a.awaitEpoch("b")
		b.awaitEpoch("a")
	}
	for _, g := range []*gateway{a, b} {
		if r.suite.Driver.Traits().Keys == "" {
			if now := g.tunnels(); !slices.Equal(now, was[g]) {
				r.t.Errorf("the tunnels of %s were %v and are %v", g.name, was[g], now)
			}
			continue
		}
		r.eventually("the old tunnel of "+g.name+" is gone", func() bool { return len(g.tunnels()) == len(was[g]) })
	}
	for _, f := range flows {
		lost += f.stop()
	}
	a.reaches(b, false)
	b.reaches(a, true)
	return lost
}

// rotate makes these epochs current: gateways a and b get their keys first, then the fabric.
func (r *env) rotate(inForce ...int) {
	r.t.Helper()
	r.epochs = inForce
	r.gateways["a"].seal()
	r.gateways["b"].seal()
	r.publish("a", "b")
}

// awaitEpoch waits until the link uses the newest current epoch and the agent has removed the keys
// of other epochs.
func (g *gateway) awaitEpoch(remote string) {
	g.env.t.Helper()
	inForce := g.env.epochs
	want := inForce[len(inForce)-1]
	if g.env.suite.Driver.Traits().Keys == "" {
		want = 0
	}
	g.env.eventually(g.name+" uses the keys of epoch "+number(want), func() bool {
		s, answers := g.status()
		i := slices.IndexFunc(s.Connections, func(c status.Connection) bool { return c.RemoteCluster == remote })
		if !answers || i < 0 || !slices.Equal(s.Epochs, inForce) {
			return false
		}
		c := s.Connections[i]
		return c.Epoch == want && c.Migration == nil && c.Status == status.Connected
	})
}
