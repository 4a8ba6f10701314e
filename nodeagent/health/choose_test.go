package health

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"hawser.dev/hawser/nodeagent/project"
	"hawser.dev/hawser/schema/fabric"
)

func sideOf(cluster string, gateways int) Side {
	s := Side{Cluster: cluster}
	for i := range gateways {
		s.Gateways = append(s.Gateways, fmt.Sprintf("%s-gw%d", cluster, i))
	}
	return s
}

func everything(project.Path) bool { return true }

func mirror(p project.Path) project.Path { return project.Path{Local: p.Remote, Remote: p.Local} }

// randomAlive gives the same answer for the same link, whichever end asks.
func randomAlive(seed uint64) func(project.Path) bool {
	return func(p project.Path) bool {
		return (weight(p.Local, p.Remote)^seed*0x9e3779b97f4a7c15)%3 != 0
	}
}

func TestChooseIsSymmetricAndOrderIndependent(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for seed := range uint64(500) {
		a, b := sideOf(fmt.Sprintf("a%d", seed), 1+r.IntN(4)), sideOf(fmt.Sprintf("b%d", seed), 1+r.IntN(4))
		alive := randomAlive(seed)
		want, ok := Choose(a, b, alive)
		have, _ := Choose(b, a, alive)
		if !ok || mirror(have) != want {
			t.Fatalf("seed %d: %v from one end, %v from the other", seed, want, have)
		}
		slices.Reverse(a.Gateways)
		slices.Reverse(b.Gateways)
		if have, _ := Choose(a, b, alive); have != want {
			t.Fatalf("seed %d: %v in one order, %v in another", seed, want, have)
		}
	}
}

func TestChooseSpreadsEvenly(t *testing.T) {
	t.Parallel()
	const pairs = 4000
	count := map[project.Path]int{}
	for i := range pairs {
		a, b := sideOf(fmt.Sprintf("a%d", i), 0), sideOf(fmt.Sprintf("b%d", i), 0)
		a.Gateways, b.Gateways = []string{"x", "y"}, []string{"u", "v"}
		path, _ := Choose(a, b, everything)
		count[path]++
	}
	for path, n := range count {
		if n < pairs/4*85/100 || n > pairs/4*115/100 {
			t.Errorf("%v carries %d of %d pairs", path, n, pairs)
		}
	}
	if len(count) != 4 {
		t.Errorf("%d of 4 combinations are in use", len(count))
	}
}

func TestChooseMovesOnlyWhatItMust(t *testing.T) {
	t.Parallel()
	moved := 0
	for i := range 1000 {
		a, b := sideOf(fmt.Sprintf("a%d", i), 2), sideOf(fmt.Sprintf("b%d", i), 2)
		before, _ := Choose(a, b, everything)
		gone := a.Gateways[0]
		after, _ := Choose(a, b, func(p project.Path) bool { return p.Local != gone })
		if before.Local != gone && after != before {
			t.Fatalf("pair %d moved from %v to %v though only %s died", i, before, after, gone)
		}
		if after.Local == gone {
			t.Fatalf("pair %d stays on the dead %s", i, gone)
		}
		bigger := b
		bigger.Gateways = append(slices.Clone(b.Gateways), "newcomer")
		grown, _ := Choose(a, bigger, everything)
		if grown != before {
			if moved++; grown.Remote != "newcomer" {
				t.Fatalf("pair %d moved from %v to %v though only newcomer came", i, before, grown)
			}
		}
	}
	if moved < 250 || moved > 420 {
		t.Errorf("a third gateway took %d of 1000 pairs, about a third is fair", moved)
	}
}

func TestChooseAtTheEdges(t *testing.T) {
	t.Parallel()
	a, b := sideOf("a", 2), sideOf("b", 3)
	all, _ := Choose(a, b, everything)
	if none, ok := Choose(a, b, func(project.Path) bool { return false }); !ok || none != all {
		t.Errorf("with no link alive got %v, want the choice of all links %v", none, all)
	}
	only := project.Path{Local: "a-gw1", Remote: "b-gw2"}
	if have, _ := Choose(a, b, func(p project.Path) bool { return p == only }); have != only {
		t.Errorf("got %v, want the only link alive %v", have, only)
	}
	if _, ok := Choose(a, sideOf("b", 0), everything); ok {
		t.Error("chose a link to a cluster without gateways")
	}
}

func TestPaths(t *testing.T) {
	t.Parallel()
	f := &fabric.Fabric{Clusters: []fabric.Cluster{
		{Name: "a", Gateways: []fabric.Gateway{{Name: "a1"}, {Name: "a2"}}},
		{Name: "b", Gateways: []fabric.Gateway{{Name: "b1"}}},
		{Name: "c"},
	}}
	paths := Paths(f, "a", func(local string, remote Peer) bool { return local == "a2" && remote == Peer{"b", "b1"} })
	if len(paths) != 1 || paths["b"] != (project.Path{Local: "a2", Remote: "b1"}) {
		t.Errorf("got %v", paths)
	}
	paths = Paths(f, "a", func(string, Peer) bool { return false })
	if len(paths) != 1 || !paths["b"].Down {
		t.Errorf("no link is alive: got %v", paths)
	}
	if Paths(f, "x", nil) != nil {
		t.Error("a cluster that is not in the fabric has paths")
	}
}

func BenchmarkPaths(b *testing.B) {
	f := &fabric.Fabric{}
	for i := range 1000 {
		name := fmt.Sprintf("c%d", i)
		f.Clusters = append(f.Clusters, fabric.Cluster{Name: name, Gateways: []fabric.Gateway{{Name: name + "-a"}, {Name: name + "-b"}}})
	}
	for b.Loop() {
		if len(Paths(f, "c7", func(string, Peer) bool { return true })) != 999 {
			b.Fatal("paths are missing")
		}
	}
}
