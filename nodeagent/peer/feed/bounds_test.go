package feed

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/nodeagent/model"
)

func offering(name string, change func(*mcs.Offer)) model.ExportState {
	e := ready(name)
	e.Offer = &mcs.Offer{Ports: []mcs.Port{{Name: "http", Protocol: "TCP", Port: 80}}, Families: []int{4}}
	change(e.Offer)
	return e
}

// passOn relays what an inbox heard to a node's inbox, and gives what that heard.
func passOn(t *testing.T, heard map[string]RemoteState) map[string]RemoteState {
	t.Helper()
	relay := newTopic()
	if err := relay.publish(heard); err != nil {
		t.Fatalf("what was taken cannot be passed on: %v", err)
	}
	current, _ := relay.load()
	raw, err := current.framesSince(nil)
	if err != nil {
		t.Fatalf("what was taken cannot be packed: %v", err)
	}
	node := &receiver{peer: Peer{Device: "hw-vx0"}, own: "self", warn: func(why string) { t.Errorf("the node refuses what its gateway took: %s", why) }}
	for _, f := range unpack(t, raw) {
		if _, err := node.apply(f); err != nil {
			t.Fatalf("the node refuses what its gateway took: %v", err)
		}
	}
	return node.states
}

// TestWhatIsTakenCanBePassedOn: what grows when it is encoded anew, is longer than
// any name is, or is no name at all, is left out, and the rest of the cluster stays.
func TestWhatIsTakenCanBePassedOn(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("<", 200<<10)
	host := func(change func(*model.ExportHost)) model.ExportState {
		h := model.ExportHost{Name: "db-0", IPs: []netip.Addr{netip.MustParseAddr("242.2.0.5")}}
		change(&h)
		return ready("bad", h)
	}
	tests := map[string]model.ExportState{
		"port name":         offering("bad", func(o *mcs.Offer) { o.Ports[0].Name = long }),
		"port name, short":  offering("bad", func(o *mcs.Offer) { o.Ports[0].Name = "a_b" }),
		"app protocol":      offering("bad", func(o *mcs.Offer) { o.Ports[0].AppProtocol = "<b>" }),
		"policy":            offering("bad", func(o *mcs.Offer) { o.InternalTrafficPolicy = "\n" }),
		"annotation":        offering("bad", func(o *mcs.Offer) { o.Annotations = map[string]string{"k": long} }),
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
			box := &receiver{peer: Peer{Cluster: "b"}, warn: func(why string) { warned = append(warned, why) }}
			good := offering("good", func(o *mcs.Offer) { o.Annotations = map[string]string{"k": strings.Repeat("<", 60<<10)} })
			for _, f := range []frame{
				{Kind: kindSnapshot, More: true, Clusters: []update{{Cluster: "b", Exports: []json.RawMessage{export(t, good)}}}},
				{Kind: kindDelta, Clusters: []update{{Cluster: "b", Exports: []json.RawMessage{export(t, bad)}}}},
			} {
				if _, err := box.apply(f); err != nil {
					t.Fatal(err)
				}
			}
			if len(warned) == 0 {
				t.Error("nothing is told")
			}
			if d := cmp.Diff(box.states, passOn(t, box.states), byValue); d != "" {
				t.Errorf("(-gateway +node):\n%s", d)
			}
			have := box.states["b"].Live.Exports
			if i := len(have) - 1; i < 0 || !cmp.Equal(have[i], good, byValue) {
				t.Errorf("the other export is gone: %+v", have)
			}
			for _, e := range have {
				if e.Name != "good" && (e.Offer != nil || len(e.Hosts) > 0 || len(e.Families) > 0 || e.Namespace != "sample") {
					t.Errorf("taken: %+v", e)
				}
			}
		})
	}
}

// TestOneClusterFailsAlone: what cannot be encoded of one cluster is left out and
// told; its other exports and those of others go on.
func TestOneClusterFailsAlone(t *testing.T) {
	t.Parallel()
	huge := offering("huge", func(o *mcs.Offer) { o.Ports[0].Name = strings.Repeat("<", 200<<10) })
	edges := &model.TransitAdvert{Edges: make([]model.TransitEdge, 1<<20)}
	relay := newTopic()
	box := &receiver{peer: Peer{Device: "hw-vx0"}, own: "self", warn: func(why string) { t.Errorf("refused: %s", why) }}
	var sent *version
	for round := range 3 {
		bad := live("bad", ready("one"), huge)
		bad.Transit = edges
		good := live("good", ready(fmt.Sprintf("round-%d", round)))
		err := relay.publish(map[string]RemoteState{"bad": {Live: bad}, "good": {Live: good}})
		if round == 0 && (err == nil || !strings.Contains(err.Error(), "sample/huge") || !strings.Contains(err.Error(), "bad")) {
			t.Errorf("told is %v", err)
		}
		current, _ := relay.load()
		raw, err := current.framesSince(sent)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range unpack(t, raw) {
			if _, err := box.apply(f); err != nil {
				t.Fatal(err)
			}
		}
		sent = current
		want := map[string]RemoteState{"bad": {Live: live("bad", ready("one"))}, "good": {Live: good}}
		if d := cmp.Diff(want, box.states, byValue); d != "" {
			t.Fatalf("round %d (-want +got):\n%s", round, d)
		}
	}
}

