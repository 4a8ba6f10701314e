package health

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/internal/trigger"
)

var (
	// defaultSettings are the settings of the default profile.
	defaultSettings = Settings{Interval: 250 * time.Millisecond, Misses: 3}
	fastSettings    = Settings{Interval: 50 * time.Millisecond, Misses: 3}
)

// longestMove injects many faults of one kind. It returns the longest time until the last node of
// both clusters moved.
func longestMove(t *testing.T, s Settings, rounds int, fault func(m *sim, c ActiveLink) (heal func())) (worst time.Duration) {
	t.Helper()
	for round := range rounds {
		m := newSim(t, s, 3, 3)
		// Faults start at different moments of the interval.
		m.run(time.Duration(round) * s.Interval / time.Duration(rounds))
		before := m.activeLink("a", "b")
		begin := m.now
		heal := fault(m, before)
		m.run(2 * time.Second)
		after := m.activeLink("a", "b")
		if after.Rank != Good || after.Path == before.Path {
			t.Fatalf("round %d: from %+v to %+v", round, before, after)
		}
		worst = max(worst, m.lastMove("a", "b", begin))
		if heal == nil {
			continue
		}
		heal()
		m.run(5 * time.Second)
		if back := m.activeLink("a", "b"); back.Path != before.Path {
			t.Fatalf("round %d: healed, but at %+v, want %+v", round, back, before)
		}
	}
	return worst
}

func TestDetection(t *testing.T) {
	t.Parallel()
	faults := map[string]func(m *sim, c ActiveLink) func(){
		"power off here": func(m *sim, c ActiveLink) func() {
			m.node("a", c.Local).stopped = true
			return nil
		},
		"power off there": func(m *sim, c ActiveLink) func() {
			m.node("b", c.Remote).stopped = true
			return nil
		},
		"cut link": func(m *sim, c ActiveLink) func() {
			return m.cut(func(from, to string) bool {
				return from == c.Local && to == c.Remote || from == c.Remote && to == c.Local
			})
		},
		"one way loss to there": func(m *sim, c ActiveLink) func() {
			return m.cut(func(from, to string) bool { return from == c.Local && to == c.Remote })
		},
		"one way loss to here": func(m *sim, c ActiveLink) func() {
			return m.cut(func(from, to string) bool { return from == c.Remote && to == c.Local })
		},
		"tunnels lost": func(m *sim, c ActiveLink) func() {
			return m.cut(func(from, to string) bool { return from == c.Local || to == c.Local })
		},
		"cut off from its cluster": func(m *sim, c ActiveLink) func() {
			gateway := m.node("b", c.Remote)
			m.lost = func(from, to *simNode, tunnel bool) bool { return !tunnel && (from == gateway || to == gateway) }
			// The isolated gateway may select another link than the other nodes.
			gateway.name.Cluster = "cut off"
			return func() { m.lost, gateway.name.Cluster = nil, "b" }
		},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			slow := longestMove(t, defaultSettings, 4, fault)
			quick := longestMove(t, fastSettings, 4, fault)
			t.Logf("%s: all moved within %v, fast %v", name, slow, quick)
			if slow > 820*time.Millisecond || quick > 200*time.Millisecond {
				t.Errorf("all moved within %v, fast %v; want 820ms and 200ms", slow, quick)
			}
		})
	}
}

// cut loses packets in tunnels between gateways by name.
func (m *sim) cut(lost func(from, to string) bool) (heal func()) {
	m.lost = func(from, to *simNode, tunnel bool) bool { return tunnel && lost(from.name.Gateway, to.name.Gateway) }
	return func() { m.lost = nil }
}

