package round

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/peer/health"
	"hawser.dev/hawser/schema/fabric"
)

// gatewaysOf returns a fabric for texts such as "g1: a/0 b/1@node9", with ordinals and nodes.
func gatewaysOf(clusters ...string) *fabric.Fabric {
	f := &fabric.Fabric{}
	for _, text := range clusters {
		name, list, _ := strings.Cut(text, ":")
		c := fabric.Cluster{Name: name}
		for _, g := range strings.Fields(list) {
			g, node, _ := strings.Cut(g, "@")
			gateway, ordinal, _ := strings.Cut(g, "/")
			out := fabric.Gateway{Name: gateway, Node: node}
			if node == "" {
				out.Node = "node-" + gateway
			}
			_, _ = fmt.Sscan(ordinal, &out.Ordinal)
			out.Addresses = []netip.Addr{netip.AddrFrom4([4]byte{241, 0, gateway[0], byte(out.Ordinal)})}
			c.Gateways = append(c.Gateways, out)
		}
		f.Clusters = append(f.Clusters, c)
	}
	return f
}

func textOf(f *fabric.Fabric) string {
	var out []string
	for _, c := range f.Clusters {
		text := c.Name + ":"
		for _, g := range c.Gateways {
			text += fmt.Sprintf(" %s/%d", g.Name, g.Ordinal)
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

func TestKeepUsed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name           string
		previous, next *fabric.Fabric
		used           string // names of gateways
		want, retiring string
	}{
		{name: "nothing before", next: gatewaysOf("g1: a/0"), used: "a", want: "g1: a/0"},
		{name: "nothing removed", previous: gatewaysOf("g1: a/0"), next: gatewaysOf("g1: a/0 b/1"), used: "a b", want: "g1: a/0 b/1"},
		{name: "used", previous: gatewaysOf("g1: a/0 b/1", "g2: c/0"), next: gatewaysOf("g1: a/0", "g2: c/0"), used: "b",
			want: "g1: a/0 b/1; g2: c/0", retiring: "[g1/b]"},
		{name: "not used", previous: gatewaysOf("g1: a/0 b/1", "g2: c/0"), next: gatewaysOf("g1: a/0", "g2: c/0"), used: "a c",
			want: "g1: a/0; g2: c/0"},
		{name: "the last one", previous: gatewaysOf("g1: a/0", "g2: c/0"), next: gatewaysOf("g1:", "g2: c/0"), used: "a",
			want: "g1: a/0; g2: c/0", retiring: "[g1/a]"},
		{name: "its ordinal is in use", previous: gatewaysOf("g1: a/0 b/1"), next: gatewaysOf("g1: a/0 c/1"), used: "b", want: "g1: a/0 c/1"},
		{name: "another ordinal is in use", previous: gatewaysOf("g1: a/0 b/1"), next: gatewaysOf("g1: a/0 c/2"), used: "b",
			want: "g1: a/0 c/2 b/1", retiring: "[g1/b]"},
		{name: "its node is in use", previous: gatewaysOf("g1: a/0 b/1"), next: gatewaysOf("g1: a/0 c/2@node-b"), used: "b", want: "g1: a/0 c/2"},
		{name: "the cluster is removed", previous: gatewaysOf("g1: a/0", "g2: c/0"), next: gatewaysOf("g1: a/0"), used: "a c", want: "g1: a/0"},
		{name: "of two clusters", previous: gatewaysOf("g1: a/0 b/1", "g2: c/0 d/1"), next: gatewaysOf("g1: a/0", "g2: d/1"), used: "b c",
			want: "g1: a/0 b/1; g2: d/1 c/0", retiring: "[g1/b g2/c]"},
	}
	for _, tt := range tests {
		before, published := "", textOf(tt.next)
		if tt.previous != nil {
			before = textOf(tt.previous)
		}
		got, retiring := withRetiringGateways(tt.previous, tt.next, func(p health.GatewayID) bool {
			return strings.Contains(" "+tt.used+" ", " "+p.Gateway+" ")
		})
		if want := tt.retiring; textOf(got) != tt.want || len(retiring) > 0 && fmt.Sprint(retiring) != want || (want == "") != (len(retiring) == 0) {
			t.Errorf("%s: %s, retiring %v; want %s, retiring %s", tt.name, textOf(got), retiring, tt.want, want)
		}
		if tt.retiring == "" && got != tt.next {
			t.Errorf("%s: a copy although no gateway is retained", tt.name)
		}
		if textOf(tt.next) != published || tt.previous != nil && textOf(tt.previous) != before {
			t.Errorf("%s: the fabrics were changed", tt.name)
		}
	}
}

func TestRemovals(t *testing.T) {
	t.Parallel()
	both, one := gatewaysOf("g1: a/0 b/1"), gatewaysOf("g1: a/0")
	var r retiringGateways
	now, inUse := time.Unix(0, 0), true
	used := func(*fabric.Fabric, health.GatewayID) bool { return inUse }
	step := func(d time.Duration, next *fabric.Fabric) *fabric.Fabric {
		now = now.Add(d)
		r = r.update(next, used, now)
		got, retiring := r.merged, r.IDs
		if (len(retiring) > 0) != (got != next) {
			t.Errorf("retiring %v from %s", retiring, textOf(got))
		}
		return got
	}
	if got := step(0, both); got != both {
		t.Error("the first fabric is not the published one")
	}
	merged := step(time.Minute, one)
	if textOf(merged) != "g1: a/0 b/1" {
		t.Errorf("after the commit %s", textOf(merged))
	}
	for range 10 {
		if got := step(time.Second, one); got != merged {
			t.Error("a new copy although nothing changed")
		}
	}
	// The gateway may be added again.
	if got := step(time.Second, both); got != both {
		t.Errorf("added again: %s", textOf(got))
	}
	merged = step(time.Second, one)
	inUse = false
	if got := step(removalMin-time.Second, one); got != merged {
		t.Errorf("%s, want both until it was unused for %v", textOf(got), removalMin)
	}
	if got := step(2*time.Second, one); got != one {
		t.Errorf("%s, want it removed", textOf(got))
	}
	if got := step(time.Second, one); got != one {
		t.Errorf("%s, want it still removed", textOf(got))
	}
	// A gateway that is always used is removed after removalMax.
	inUse = true
	step(time.Second, both)
	step(time.Second, one)
	for range 14 {
		if got := step(time.Minute, one); textOf(got) != "g1: a/0 b/1" {
			t.Fatalf("removed after %v", now)
		}
	}
	if got := step(2*time.Minute, one); got != one {
		t.Errorf("%s after %v", textOf(got), removalMax)
	}
}
