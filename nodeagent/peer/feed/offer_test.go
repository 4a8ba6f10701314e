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

func offered(name string, change func(*mcs.Offer)) model.ExportState {
	o := &mcs.Offer{
		Created: time.Unix(100, 0).UTC(), Ports: []mcs.Port{{Name: "http", Protocol: "TCP", Port: 80}}, Families: []int{4},
		Addrs: []netip.Addr{netip.MustParseAddr("242.2.192.9")},
	}
	if change != nil {
		change(o)
	}
	return model.ExportState{Namespace: "team-a", Name: name, Ready: true, Offer: o}
}

// TestOffersOfPeers: one that no service makes, or at somebody else's address, is
// left out; the export itself is not.
func TestOffersOfPeers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*mcs.Offer)
		device string
		want   string // what is told; empty = it is taken
	}{
		{name: "good"},
		{name: "none yet", change: func(o *mcs.Offer) { o.Addrs = nil }},
		{name: "foreign address", change: func(o *mcs.Offer) { o.Addrs = []netip.Addr{netip.MustParseAddr("10.0.0.1")} }, want: "offers an address outside its blocks"},
		{name: "one of two", want: "offers an address outside its blocks", change: func(o *mcs.Offer) {
			o.Addrs = append(o.Addrs, netip.MustParseAddr("fd00::1"))
		}},
		{name: "relayed", device: "hw-vx0", change: func(o *mcs.Offer) { o.Addrs = []netip.Addr{netip.MustParseAddr("10.0.0.1")} }},
		{name: "too many addresses", want: "offers what no service is", change: func(o *mcs.Offer) {
			o.Addrs = slices.Repeat(o.Addrs, 3)
		}},
		{name: "too many ports", want: "offers what no service is", change: func(o *mcs.Offer) { o.Ports = slices.Repeat(o.Ports, 300) }},
		{name: "no port", want: "offers what no service is", change: func(o *mcs.Offer) { o.Ports[0].Port = 0 }},
		{name: "no protocol", want: "offers what no service is", change: func(o *mcs.Offer) { o.Ports[0].Protocol = "ICMP" }},
		{name: "no family", want: "offers what no service is", change: func(o *mcs.Offer) { o.Families = []int{5} }},
		{name: "labels", want: "offers what no service is", change: func(o *mcs.Offer) {
			o.Labels = map[string]string{"a": strings.Repeat("x", 70<<10)}
		}},
		{name: "relayed labels", device: "hw-vx0", want: "offers what no service is", change: func(o *mcs.Offer) {
			o.Annotations = map[string]string{"a": strings.Repeat("x", 70<<10)}
		}},
	}
	for _, tt := range tests {
		var told []string
		box := &receiver{
			peer: Peer{Cluster: "b", Device: tt.device, AllowedPrefixes: []netip.Prefix{netip.MustParsePrefix("242.2.0.0/16")}},
			warn: func(why string) { told = append(told, why) },
		}
		f := frame{Kind: kindSnapshot, Clusters: []update{{Cluster: "b", Exports: []json.RawMessage{export(t, offered("api", tt.change))}}}}
		if _, err := box.apply(f); err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		have := box.states["b"].Live.Exports
		if len(have) != 1 || (have[0].Offer != nil) != (tt.want == "") || strings.Join(told, ",") != tt.want {
			t.Errorf("%s: %+v, told %q, want %q", tt.name, have, told, tt.want)
		}
	}
}

// TestOffersAreOfOnesOwn: a peer cannot offer in the name of another cluster.
func TestOffersAreOfOnesOwn(t *testing.T) {
	t.Parallel()
	var told []string
	box := &receiver{peer: Peer{Cluster: "b"}, own: "a", warn: func(why string) { told = append(told, why) }}
	raw := []json.RawMessage{export(t, offered("api", nil))}
	f := frame{Kind: kindSnapshot, Clusters: []update{{Cluster: "c", Exports: raw}, {Cluster: "a", Exports: raw}, {Cluster: "b", Exports: raw}}}
	if _, err := box.apply(f); err != nil {
		t.Fatal(err)
	}
	if names := slices.Sorted(maps.Keys(box.states)); !slices.Equal(names, []string{"b"}) || len(told) != 2 {
		t.Errorf("heard of %v, told %q", names, told)
	}
}

// FuzzOffer: whatever a peer says, nothing breaks, and what is taken holds what Check
// and the peer's blocks allow.
func FuzzOffer(f *testing.F) {
	raw, err := json.Marshal(offered("api", nil))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte(`{"namespace":"n","name":"e","offer":{"created":"2026-01-02T03:04:05Z","headless":true,"families":[6,4]},"hosts":[{"label":"10-0-0-1","ips":["242.2.0.1"],"ports":{"TCP/80":8080}}]}`))
	f.Add([]byte(`{"namespace":"n","name":"e","offer":{"addrs":["242.2.0.1","::ffff:1.2.3.4"]}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		blocks := []netip.Prefix{netip.MustParsePrefix("242.2.0.0/16")}
		box := &receiver{peer: Peer{Cluster: "b", AllowedPrefixes: blocks}, warn: func(string) {}}
		e, err := box.decode(raw)
		if err != nil || e.Offer == nil {
			return
		}
		outside := slices.ContainsFunc(e.Offer.Addrs, func(a netip.Addr) bool { return !blocks[0].Contains(a) })
		if err := e.Offer.Check(); err != nil || outside {
			t.Errorf("taken: %+v (%v)", e.Offer, err)
		}
	})
}
