package feed

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/nodeagent/model"
)

func exportWithOffer(name string, change func(*mcs.Offer)) model.ExportState {
	e := ready(name)
	e.Offer = &mcs.Offer{Ports: []mcs.Port{{Name: "http", Protocol: "TCP", Port: 80}}, Families: []int{4}}
	change(e.Offer)
	return e
}

// relayed returns the states that a node receives from a gateway that received states.
func relayed(t *testing.T, states map[string]RemoteState) map[string]RemoteState {
	t.Helper()
	p := newPublication()
	if err := p.publish(states); err != nil {
		t.Fatalf("accepted state cannot be relayed: %v", err)
	}
	node := receiverOf(Peer{Device: "hw-vx0"}, func(reason string) { t.Errorf("the node refuses what its gateway accepted: %s", reason) })
	receive(t, p, new(cursor), node)
	return node.states
}

// TestAcceptedStateCanBeRelayed checks that exports are omitted that grow when encoded again, are
// longer than any name, or have invalid names. The rest of the cluster remains.
func TestAcceptedStateCanBeRelayed(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("<", 200<<10)
	host := func(change func(*model.ExportHost)) model.ExportState {
		h := model.ExportHost{Name: "db-0", IPs: []netip.Addr{netip.MustParseAddr("242.2.0.5")}}
		change(&h)
		return ready("bad", h)
	}
	tests := map[string]model.ExportState{
		"port name": exportWithOffer("bad", func(o *mcs.Offer) {
			o.Ports[0].Name = long
		}),
		"port name, short":  exportWithOffer("bad", func(o *mcs.Offer) { o.Ports[0].Name = "a_b" }),
		"app protocol":      exportWithOffer("bad", func(o *mcs.Offer) { o.Ports[0].AppProtocol = "<b>" }),
		"policy":            exportWithOffer("bad", func(o *mcs.Offer) { o.InternalTrafficPolicy = "\n" }),
		"annotation":        exportWithOffer("bad", func(o *mcs.Offer) { o.Annotations = map[string]string{"k": long} }),
		"families":          {Namespace: "sample", Name: "bad", Families: make([]int, 1000)},
		"a family twice":    {Namespace: "sample", Name: "bad", Families: []int{4, 4}},
		"namespace":         {Namespace: "Sample", Name: "bad"},
		"name":              {Namespace: "sample", Name: "bad.bad"},
		"host name":         host(func(h *model.ExportHost) { h.Name = "a..b" }),
		"host label":        host(func(h *model.ExportHost) { h.Label = "a b" }),
		"host port":         host(func(h *model.ExportHost) { h.Ports = map[string]int{"http": 80} }),
		"host address":      host(func(h *model.ExportHost) { h.IPs = slices.Repeat(h.IPs, 9) }),
		"host port, number": host(func(h *model.ExportHost) { h.Ports = map[string]int{"TCP/80": 1 << 20} }),
	}
	for name, bad := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var warned []string
			r := receiverOf(Peer{Cluster: "b"}, func(reason string) { warned = append(warned, reason) })
			good := exportWithOffer("good", func(o *mcs.Offer) { o.Annotations = map[string]string{"k": strings.Repeat("<", 60<<10)} })
			mustApply(t, r,
				clusterChange("b", "{}"), setExport(t, "b", good), setExport(t, "b", bad))
			if len(warned) == 0 {
				t.Error("no warning")
			}
			if d := cmp.Diff(r.states, relayed(t, r.states), byValue); d != "" {
				t.Errorf("(-gateway +node):\n%s", d)
			}
			have := r.states["b"].State.Exports
			if i := len(have) - 1; i < 0 || !cmp.Equal(have[i], good, byValue) {
				t.Errorf("the other export is missing: %+v", have)
			}
			for _, e := range have {
				if e.Name != "good" && (e.Offer != nil || len(e.Hosts) > 0 || len(e.Families) > 0 || e.Namespace != "sample") {
					t.Errorf("accepted: %+v", e)
				}
			}
		})
	}
}

