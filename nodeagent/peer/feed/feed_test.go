package feed

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/nodeagent/model"
)

func TestPropagation(t *testing.T) {
	t.Parallel()
	a, b := newGateway(t, "a"), newGateway(t, "b")
	s := startServer(t, b, "", a.peer)
	c := startClient(t, a.id, testTiming, b.peer)
	host := model.ExportHost{Name: "web-0", IPs: []netip.Addr{netip.MustParseAddr("242.2.0.5"), netip.MustParseAddr("fd42::5")}}
	for _, state := range []model.ClusterState{
		stateOf("b"), stateOf("b", ready("one")), stateOf("b", ready("one", host), ready("two")),
		stateOf("b", model.ExportState{Namespace: "sample", Name: "one"}, ready("two")), stateOf("b", ready("two")), stateOf("b"),
	} {
		publish(t, s, state)
		c.awaitState(t, state)
	}
	if relay := c.Relay(); len(relay) != 1 || relay["b"].Stale {
		t.Errorf("relay is %v", relay)
	}
	if n := c.count("feed connected"); n != 1 {
		t.Errorf("connected %d times for one server", n)
	}
	c.SetPeers(nil, nil)
	if have := c.Snapshot(); len(have) != 0 {
		t.Errorf("after removal of the peer: %v", have)
	}
}

// TestLargeState needs several frames, in its first update and in the next one.
func TestLargeState(t *testing.T) {
	t.Parallel()
	a, b := newGateway(t, "a"), newGateway(t, "b")
	s := startServer(t, b, "", a.peer)
	c := startClient(t, a.id, testTiming, b.peer)
	var exports []model.ExportState
	for i := range 5000 {
		addr := netip.AddrFrom4([4]byte{242, 2, byte(i >> 8), byte(i)})
		host := model.ExportHost{Name: strings.Repeat("h", 60), IPs: []netip.Addr{addr}}
		exports = append(exports, ready(fmt.Sprintf("svc-%04d", i), host))
	}
	publish(t, s, stateOf("b", exports...))
	current, _ := s.local.load()
	if frames, err := current.full(); err != nil || len(frames) < 2 {
		t.Fatalf("%d frames, %v", len(frames), err)
	}
	c.awaitState(t, stateOf("b", exports...))
	publish(t, s, stateOf("b", exports[2500:]...))
	c.awaitState(t, stateOf("b", exports[2500:]...))
}

func TestReconnectAndAge(t *testing.T) {
	t.Parallel()
	a, b := newGateway(t, "a"), newGateway(t, "b")
	s := startServer(t, b, "", a.peer)
	timing := testTiming
	timing.StaleAfter = 500 * time.Millisecond
	c := startClient(t, a.id, timing, b.peer)
	publish(t, s, stateOf("b", ready("one")))
	c.awaitState(t, stateOf("b", ready("one")))
	s.stop()
	await(t, "the loss", func() bool { return c.Relay()["b"].Stale || len(c.Relay()) == 0 })
	await(t, "the end of the old state", func() bool { return len(c.Snapshot()) == 0 })
	if c.count("feed lost") == 0 {
		t.Error("the loss was not logged")
	}
	s = startServer(t, b, "", a.peer)
	publish(t, s, stateOf("b", ready("two")))
	c.awaitState(t, stateOf("b", ready("two")))
	if state := c.States()[0]; !state.Connected || state.Err != "" {
		t.Errorf("state is %+v", state)
	}
}

// TestRemovedPeer replaces the peer of a cluster by another gateway of the cluster. The state of the
// removed peer counts until the other gateway sends one.
func TestRemovedPeer(t *testing.T) {
	t.Parallel()
	a, b, other := newGateway(t, "a"), newGateway(t, "b"), newGateway(t, "b")
	other.id.Gateway, other.peer.Gateway = "b-0", "b-0"
	s := startServer(t, b, "", a.peer)
	c := startClient(t, a.id, testTiming, b.peer)
	publish(t, s, stateOf("b", ready("one")))
	c.awaitState(t, stateOf("b", ready("one")))
	c.SetPeers([]Peer{other.peer}, []string{"b"})
	for _, when := range []string{"before", "after"} {
		if have, want := c.Relay()["b"], (RemoteState{Stale: true, State: stateOf("b", ready("one"))}); !cmp.Equal(want, have, byValue) {
			t.Errorf("%s the first attempt: (-want +got):\n%s", when, cmp.Diff(want, have, byValue))
		}
		if states := c.States(); len(states) != 1 || states[0].Gateway != "b-0" {
			t.Errorf("%s the first attempt: subscriptions are %+v", when, states)
		}
		await(t, "a failed attempt", func() bool { return c.States()[0].Err != "" })
	}
	otherServer := startServer(t, other, "", a.peer)
	publish(t, otherServer, stateOf("b", ready("two")))
	c.awaitState(t, stateOf("b", ready("two")))

	// Both gateways are lost. The later state counts, although the other gateway is the first by
	// name.
	c.SetPeers([]Peer{b.peer}, []string{"b"})
	c.awaitState(t, stateOf("b", ready("one")))
	s.stop()
	await(t, "the loss", func() bool { return c.Relay()["b"].Stale })
	c.awaitState(t, stateOf("b", ready("one")))

	// A cluster that left the fabric has no state.
	c.SetPeers(nil, []string{"b"})
	c.awaitState(t, stateOf("b", ready("one")))
	c.SetPeers(nil, nil)
	if have := c.Snapshot(); len(have) != 0 {
		t.Errorf("after removal of the cluster: %v", have)
	}
}

