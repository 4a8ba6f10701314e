package feed

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/nodeagent/model"
)

// manyExports returns the state of a cluster as each round computes it. ready reports whether
// export i is ready.
func manyExports(count int, ready func(i int) bool) model.ClusterState {
	out := stateOf("b")
	for i := range count {
		out.Exports = append(out.Exports, model.ExportState{
			Namespace: "sample", Name: fmt.Sprintf("e%05d", i), Ready: ready(i),
			Offer: &mcs.Offer{
				Created: time.Unix(int64(i), 0).UTC(), Ports: []mcs.Port{{Name: "http", Protocol: "TCP", Port: 80}}, Families: []int{4},
				Addrs: []netip.Addr{netip.AddrFrom4([4]byte{242, 2, byte(i >> 8), byte(i)})}, Labels: map[string]string{"tier": "front"},
			},
		})
	}
	return out
}

func allReady(int) bool { return true }

func allReadyExcept(n int) func(int) bool { return func(i int) bool { return i != n } }

// TestOnlyChangesAreEncoded checks that equal exports are not encoded again, even in a recomputed
// state.
func TestOnlyChangesAreEncoded(t *testing.T) {
	t.Parallel()
	p := newPublication()
	publish := func(state model.ClusterState) *snapshot {
		publishStates(t, p, map[string]RemoteState{"b": {State: state}})
		current, _ := p.load()
		return current
	}
	first := publish(manyExports(20, allReady))
	if publish(manyExports(20, allReady)) != first {
		t.Error("an equal state is a new version")
	}
	second := publish(manyExports(21, allReadyExcept(7)))
	before, after := first.clusters["b"].exports, second.clusters["b"].exports
	for i := range before {
		if reused := &before[i].raw[0] == &after[i].raw[0]; reused != (i != 7) {
			t.Errorf("the encoding of export %d is reused: %t", i, reused)
		}
	}
	names := func(changes []change) (out []string) {
		for _, c := range changes {
			out = append(out, fmt.Sprintf("%s %t", c.Export, c.State != nil))
		}
		return out
	}
	forward, backward := changesBetween(first.clusters, second.clusters), changesBetween(second.clusters, first.clusters)
	if have, want := fmt.Sprint(names(forward), names(backward)), "[sample/e00007 true sample/e00020 true] [sample/e00007 true sample/e00020 false]"; have != want {
		t.Errorf("have %s, want %s", have, want)
	}
}

// TestCursor checks which version a subscriber receives next.
func TestCursor(t *testing.T) {
	t.Parallel()
	p := newPublication()
	publish := func(count int) {
		state := manyExports(count, allReady)
		publishStates(t, p, map[string]RemoteState{"b": {State: state}})
	}
	var position cursor
	for i, step := range []struct {
		publish int // exports, 0: nothing new
		changes int
	}{
		{publish: 0, changes: 0}, // the first version is empty
		{publish: 2, changes: 3}, // the cluster and two exports
		{publish: 0, changes: 0}, // heartbeat
		{publish: 3, changes: 1},
	} {
		if step.publish > 0 {
			publish(step.publish)
		}
		current, _ := p.load()
		if position.isAt(current) != (i > 0 && step.publish == 0) {
			t.Errorf("step %d: the subscriber has the current version: %t", i, position.isAt(current))
		}
		frames, err := position.advance(current)
		if err != nil {
			t.Fatal(err)
		}
		reply := updates(t, frames)
		if len(reply) != 1 || len(reply[0].Changes) != step.changes || reply[0].Version != current.version || reply[0].More {
			t.Errorf("step %d: %+v, want one frame with %d changes and version %d", i, reply, step.changes, current.version)
		}
		if err := position.check(poll{Version: current.version}); err != nil {
			t.Error(err)
		}
		next := poll{Version: current.version + 1}
		if position.check(poll{}) == nil || position.check(next) == nil {
			t.Errorf("step %d: a poll with another version is accepted", i)
		}
	}
}