// TestOneClusterFailsAlone checks that an export that cannot be encoded is omitted and reported.
// Other exports and other clusters continue.
func TestOneClusterFailsAlone(t *testing.T) {
	t.Parallel()
	huge := exportWithOffer("huge", func(o *mcs.Offer) { o.Ports[0].Name = strings.Repeat("<", 200<<10) })
	edges := &model.TransitAdvert{Edges: make([]model.TransitEdge, 1<<20)}
	relay := newPublication()
	r := receiverOf(Peer{Device: "hw-vx0"}, func(reason string) { t.Errorf("refused: %s", reason) })
	var position cursor
	for round := range 3 {
		bad := stateOf("bad", ready("one"), huge)
		bad.Transit = edges
		good := stateOf("good", ready(fmt.Sprintf("round-%d", round)))
		err := relay.publish(map[string]RemoteState{"bad": {State: bad}, "good": {State: good}})
		if round == 0 && (err == nil || !strings.Contains(err.Error(), "sample/huge") || !strings.Contains(err.Error(), "bad")) {
			t.Errorf("the error is %v", err)
		}
		receive(t, relay, &position, r)
		want := map[string]RemoteState{"bad": {State: stateOf("bad", ready("one"))}, "good": {State: good}}
		if d := cmp.Diff(want, r.states, byValue); d != "" {
			t.Fatalf("round %d (-want +got):\n%s", round, d)
		}
	}
}

// TestLinksAreBounded checks that a cluster reports at most the links that a cluster can have.
// Otherwise all its links are omitted.
func TestLinksAreBounded(t *testing.T) {
	t.Parallel()
	edge := func(name string) string { return `{"cluster":"` + name + `","rank":3,"mtu":1400}` }
	tests := map[string]struct {
		transit  string
		accepted bool
	}{
		"as many as there are": {`{"edges":[` + strings.Repeat(edge(strings.Repeat("c", 63))+",", maxEdges-1) + edge("d") + `]}`, true},
		"too many":             {`{"edges":[` + strings.Repeat("{},", 300<<10) + `{}]}`, false},
		"no name":              {`{"edges":[` + edge("<") + `]}`, false},
		"no rank":              {`{"edges":[{"cluster":"c","rank":-1}]}`, false},
		"no MTU":               {`{"edges":[{"cluster":"c","mtu":70000}]}`, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := receiverOf(Peer{Cluster: "b"}, ignore)
			large := exportWithOffer("one", func(o *mcs.Offer) { o.Annotations = map[string]string{"k": strings.Repeat("<", 60<<10)} })
			mustApply(t, r, clusterChange("b", `{"shape":"0123456789abcdef","transit":`+tt.transit+`}`), setExport(t, "b", large))
			if have := r.states["b"].State; (have.Transit != nil) != tt.accepted || len(have.Exports) != 1 {
				t.Errorf("accepted: %.200v", have)
			}
			if d := cmp.Diff(r.states, relayed(t, r.states), byValue); d != "" {
				t.Errorf("(-gateway +node):\n%.2000s", d)
			}
		})
	}
}

