package mcs_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/nodeagent/mcs"
)

var update = flag.Bool("update", false, "write what the tests got into testdata")

// text prints a state for the golden file.
func text(s mcs.DesiredObjects) string {
	var out strings.Builder
	for _, m := range s.Imports {
		fmt.Fprintf(&out, "import %s/%s %s ips=%v families=%v ports=%s affinity=%s/%d policy=%s distribution=%s labels=%v clusters=%v\n",
			m.Namespace, m.Name, m.Type, m.IPs, m.Families, portsText(m.Ports), m.Affinity, m.AffinitySeconds,
			m.InternalTrafficPolicy, m.TrafficDistribution, m.Labels, m.Clusters)
		conditions(&out, m.Conditions)
	}
	for _, c := range s.Slices {
		fmt.Fprintf(&out, "slice %s/%s import=%s cluster=%s family=%d ports=%s\n", c.Namespace, c.Name, c.Import, c.Cluster, c.Family, portsText(c.Ports))
		for _, e := range c.Endpoints {
			fmt.Fprintf(&out, "  %s %s\n", e.Addr, e.Hostname)
		}
	}
	for _, e := range s.Exports {
		fmt.Fprintf(&out, "export %s/%s addrs=%v\n", e.Namespace, e.Name, e.Addrs)
		conditions(&out, e.Conditions)
	}
	fmt.Fprintf(&out, "properties %v settled %t\n", s.Property, s.PeersSynced)
	return out.String()
}