// TestRemovedPeerExpires checks that the state of a removed peer expires, also if the peer is added
// and removed again meanwhile.
func TestRemovedPeerExpires(t *testing.T) {
	t.Parallel()
	a, b, other := newGateway(t, "a"), newGateway(t, "b"), newGateway(t, "b")
	other.peer.Gateway = "b-b"
	s := startServer(t, b, "", a.peer)
	timing := testTiming
	timing.StaleAfter = 500 * time.Millisecond
	c := startClient(t, a.id, timing, b.peer)
	publish(t, s, stateOf("b", ready("one")))
	c.awaitState(t, stateOf("b", ready("one")))
	s.stop()
	await(t, "the end of the state", func() bool {
		c.SetPeers([]Peer{other.peer}, []string{"b"})
		c.SetPeers([]Peer{b.peer}, []string{"b"})
		return len(c.Snapshot()) == 0
	})
}

// TestSilentFeedIsDropped uses a server that sends nothing after the first update.
func TestSilentFeedIsDropped(t *testing.T) {
	t.Parallel()
	a, b := newGateway(t, "a"), newGateway(t, "b")
	timing := testTiming
	timing.FrameTimeout = 200 * time.Millisecond
	slow := NewServer(Config{Timing: Timing{Heartbeat: time.Hour, FrameTimeout: time.Hour}, Log: slog.New(slog.DiscardHandler)})
	slow.SetIdentity(b.id)
	slow.SetPeers([]Peer{a.peer})
	slow.SetListen([]Listen{{Addr: b.peer.Addr}})
	runInBackground(t, slow.Run)
	c := startClient(t, a.id, timing, b.peer)
	await(t, "a second connection", func() bool { return c.count("feed connected") > 1 })
}

// TestSlowOnChange checks that a call that takes longer than FrameTimeout ends no feed, and that
// the next call sees the latest states.
func TestSlowOnChange(t *testing.T) {
	t.Parallel()
	a, b := newGateway(t, "a"), newGateway(t, "b")
	timing := testTiming
	timing.FrameTimeout = 500 * time.Millisecond
	s := startServerTiming(t, timing, b, "", a.peer)
	log, calls, seen := &logBuffer{}, make(chan struct{}), make(chan string, 1000)
	c := NewClient(Config{Timing: timing, Log: slog.New(slog.NewTextHandler(log, nil))})
	c.config.OnChange = func() {
		<-calls
		for _, e := range c.Snapshot()["b"].Exports {
			seen <- e.Name
		}
	}
	c.SetIdentity(a.id)
	c.SetPeers([]Peer{b.peer}, testClusters)
	runInBackground(t, c.Run)
	last := ""
	for begin, i := time.Now(), 0; time.Since(begin) < 3*timing.FrameTimeout; i++ {
		last = fmt.Sprintf("e%d", i)
		publish(t, s, stateOf("b", ready(last)))
		await(t, "the newest state", func() bool {
			exports := c.Snapshot()["b"].Exports
			return len(exports) == 1 && exports[0].Name == last
		})
	}
	close(calls)
	await(t, "a call after the last change", func() bool { return <-seen == last })
	if n := log.count("feed connected"); n != 1 {
		t.Errorf("connected %d times", n)
	}
}