// Not parallel: allocations of other tests would count. Each case is the cheapest way to make a
// receiver store much.
func TestStateIsBoundedInMemory(t *testing.T) {
	many := func(part string, n int) string { return strings.TrimSuffix(strings.Repeat(part+",", n), ",") }
	tests := map[string]func(i int) string{
		"exports": func(i int) string { return fmt.Sprintf(`{"namespace":"n","name":"e%d"}`, i) },
		"hosts": func(i int) string {
			return fmt.Sprintf(`{"namespace":"n","name":"e%d","hosts":[%s]}`, i, many(`{"ips":["242.2.0.5"]}`, 10000))
		},
		"ports of hosts": func(i int) string {
			return fmt.Sprintf(`{"namespace":"n","name":"e%d","hosts":[%s]}`, i, many(`{"ips":["242.2.0.5"],"ports":{"TCP/1":2}}`, 5000))
		},
		"offers": func(i int) string {
			return fmt.Sprintf(`{"namespace":"n","name":"e%d","offer":{"ports":[%s]}}`, i, many(`{"protocol":"TCP","port":1}`, 256))
		},
		"labels": func(i int) string {
			labels := make([]string, 2000)
			for j := range labels {
				labels[j] = fmt.Sprintf(`"k%d":""`, j)
			}
			return fmt.Sprintf(`{"namespace":"n","name":"e%d","offer":{"labels":{%s}}}`, i, strings.Join(labels, ","))
		},
	}
	for name, item := range tests {
		t.Run(name, func(t *testing.T) {
			r := receiverOf(Peer{Cluster: "b"}, ignore)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			mustApply(t, r, clusterChange("b", "{}"))
			var err error
			for i := 0; err == nil && i < 1<<20; i++ {
				_, err = r.apply(update{Version: 1, More: true, Changes: []change{setRawExport("b", fmt.Sprintf("e%d", i), item(i))}})
			}
			if err == nil || !strings.Contains(err.Error(), "more than") {
				t.Errorf("the error is %v", err)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 3*maxClusterMemory/2 || grown < maxClusterMemory/8 {
				t.Errorf("%d MiB are stored, the bound is %d", grown>>20, maxClusterMemory>>20)
			}
			runtime.KeepAlive(r)
		})
	}
}

// TestRelayBreaksOneClusterOnly checks that one cluster that exceeds a bound does not end the feed
// of a gateway of this cluster, which relays many.
func TestRelayBreaksOneClusterOnly(t *testing.T) {
	t.Parallel()
	var warned []string
	r := receiverOf(Peer{Device: "hw-vx0"}, func(reason string) { warned = append(warned, reason) })
	mustApply(t, r, clusterChange("good", "{}"), clusterChange("bad", "{}"), setRawExport("good", "one", `{"namespace":"n","name":"one"}`))
	hosts := `,"hosts":[` + strings.Repeat(`{"ips":["242.2.0.5"]},`, 9999) + `{"ips":["242.2.0.5"]}]`
	for i := range 2 * maxClusterMemory / (10000 * hostCost) {
		name := fmt.Sprintf("e%d", i)
		mustApply(t, r, setRawExport("bad", name, fmt.Sprintf(`{"namespace":"n","name":%q%s}`, name, hosts)))
	}
	if _, exists := r.states["bad"]; exists || len(warned) == 0 {
		t.Errorf("a cluster above the bound counts, the warnings are %q", warned)
	}
	mustApply(t, r, setRawExport("good", "two", `{"namespace":"n","name":"two"}`))
	if n := len(r.states["good"].State.Exports); n != 2 {
		t.Errorf("%d exports of the other cluster, want 2", n)
	}
	mustApply(t, r, change{Cluster: "bad"})
	mustApply(t, r, clusterChange("bad", "{}"), setRawExport("bad", "small", `{"namespace":"n","name":"small"}`))
	if n := len(r.states["bad"].State.Exports); n != 1 {
		t.Errorf("%d exports of the cluster that was removed and published again, want 1", n)
	}
}

// TestRelayedClustersAreBounded checks that clusters without exports and refused clusters count
// too.
func TestRelayedClustersAreBounded(t *testing.T) {
	t.Parallel()
	r := receiverOf(Peer{Device: "hw-vx0"}, ignore)
	edges := strings.TrimSuffix(strings.Repeat(`{"cluster":"c"},`, maxEdges), ",")
	r.size = maxRelayMemory - 10*clusterCost - maxEdges*entryCost // a feed that is almost full
	mustApply(t, r, clusterChange("links", `{"transit":{"edges":[`+edges+`]}}`))
	for i := range 9 {
		mustApply(t, r, clusterChange(fmt.Sprintf("c%d", i), "{}"))
	}
	if n := len(r.states); n != 10 {
		t.Fatalf("%d clusters within the bound, want 10", n)
	}
	for i := range 5000 { // in an update that never ends
		name := fmt.Sprintf("e%d", i)
		u := update{Version: 2, More: true, Changes: []change{{Cluster: "links"}, clusterChange(name, "{}"), {Cluster: name}, {Cluster: "x" + name}, clusterChange("links", "{}")}}
		if _, err := r.apply(u); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(r.changed); n > 1 {
		t.Errorf("%d changed clusters are stored, want 1", n)
	}
	mustApply(t, r, change{Cluster: "links"}, clusterChange("links", `{"transit":{"edges":[`+edges+`]}}`))
	var err error
	accepted := 0
	for i := 0; err == nil && i < 2*maxRefusedClusters; i++ {
		_, err = r.apply(update{Version: 2, Changes: []change{clusterChange(fmt.Sprintf("d%d", i), "{}")}})
		accepted = len(r.states)
	}
	if err == nil || accepted != 10 || len(r.refused) != maxRefusedClusters {
		t.Errorf("%d clusters, %d refused, the error is %v", accepted, len(r.refused), err)
	}
}

// TestLoggedRefusalsAreBounded: unauthenticated clients choose names that are part of the reasons,
// so neither the log nor the stored reasons may grow with their number.
func TestLoggedRefusalsAreBounded(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	s := NewServer(Config{Timing: testTiming, Log: slog.New(slog.NewTextHandler(&log, nil))})
	client, conn := net.Pipe()
	defer func() { _, _ = client.Close(), conn.Close() }()
	for i := range 2 * maxLoggedRefusals {
		s.warnRefused(conn, fmt.Errorf("cluster %d: %w", i, errRefused))
	}
	if lines := strings.Count(log.String(), "\n"); lines != maxLoggedRefusals || len(s.warned) != maxLoggedRefusals {
		t.Errorf("%d lines, %d reasons, want %d", lines, len(s.warned), maxLoggedRefusals)
	}
}
