package plan_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/access"
	"hawser.dev/hawser/internal/randtest"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fabric/reach"
)

// draw returns a random topology of a few clusters and exports. It varies all settings that
// determine access.
func draw(rng *rand.Rand) string {
	var out strings.Builder
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(&out, format+"\n", args...) }
	some := func(list []string, chance int) []string {
		return slices.DeleteFunc(slices.Clone(list), func(string) bool { return rng.IntN(chance) == 0 })
	}
	clusters := some([]string{"a", "b", "c", "d", "e"}, 4)
	if len(clusters) < 2 {
		clusters = []string{"a", "b"}
	}
	line("apiVersion: hawser.dev/v1alpha1\nkind: ClusterSet\nmetadata: {name: reach}\nspec:")
	line("  globalnet: {clusterPrefix: 22, egress: %s}", []string{"auto", "shared"}[rng.IntN(2)])
	linked := [2]string{clusters[0], clusters[1]}
	switch rng.IntN(3) {
	case 0:
		linked = [2]string{}
		line("  connectivity: {mode: hub, hubs: [%s]}", clusters[rng.IntN(len(clusters))])
	case 1:
		var edges []string
		for i, a := range clusters {
			for _, b := range clusters[i+1:] {
				if rng.IntN(3) == 0 {
					edges = append(edges, "["+a+", "+b+"]")
				}
			}
		}
		if len(edges) > 0 {
			linked = [2]string{}
			line("  connectivity: {mode: links, partial: true, links: [%s]}", strings.Join(edges, ", "))
		}
	}
	if rng.IntN(2) == 0 {
		line("  dynamicExports:")
		for _, pattern := range some([]string{"team-*", "team-pay", "'*'", "lab"}, 2) {
			line("  - namespaces: [%s]", pattern)
			if only := some(clusters, 2); len(only) > 0 && rng.IntN(2) == 0 {
				line("    clusters: [%s]", strings.Join(only, ", "))
			}
		}
		line("  - namespaces: [always]")
	}
	if linked[0] != "" && rng.IntN(2) == 0 {
		line("  links: [{between: [%s, %s], driver: %s}]", linked[0], linked[1], []string{"ipsec", "vxlan"}[rng.IntN(2)])
	}
	if rng.IntN(4) == 0 {
		line("  keys: {epochs: [1, 2]}")
	}
	line("  clusters:")
	for i, name := range clusters {
		pods, services := "10.7.0.0/24", "10.77.0.0/24"
		if rng.IntN(2) == 0 {
			pods, services = fmt.Sprintf("10.%d.0.0/24", 20+i), fmt.Sprintf("10.%d.0.0/24", 120+i)
		}
		line("  - name: %s\n    podCIDRs: [%s]\n    serviceCIDRs: [%s]", name, pods, services)
		if rng.IntN(4) == 0 {
			line("    globalnet: always")
		}
		line("    recipient: age1n4s70tp2m67uhryhg8ax4fzrt32nvcy5undwsrsvmcu2t0p7tvyqtjxy2n")
		line("    gateways:\n    - {name: gw, node: %s-gw, endpoints: [203.0.113.%d]}", name, 11+i)
		if rng.IntN(3) == 0 {
			line("    - {name: b, node: %s-b, endpoints: [203.0.113.%d, 198.51.100.%d:%d]}", name, 111+i, 11+i, 52000+66*rng.IntN(2))
		}
	}
	line("  exports:")
	for i := range 4 {
		exporters := some(clusters, 2)
		if len(exporters) == 0 {
			continue
		}
		line("  - name: s%d\n    namespace: shop\n    clusters: [%s]", i, strings.Join(exporters, ", "))
		if rng.IntN(4) == 0 {
			line("    type: Headless\n    hostnames: 1")
		}
		if rng.IntN(2) == 0 {
			line("    allow: {clusters: [%s]}", strings.Join(some(clusters, 2), ", "))
		}
		line("    ports: [{name: web, port: %d}, {name: dns, port: 53, protocol: UDP}]", 80+rng.IntN(2))
	}
	return out.String()
}