// headless returns the state of a cluster with headless exports, without one of the endpoints.
func headless(exports, hosts, without int) model.ClusterState {
	out := stateOf("b")
	for e := range exports {
		export := model.ExportState{Namespace: "sample", Name: fmt.Sprintf("e%05d", e), Ready: true}
		for h := range hosts {
			if n := e*hosts + h; n != without {
				addr := netip.AddrFrom4([4]byte{242, 2, byte(n >> 8), byte(n)})
				export.Hosts = append(export.Hosts, model.ExportHost{Name: fmt.Sprintf("e%05d-%d", e, h), IPs: []netip.Addr{addr}})
			}
		}
		out.Exports = append(out.Exports, export)
	}
	return out
}

// BenchmarkChange compares the two ways to send one change of a cluster to one subscriber: the
// changed export (changes), or the whole cluster (whole). An operation encodes, decodes and
// applies; wire-B/op are the bytes that each subscriber receives.
func BenchmarkChange(b *testing.B) {
	for _, tt := range []struct {
		name          string
		before, after model.ClusterState
	}{
		{"20-services", manyExports(20, allReady), manyExports(20, allReadyExcept(10))},
		{
			"5000-services",
			manyExports(5000, allReady), manyExports(5000, allReadyExcept(2500)),
		},
		{"10000-endpoints-in-40", headless(40, 250, -1), headless(40, 250, 5000)},
		{"10000-endpoints-in-1000", headless(1000, 10, -1), headless(1000, 10, 5000)},
	} {
		var clusters [2]map[string]*encodedCluster
		for i, state := range []model.ClusterState{tt.before, tt.after} {
			encoded, err := encodeCluster(nil, RemoteState{State: state})
			if err != nil {
				b.Fatal(err)
			}
			clusters[i] = map[string]*encodedCluster{"b": encoded}
		}
		for _, kind := range []string{"changes", "whole"} {
			b.Run(tt.name+"/"+kind, func(b *testing.B) {
				r := receiverOf(Peer{Cluster: "b"}, ignore)
				mustApply(b, r, changesBetween(nil, clusters[0])...)
				sent := 0
				for i := 0; b.Loop(); i++ {
					from, to := clusters[i%2], clusters[(i+1)%2]
					if kind == "whole" {
						from = nil
					}
					frames, err := encodeUpdate(uint64(i+2), changesBetween(from, to))
					if err != nil {
						b.Fatal(err)
					}
					for _, raw := range frames {
						sent += len(raw)
						applyFrame(b, r, raw)
					}
				}
				b.ReportMetric(float64(sent)/float64(b.N), "wire-B/op")
			})
		}
	}
}

// BenchmarkPublish changes one of many exports: of this cluster, whose state each round computes
// again, and of one of five relayed clusters.
func BenchmarkPublish(b *testing.B) {
	for _, count := range []int{100, 1000, 5000} {
		states := [2]model.ClusterState{manyExports(count, allReady), manyExports(count, allReadyExcept(count/2))}
		for i := range states[0].Exports {
			states[1].Exports[i].Offer = states[0].Exports[i].Offer // computed once
		}
		b.Run(fmt.Sprintf("own/%d", count), func(b *testing.B) { benchmarkPublish(b, states, map[string]RemoteState{}) })
		b.Run(fmt.Sprintf("relay/%d", count), func(b *testing.B) {
			view := map[string]RemoteState{}
			for i := range 4 {
				view[fmt.Sprint("c", i)] = RemoteState{State: manyExports(count, allReady)}
			}
			benchmarkPublish(b, states, view)
		})
	}
}

func benchmarkPublish(b *testing.B, states [2]model.ClusterState, relayed map[string]RemoteState) {
	p := newPublication()
	var position cursor
	for i := 0; b.Loop(); i++ {
		relayed["b"] = RemoteState{State: states[i%2]}
		publishStates(b, p, relayed)
		current, _ := p.load()
		if _, err := position.advance(current); err != nil {
			b.Fatal(err)
		}
	}
}