func conditions(out *strings.Builder, list []mcs.Condition) {
	for _, c := range list {
		fmt.Fprintf(out, "  %s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
	}
}

func portsText(ports []mcs.Port) string {
	var texts []string
	for _, p := range ports {
		texts = append(texts, fmt.Sprintf("%s:%d/%s", p.Name, p.Port, p.Protocol))
	}
	return strings.Join(texts, ",")
}

// scene returns a clusterset with every kind of export, from the view of g1, whose API recorded all
// addresses.
func scene() (mcs.ClusterView, map[string][]mcs.Backend) {
	dual := with(service(tcp("http", 80), mcs.Port{Name: "udp", Protocol: "UDP", Port: 80}), func(s *mcs.Service) {
		s.Families, s.Affinity, s.AffinitySeconds, s.TrafficDistribution = []int{6, 4}, "ClientIP", 10, "PreferClose"
	})
	headless := with(service(tcp("sql", 5432)), func(s *mcs.Service) { s.Headless = true })
	api := export("team-a", "api", 1, dual)
	api.Labels, api.Addrs = map[string]string{"tier": "front"}, addrs("242.1.200.1", "fd42:1:0:8000::9")
	all := map[string][]mcs.Export{
		"g1": {api, export("team-a", "new", 3, service(tcp("", 80))), export("shop", "web", 1, service(tcp("http", 80))), export("other", "no", 1, nil)},
		"g2": {export("team-a", "api", 2, service(tcp("http", 80), mcs.Port{Name: "stcp", Protocol: "SCTP", Port: 142})), export("team-b", "absent", 1, dual)},
		"g3": {export("team-a", "db", 1, headless)},
	}
	w := seenFrom(sample(), "g1", all)
	w.HasAPI, w.Namespaces = true, []string{"other", "shop", "team-a"}
	w.Imports = []mcs.Import{{Namespace: "team-a", Name: "api", Created: at(2), IPs: addrs("fd43:0:0:8000::7", "243.0.130.7")}}
	sources := map[string][]mcs.Backend{
		"team-a/api": {{Cluster: "g1", Addrs: addrs("242.1.200.1", "fd42:1:0:8000::9")}, {Cluster: "g2", Addrs: addrs("242.2.200.1")}},
		"team-a/db": {{Cluster: "g3", Hosts: []mcs.Host{
			{Name: "db-0", Addrs: addrs("242.3.7.1")}, {Name: "10-3-0-9", Addrs: addrs("242.3.7.2"), Ports: map[string]int{"TCP/5432": 6432}},
			{Addrs: addrs("10.3.0.10")},
		}}},
		"shop/web": {{Cluster: "g2", Addrs: addrs("242.2.0.1")}},
	}
	return w, sources
}

// TestWant compares the desired objects of a cluster with the golden file.
func TestWant(t *testing.T) {
	t.Parallel()
	w, sources := scene()
	have := text(stateOf(w, sources))
	const file = "testdata/want.txt"
	if *update {
		if err := os.WriteFile(file, []byte(have), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), have); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestDesiredFollowsDecision checks that Desired accepts a decision of another copy of the fabric,
// and does not change it.
func TestDesiredFollowsDecision(t *testing.T) {
	t.Parallel()
	earlier, sources := scene()
	w, _ := scene()
	before, d := mcs.Decide(earlier), mcs.Decide(earlier)
	have := mcs.Desired(w, d, true, sources)
	if diff := cmp.Diff(stateOf(w, sources), have, cmp.Comparer(sameAddr)); diff != "" {
		t.Errorf("(-decided again +decided before):\n%s", diff)
	}
	if diff := cmp.Diff(before, d, cmp.Comparer(sameAddr)); diff != "" {
		t.Errorf("the decision (-before +after):\n%s", diff)
	}
}

// TestNothingIsWantedOfALeavingCluster checks that a cluster that left the fabric has no desired
// objects.
func TestNothingIsWantedOfALeavingCluster(t *testing.T) {
	t.Parallel()
	w, sources := scene()
	w.Fabric.Decommission = true
	if s := stateOf(w, sources); len(s.Imports)+len(s.Slices)+len(s.Exports)+len(s.Property) != 0 || !s.PeersSynced {
		t.Errorf("wanted: %s", text(s))
	}
}

// TestImportOutlivesItsOldest checks that an import keeps its name and addresses if the older of
// two exports is removed. It is removed with the last one.
func TestImportOutlivesItsOldest(t *testing.T) {
	t.Parallel()
	s := service(tcp("http", 80))
	all := map[string][]mcs.Export{"g1": {export("team-a", "api", 1, s)}, "g2": {export("team-a", "api", 2, s)}}
	first := one(t, stateOf(seenFrom(sample(), "g3", all), nil), "team-a", "api")
	delete(all, "g1")
	w := seenFrom(sample(), "g3", all)
	w.Imports = []mcs.Import{first}
	second := one(t, stateOf(w, nil), "team-a", "api")
	if fmt.Sprint(first.IPs) != fmt.Sprint(second.IPs) || fmt.Sprint(second.Clusters) != "[g2]" || fmt.Sprint(first.Clusters) != "[g1 g2]" {
		t.Errorf("with both %+v, with one %+v", first, second)
	}
	delete(all, "g2")
	if s := stateOf(seenFrom(sample(), "g3", all), nil); len(s.Imports) != 1 || s.Imports[0].Name != "web" {
		t.Errorf("with none %+v", s.Imports)
	}
}

// TestManyEndpoints divides endpoints at the API's limit.
func TestManyEndpoints(t *testing.T) {
	t.Parallel()
	w, sources := scene()
	src := mcs.Backend{Cluster: "g3"}
	for i := range 2500 {
		src.Hosts = append(src.Hosts, mcs.Host{Addrs: addrs(fmt.Sprintf("242.3.%d.%d", i/250, i%250))})
	}
	sources["team-a/db"] = []mcs.Backend{src}
	var sizes []int
	names := map[string]bool{}
	for _, s := range stateOf(w, sources).Slices {
		if s.Import == "db" {
			sizes = append(sizes, len(s.Endpoints))
			names[s.Name] = true
		}
	}
	if fmt.Sprint(sizes) != "[1000 1000 500]" || len(names) != 3 {
		t.Errorf("slices of %v, names %v", sizes, names)
	}
}

// TestTooManyOffers checks that the exporter and the importer both ignore the youngest exports.
func TestTooManyOffers(t *testing.T) {
	t.Parallel()
	f := sample()
	var exports []mcs.Export
	for i := range mcs.MaxOffers + 3 {
		exports = append(exports, export("team-a", fmt.Sprintf("e%d", i), 50-i%50, service(tcp("", 80))))
	}
	w := seenFrom(f, "g2", map[string][]mcs.Export{"g1": exports})
	if n := len(mcs.Decide(w).Dynamic()); n != mcs.MaxOffers {
		t.Errorf("%d exports count of %d", n, len(exports))
	}
	var offers []mcs.NamedOffer
	for i := range exports {
		offers = append(offers, mcs.NamedOffer{Namespace: "team-a", Name: exports[i].Name, Offer: &mcs.Offer{Created: exports[i].Created}})
	}
	w.Offers = map[string][]mcs.NamedOffer{"g1": offers}
	if n := len(mcs.Decide(w).Services); n != mcs.MaxOffers {
		t.Errorf("%d offers count of %d", n, len(offers))
	}
}

func BenchmarkWant(b *testing.B) {
	f := sample()
	all := map[string][]mcs.Export{}
	sources := map[string][]mcs.Backend{}
	for i := range 1000 {
		e := export("team-a", fmt.Sprintf("e%d", i), i%50, service(tcp("http", 80)))
		all["g1"], all["g2"] = append(all["g1"], e), append(all["g2"], e)
		sources["team-a/"+e.Name] = []mcs.Backend{{Cluster: "g2", Addrs: addrs("242.2.200.1")}}
	}
	w := seenFrom(f, "g1", all)
	b.Run("decide", func(b *testing.B) {
		for b.Loop() {
			mcs.Decide(w)
		}
	})
	d := mcs.Decide(w)
	b.Run("want", func(b *testing.B) {
		for b.Loop() {
			mcs.Desired(w, d, true, sources)
		}
	})
}
