package drivertest

import (
	"os"
	"slices"
	"testing"

	"hawser.dev/hawser/nodeagent/status"
)

// epochs: other keys come into force and the old ones go, while both ends send. The
// link changes to the new ones; that of a driver without keys stays what it is. What
// is lost meanwhile is told, and with QUIET it must be nothing in one of three turns: a
// machine that is busy with something else loses packets for want of time.
func epochs(t *testing.T, r *rig) {
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
		t.Errorf("packets were lost in each of %d turns", turns)
	}
}

// rotateOnce brings an epoch into force and takes the one before it away; it gives the
// number of packets that were lost.
func (r *rig) rotateOnce(epoch int) (lost int) {
	r.t.Helper()
	a, b := r.gateways["a"], r.gateways["b"]
	was := map[*gateway][]string{a: a.tunnels(), b: b.tunnels()}
	flows := []*flow{a.flow(b), b.flow(a)}
	for _, inForce := range [][]int{{epoch, epoch + 1}, {epoch + 1}} {
		r.rotate(inForce...)
		a.follows("b")
		b.follows("a")
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

// rotate has other epochs in force: the gateways a and b get their keys, and then the
// fabric.
func (r *rig) rotate(inForce ...int) {
	r.t.Helper()
	r.epochs = inForce
	r.gateways["a"].seal()
	r.gateways["b"].seal()
	r.publish("a", "b")
}

// follows waits until the link uses the newest epoch in force, and the agent has the
// keys of no others.
func (g *gateway) follows(remote string) {
	g.rig.t.Helper()
	inForce := g.rig.epochs
	want := inForce[len(inForce)-1]
	if g.rig.suite.Driver.Traits().Keys == "" {
		want = 0
	}
	g.rig.eventually(g.name+" uses the keys of epoch "+number(want), func() bool {
		s, answers := g.status()
		i := slices.IndexFunc(s.Connections, func(c status.Connection) bool { return c.RemoteCluster == remote })
		if !answers || i < 0 || !slices.Equal(s.Epochs, inForce) {
			return false
		}
		c := s.Connections[i]
		return c.Epoch == want && c.Change == nil && c.Status == status.Connected
	})
}
