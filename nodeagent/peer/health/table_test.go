package health

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/schema/fabric"
)

func clusterOf(name string, gateways int) fabric.Cluster {
	c := fabric.Cluster{Name: name}
	for i := range gateways {
		c.Gateways = append(c.Gateways, fabric.Gateway{Name: fmt.Sprintf("%s-gw%d", name, i)})
	}
	return c
}

// randomFabric returns n clusters with random names, each with count() gateways.
func randomFabric(r *rand.Rand, n int, count func() int) *fabric.Fabric {
	f := &fabric.Fabric{}
	for i := range n {
		f.Clusters = append(f.Clusters, clusterOf(fmt.Sprintf("%s%d", []string{"c", "site", "eu-west-"}[r.IntN(3)], i+1000*r.IntN(1000)), count()))
	}
	return f
}

func threeGateways() int { return 3 }

func shuffle(r *rand.Rand, f *fabric.Fabric) *fabric.Fabric {
	out := &fabric.Fabric{Clusters: slices.Clone(f.Clusters)}
	r.Shuffle(len(out.Clusters), func(i, j int) { out.Clusters[i], out.Clusters[j] = out.Clusters[j], out.Clusters[i] })
	for i := range out.Clusters {
		g := slices.Clone(out.Clusters[i].Gateways)
		r.Shuffle(len(g), func(i, j int) { g[i], g[j] = g[j], g[i] })
		out.Clusters[i].Gateways = g
	}
	return out
}

func mirror(p model.Path) model.Path { return model.Path{Local: p.Remote, Remote: p.Local} }

// eachPair calls do for all pairs of clusters, lower name first.
func eachPair(f *fabric.Fabric, do func(a, b string)) {
	for _, a := range f.Clusters {
		for _, b := range f.Clusters {
			if a.Name < b.Name {
				do(a.Name, b.Name)
			}
		}
	}
}

func TestOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		f := randomFabric(r, 2+r.IntN(15), func() int { return 1 + r.IntN(4) })
		shuffled := shuffle(r, f)
		one, other := NewPreferences(f, nil), NewPreferences(shuffled, nil)
		eachPair(f, func(a, b string) {
			want := one.Order(a, b)
			if have := other.Order(a, b); !slices.Equal(have, want) {
				t.Fatalf("seed %d, %s to %s: %v with the list in another order, want %v", seed, a, b, have, want)
			}
			back := one.Order(b, a)
			for i := range back {
				back[i] = mirror(back[i])
			}
			if !slices.Equal(back, want) {
				t.Fatalf("seed %d, %s to %s: %v from the other end, want %v", seed, a, b, back, want)
			}
			different := map[model.Path]bool{}
			for _, p := range want {
				different[p] = true
			}
			if all := len(f.Cluster(a).Gateways) * len(f.Cluster(b).Gateways); len(different) != all || len(want) != all {
				t.Fatalf("seed %d, %s to %s: %d links, %d different, want %d", seed, a, b, len(want), len(different), all)
			}
		})
	}
}

func TestOrderEdgeCases(t *testing.T) {
	t.Parallel()
	f := &fabric.Fabric{Clusters: []fabric.Cluster{clusterOf("a", 2), clusterOf("b", 1), clusterOf("none", 0)}}
	table := NewPreferences(f, nil)
	for _, pair := range [][2]string{{"a", "a"}, {"a", "none"}, {"none", "a"}, {"a", "x"}, {"x", "a"}} {
		if have := table.Order(pair[0], pair[1]); have != nil {
			t.Errorf("%v has the order %v", pair, have)
		}
	}
	if have := table.Order("a", "b"); len(have) != 2 {
		t.Errorf("a to b: %v", have)
	}
	if NewPreferences(&fabric.Fabric{}, nil).Order("a", "b") != nil {
		t.Error("an empty fabric has links")
	}
}

// TestShares counts the pairs of each gateway when all links are up.
func TestShares(t *testing.T) {
	t.Parallel()
	most, least := 0, 19
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 2))
		f := randomFabric(r, 20, threeGateways)
		table := NewPreferences(f, nil)
		pairs := map[string]int{}
		eachPair(f, func(a, b string) {
			p, _ := table.First(a, b)
			pairs[a+"/"+p.Local]++
			pairs[b+"/"+p.Remote]++
		})
		for _, c := range f.Clusters {
			for _, g := range c.Gateways {
				most, least = max(most, pairs[c.Name+"/"+g.Name]), min(least, pairs[c.Name+"/"+g.Name])
			}
		}
	}
	t.Logf("of 19 pairs a gateway of three has between %d and %d", least, most)
	if most > 8 || least < 1 {
		t.Errorf("of 19 pairs a gateway of three has between %d and %d; the bound is ceil(1.25*19/3) = 8", least, most)
	}
}