// TestReconnectRetriesAtOnce checks that the client does not wait for an hour when the gateway is
// reachable again.
func TestReconnectRetriesAtOnce(t *testing.T) {
	t.Parallel()
	timing := Timing{Heartbeat: time.Minute, FrameTimeout: time.Hour, StaleAfter: time.Hour, BackoffMin: time.Hour, BackoffMax: time.Hour, Handshake: time.Hour}
	a, b := newGateway(t, "a"), newGateway(t, "b")
	c := startClient(t, a.id, timing, b.peer)
	await(t, "the end of the first attempt", func() bool { return c.States()[0].Err != "" })
	silent, err := net.Listen("tcp", b.peer.Addr.String())
	if err != nil {
		t.Fatal(err)
	}
	c.Reconnect("b", "b-a") // while it waits for the next attempt
	conn, err := silent.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := silent.Close(); err != nil {
		t.Fatal(err)
	}
	startServerTiming(t, timing, b, "", a.peer)
	called := time.Time{}
	await(t, "a reply", func() bool {
		if time.Since(called) > time.Second { // the server may not listen yet
			c.Reconnect("b", "b-a") // while it waits for a reply
			called = time.Now()
		}
		return c.States()[0].Connected
	})
	for range 20 {
		c.Reconnect("b", "b-a") // while frames are not late
		time.Sleep(time.Millisecond)
	}
	if n := c.count("feed connected"); n != 1 {
		t.Errorf("connected %d times", n)
	}
}

