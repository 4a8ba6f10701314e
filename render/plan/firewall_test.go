package plan_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/internal/randtest"
	"hawser.dev/hawser/render/plan"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fabric/firewall"
)

// gatewayPorts returns every port of every gateway, at each endpoint, for each cluster.
func gatewayPorts(f *fabric.Fabric) map[string]bool {
	s, out := firewall.New(f), map[string]bool{}
	for _, c := range f.Clusters {
		for _, o := range s.Links(c.Name, nil) {
			for _, at := range o.Destinations {
				port := o.First
				if at.First != 0 {
					port = at.First
				}
				for _, from := range o.From {
					if o.Purpose == firewall.PurposeLinks {
						out[fmt.Sprintf("%s %d at %s (%s/%s) for %s", o.Protocol, port, at.Host, o.Cluster, o.Gateway, from)] = true
					}
				}
			}
		}
	}
	return out
}

func unfoldedPorts(list []plan.Ports, f *fabric.Fabric) map[string]bool {
	out := map[string]bool{}
	for _, p := range list {
		if len(p.Ports) == 0 {
			p.Ports = []int{0}
		}
		for _, at := range p.At {
			from := p.From
			if p.All {
				from = nil
				for _, c := range f.Clusters {
					if c.Name+"/" != at.Gateway[:min(len(at.Gateway), len(c.Name)+1)] {
						from = append(from, c.Name)
					}
				}
			}
			for _, port := range p.Ports {
				for _, c := range from {
					out[fmt.Sprintf("%s %d at %s (%s) for %s", p.Protocol, port, at.Host, at.Gateway, c)] = true
				}
			}
		}
	}
	return out
}

// TestFirewall checks that the listed ports are the difference between the required open ports
// before and after the change.
func TestFirewall(t *testing.T) {
	t.Parallel()
	rounds, changes := randtest.Rounds(t, 10), 0
	for seed := range uint64(rounds) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var at stage
		for range 4 {
			before, text := at, draw(rng)
			at = next(t, before, text)
			if before.tree == nil {
				before.source = at.source
			}
			w, h := fabricOf(t, at.tree), fabricOf(t, before.tree)
			is, was := gatewayPorts(w), gatewayPorts(h)
			open, shut := maps.Clone(is), maps.Clone(was)
			maps.DeleteFunc(open, func(k string, _ bool) bool { return was[k] })
			maps.DeleteFunc(shut, func(k string, _ bool) bool { return is[k] })
			p := compute(t, at, before)
			if d := cmp.Diff(open, unfoldedPorts(p.Firewall.Open, w)); d != "" {
				t.Fatalf("seed %d: open (-want +have)\n%s\n%s", seed, d, text)
			}
			if d := cmp.Diff(shut, unfoldedPorts(p.Firewall.Close, h)); d != "" {
				t.Fatalf("seed %d: close (-want +have)\n%s\n%s", seed, d, text)
			}
			changes += len(open) + len(shut)
		}
	}
	if changes < 16*rounds {
		t.Errorf("%d changes only: the topologies are too much alike", changes)
	}
}
