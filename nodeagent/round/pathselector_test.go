package round

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/peer/health"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// twoClusters returns a fabric with two gateways in each of two clusters.
func twoClusters() *fabric.Fabric { return gatewaysOf("g1: a/0 b/1", "g2: c/0 d/1") }

// selectorTest is gateway a of cluster g1 with its path selector.
type selectorTest struct {
	choice *pathSelector
	fabric *fabric.Fabric
	links  map[string]health.Link // by peer, as cluster/gateway
	now    time.Time
}

func newSelectorTest() *selectorTest {
	d := &selectorTest{fabric: twoClusters(), links: map[string]health.Link{}, now: time.Unix(1_000_000, 0)}
	d.choice = newPathSelector("g1", d.now)
	for _, peer := range []string{"g1/b", "g2/c", "g2/d"} {
		d.set(peer, health.Good, "")
	}
	return d
}

// set sets the rank of the link to a peer and the prober's reason.
func (d *selectorTest) set(peer string, rank health.Rank, why string) {
	cluster, gateway, _ := strings.Cut(peer, "/")
	l := health.Link{
		Target: health.Target{Peer: health.GatewayID{Cluster: cluster, Gateway: gateway}},
		Rank:   rank, Reason: why, Liveness: health.Proven, Since: d.now,
	}
	if rank == health.Down {
		l.Liveness = health.Dead
	}
	if cluster == "g1" {
		l.Target.Device = "hw-vx0"
	}
	d.links[peer] = l
}

// next selects again after one second. It returns the path and the log.
func (d *selectorTest) next(retiring ...health.GatewayID) (model.Path, string) {
	d.now = d.now.Add(time.Second)
	var links []health.Link
	for _, peer := range []string{"g1/b", "g2/c", "g2/d"} {
		if l, known := d.links[peer]; known {
			links = append(links, l)
		}
	}
	s := health.NewSnapshot(health.GatewayID{Cluster: "g1", Gateway: "a"}, links).WithRetiring(retiring)
	next, w := d.choice.next(nodeView{fabric: d.fabric, cluster: "g1", gateway: "a", links: s}, nil, d.now)
	d.choice = next
	var log bytes.Buffer
	for _, m := range next.newMoves {
		slog.New(slog.NewTextHandler(&log, nil)).Info("moved", m.Attrs()...)
	}
	return w.remote["g2"], log.String()
}

// own takes down the link to gateway b, so that only links of gateway a are up.
func (d *selectorTest) own() { d.set("g1/b", health.Down, "no reply") }

func (d *selectorTest) expect(t *testing.T, what string, path model.Path, log string, link string, words ...string) {
	t.Helper()
	if got := path.Local + "-" + path.Remote; got != link {
		t.Errorf("%s: link %s, want %s", what, got, link)
	}
	if len(words) == 0 && log != "" {
		t.Errorf("%s: logged %s", what, log)
	}
	for _, w := range words {
		if !strings.Contains(log, w) || strings.Count(log, "\n") != 1 {
			t.Errorf("%s: %q missing in the log:\n%s", what, w, log)
		}
	}
}

// TestAllDownStays checks that no path moves if all links are down. The agents of the other cluster
// may all be dead while their tunnels still forward.
func TestAllDownStays(t *testing.T) {
	t.Parallel()
	d := newSelectorTest()
	d.own()
	for _, last := range []string{"c", "d"} {
		d.set("g2/c", health.Good, "")
		d.set("g2/d", health.Good, "")
		if last == "c" {
			d.set("g2/d", health.Down, "no reply")
		} else {
			d.set("g2/c", health.Down, "no reply")
		}
		d.next()
		d.set("g2/"+last, health.Down, "no reply")
		path, log := d.next()
		d.expect(t, "all dead after "+last, path, log, "a-"+last)
		if !path.Down {
			t.Errorf("all dead after %s: the path is not marked as down", last)
		}
	}
}