func fabricOf(t testing.TB, tree render.Tree) *fabric.Fabric {
	t.Helper()
	if len(tree) == 0 {
		return &fabric.Fabric{}
	}
	f, err := render.FabricOf(tree)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// everything returns all allowed access of every pair of clusters.
func everything(f *fabric.Fabric, patterns []string, prefixes map[string][]netip.Prefix) map[string]bool {
	s, out := reach.New(f), map[string]bool{}
	for _, from := range f.Clusters {
		for _, to := range f.Clusters {
			if from.Name == to.Name {
				continue
			}
			for i := range f.Exports {
				for _, port := range f.Exports[i].Ports {
					if s.Export(&f.Exports[i], to.Name).ReachableFrom(from.Name, port) {
						out[fmt.Sprintf("%s -> %s:%d/%s in %s", from.Name, f.Exports[i].ID(), port.Port, port.Protocol, to.Name)] = true
					}
				}
			}
			for _, pattern := range patterns {
				if f.DynamicExports.Allows(pattern, to.Name) && s.Dynamic(to.Name).ReachableFrom(from.Name, fabric.Port{}) {
					out[fmt.Sprintf("%s -> %s in %s", from.Name, pattern, to.Name)] = true
				}
			}
			for _, p := range prefixes[to.Name] {
				if s.Prefix(to.Name, p).ReachableFrom(from.Name, fabric.Port{}) {
					out[fmt.Sprintf("%s -> %s in %s", from.Name, p, to.Name)] = true
				}
			}
		}
	}
	return out
}

// unfolded returns the access of each pair of clusters in a list of changes.
func unfolded(t *testing.T, list []access.Change, f *fabric.Fabric) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, a := range list {
		from := a.From
		if a.All {
			for _, c := range f.Clusters {
				if !slices.Contains(a.Except, c.Name) {
					from = append(from, c.Name)
				}
			}
		}
		if len(from) == 0 || a.Path == "" {
			t.Errorf("an access without clusters or without a cause: %+v", a)
		}
		for _, to := range a.To {
			what := []string{to.Namespaces + to.Prefix}
			if to.Export != "" {
				what = nil
				for _, p := range to.Ports {
					what = append(what, to.Export+":"+p)
				}
			}
			for _, in := range to.In {
				for _, who := range from {
					for _, w := range what {
						text := fmt.Sprintf("%s -> %s in %s", who, w, in)
						if out[text] {
							t.Errorf("printed twice: %s", text)
						}
						out[text] = who != in
					}
				}
			}
		}
	}
	maps.DeleteFunc(out, func(_ string, v bool) bool { return !v })
	return out
}

// TestAccess checks that the plan lists the exact difference of access before and after, for each
// pair.
func TestAccess(t *testing.T) {
	t.Parallel()
	rounds, changes := randtest.Rounds(t, 12), 0
	for seed := range uint64(rounds) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var at stage
		for range 5 {
			before, text := at, draw(rng)
			at = next(t, before, text)
			if before.tree == nil {
				before.source = at.source
			}
			w, h := fabricOf(t, at.tree), fabricOf(t, before.tree)
			patterns := []string{"*", "team-*", "team-pay", "lab", "always"}
			prefixes := map[string][]netip.Prefix{}
			for _, f := range []*fabric.Fabric{w, h} {
				for _, c := range f.Clusters {
					for _, p := range slices.Concat(c.PodCIDRs, c.ServiceCIDRs) {
						if !slices.Contains(prefixes[c.Name], p) {
							prefixes[c.Name] = append(prefixes[c.Name], p)
						}
					}
				}
			}
			// The plan does not list patterns that are in neither tree.
			patterns = slices.DeleteFunc(patterns, func(p string) bool {
				in := func(f *fabric.Fabric) bool {
					return f.DynamicExports != nil && slices.Contains(f.DynamicExports.Namespaces, p)
				}
				return !in(w) && !in(h)
			})
			is, was := everything(w, patterns, prefixes), everything(h, patterns, prefixes)
			added, removed := maps.Clone(is), maps.Clone(was)
			maps.DeleteFunc(added, func(k string, _ bool) bool { return was[k] })
			maps.DeleteFunc(removed, func(k string, _ bool) bool { return is[k] })
			p := compute(t, at, before)
			if d := cmp.Diff(added, unfolded(t, p.Access.Added, w)); d != "" {
				t.Fatalf("seed %d: added (-want +have)\n%s\n%s", seed, d, text)
			}
			if d := cmp.Diff(removed, unfolded(t, p.Access.Removed, h)); d != "" {
				t.Fatalf("seed %d: removed (-want +have)\n%s\n%s", seed, d, text)
			}
			changes += len(added) + len(removed)
		}
	}
	if changes < 25*rounds {
		t.Errorf("%d changes only: the topologies are too much alike", changes)
	}
}
