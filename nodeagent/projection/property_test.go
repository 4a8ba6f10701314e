package projection_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/schema/fabric"
)

// everything returns a state with its origins and problems as text. Equal texts mean equal states.
func everything(t testing.TB, s desired.State, problems []projection.Problem) string {
	t.Helper()
	raw, err := json.Marshal(struct {
		State    desired.State
		Problems []projection.Problem
	}{s, problems})
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func shuffle[T any](rng *rand.Rand, list []T) {
	rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
}

// permuted returns the input with another order of every list whose order has no meaning. Addresses
// of a family, endpoints and epochs keep their order of preference.
func permuted(t testing.TB, rng *rand.Rand, in projection.Input) projection.Input {
	t.Helper()
	out := in
	out.Fabric = clone(t, in.Fabric)
	out.Facts = *clone(t, &in.Facts)
	shuffle(rng, out.Fabric.Clusters)
	for i := range out.Fabric.Clusters {
		c := &out.Fabric.Clusters[i]
		shuffle(rng, c.PodCIDRs)
		shuffle(rng, c.EgressIPs)
		shuffle(rng, c.EgressRules)
		shuffle(rng, c.Gateways)
	}
	shuffle(rng, out.Fabric.Exports)
	for i := range out.Fabric.Exports {
		e := &out.Fabric.Exports[i]
		shuffle(rng, e.Clusters)
		shuffle(rng, e.Ports)
		shuffle(rng, e.Allow)
		for j := range e.Clusters {
			shuffle(rng, e.Clusters[j].Hosts)
		}
	}
	shuffle(rng, out.Facts.Nodes)
	shuffle(rng, out.Facts.Pods)
	shuffle(rng, out.Facts.Services)
	for i := range out.Facts.Services {
		shuffle(rng, out.Facts.Services[i].Endpoints)
	}
	return out
}

func clone[T any](t testing.TB, v *T) *T {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	out := new(T)
	if err := json.Unmarshal(raw, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func worlds(t *testing.T) map[string]*world {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no worlds: %v", err)
	}
	out := map[string]*world{}
	for _, file := range files {
		out[filepath.Base(file)], _ = readWorld(t, file)
	}
	return out
}

func TestOrderOfInputsDoesNotMatter(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 1))
	for file, w := range worlds(t) {
		for name, in := range w.inputs {
			want := everything(t, w.states[name], w.faults[name])
			wantLive := projection.ClusterState(in)
			for range 10 {
				other := permuted(t, rng, in)
				s, problems := projection.Desired(other)
				if diff := cmp.Diff(want, everything(t, s, problems)); diff != "" {
					t.Fatalf("%s %s (-want +got):\n%s", file, name, diff)
				}
				if diff := cmp.Diff(wantLive, projection.ClusterState(other), cmp.Comparer(sameAddr)); diff != "" {
					t.Fatalf("%s %s live (-want +got):\n%s", file, name, diff)
				}
			}
		}
	}
}

func sameAddr(a, b netip.Addr) bool { return a == b }

// TestInputIsNotChanged checks that the projection does not modify its input, which other
// goroutines may read.
func TestInputIsNotChanged(t *testing.T) {
	t.Parallel()
	for file, w := range worlds(t) {
		for name, in := range w.inputs {
			before := toJSON(t, in)
			projection.Desired(in)
			projection.ClusterState(in)
			if toJSON(t, in) != before {
				t.Errorf("%s %s: the input changed", file, name)
			}
		}
	}
}

