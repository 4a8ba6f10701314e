package allocate

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/lockfile"
)

// newTopology returns a topology of clusters and exports by number. A number always results in the
// same cluster or export, independent of the others.
func newTopology(clusters, exports []int) *schema.ClusterSet {
	top := &schema.ClusterSet{APIVersion: schema.APIVersion, Kind: schema.Kind, Metadata: schema.Metadata{Name: "demo"}}
	for _, n := range clusters {
		name := fmt.Sprintf("c%d", n)
		c := schema.Cluster{
			Name:         name,
			PodCIDRs:     []netip.Prefix{netip.MustParsePrefix([]string{"10.7.0.0/16", "10.8.0.0/20", "10.9.0.0/22"}[n%3])},
			ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.77.0.0/16")},
			Gateways:     []schema.Gateway{{Name: name + "-b", Node: "b"}, {Name: name + "-a", Node: "a"}},
		}
		if n%4 == 0 {
			c.PodCIDRs = append(c.PodCIDRs, netip.MustParsePrefix("fd00:7::/64"))
		}
		if n%5 == 0 {
			c.Egress = []schema.EgressRule{{Name: "z", Namespace: "n", IPs: 2}, {Name: "a", Namespace: "n", IPs: 1}}
		}
		if n%7 == 0 {
			c.GlobalCIDR = netip.PrefixFrom(netip.AddrFrom4([4]byte{242, 255, byte(n), 0}), 24)
		}
		top.Spec.Clusters = append(top.Spec.Clusters, c)
	}
	for _, n := range exports {
		e := schema.Export{Namespace: fmt.Sprintf("ns%d", n%3), Name: fmt.Sprintf("e%d", n), Ports: []schema.Port{{Port: 80}}}
		if n%4 == 0 {
			e.Type, e.Hostnames = fabric.Headless, schema.Hostnames{Count: 3 + n%9}
		}
		for i, c := range top.Spec.Clusters {
			if (i+n)%3 == 0 {
				e.Clusters = append(e.Clusters, c.Name)
			}
		}
		top.Spec.Exports = append(top.Spec.Exports, e)
	}
	top.Spec.Globalnet.IPv6CIDR = netip.MustParsePrefix("fd42::/32")
	top.Spec.Services.IPv6CIDR = netip.MustParsePrefix("fd43::/64")
	top.Spec.Tunnel.IPv6CIDR = netip.MustParsePrefix("fd41::/64")
	schema.Default(top)
	return top
}

// setExporters sets the exporting clusters of each export, so that the removal of a cluster does
// not change them.
func setExporters(top *schema.ClusterSet) {
	for i := range top.Spec.Exports {
		e := &top.Spec.Exports[i]
		e.Clusters = nil
		var sum int
		for _, r := range e.Name {
			sum += int(r)
		}
		for j, c := range top.Spec.Clusters {
			if (len(c.Name)*7+int(c.Name[len(c.Name)-1])+sum)%3 == 0 {
				e.Clusters = append(e.Clusters, top.Spec.Clusters[j].Name)
			}
		}
	}
}

