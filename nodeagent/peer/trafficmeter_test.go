package peer

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/schema/fabric"
)

func TestTrafficMeter(t *testing.T) {
	t.Parallel()
	a, b, c := netip.MustParseAddr("242.2.0.0"), netip.MustParseAddr("242.3.0.0"), netip.MustParseAddr("10.9.0.0")
	tunnels := netip.MustParseAddr("241.0.0.0")
	m := &trafficMeter{}
	m.setPrefixes(map[netip.Addr][]string{a: {"g2"}, c: {"g2"}, b: {"hub", "g3"}})
	now := time.Unix(1e9, 0)
	steps := []struct {
		after   time.Duration
		packets map[netip.Addr]uint64
		want    []string
		changed bool
	}{
		// Packets of the time before the start, and probes, are no traffic.
		{0, map[netip.Addr]uint64{a: 7, b: 9, tunnels: 100}, nil, false},
		{time.Second, map[netip.Addr]uint64{a: 7, b: 9, tunnels: 200}, nil, false},
		{time.Second, map[netip.Addr]uint64{a: 8, b: 9, tunnels: 300}, []string{"g2"}, true},
		// A prefix that other clusters forward to counts for the next cluster on the path.
		{trafficTimeout / 2, map[netip.Addr]uint64{a: 8, b: 10}, []string{"g2", "g3", "hub"}, true},
		{trafficTimeout/2 - 1, map[netip.Addr]uint64{a: 8, b: 10}, []string{"g2", "g3", "hub"}, false},
		{1, map[netip.Addr]uint64{a: 8, b: 10}, []string{"g3", "hub"}, true},
		// The elements were written again, one of them was used since.
		{1, map[netip.Addr]uint64{a: 0, b: 0, c: 1}, []string{"g2", "g3", "hub"}, true},
		{trafficTimeout, nil, nil, true},
	}
	for i, s := range steps {
		now = now.Add(s.after)
		busy, changed := m.update(s.packets, now)
		if have := slices.Sorted(maps.Keys(busy)); !slices.Equal(have, s.want) || changed != s.changed {
			t.Errorf("step %d: %v, changed %v; want %v, %v", i, have, changed, s.want, s.changed)
		}
	}
}

func TestPrefixNeighbors(t *testing.T) {
	t.Parallel()
	prefixes := func(texts ...string) (out []netip.Prefix) {
		for _, text := range texts {
			out = append(out, netip.MustParsePrefix(text))
		}
		return out
	}
	in := projection.Input{
		Cluster: "a",
		Fabric: &fabric.Fabric{Clusters: []fabric.Cluster{
			{Name: "a", PodCIDRs: prefixes("10.1.0.0/16")},
			{Name: "b", PodCIDRs: prefixes("10.2.0.0/16"), GlobalCIDRs: prefixes("242.2.0.0/16")},
			{Name: "c", GlobalCIDRs: prefixes("242.3.0.0/16", "fd00:42:3::/48")},
			{Name: "d", GlobalCIDRs: prefixes("242.4.0.0/16")},
		}},
		Paths:        map[string]model.Path{"b": {}, "c": {Via: "b"}, "d": {Via: "b"}},
		GatewayPaths: map[string]model.Path{"b": {}, "c": {Via: "b"}, "d": {}},
	}
	want := map[string][]string{
		"10.2.0.0": {"b"}, "242.2.0.0": {"b"}, "242.3.0.0": {"b"}, "fd00:42:3::": {"b"}, "242.4.0.0": {"b", "d"},
	}
	have := prefixNeighbors(in)
	if len(have) != len(want) {
		t.Errorf("got %v", have)
	}
	for addr, neighbors := range want {
		if !slices.Equal(have[netip.MustParseAddr(addr)], neighbors) {
			t.Errorf("%s: got %v, want %v", addr, have[netip.MustParseAddr(addr)], neighbors)
		}
	}
}
