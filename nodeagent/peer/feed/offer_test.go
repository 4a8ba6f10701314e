package feed

import (
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/nodeagent/model"
)

func exportWithAddrs(name string, change func(*mcs.Offer)) model.ExportState {
	o := &mcs.Offer{
		Created: time.Unix(100, 0).UTC(), Ports: []mcs.Port{{Name: "http", Protocol: "TCP", Port: 80}}, Families: []int{4},
		Addrs: []netip.Addr{netip.MustParseAddr("242.2.192.9")},
	}
	if change != nil {
		change(o)
	}
	return model.ExportState{Namespace: "team-a", Name: name, Ready: true, Offer: o}
}

// TestOffersOfPeers checks that an offer that no Service can have, or at a foreign address, is
// omitted. The export remains.
func TestOffersOfPeers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*mcs.Offer)
		device string
		want   string // warning; empty: the offer is accepted
	}{
		{name: "good"},
		{name: "none yet", change: func(o *mcs.Offer) { o.Addrs = nil }},
		{name: "foreign address", change: func(o *mcs.Offer) { o.Addrs = []netip.Addr{netip.MustParseAddr("10.0.0.1")} }, want: "publishes an offer outside its prefixes"},
		{name: "one of two", want: "publishes an offer outside its prefixes", change: func(o *mcs.Offer) {
			o.Addrs = append(o.Addrs, netip.MustParseAddr("fd00::1"))
		}},
		{name: "relayed", device: "hw-vx0", change: func(o *mcs.Offer) { o.Addrs = []netip.Addr{netip.MustParseAddr("10.0.0.1")} }},
		{name: "too many addresses", want: "publishes an invalid offer", change: func(o *mcs.Offer) {
			o.Addrs = slices.Repeat(o.Addrs, 3)
		}},
		{name: "too many ports", want: "publishes an invalid offer", change: func(o *mcs.Offer) { o.Ports = slices.Repeat(o.Ports, 300) }},
		{name: "no port", want: "publishes an invalid offer", change: func(o *mcs.Offer) { o.Ports[0].Port = 0 }},
		{name: "no protocol", want: "publishes an invalid offer", change: func(o *mcs.Offer) { o.Ports[0].Protocol = "ICMP" }},
		{name: "no family", want: "publishes an invalid offer", change: func(o *mcs.Offer) { o.Families = []int{5} }},
		{name: "labels", want: "publishes an invalid offer", change: func(o *mcs.Offer) {
			o.Labels = map[string]string{"a": strings.Repeat("x", 70<<10)}
		}},
		{name: "relayed labels", device: "hw-vx0", want: "publishes an invalid offer", change: func(o *mcs.Offer) {
			o.Annotations = map[string]string{"a": strings.Repeat("x", 70<<10)}
		}},
	}
	for _, tt := range tests {
		var warned []string
		r := receiverOf(Peer{Cluster: "b", Device: tt.device, AllowedPrefixes: []netip.Prefix{netip.MustParsePrefix("242.2.0.0/16")}},
			func(reason string) { warned = append(warned, reason) })
		export := setExport(t, "b", exportWithAddrs("api", tt.change))
		mustApply(t, r, clusterChange("b", "{}"), export)
		have := r.states["b"].State.Exports
		if len(have) != 1 || (have[0].Offer != nil) != (tt.want == "") || strings.Join(warned, ",") != tt.want {
			t.Errorf("%s: %+v, warned %q, want %q", tt.name, have, warned, tt.want)
		}
	}
}

// TestPeerPublishesItsOwnClusterOnly checks that a peer cannot publish another cluster, nor this
// agent's.
func TestPeerPublishesItsOwnClusterOnly(t *testing.T) {
	t.Parallel()
	var warned []string
	r := newReceiver(Peer{Cluster: "b"}, "a", nil, func(reason string) { warned = append(warned, reason) })
	for _, cluster := range []string{"c", "a", "b"} {
		export := setExport(t, cluster, exportWithAddrs("api", nil))
		mustApply(t, r, clusterChange(cluster, "{}"), export)
	}
	if names := slices.Sorted(maps.Keys(r.states)); !slices.Equal(names, []string{"b"}) || len(warned) != 4 {
		t.Errorf("accepted %v, warned %q", names, warned)
	}
	relay := newReceiver(Peer{Cluster: "a", Device: "hw-vx0"}, "a", nil, ignore)
	mustApply(t, relay, clusterChange("a", "{}"), clusterChange("b", "{}"))
	if names := slices.Sorted(maps.Keys(relay.states)); !slices.Equal(names, []string{"b"}) {
		t.Errorf("accepted %v of a relay", names)
	}
}

// FuzzOffer checks that an accepted offer is valid and inside the peer's prefixes.
func FuzzOffer(f *testing.F) {
	raw, err := json.Marshal(exportWithAddrs("api", nil))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte(`{"namespace":"n","name":"e","offer":{"created":"2026-01-02T03:04:05Z","headless":true,"families":[6,4]},"hosts":[{"label":"10-0-0-1","ips":["242.2.0.1"],"ports":{"TCP/80":8080}}]}`))
	f.Add([]byte(`{"namespace":"n","name":"e","offer":{"addrs":["242.2.0.1","::ffff:1.2.3.4"]}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		prefixes := []netip.Prefix{netip.MustParsePrefix("242.2.0.0/16")}
		r := receiverOf(Peer{Cluster: "b", AllowedPrefixes: prefixes}, ignore)
		e, err := r.decodeExport(raw)
		if err != nil || e.Offer == nil {
			return
		}
		outside := slices.ContainsFunc(e.Offer.Addrs, func(a netip.Addr) bool { return !prefixes[0].Contains(a) })
		if err := e.Offer.Check(); err != nil || outside {
			t.Errorf("accepted: %+v (%v)", e.Offer, err)
		}
	})
}