// TestReturn cuts and repairs the only link of two clusters. The first probe of either end makes
// both ends verify the link at once.
func TestReturn(t *testing.T) {
	t.Parallel()
	good := func(m *sim, cluster, gateway string) bool {
		for _, l := range m.node(cluster, gateway).Snapshot().Links {
			if l.Target.Device == "" {
				return l.Rank == Good
			}
		}
		return false
	}
	for round := range 4 {
		m := newSim(t, defaultSettings, 1, 1)
		heal := m.cut(func(_, _ string) bool { return true })
		m.run(2*time.Second + time.Duration(round)*defaultSettings.Interval/4)
		if good(m, "a", "a-gw0") || good(m, "b", "b-gw0") {
			t.Fatal("the cut link is good")
		}
		begin := m.now
		heal()
		for m.now.Sub(begin) < time.Second && !(good(m, "a", "a-gw0") && good(m, "b", "b-gw0")) {
			m.run(time.Millisecond)
		}
		if took, limit := m.now.Sub(begin), defaultSettings.Interval*3/2+10*time.Millisecond; took > limit {
			t.Errorf("round %d: good again after %v, want %v at most", round, took, limit)
		}
	}
}

// TestDrainMovesAtOnce drains the gateway in use. All nodes leave it within a few round trips and
// return after the drain.
func TestDrainMovesAtOnce(t *testing.T) {
	t.Parallel()
	for _, side := range []string{"a", "b"} {
		m := newSim(t, defaultSettings, 3, 3)
		before := m.activeLink("a", "b")
		name := before.Local
		if side == "b" {
			name = before.Remote
		}
		gateway, begin := m.node(side, name), m.now
		gateway.SetDraining(true)
		m.run(time.Second)
		if after := m.activeLink("a", "b"); after.Local == name || after.Remote == name {
			t.Fatalf("still at %+v", after)
		}
		took := m.lastMove("a", "b", begin)
		t.Logf("%s drains: all moved within %v", side, took)
		if took > 30*time.Millisecond {
			t.Errorf("%s: left after %v", side, took)
		}
		for _, l := range gateway.Snapshot().Links {
			if l.Target.Device == "" && (l.Rank != Draining || l.Reason != "this gateway is draining") {
				t.Errorf("%v: %v, %q", l.Target.Peer, l.Rank, l.Reason)
			}
		}
		begin = m.now
		gateway.SetDraining(false)
		m.run(time.Second)
		if after := m.activeLink("a", "b"); after.Path != before.Path {
			t.Errorf("returned to %+v, want %+v", after, before)
		}
		if took := m.lastMove("a", "b", begin); took > 30*time.Millisecond {
			t.Errorf("%s: returned after %v", side, took)
		}
	}
}

// TestAllGatewaysDrain checks that traffic stays if all gateways drain.
func TestAllGatewaysDrain(t *testing.T) {
	t.Parallel()
	m := newSim(t, defaultSettings, 2, 2)
	before := m.activeLink("a", "b")
	for _, g := range []string{"a-gw0", "a-gw1"} {
		m.node("a", g).SetDraining(true)
	}
	m.run(time.Second)
	if after := m.activeLink("a", "b"); after.Path != before.Path || after.Rank != Draining || after.Down {
		t.Errorf("got %+v, want to stay at %+v", after, before)
	}
}

// TestRestartedAgent checks that a restarted gateway is not selected before it is ready.
func TestRestartedAgent(t *testing.T) {
	t.Parallel()
	m := newSim(t, defaultSettings, 3, 3)
	before := m.activeLink("a", "b")
	gateway := m.node("b", before.Remote)
	m.start(gateway, defaultSettings)
	m.run(time.Second)
	if after := m.activeLink("a", "b"); after.Remote == before.Remote || after.Rank != Good {
		t.Errorf("at %+v before the agent is ready", after)
	}
	gateway.SetReady(true)
	m.run(time.Second)
	if after := m.activeLink("a", "b"); after.Path != before.Path {
		t.Errorf("at %+v after the agent is ready, want %+v", after, before)
	}
}

