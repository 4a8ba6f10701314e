package linkconfig_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/linkconfig"
	"hawser.dev/hawser/schema/load"
)

func TestLinksResolve(t *testing.T) {
	t.Parallel()
	set, _, list := load.Topology("x.yaml", []byte(`apiVersion: hawser.dev/v1alpha1
kind: ClusterSet
metadata: {name: demo}
spec:
  tunnel: {mtu: 1400}
  links:
  - {between: [d, a], driver: ipsec, keepalive: 0s}
  - {between: [c, b], port: 53000, mtu: 1500}
  clusters:
  - {name: a}
  - {name: b, tunnel: {driver: vxlan, mtu: 1300, keepalive: 5s}}
  - {name: c, tunnel: {mtu: 1450, keepalive: 9s, port: 52000}}
  - {name: d, tunnel: {keepalive: 0s}}
`))
	if !list.HasErrors() { // the clusters lack required fields that have no effect here
		t.Fatal("want errors")
	}
	l := linkconfig.Resolve(set)
	for pair, want := range map[[2]string]string{
		{"a", "b"}: "vxlan 0 1300 5s", {"a", "c"}: "wireguard 0 1400 9s", {"a", "d"}: "ipsec 0 1400 0s",
		{"b", "c"}: "vxlan 53000 1500 5s", {"b", "d"}: "vxlan 0 1300 5s", {"c", "d"}: "wireguard 0 1400 9s",
	} {
		for _, p := range [][2]string{pair, {pair[1], pair[0]}} {
			k := l.Of(p[0], p[1])
			have := fmt.Sprintf("%s %d %d %s", k.Driver, k.Port, k.MTU, k.Keepalive.Std())
			if have != want || k.Between != pair {
				t.Errorf("%v: want %s, have %s between %v", p, want, have, k.Between)
			}
		}
	}
	for name, want := range map[string]string{"a": "[ipsec vxlan wireguard]", "b": "[vxlan]", "c": "[vxlan wireguard]", "d": "[ipsec vxlan wireguard]"} {
		if have := fmt.Sprint(l.Drivers(name)); have != want {
			t.Errorf("drivers of %s: want %s, have %s", name, want, have)
		}
	}
}

// TestLinksHold checks random clustersets. Resolved links do not depend on the order in the file,
// and agents read the same links from the fabric.
func TestLinksHold(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		set := randomLinks(r)
		one := linkconfig.Resolve(set)
		r.Shuffle(len(set.Spec.Clusters), func(i, j int) { c := set.Spec.Clusters; c[i], c[j] = c[j], c[i] })
		r.Shuffle(len(set.Spec.Links), func(i, j int) { c := set.Spec.Links; c[i], c[j] = c[j], c[i] })
		for i := range set.Spec.Links {
			slices.Reverse(set.Spec.Links[i].Between)
		}
		two := linkconfig.Resolve(set)
		if d := cmp.Diff(one.Overrides(), two.Overrides()); d != "" {
			t.Fatalf("seed %d: order matters\n%s", seed, d)
		}
		f := &fabric.Fabric{Links: one.Overrides(), Shape: linkconfig.Shape(set), Tunnel: fabric.TunnelDefaults{Driver: set.Spec.Tunnel.Driver,
			MTU: set.Spec.Tunnel.MTU, Keepalive: *set.Spec.Tunnel.Keepalive}}
		for _, c := range set.Spec.Clusters {
			f.Clusters = append(f.Clusters, fabric.Cluster{Name: c.Name})
		}
		for _, a := range f.Clusters {
			if d := cmp.Diff(two.Drivers(a.Name), f.Drivers(a.Name)); d != "" {
				t.Fatalf("seed %d: drivers of %s\n%s", seed, a.Name, d)
			}
			for _, b := range f.Graph().Neighbors(a.Name) {
				if d := cmp.Diff(two.Of(a.Name, b), f.Link(b, a.Name)); d != "" {
					t.Fatalf("seed %d: %s to %s\n%s", seed, a.Name, b, d)
				}
			}
		}
	}
}

func randomLinks(r *rand.Rand) *schema.ClusterSet {
	set := &schema.ClusterSet{}
	schema.Default(set)
	drivers, mtus := []string{"", fabric.DriverVXLAN, fabric.DriverIPsec}, []int{0, 1300, 1400}
	driver := drivers[r.IntN(3)] // of all clusters that set one: others would clash
	override := func() schema.TunnelOverride {
		o := schema.TunnelOverride{MTU: mtus[r.IntN(3)]}
		if d := fabric.Duration(time.Duration(r.IntN(3)) * time.Second); r.IntN(2) == 0 {
			o.Keepalive = &d
		}
		return o
	}
	names := []string{"a", "b", "c", "d", "e"}
	for _, name := range names {
		c := schema.Cluster{Name: name, Tunnel: override()}
		if r.IntN(3) == 0 {
			c.Tunnel.Driver = driver
		}
		set.Spec.Clusters = append(set.Spec.Clusters, c)
	}
	for i := range names {
		for j := range i {
			if o := override(); r.IntN(4) == 0 {
				set.Spec.Links = append(set.Spec.Links, schema.Link{Between: []string{names[i], names[j]},
					Driver: drivers[r.IntN(3)], Port: r.IntN(2) * 53000, MTU: o.MTU, Keepalive: o.Keepalive})
			}
		}
	}
	if r.IntN(2) == 0 {
		set.Spec.Connectivity = schema.Connectivity{Mode: schema.ModeHub, Hubs: []string{"c"}}
	}
	return set
}
