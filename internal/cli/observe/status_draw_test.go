package observe

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/health"
)

func TestDrawnStatus(t *testing.T) {
	t.Parallel()
	gateway := func(cluster, name string, up, all int64) health.Node {
		return health.Node{Name: name, Cluster: cluster, Role: "gateway", LinksUp: up, Links: all, Ready: "True"}
	}
	before := []health.State{
		{Cluster: "g1", Nodes: []health.Node{gateway("g1", "g1-gw", 2, 2), {Name: "g1-w1", Ready: "True"}}, Exports: []health.Export{
			{Namespace: "shop", Name: "web", Type: "ClusterSetIP"}, {Namespace: "shop", Name: "old", Exported: true}}},
		{Cluster: "g2", Nodes: []health.Node{gateway("g2", "g2-gw", 2, 2)}, Exports: []health.Export{{Namespace: "shop", Name: "web", Exported: true, Type: "ClusterSetIP"}}},
	}
	now := []health.State{
		{Cluster: "g1", Nodes: []health.Node{gateway("g1", "g1-gw", 1, 2)}, Exports: []health.Export{
			{Namespace: "shop", Name: "web", Exported: true, Type: "ClusterSetIP"}, {Namespace: "shop", Name: "new", Exported: true}}},
		{Cluster: "g2", Nodes: []health.Node{gateway("g2", "g2-gw", 2, 2)}, Exports: []health.Export{{Namespace: "shop", Name: "web", Exported: true, Type: "ClusterSetIP"}}},
		{Cluster: "g3", Error: "connection refused\x1b[2J"},
	}
	const first = `Links
  g1/g1-gw  [==] 2 of 2 up
  g2/g2-gw  [==] 2 of 2 up
Exports
  shop/old  g1 ==> nobody
  shop/web  g2 ==> g1
`
	const want = `Links
* g1/g1-gw  [=.] 1 of 2 up  (was: [==] 2 of 2 up)
  g2/g2-gw  [==] 2 of 2 up
* g3        ? no answer: connection refused�[2J  (new)
Exports
* shop/new  g1 ==> nobody  (new)
* shop/web  g1, g2 ==> nobody  (was: g2 ==> g1)
Gone
* shop/old  is gone, was g1 ==> nobody
`
	if d := cmp.Diff(first, statusDrawing(nil, before, false)); d != "" {
		t.Errorf("first (-want +got):\n%s", d)
	}
	if d := cmp.Diff(first, statusDrawing(before, before, true)); d != "" {
		t.Errorf("nothing changed, yet (-want +got):\n%s", d)
	}
	if d := cmp.Diff(want, statusDrawing(before, now, false)); d != "" {
		t.Errorf("then (-want +got):\n%s", d)
	}
	if colored := statusDrawing(before, now, true); strings.Count(colored, "\x1b[1;33m") != 5 || strings.Count(colored, "\x1b[") != 10 {
		t.Errorf("%q", colored)
	}
}

func TestBar(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		up, all int64
		want    string
	}{
		{0, 0, "[] 0 of 0 up"},
		{1, 3, "[=..] 1 of 3 up"},
		{9, 3, "[===] 3 of 3 up"},
		{-1, 2, "[..] 0 of 2 up"},
		{500, 1000, "[" + strings.Repeat("=", 20) + strings.Repeat(".", 20) + "] 500 of 1000 up"},
	} {
		if got := bar(c.up, c.all); got != c.want {
			t.Errorf("bar(%d, %d) = %q, want %q", c.up, c.all, got, c.want)
		}
	}
}