func pick(r *rand.Rand, n int) []int {
	var out []int
	for i := range n {
		if r.IntN(2) == 0 {
			out = append(out, i)
		}
	}
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

func marshal(t testing.TB, l *lockfile.Lock) string {
	t.Helper()
	raw, err := l.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func noErrors(t testing.TB, list diag.List) {
	t.Helper()
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
}

// TestNothingMoves allocates for a sequence of random topologies on the same lock. Every allocation
// stays with its owner until the end.
func TestNothingMoves(t *testing.T) {
	t.Parallel()
	for seed := range uint64(25) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 1))
			lock := lockfile.New()
			addrs, blocks := map[lockfile.Claim][]netip.Addr{}, map[string][]netip.Prefix{}
			ordinals := map[lockfile.Claim]lockfile.OrdinalAllocation{}
			for range 12 {
				top := newTopology(pick(r, 24), pick(r, 30))
				setExporters(top)
				next, list := Allocate(top, lock)
				if len(list) > 0 {
					t.Fatalf("findings: %v", list)
				}
				wellFormed(t, top, next)
				for s, want := range addrs {
					if have := next.Addrs[s].Addrs; !slices.Equal(have[:min(len(have), len(want))], want) {
						t.Fatalf("%s moved from %v to %v", s.Path(), want, have)
					}
				}
				for name, want := range blocks {
					if have := next.Blocks(name); !slices.Equal(have, want) {
						t.Fatalf("cluster %s moved from %v to %v", name, want, have)
					}
				}
				for s, want := range ordinals {
					if have := next.Ordinals[s]; have.Ordinal != want.Ordinal {
						t.Fatalf("%s moved from %d to %d", s.OrdinalPath(), want.Ordinal, have.Ordinal)
					}
				}
				ordinals = maps.Clone(next.Ordinals)
				for s, h := range next.Addrs {
					addrs[s] = h.Addrs
				}
				for name := range next.Clusters {
					blocks[name] = next.Blocks(name)
				}
				lock = next
			}
			if len(addrs) < 100 || len(blocks) < 20 {
				t.Errorf("only %d claims and %d blocks were allocated", len(addrs), len(blocks))
			}
		})
	}
}

// wellFormed checks the invariants of every lock.
func wellFormed(t *testing.T, top *schema.ClusterSet, l *lockfile.Lock) {
	t.Helper()
	owner := map[netip.Addr]lockfile.Claim{}
	for s, h := range l.Addrs {
		for _, a := range h.Addrs {
			if other, dup := owner[a]; dup {
				t.Fatalf("%s and %s share %s", s.Path(), other.Path(), a)
			}
			owner[a] = s
			inside(t, top, l, s, a)
		}
	}
	ordinals := map[string]lockfile.Claim{}
	for s, h := range l.Ordinals {
		id := fmt.Sprint(s.Cluster, " ", h.Ordinal)
		if other, dup := ordinals[id]; dup || h.Ordinal < 0 || h.Ordinal >= fabric.MaxGateways {
			t.Fatalf("%s is %d, as %s", s.OrdinalPath(), h.Ordinal, other.OrdinalPath())
		}
		ordinals[id] = s
	}
	var all []netip.Prefix
	for name := range l.Clusters {
		for _, b := range l.Blocks(name) {
			for _, o := range all {
				if o.Overlaps(b) {
					t.Fatalf("block %s of %s overlaps %s", b, name, o)
				}
			}
			all = append(all, b)
		}
	}
	if list := Check(top, l); len(list) > 0 {
		t.Fatalf("check: %v", list)
	}
}

// inside checks that an address is in its block. It must not be the first or last address of the
// block, or the address of a mapped pod.
func inside(t *testing.T, top *schema.ClusterSet, l *lockfile.Lock, s lockfile.Claim, a netip.Addr) {
	t.Helper()
	var blocks []netip.Prefix
	switch s.Kind {
	case lockfile.ClaimGateway:
		blocks = top.TunnelPools()
	case lockfile.ClaimClusterSetIP:
		blocks = top.ServicePools()
	default:
		blocks = l.Blocks(s.Cluster)
		for _, m := range l.Clusters[s.Cluster].Mappings {
			if m.Prefix.Contains(a) {
				t.Fatalf("%s has %s, which is a mapped pod's", s.Path(), a)
			}
		}
	}
	i := slices.IndexFunc(blocks, func(b netip.Prefix) bool { return b.Contains(a) })
	if i < 0 || a == blocks[i].Addr() || a == cidr.Last(blocks[i]) {
		t.Fatalf("%s has %s, which is not inside of %v", s.Path(), a, blocks)
	}
}