// TestNewTunnels checks that a restarted agent assumes that the tunnels of the previous agent are
// up, so that a restart moves no traffic. Without tunnels of a previous agent, links without a
// reply are not selected.
func TestNewTunnels(t *testing.T) {
	t.Parallel()
	for tunnelsExisted, want := range map[bool]Rank{true: Good, false: Down} {
		p := New(Config{Cluster: "a", Gateway: "gw0", Port: 4804, Settings: defaultSettings, Wake: trigger.New()})
		p.SetReady(tunnelsExisted)
		p.SetTargets([]Target{
			{Peer: GatewayID{"a", "gw1"}, Source: netip.MustParseAddr("10.1.0.1"), Addr: netip.MustParseAddr("10.1.0.2"), Device: vxlan},
			{Peer: GatewayID{"b", "gw0"}, Source: netip.MustParseAddr("10.0.0.1"), Addr: netip.MustParseAddr("10.0.1.1")},
		})
		p.SetReady(true)
		for _, l := range p.Snapshot().Links {
			if l.Target.Device != "" && l.Rank != Good || l.Target.Device == "" && l.Rank != want {
				t.Errorf("tunnels existed: %v: link to %s is %s", tunnelsExisted, l.Target.Peer, l.Rank)
			}
		}
	}
}

// TestIsolatedCluster kills all nodes but one gateway. The gateway is isolated, but it and other
// clusters still use it.
func TestIsolatedCluster(t *testing.T) {
	t.Parallel()
	m := newSim(t, defaultSettings, 2, 2)
	m.node("b", "worker").stopped = true
	m.node("b", "b-gw0").stopped = true
	m.run(2 * time.Second)
	c := m.activeLink("a", "b")
	if c.Remote != "b-gw1" || c.Rank != Isolated || c.Down {
		t.Errorf("got %+v", c)
	}
	one := newSim(t, defaultSettings, 1, 1)
	one.node("b", "worker").stopped = true
	one.node("b", "b-gw0").SetNodes(nil)
	one.run(2 * time.Second)
	if c := one.activeLink("a", "b"); c.Rank != Good {
		t.Errorf("the only node of its cluster is %v", c.Rank)
	}
}

// TestPlannedSilence checks a cluster that has only gateways. When one gateway drains and stops,
// the other one keeps its rank. Traffic returns only when the new agent is ready.
func TestPlannedSilence(t *testing.T) {
	t.Parallel()
	m := newSim(t, defaultSettings, 2, 2)
	m.node("b", "worker").stopped = true
	first := m.activeLink("a", "b").Remote
	remaining := map[string]string{"b-gw0": "b-gw1", "b-gw1": "b-gw0"}[first]
	m.node("b", first).SetNodes([][]netip.Addr{{m.node("b", remaining).addr}})
	m.node("b", remaining).SetNodes([][]netip.Addr{{m.node("b", first).addr}})
	m.run(time.Second)
	draining := m.node("b", first)
	draining.SetDraining(true)
	m.run(time.Second)
	draining.stopped = true
	m.run(3 * time.Second)
	if c := m.activeLink("a", "b"); c.Remote != remaining || c.Rank != Good {
		t.Fatalf("while the other gateway is down: %+v", c)
	}
	m.start(draining, defaultSettings)
	draining.SetNodes([][]netip.Addr{{m.node("b", remaining).addr}})
	draining.SetReady(false)
	m.run(3 * time.Second)
	if c := m.activeLink("a", "b"); c.Remote != remaining || c.Rank != Good {
		t.Fatalf("while the other gateway is not ready yet: %+v", c)
	}
	draining.SetReady(true)
	m.run(time.Minute)
	m.node("b", remaining).stopped = true
	m.run(3 * time.Second)
	if c := m.activeLink("a", "b"); c.Remote != first {
		t.Fatalf("the restarted gateway is not used: %+v", c)
	}
	if !draining.isolation.isolated {
		t.Error("not isolated although the sibling stopped without a drain")
	}
}