// TestLinksAreBounded: what a cluster says of its links is no larger than the links
// that a cluster can have; more is as if nothing was said.
func TestLinksAreBounded(t *testing.T) {
	t.Parallel()
	edge := func(name string) string { return `{"cluster":"` + name + `","rank":3,"mtu":1400}` }
	tests := map[string]struct {
		passing string
		taken   bool
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
			box := &receiver{peer: Peer{Cluster: "b"}, warn: func(string) {}}
			raw := export(t, offering("one", func(o *mcs.Offer) { o.Annotations = map[string]string{"k": strings.Repeat("<", 60<<10)} }))
			u := update{Cluster: "b", Shape: "0123456789abcdef", Transit: json.RawMessage(tt.passing), Exports: []json.RawMessage{raw}}
			if _, err := box.apply(frame{Kind: kindSnapshot, Clusters: []update{u}}); err != nil {
				t.Fatal(err)
			}
			if have := box.states["b"].Live; (have.Transit != nil) != tt.taken || len(have.Exports) != 1 {
				t.Errorf("taken: %.200v", have)
			}
			if d := cmp.Diff(box.states, passOn(t, box.states), byValue); d != "" {
				t.Errorf("(-gateway +node):\n%.2000s", d)
			}
		})
	}
}

// Not parallel: what other tests allocate would count. Each of these is the cheapest
// way to make a receiver remember much.
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
			box := &receiver{peer: Peer{Cluster: "b"}, warn: func(string) {}}
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			if _, err := box.apply(frame{Kind: kindSnapshot}); err != nil {
				t.Fatal(err)
			}
			var err error
			for i := 0; err == nil && i < 1<<20; i++ {
				_, err = box.apply(frame{Kind: kindDelta, More: true, Clusters: []update{{Cluster: "b", Exports: []json.RawMessage{[]byte(item(i))}}}})
			}
			if err == nil || !strings.Contains(err.Error(), "more than") {
				t.Errorf("it ended with %v", err)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 3*maxCluster/2 || grown < maxCluster/8 {
				t.Errorf("%d MiB are remembered, the bound is %d", grown>>20, maxCluster>>20)
			}
			runtime.KeepAlive(box)
		})
	}
}

// TestRelayBreaksOneClusterOnly: a gateway of this cluster, which relays what many say,
// is followed further when one of them is too much.
func TestRelayBreaksOneClusterOnly(t *testing.T) {
	t.Parallel()
	var warned []string
	box := &receiver{peer: Peer{Device: "hw-vx0"}, own: "self", warn: func(why string) { warned = append(warned, why) }}
	say := func(kind, cluster, name, more string) {
		t.Helper()
		raw := json.RawMessage(fmt.Sprintf(`{"namespace":"n","name":%q%s}`, name, more))
		if _, err := box.apply(frame{Kind: kind, Clusters: []update{{Cluster: cluster, Exports: []json.RawMessage{raw}}}}); err != nil {
			t.Fatal(err)
		}
	}
	say(kindSnapshot, "good", "one", "")
	hosts := `,"hosts":[` + strings.Repeat(`{"ips":["242.2.0.5"]},`, 9999) + `{"ips":["242.2.0.5"]}]`
	for i := range 2 * maxCluster / (10000 * hostCost) {
		say(kindDelta, "bad", fmt.Sprintf("e%d", i), hosts)
	}
	if _, heard := box.states["bad"]; heard || len(warned) == 0 {
		t.Errorf("too much of one cluster counts, told was %q", warned)
	}
	say(kindDelta, "good", "two", "")
	if n := len(box.states["good"].Live.Exports); n != 2 {
		t.Errorf("%d exports of the other cluster, want 2", n)
	}
	if _, err := box.apply(frame{Kind: kindDelta, Clusters: []update{{Cluster: "bad", Gone: true}}}); err != nil {
		t.Fatal(err)
	}
	say(kindDelta, "bad", "small", "")
	if n := len(box.states["bad"].Live.Exports); n != 1 {
		t.Errorf("%d exports of the cluster that began anew, want 1", n)
	}
}