func TestMovesAreLogged(t *testing.T) {
	t.Parallel()
	d := newSelectorTest()
	d.own()
	d.set("g2/d", health.Down, "no reply")
	path, log := d.next()
	d.expect(t, "first", path, log, "a-c", `msg=moved cluster=g2 from=none to=g1/a-g2/c cause="first choice"`)
	path, log = d.next()
	d.expect(t, "nothing new", path, log, "a-c")

	d.set("g2/d", health.Good, "")
	d.set("g2/c", health.Down, "no reply")
	path, log = d.next()
	d.expect(t, "death", path, log, "a-d", "from=g1/a-g2/c to=g1/a-g2/d", `cause="g2/c does not answer probes since `, "silent=1s")

	d.set("g2/c", health.Good, "")
	d.set("g2/d", health.Draining, "g2/d drains")
	path, log = d.next()
	d.expect(t, "drain", path, log, "a-c", `cause="g2/d drains"`)

	d.set("g2/d", health.Good, "")
	d.set("g2/c", health.Unsteady, "3 flaps in 60 s")
	path, log = d.next()
	d.expect(t, "unsteady", path, log, "a-d", `cause="3 flaps in 60 s"`)

	d.set("g2/c", health.Good, "")
	path, log = d.next(health.GatewayID{Cluster: "g2", Gateway: "d"})
	d.expect(t, "retiring", path, log, "a-c", "cause=")

	d.set("g2/c", health.Isolated, "g2/c reaches no other node of its cluster")
	path, log = d.next()
	d.expect(t, "alone", path, log, "a-d", `cause="g2/c reaches no other node`)

	d.fabric = gatewaysOf("g1: a/0 b/1", "g2: c/0")
	delete(d.links, "g2/d")
	path, log = d.next()
	d.expect(t, "removed", path, log, "a-c", `cause="gateway removed: g2/d"`)
}

// TestReturn checks the move back to the better link when it is up again.
func TestReturn(t *testing.T) {
	t.Parallel()
	d := newSelectorTest()
	d.own()
	path, _ := d.next()
	best := "g2/" + path.Remote
	d.set(best, health.Down, "no reply")
	d.next()
	d.set(best, health.Good, "")
	again, log := d.next()
	d.expect(t, "return", again, log, "a-"+path.Remote, `cause="link is steady again"`)
}

func TestRestartMovesNothing(t *testing.T) {
	t.Parallel()
	before := newSelectorTest()
	before.own()
	first, _ := before.next()
	other := map[string]string{"c": "d", "d": "c"}[first.Remote]
	before.set("g2/"+first.Remote, health.Down, "no reply")
	if path, _ := before.next(); path.Remote != other {
		t.Fatalf("link to %s, want %s", path.Remote, other)
	}
	saved := before.choice.saved()

	// Without replies, the preferences would move the path.
	restarted := func() *selectorTest {
		d := newSelectorTest()
		d.own()
		for _, peer := range []string{"g2/c", "g2/d"} {
			l := d.links[peer]
			l.Liveness = health.Assumed
			d.links[peer] = l
		}
		d.choice = restorePathSelector("g1", saved, d.now)
		return d
	}
	d := restarted()
	path, log := d.next()
	d.expect(t, "after the restart", path, log, "a-"+other)
	if since := d.choice.Paths["g2"].Since; !since.Equal(saved["g2"].Since) {
		t.Errorf("in use since %v, want %v", since, saved["g2"].Since)
	}
	d.now = d.now.Add(SettleTime)
	path, log = d.next()
	d.expect(t, "in the end", path, log, "a-"+first.Remote, "msg=moved")

	// With replies on all links, the path moves at once.
	d = restarted()
	d.set("g2/c", health.Good, "")
	path, log = d.next()
	d.expect(t, "one reply", path, log, "a-"+other)
	d = restarted()
	d.set("g2/c", health.Good, "")
	d.set("g2/d", health.Good, "")
	path, log = d.next()
	d.expect(t, "both replies", path, log, "a-"+first.Remote, "msg=moved")

	// The path leaves a dead link at once.
	d = newSelectorTest()
	d.own()
	d.choice = restorePathSelector("g1", saved, d.now)
	d.set("g2/"+other, health.Down, "no reply")
	path, log = d.next()
	d.expect(t, "dead in the meantime", path, log, "a-"+first.Remote, "does not answer probes")
}