// TestFollower checks that a cluster whose observations differ follows the leading cluster.
func TestFollower(t *testing.T) {
	t.Parallel()
	m := newSim(t, defaultSettings, 3, 3)
	before := m.activeLink("a", "b")
	// A worker of a receives no packets from the gateway in use. The gateways of a do.
	worker, gateway := m.node("a", "worker"), m.node("a", before.Local)
	m.lost = func(from, to *simNode, _ bool) bool {
		return from == gateway && to.name.Cluster == "a" || to == gateway && from.name.Cluster == "a"
	}
	worker.pathChanges = nil
	m.run(3 * time.Second)
	others := worker.paths["b"]
	if others.Local == before.Local {
		t.Fatalf("the others of a are at %+v", others)
	}
	for _, n := range m.nodes {
		if n.name.Cluster != "b" {
			continue
		}
		if c := n.paths["a"]; c.Local != others.Remote || c.Remote != others.Local || c.Reason != "follows a" || !c.Follows {
			t.Errorf("%v is at %+v, want the link of the other nodes of a: %+v", n.name, c, others)
		}
	}
}

// TestFlapping cuts the link in use five times a minute. The link becomes unsteady, with a reason
// and an end time. It is used again once it is stable.
func TestFlapping(t *testing.T) {
	t.Parallel()
	m := newSim(t, defaultSettings, 3, 3)
	before := m.activeLink("a", "b")
	for range 5 {
		heal := m.cut(func(from, to string) bool { return from == before.Local && to == before.Remote })
		m.run(4 * time.Second)
		heal()
		m.run(8 * time.Second)
	}
	flaps := len(m.node("a", "worker").pathChanges)
	if c := m.activeLink("a", "b"); c.Path == before.Path || c.Rank != Good || c.Reason != "best of the live links" {
		t.Errorf("at %+v", c)
	}
	links := m.node("a", before.Local).Snapshot().Links
	i := slices.IndexFunc(links, func(l Link) bool { return l.Target.Peer.Gateway == before.Remote })
	if l := links[i]; l.Rank != Unsteady || l.Flaps != 5 || !strings.Contains(l.Reason, "flaps in 60 s, held until 12:0") || l.Held.Before(m.now) {
		t.Errorf("the link is %+v", l)
	}
	heal := m.cut(func(from, to string) bool { return from == before.Local && to == before.Remote })
	m.run(4 * time.Second)
	heal()
	m.run(8 * time.Second)
	if again := len(m.node("a", "worker").pathChanges); again != flaps {
		t.Errorf("%d moves for an unsteady link", again-flaps)
	}
	m.run(40 * time.Second)
	if c := m.activeLink("a", "b"); c.Path != before.Path {
		t.Errorf("stable again, but at %+v, want %+v", c, before)
	}
}

// TestAllDown checks that the first choice stays if all links are cut.
func TestAllDown(t *testing.T) {
	t.Parallel()
	m := newSim(t, defaultSettings, 2, 2)
	heal := m.cut(func(string, string) bool { return true })
	m.run(3 * time.Second)
	first, _ := m.table.First("a", "b")
	first.Down = true
	if c := m.activeLink("a", "b"); c.Path != first || c.Rank != Down || c.Reason != "all links down" {
		t.Errorf("got %+v", c)
	}
	if have := GatewayLinks(m.table, "a", "a-gw0", m.node("a", "a-gw0").Snapshot()); have["b"].Local != "a-gw0" || !have["b"].Down {
		t.Errorf("transit is %v", have)
	}
	heal()
	m.run(2 * time.Second)
	if c := m.activeLink("a", "b"); c.Rank != Good {
		t.Errorf("healed: %+v", c)
	}
	gateway := m.node("a", "a-gw0")
	if have := GatewayLinks(m.table, "a", "a-gw0", gateway.Snapshot()); have["b"].Local != "a-gw0" || have["b"].Down {
		t.Errorf("transit is %v", have)
	}
}