// TestDisconnect checks that a session ends with its link, long before its heartbeat, and that the
// next one begins when the link is up again.
func TestDisconnect(t *testing.T) {
	t.Parallel()
	a, b := newGateway(t, "a"), newGateway(t, "b")
	timing := Timing{Heartbeat: time.Hour, FrameTimeout: time.Hour, StaleAfter: time.Hour, BackoffMin: time.Hour, BackoffMax: time.Hour, Handshake: time.Hour}
	startServerTiming(t, timing, b, "", a.peer)
	await(t, "the server", func() bool {
		conn, err := net.Dial("tcp", b.peer.Addr.String())
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	c := startClient(t, a.id, timing)
	c.SetPeers([]Peer{b.peer}, testClusters)
	c.Reconnect("b", "b-a") // before the first attempt, which is the retry
	await(t, "a connection", func() bool { return c.count("feed connected") == 1 })
	c.Disconnect("b", "other")
	c.Disconnect("b", "b-a")
	await(t, "the end of the session", func() bool { return !c.States()[0].Connected })
	if state := c.States()[0]; state.Err != errLinkDown.Error() {
		t.Errorf("state is %+v", state)
	}
	c.Reconnect("b", "b-a")
	await(t, "a second connection", func() bool { return c.count("feed connected") == 2 })
}

func TestForgedClusterIsRefused(t *testing.T) {
	t.Parallel()
	a, b := newGateway(t, "a"), newGateway(t, "b")
	b.peer.AllowedPrefixes = []netip.Prefix{netip.MustParsePrefix("242.2.0.0/24")}
	s := startServer(t, b, "", a.peer)
	inside := model.ExportHost{IPs: []netip.Addr{netip.MustParseAddr("242.2.0.5")}}
	outside := model.ExportHost{IPs: []netip.Addr{netip.MustParseAddr("242.3.0.5")}}
	view := map[string]RemoteState{"b": {State: stateOf("b", ready("one", outside, inside))}, "c": {State: stateOf("c", ready("one"))}}
	publishStates(t, s.local, view)
	c := startClient(t, a.id, testTiming, b.peer)
	c.awaitState(t, stateOf("b", ready("one", inside)))
	publishStates(t, s.local, map[string]RemoteState{
		"b": {State: stateOf("b", ready("one", inside), ready("two", outside))}, "c": {State: stateOf("c", ready("two"))},
	})
	c.awaitState(t, stateOf("b", ready("one", inside), ready("two")))
	if _, forged := c.Snapshot()["c"]; forged {
		t.Error("b published c")
	}
	if n := c.count("another cluster"); n != 1 {
		t.Errorf("logged %d times, want once", n)
	}
}

// TestRestartedRelay restarts a gateway of this cluster. It relays nothing before its own feeds
// connect. Until then the last state counts.
func TestRestartedRelay(t *testing.T) {
	t.Parallel()
	own := newLocalGateway(t)
	s := startServer(t, own, "lo")
	publishStates(t, s.relay, map[string]RemoteState{"b": {State: stateOf("b", ready("one"))}, "unknown": {State: stateOf("unknown")}})
	c := startClient(t, Identity{Cluster: "a", Node: "a-w1"}, testTiming, own.peer)
	c.awaitState(t, stateOf("b", ready("one")))
	s.stop()
	s = startServer(t, own, "lo")
	await(t, "a second connection", func() bool { return c.count("feed connected") == 2 })
	c.awaitState(t, stateOf("b", ready("one")))
	if states := c.Snapshot(); len(states) != 1 {
		t.Errorf("the state of a cluster outside the fabric remains: %v", states)
	}
	publishStates(t, s.relay, map[string]RemoteState{"b": {State: stateOf("b", ready("two"))}})
	c.awaitState(t, stateOf("b", ready("two")))
	publishStates(t, s.relay, nil)
	await(t, "the removal of the state", func() bool { return len(c.Snapshot()) == 0 })
}

// newLocalGateway returns a gateway of cluster a, for subscribers in the same cluster.
func newLocalGateway(t *testing.T) *gateway {
	t.Helper()
	if _, err := net.InterfaceByName("lo"); err != nil {
		t.Skip("needs a loopback interface")
	}
	g := newGateway(t, "a")
	g.peer.Device = "lo" // instead of the device between the nodes
	return g
}

func TestRelayInsideACluster(t *testing.T) {
	t.Parallel()
	own := newLocalGateway(t)
	s := startServer(t, own, "lo")
	view := map[string]RemoteState{"b": {State: stateOf("b", ready("one"))}, "c": {State: stateOf("c"), Stale: true}}
	publishStates(t, s.relay, view)
	publish(t, s, stateOf("a", ready("own")))
	node := Identity{Cluster: "a", Node: "a-w1"}
	c := startClient(t, node, testTiming, own.peer)
	c.awaitState(t, stateOf("b", ready("one")))
	c.awaitState(t, stateOf("c"))
	if _, own := c.Snapshot()["a"]; own {
		t.Error("the relay publishes the own cluster")
	}
	if relay := c.Relay(); len(relay) != 0 {
		t.Errorf("relayed states would be relayed again: %v", relay)
	}
	publishStates(t, s.relay, map[string]RemoteState{"c": {State: stateOf("c", ready("new"))}})
	c.awaitState(t, stateOf("c", ready("new")))
	if _, there := c.Snapshot()["b"]; there {
		t.Error("the state of a cluster that the relay removed remains")
	}
	for name, id := range map[string]Identity{"another cluster": {Cluster: "b", Node: "x"}, "no name": {Cluster: "a"}} {
		refused := startClient(t, id, testTiming, own.peer)
		await(t, "the refusal of "+name, func() bool { return strings.Contains(refused.States()[0].Err, "refused") })
	}
	impostor := newGateway(t, "a")
	impostor.peer.Device, impostor.peer.Addr = "lo", own.peer.Addr
	fooled := startClient(t, node, testTiming, impostor.peer)
	await(t, "the refusal of a server without the key", func() bool {
		return strings.Contains(fooled.States()[0].Err, "does not have the key")
	})
}

func TestFreshFeedIsPreferred(t *testing.T) {
	t.Parallel()
	c := NewClient(Config{Timing: testTiming})
	states := func(name string, stale bool) map[string]RemoteState {
		return map[string]RemoteState{"z": {State: stateOf("z", ready(name)), Stale: stale}}
	}
	c.clusters = []string{"z"}
	add := func(gateway, device string, connected, stale bool) {
		sub := &subscription{peer: Peer{Gateway: gateway, Device: device}, connected: true, states: states(gateway+device, stale)}
		c.subscriptions[subscriptionKey{"q", gateway, device}] = sub
		if !connected {
			c.disconnect(sub, time.Now())
		}
	}
	steps := []struct {
		gateway, device  string
		connected, stale bool
		want             string
	}{
		{"i", "hw", false, false, "ihw"}, // lost, but the only one
		{"e", "", false, false, "e"},     // lost later
		{"h", "hw", false, false, "hhw"},
		{"d", "hw", true, true, "dhw"},  // connected wins
		{"f", "hw", true, false, "fhw"}, // fresh wins
		{"g", "", true, false, "g"},     // direct wins
		{"b", "", true, false, "b"},     // by name
		{"c", "", true, false, "b"},
		{"a", "", false, false, "b"},
	}
	for _, step := range steps {
		add(step.gateway, step.device, step.connected, step.stale)
		for range 20 { // the order of a map is random
			if have := c.Snapshot()["z"].Exports[0].Name; have != step.want {
				t.Fatalf("after %+v: prefers %q", step, have)
			}
		}
	}
}

// TestPreferredLastState checks which of two last states counts: the later one, or the direct one if
// both feeds ended at the same time.
func TestPreferredLastState(t *testing.T) {
	t.Parallel()
	for later, want := range map[time.Duration]string{-time.Millisecond: "direct", 0: "direct", time.Millisecond: "relayed"} {
		c := NewClient(Config{Timing: testTiming})
		now := time.Now()
		c.lastStates[lastStateKey{"z", true}] = lastState{RemoteState{State: stateOf("z", ready("direct"))}, now}
		c.lastStates[lastStateKey{"z", false}] = lastState{RemoteState{State: stateOf("z", ready("relayed"))}, now.Add(later)}
		for range 20 { // the order of a map is random
			if have := c.Snapshot()["z"].Exports[0].Name; have != want {
				t.Fatalf("the relayed feed ended %s later: prefers the %s state, want the %s one", later, have, want)
			}
			if have := c.Relay()["z"].State.Exports[0].Name; have != "direct" {
				t.Fatalf("relays the %s state", have)
			}
		}
	}
}