// TestOrderOfTheFile checks that the order of the topology's lists does not change the lock.
func TestOrderOfTheFile(t *testing.T) {
	t.Parallel()
	all := make([]int, 30)
	for i := range all {
		all[i] = i
	}
	top := newTopology(all, all)
	want, list := Allocate(top, nil)
	noErrors(t, list)
	r := rand.New(rand.NewPCG(7, 7))
	for range 10 {
		s := &top.Spec
		r.Shuffle(len(s.Clusters), func(i, j int) { s.Clusters[i], s.Clusters[j] = s.Clusters[j], s.Clusters[i] })
		r.Shuffle(len(s.Exports), func(i, j int) { s.Exports[i], s.Exports[j] = s.Exports[j], s.Exports[i] })
		for i := range s.Clusters {
			slices.Reverse(s.Clusters[i].Gateways)
			slices.Reverse(s.Clusters[i].Egress)
			slices.Reverse(s.Clusters[i].PodCIDRs)
		}
		for i := range s.Exports {
			slices.Reverse(s.Exports[i].Clusters)
		}
		have, list := Allocate(top, nil)
		noErrors(t, list)
		if diff := cmp.Diff(marshal(t, want), marshal(t, have)); diff != "" {
			t.Fatalf("(-want +got)\n%s", diff)
		}
	}
}

// TestRoundTrip checks that a written lock reads back equal.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	top := newTopology([]int{0, 1, 2, 5, 7, 8}, []int{0, 1, 2, 3, 4})
	top.Spec.Clusters[1].Name = "no" // false in YAML 1.1
	lock, list := Allocate(top, nil)
	noErrors(t, list)
	text := marshal(t, lock)
	have, list := lockfile.Read("clusterset.lock.yaml", []byte(text))
	if len(list) > 0 {
		t.Fatalf("findings: %v", list)
	}
	if diff := cmp.Diff(text, marshal(t, have)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	again, list := Allocate(top, have)
	if len(list) > 0 || marshal(t, again) != text {
		t.Errorf("allocating again changes the lock: %v", list)
	}
}

// TestGC checks that GC frees the addresses of removed items. No other address moves.
func TestGC(t *testing.T) {
	t.Parallel()
	before := newTopology([]int{1, 2, 3, 4}, []int{1, 2, 3, 4, 5, 8})
	setExporters(before)
	full, list := Allocate(before, nil)
	noErrors(t, list)
	after := newTopology([]int{1, 3}, []int{1, 3, 8})
	setExporters(after)
	after.Spec.Globalnet.EgressIPs = 4
	gc := full.GC(after)
	if list := Check(after, gc); len(list) > 0 {
		t.Fatalf("check: %v", list)
	}
	if text := marshal(t, gc.PruneReleased(full)); !strings.Contains(text, "released:\n") || !strings.Contains(text, "  clusters[c2].blocks:") || text != marshal(t, gc) {
		t.Errorf("published addresses are not released:\n%s", text)
	}
	text := marshal(t, gc.PruneReleased(nil))
	for _, gone := range []string{"c2", "c4", "e2", "e5"} {
		if strings.Contains(text, gone) {
			t.Errorf("%s is still in the lock:\n%s", gone, text)
		}
	}
	for s, h := range gc.Addrs {
		if had := full.Addrs[s].Addrs; s.Kind != lockfile.ClaimEgress && !slices.Equal(had, h.Addrs) {
			t.Errorf("%s moved from %v to %v", s.Path(), had, h.Addrs)
		}
	}
	if n := len(lockfile.FirstPerFamily(gc.Egress("c1"), 99, gc.Blocks("c1")[:1])); n != 4 {
		t.Errorf("%d egress addresses, want 4", n)
	}
	if _, had := full.Clusters["c2"]; !had {
		t.Error("the lock was changed in place")
	}
}

// TestOwnership compares each claim with a lock for its cluster alone. The addresses inside a
// cluster's block do not depend on other clusters.
func TestOwnership(t *testing.T) {
	t.Parallel()
	top := newTopology([]int{7, 14}, []int{0, 1, 2})
	both, list := Allocate(top, nil)
	noErrors(t, list)
	one := newTopology([]int{7}, nil)
	alone, list := Allocate(one, nil)
	noErrors(t, list)
	if !slices.Equal(alone.Blocks("c7")[:1], both.Blocks("c7")[:1]) {
		t.Errorf("blocks %v and %v", alone.Blocks("c7"), both.Blocks("c7"))
	}
	names := slices.Sorted(maps.Keys(both.Clusters))
	if diff := cmp.Diff([]string{"c14", "c7"}, names); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