func TestMovesAreBounded(t *testing.T) {
	t.Parallel()
	d := newSelectorTest()
	d.own()
	for i := range 3 * maxMoves {
		d.set("g2/c", []health.Rank{health.Good, health.Down}[i%2], "")
		d.set("g2/d", []health.Rank{health.Down, health.Good}[i%2], "")
		d.next()
	}
	paths, moves := d.choice.state(nodeView{fabric: d.fabric, cluster: "g1", gateway: "a"})
	if len(moves) != maxMoves || len(paths) != 1 || paths[0].LastMove == nil || *paths[0].LastMove != moves[maxMoves-1] {
		t.Errorf("%d moves, paths %+v", len(moves), paths)
	}
	if last := moves[maxMoves-1]; last.Kind != causeDead || last.Cluster != "g2" || last.To != paths[0].Link {
		t.Errorf("last move %+v", last)
	}
}

func TestUsers(t *testing.T) {
	t.Parallel()
	d := newSelectorTest()
	d.own()
	path, _ := d.next()
	s := health.NewSnapshot(health.GatewayID{Cluster: "g1", Gateway: "a"}, nil)
	tests := []struct {
		gateway health.GatewayID
		want    string
	}{
		{health.GatewayID{Cluster: "g1", Gateway: "a"}, "[g2 (g1/a-g2/" + path.Remote + ")]"},
		{health.GatewayID{Cluster: "g1", Gateway: "b"}, "[]"},
		{health.GatewayID{Cluster: "g2", Gateway: path.Remote}, "[g2 (g1/a-g2/" + path.Remote + ")]"},
		{health.GatewayID{Cluster: "g2", Gateway: "x"}, "[]"},
	}
	for _, tt := range tests {
		if got := fmt.Sprint(d.choice.users(d.fabric, s, tt.gateway)); got != tt.want {
			t.Errorf("%s is used by %s, want %s", tt.gateway, got, tt.want)
		}
	}
}

// TestRanks checks the rank names of package status, which must not import package health.
func TestRanks(t *testing.T) {
	t.Parallel()
	for i, name := range status.Ranks() {
		if health.Rank(i).String() != name {
			t.Errorf("rank %d is %s, status has %s", i, health.Rank(i), name)
		}
	}
	if len(status.Ranks()) != int(health.Good)+1 {
		t.Errorf("%d ranks", len(status.Ranks()))
	}
}

// TestOwnLinkStays checks that traffic from other nodes uses the gateway's last own link if all own
// links are down.
func TestOwnLinkStays(t *testing.T) {
	t.Parallel()
	d := newSelectorTest()
	for _, last := range []string{"c", "d"} {
		for _, g := range []string{"g2/c", "g2/d"} {
			d.set(g, map[bool]health.Rank{true: health.Good, false: health.Down}[g == "g2/"+last], "")
		}
		d.next()
		d.set("g2/"+last, health.Down, "no reply")
		d.next()
		if have, want := d.choice.GatewayLinks["g2"], (model.Path{Local: "a", Remote: last, Down: true}); have != want {
			t.Errorf("own link %+v, want %+v", have, want)
		}
	}
}

// TestNeeded checks that a cluster needs the only gateway with a path to it.
func TestNeeded(t *testing.T) {
	t.Parallel()
	d := newSelectorTest()
	d.own()
	d.next()
	var links []health.Link
	for _, l := range d.links {
		links = append(links, l)
	}
	v := nodeView{fabric: d.fabric, cluster: "g1", gateway: "a", links: health.NewSnapshot(health.GatewayID{Cluster: "g1", Gateway: "a"}, links)}
	if have := d.choice.needed(v, nil); len(have) != 1 || have[0] != "g2" {
		t.Errorf("needed by %v, want g2", have)
	}
	// On gateway b, the links of gateway a are alternatives.
	v.gateway = "b"
	if have := d.choice.needed(v, nil); len(have) != 0 {
		t.Errorf("needed by %v, although links of a are up", have)
	}
}