// TestOneMoreClusterMovesFewPairs adds a 21st cluster, which changes all bounds, and counts the
// pairs of other clusters that move.
func TestOneMoreClusterMovesFewPairs(t *testing.T) {
	t.Parallel()
	moved, pairs, worst := 0, 0, 0.0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		f := randomFabric(r, 21, threeGateways)
		after := NewPreferences(f, nil)
		f.Clusters = f.Clusters[:20]
		before := NewPreferences(f, nil)
		movedPairs := 0
		eachPair(f, func(a, b string) {
			pairs++
			old, _ := before.First(a, b)
			if now, _ := after.First(a, b); now != old {
				movedPairs++
			}
		})
		moved += movedPairs
		worst = max(worst, float64(movedPairs)/190)
	}
	share := float64(moved) / float64(pairs)
	t.Logf("the 21st cluster moves %.1f %% of the pairs of the others, %.1f %% at worst", 100*share, 100*worst)
	if share >= 0.08 {
		t.Errorf("%.1f %% of the pairs move, want less than 8 %%", 100*share)
	}
}

// TestDeadLinkMovesOnlyItsPairs removes one gateway.
func TestDeadLinkMovesOnlyItsPairs(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 4))
	f := randomFabric(r, 20, threeGateways)
	table := NewPreferences(f, nil)
	removed := f.Clusters[5].Gateways[1].Name
	moved, gained := 0, map[string]int{}
	eachPair(f, func(a, b string) {
		order := table.Order(a, b)
		rankOf := func(p model.Path) Rank {
			if p.Local == removed || p.Remote == removed {
				return Down
			}
			return Good
		}
		now, rank, ok := Pick(order, rankOf)
		if !ok || rank != Good {
			t.Fatalf("%s to %s: %v %v", a, b, now, rank)
		}
		if rankOf(order[0]) == Good && now != order[0] {
			t.Errorf("%s to %s moved from %v to %v although only %s died", a, b, order[0], now, removed)
		}
		if now != order[0] {
			moved++
			gained[now.Local]++
			gained[now.Remote]++
		}
	})
	if moved == 0 || moved > 8 {
		t.Errorf("%d pairs moved, a gateway has at most 8", moved)
	}
	for _, g := range f.Clusters[5].Gateways {
		if g.Name != removed && gained[g.Name] == 0 {
			t.Errorf("%s takes over none of %d pairs", g.Name, moved)
		}
	}
}

func TestSame(t *testing.T) {
	t.Parallel()
	base := func() *fabric.Fabric {
		return &fabric.Fabric{Clusters: []fabric.Cluster{clusterOf("a", 2), clusterOf("b", 0), clusterOf("c", 1)}}
	}
	table := NewPreferences(base(), nil)
	other := base()
	other.Clusters[0].Globalnet, other.Clusters[0].Gateways[0].Port = true, 9
	if !table.Same(other, nil) {
		t.Error("preferences must depend on names only")
	}
	changes := map[string]func(*fabric.Fabric){
		"one cluster less": func(f *fabric.Fabric) { f.Clusters = f.Clusters[:2] },
		"one cluster more": func(f *fabric.Fabric) { f.Clusters = append(f.Clusters, clusterOf("d", 1)) },
		"one gateway less": func(f *fabric.Fabric) { f.Clusters[0].Gateways = f.Clusters[0].Gateways[:1] },
		"one gateway more": func(f *fabric.Fabric) { f.Clusters[1].Gateways = []fabric.Gateway{{Name: "x"}} },
		"a cluster's name": func(f *fabric.Fabric) { f.Clusters[1].Name = "bb" },
		"a gateway's name": func(f *fabric.Fabric) { f.Clusters[2].Gateways[0].Name = "x" },
		"a cluster that was a gateway": func(f *fabric.Fabric) {
			f.Clusters[0].Gateways = f.Clusters[0].Gateways[:1]
			f.Clusters = slices.Insert(f.Clusters, 1, fabric.Cluster{Name: "a-gw1"})
		},
	}
	for name, change := range changes {
		f := base()
		if change(f); table.Same(f, nil) {
			t.Errorf("%s: Same reports true", name)
		}
	}
}

func BenchmarkNewPreferences(b *testing.B) {
	f := &fabric.Fabric{}
	for i := range 1000 {
		f.Clusters = append(f.Clusters, clusterOf(fmt.Sprintf("c%d", i), 3))
	}
	b.ReportAllocs()
	for b.Loop() {
		NewPreferences(f, nil)
	}
}

func BenchmarkSame(b *testing.B) {
	f := &fabric.Fabric{}
	for i := range 1000 {
		f.Clusters = append(f.Clusters, clusterOf(fmt.Sprintf("c%d", i), 3))
	}
	table := NewPreferences(f, nil)
	for b.Loop() {
		if !table.Same(f, nil) {
			b.Fatal("not the same")
		}
	}
}