func toJSON(t testing.TB, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestAddedClusterMovesNothing adds a cluster with an export. All existing objects of every node
// must stay the same, except the zone's serial.
func TestAddedClusterMovesNothing(t *testing.T) {
	t.Parallel()
	for file, w := range worlds(t) {
		grown := clone(t, w.fabric)
		grown.Clusters = append(grown.Clusters, fabric.Cluster{
			Name: "aaa", Globalnet: true, PodCIDRs: prefixes("10.200.0.0/16"), ServiceCIDRs: prefixes("10.201.0.0/16"),
			GlobalCIDRs: prefixes("242.200.0.0/24"), EgressMode: fabric.EgressShared, EgressIPs: []netip.Addr{addr("242.200.0.1")},
			Gateways: []fabric.Gateway{{
				Name: "aaa-a", Node: "aaa-a", Endpoints: []string{"203.0.113.200"}, Port: 51820,
				Addresses: []netip.Addr{addr("241.0.0.200")}, Keys: []fabric.Key{{Epoch: 1, Public: "pub-aaa"}},
			}},
		})
		grown.Exports = append([]fabric.Export{{
			Namespace: "aaa", Name: "aaa", Type: fabric.ClusterSetIP, VIPs: []netip.Addr{addr("243.0.200.1")},
			Ports: []fabric.Port{{Protocol: "TCP", Port: 80}}, Balance: fabric.Balance{Policy: fabric.Spread},
			Clusters: []fabric.ExportCluster{{Name: "aaa", IPs: []netip.Addr{addr("242.200.0.9")}}},
		}}, grown.Exports...)
		for name, in := range w.inputs {
			in.Fabric = grown
			in.Paths = map[string]model.Path{"aaa": {Local: grown.Cluster(in.Cluster).Gateways[0].Name, Remote: "aaa-a"}}
			for cluster, path := range w.inputs[name].Paths {
				in.Paths[cluster] = path
			}
			after, _ := projection.Desired(in)
			kept := linesOf(text(after))
			for line := range linesOf(text(w.states[name])) {
				if !kept[line] && !strings.HasPrefix(line, "zone ") {
					t.Errorf("%s %s: lost or changed: %s", file, name, line)
				}
			}
			if !kept["services4 243.0.200.1 . tcp . 80 : pick_one4"] {
				t.Errorf("%s %s: the new export is missing", file, name)
			}
		}
	}
}

func linesOf(text string) map[string]bool {
	out := map[string]bool{}
	for line := range strings.Lines(text) {
		out[strings.TrimSuffix(line, "\n")] = true
	}
	return out
}

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

// TestKeysAreUnique checks that elements have unique keys. A duplicate key would block all changes
// of that kind of object.
func TestKeysAreUnique(t *testing.T) {
	t.Parallel()
	for file, w := range worlds(t) {
		// The worst fabric: two copies of every export, so all addresses conflict.
		doubled := clone(t, w.fabric)
		for _, e := range w.fabric.Exports {
			e.Name += "-again"
			doubled.Exports = append(doubled.Exports, e)
		}
		for name, in := range w.inputs {
			in.Fabric = doubled
			for i := range w.inputs[name].Facts.Services {
				s := w.inputs[name].Facts.Services[i]
				s.Name += "-again"
				in.Facts.Services = append(slices.Clip(in.Facts.Services), s)
			}
			s, _ := projection.Desired(in)
			keys := map[string]bool{}
			for _, e := range s.Elements {
				if keys[e.Key()] {
					t.Errorf("%s %s: %s twice", file, name, e.Key())
				}
				keys[e.Key()] = true
				if e.Origin == "" {
					t.Errorf("%s %s: %s has no origin", file, name, e.Key())
				}
			}
		}
	}
}

// TestMemoChangesNothing compares results with and without one memo while backends appear,
// disappear and change their weight.
func TestMemoChangesNothing(t *testing.T) {
	t.Parallel()
	memo := &projection.Memo{}
	for file, w := range worlds(t) {
		for name, in := range w.inputs {
			for step := range 8 {
				if step%4 == 1 {
					in.Facts = *clone(t, &in.Facts)
					for i := range in.Facts.Services {
						if endpoints := in.Facts.Services[i].Endpoints; len(endpoints) > 0 {
							endpoints[0].Ready = !endpoints[0].Ready
						}
					}
				}
				if step%4 == 3 {
					in.Fabric = clone(t, in.Fabric)
					for i := range in.Fabric.Exports {
						in.Fabric.Exports[i].Balance = fabric.Balance{Policy: fabric.Weighted, Weights: map[string]int{"c1": step, "g2": 3}}
					}
				}
				in.Memo = nil
				want, problems := projection.Desired(in)
				in.Memo = memo
				have, problemsNow := projection.Desired(in)
				if diff := cmp.Diff(everything(t, want, problems), everything(t, have, problemsNow)); diff != "" {
					t.Fatalf("%s %s step %d (-want +got):\n%s", file, name, step, diff)
				}
			}
		}
	}
}

// TestAnnouncedStateIsClusterState compares the state that a projection announces with
// ClusterState.
func TestAnnouncedStateIsClusterState(t *testing.T) {
	t.Parallel()
	for file, w := range worlds(t) {
		for name, in := range w.inputs {
			_, _, got := projection.DesiredAndAnnounced(in)
			if diff := cmp.Diff(projection.ClusterState(in), got, cmp.Comparer(sameAddr)); diff != "" {
				t.Errorf("%s %s (-want +got):\n%s", file, name, diff)
			}
		}
	}
}

// bigInput returns the input of a gateway in a clusterset with the given numbers of clusters and
// exports.
func bigInput(clusters, exports int) projection.Input {
	f := &fabric.Fabric{
		Domain: "clusterset.local", Epochs: []int{1},
		GlobalPools: prefixes("242.0.0.0/8"), ServicePools: prefixes("243.0.0.0/16"), TunnelPools: prefixes("241.0.0.0/16"),
		DNS: fabric.DNS{Address: addr("169.254.73.53")},
	}
	paths := map[string]model.Path{}
	for i := range clusters {
		name := fmt.Sprintf("c%04d", i)
		block := netip.AddrFrom4([4]byte{242, byte(i >> 6), byte(i << 2), 0})
		f.Clusters = append(f.Clusters, fabric.Cluster{
			Name: name, Globalnet: true, EgressMode: fabric.EgressShared, EgressIPs: []netip.Addr{block.Next()},
			PodCIDRs: prefixes("10.7.0.0/16"), ServiceCIDRs: prefixes("10.77.0.0/16"), GlobalCIDRs: []netip.Prefix{netip.PrefixFrom(block, 22)},
			Gateways: []fabric.Gateway{{
				Name: name + "-a", Node: name + "-a", Endpoints: []string{"203.0.113.11"}, Port: 51820,
				Addresses: []netip.Addr{netip.AddrFrom4([4]byte{241, 0, byte(i >> 8), byte(i)})},
				Keys:      []fabric.Key{{Epoch: 1, Public: "pub-" + name}},
			}},
		})
		paths[name] = model.Path{Local: "c0000-a", Remote: name + "-a"}
	}
	delete(paths, "c0000")
	for i := range exports {
		c := f.Clusters[i%clusters]
		ip := c.GlobalCIDRs[0].Addr().As4()
		ip[3] = byte(32 + i/clusters)
		f.Exports = append(f.Exports, fabric.Export{
			Namespace: "sample", Name: fmt.Sprintf("svc%05d", i), Type: fabric.ClusterSetIP,
			VIPs: []netip.Addr{netip.AddrFrom4([4]byte{243, 0, byte(i >> 8), byte(i)})}, Ports: []fabric.Port{{Protocol: "TCP", Port: 80}},
			Balance:  fabric.Balance{Policy: fabric.LocalFirst},
			Clusters: []fabric.ExportCluster{{Name: c.Name, IPs: []netip.Addr{netip.AddrFrom4(ip)}}},
		})
	}
	return projection.Input{
		Fabric: f, Keys: keysOf(f.Clusters[0]), Cluster: "c0000", Node: "c0000-a", Paths: paths,
		Facts: model.Facts{Nodes: []model.Node{{Name: "c0000-a", Addrs: []netip.Addr{addr("192.168.0.1")}}}},
	}
}

// BenchmarkStateBackends measures the projection of a cluster that exports 200 Services with three
// backends each, with and without a memo.
func BenchmarkStateBackends(b *testing.B) {
	in := bigInput(20, 4000)
	for i, e := range in.Fabric.Exports {
		if e.Clusters[0].Name != in.Cluster {
			continue
		}
		s := model.Service{Namespace: e.Namespace, Name: e.Name, Ports: []model.ServicePort{{Protocol: "TCP", Port: 80}}}
		for j := range byte(3) {
			s.Endpoints = append(s.Endpoints, model.Endpoint{
				Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 7, byte(i / 20), j})}, Ready: true, Ports: map[string]int{"TCP/80": 8080},
			})
		}
		in.Facts.Services = append(in.Facts.Services, s)
	}
	for name, memo := range map[string]*projection.Memo{"plain": nil, "memo": {}} {
		in := in
		in.Memo = memo
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				projection.Desired(in)
			}
		})
	}
}

func BenchmarkState(b *testing.B) {
	for _, n := range []struct{ clusters, exports int }{{3, 10}, {1000, 10000}} {
		in := bigInput(n.clusters, n.exports)
		b.Run(fmt.Sprintf("%d-%d", n.clusters, n.exports), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				projection.Desired(in)
			}
		})
	}
}
