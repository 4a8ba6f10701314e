package mcs_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/schema/fabric"
)

// with returns a changed copy of a service.
func with(s *mcs.Service, change func(*mcs.Service)) *mcs.Service {
	out := *s
	out.Ports = slices.Clone(s.Ports)
	change(&out)
	return &out
}

type conflictCase struct {
	name     string
	older    *mcs.Service // of g1
	younger  *mcs.Service // of g2
	change   func(*mcs.Export)
	reason   string
	message  string
	ports    []mcs.Port
	parts    [2][]mcs.Port // of each cluster; nil = as ports
	typed    string
	affinity string
}

func conflictCases() []conflictCase {
	base := service(tcp("http", 80))
	return []conflictCase{
		{
			name: "none", older: base, younger: base, reason: "NoConflicts", message: "all service exports of this name agree",
			ports: []mcs.Port{tcp("http", 80)},
		},
		{
			name: "a port is missing", older: service(tcp("http", 80), mcs.Port{Name: "udp", Protocol: "UDP", Port: 80}),
			younger: service(tcp("http", 80), mcs.Port{Name: "stcp", Protocol: "SCTP", Port: 142}), reason: "PortConflict",
			message: `Conflicting ports. Using "http 80/TCP, udp 80/UDP, stcp 142/SCTP" from all service exports, the oldest first, which is in "g1". 2/2 clusters disagree.`,
			ports:   []mcs.Port{tcp("http", 80), {Name: "udp", Protocol: "UDP", Port: 80}, {Name: "stcp", Protocol: "SCTP", Port: 142}},
			parts: [2][]mcs.Port{
				{tcp("http", 80), {Name: "udp", Protocol: "UDP", Port: 80}},
				{tcp("http", 80), {Name: "stcp", Protocol: "SCTP", Port: 142}},
			},
		},
		{
			name: "one name, two numbers", older: service(tcp("tcp", 42)), younger: service(tcp("tcp", 4242)), reason: "PortConflict",
			message: `Conflicting ports. Using "tcp 42/TCP" from all service exports, the oldest first, which is in "g1". 1/2 clusters disagree.`,
			ports:   []mcs.Port{tcp("tcp", 42)}, parts: [2][]mcs.Port{{tcp("tcp", 42)}, {}},
		},
		{
			name: "one number, two names", older: service(tcp("web", 80)), younger: service(tcp("http", 80)), reason: "PortConflict",
			message: `Conflicting ports. Using "web 80/TCP" from all service exports, the oldest first, which is in "g1". 1/2 clusters disagree.`,
			ports:   []mcs.Port{tcp("web", 80)},
		},
		{
			name: "two names, two numbers", older: service(tcp("a", 42)), younger: service(tcp("b", 4242)), reason: "PortConflict",
			message: `Conflicting ports. Using "a 42/TCP, b 4242/TCP" from all service exports, the oldest first, which is in "g1". 2/2 clusters disagree.`,
			ports:   []mcs.Port{tcp("a", 42), tcp("b", 4242)}, parts: [2][]mcs.Port{{tcp("a", 42)}, {tcp("b", 4242)}},
		},
		{
			name: "application protocol", older: service(mcs.Port{Name: "http", Protocol: "TCP", Port: 80, AppProtocol: "h2c"}), younger: base,
			reason:  "PortConflict",
			message: `Conflicting ports. Using "http 80/TCP" from all service exports, the oldest first, which is in "g1". 1/2 clusters disagree.`,
			ports:   []mcs.Port{{Name: "http", Protocol: "TCP", Port: 80, AppProtocol: "h2c"}},
		},
		{
			name: "type", older: base, younger: with(base, func(s *mcs.Service) { s.Headless = true }), reason: "TypeConflict",
			message: `Conflicting type. Using "ClusterSetIP" from oldest service export in "g1". 1/2 clusters disagree.`,
			ports:   base.Ports,
		},
		{
			name: "type, headless first", older: with(base, func(s *mcs.Service) { s.Headless = true }), younger: base, reason: "TypeConflict",
			message: `Conflicting type. Using "Headless" from oldest service export in "g1". 1/2 clusters disagree.`,
			ports:   base.Ports, typed: fabric.Headless,
		},
		{
			name: "affinity", older: with(base, func(s *mcs.Service) { s.Affinity = "ClientIP" }), younger: base, reason: "SessionAffinityConflict",
			message: `Conflicting session affinity. Using "ClientIP" from oldest service export in "g1". 1/2 clusters disagree.`,
			ports:   base.Ports, affinity: "ClientIP 10800",
		},
		{
			name: "affinity config", older: with(base, func(s *mcs.Service) { s.Affinity, s.AffinitySeconds = "ClientIP", 10 }),
			younger: with(base, func(s *mcs.Service) { s.Affinity = "ClientIP" }), reason: "SessionAffinityConfigConflict",
			message: `Conflicting session affinity config. Using "10 s" from oldest service export in "g1". 1/2 clusters disagree.`,
			ports:   base.Ports, affinity: "ClientIP 10",
		},
		{
			name: "internal traffic policy", older: base, younger: with(base, func(s *mcs.Service) { s.InternalTrafficPolicy = "Local" }),
			reason:  "InternalTrafficPolicyConflict",
			message: `Conflicting internal traffic policy. Using "Cluster" from oldest service export in "g1". 1/2 clusters disagree.`,
			ports:   base.Ports,
		},
		{
			name: "internal traffic policy that is the default", older: base, reason: "NoConflicts",
			younger: with(base, func(s *mcs.Service) { s.InternalTrafficPolicy = "" }),
			message: "all service exports of this name agree", ports: base.Ports,
		},
		{
			name: "traffic distribution", older: with(base, func(s *mcs.Service) { s.TrafficDistribution = "PreferClose" }), younger: base,
			reason:  "TrafficDistributionConflict",
			message: `Conflicting traffic distribution. Using "PreferClose" from oldest service export in "g1". 1/2 clusters disagree.`,
			ports:   base.Ports,
		},
		{
			name: "labels", older: base, younger: base, change: func(e *mcs.Export) { e.Labels = map[string]string{"tier": "b"} },
			reason:  "LabelsConflict",
			message: `Conflicting exported labels. Using "" from oldest service export in "g1". 1/2 clusters disagree.`, ports: base.Ports,
		},
		{
			name: "annotations", older: base, younger: base, change: func(e *mcs.Export) { e.Annotations = map[string]string{"a": "b"} },
			reason:  "AnnotationsConflict",
			message: `Conflicting exported annotations. Using "" from oldest service export in "g1". 1/2 clusters disagree.`, ports: base.Ports,
		},
		{
			name: "families", older: base, younger: with(base, func(s *mcs.Service) { s.Families = []int{6, 4} }), reason: "IPFamilyConflict",
			message: `Conflicting IP families. Using "IPv4, IPv6" from all service exports, the oldest first, which is in "g1". 1/2 clusters disagree.`,
			ports:   base.Ports,
		},
		{
			name: "two at once", older: base, younger: with(base, func(s *mcs.Service) { s.Headless, s.Affinity = true, "ClientIP" }),
			reason: "TypeConflict,SessionAffinityConflict",
			message: `Conflicting type. Using "ClusterSetIP" from oldest service export in "g1". 1/2 clusters disagree. ` +
				`Conflicting session affinity. Using "None" from oldest service export in "g1". 1/2 clusters disagree.`,
			ports: base.Ports,
		},
	}
}

// TestConflicts checks the result of exports that differ, and the condition of both.
func TestConflicts(t *testing.T) {
	t.Parallel()
	for _, tt := range conflictCases() {
		older, younger := export("team-a", "api", 1, tt.older), export("team-a", "api", 2, tt.younger)
		if tt.change != nil {
			tt.change(&younger)
		}
		all := map[string][]mcs.Export{"g1": {older}, "g2": {younger}}
		want := mcs.Condition{Type: "Conflict", Status: "True", Reason: tt.reason, Message: tt.message}
		if tt.reason == "NoConflicts" {
			want.Status = "False"
		}
		for _, cluster := range []string{"g1", "g2"} {
			s := stateOf(seenFrom(sample(), cluster, all), nil)
			if have := condition(s.Exports[0].Conditions, "Conflict"); have != want {
				t.Errorf("%s: the condition in %s is\n%+v, want\n%+v", tt.name, cluster, have, want)
			}
		}
		d := mcs.Decide(seenFrom(sample(), "g3", all))
		r := d.Services[0]
		if diff := cmp.Diff(tt.ports, r.Ports); diff != "" {
			t.Errorf("%s: ports (-want +got):\n%s", tt.name, diff)
		}
		for i, part := range tt.parts {
			if part != nil && fmt.Sprint(part) != fmt.Sprint(r.Parts[i].Ports) {
				t.Errorf("%s: %s serves %v, want %v", tt.name, r.Parts[i].Cluster, r.Parts[i].Ports, part)
			}
		}
		typed, affinity := tt.typed, tt.affinity
		if typed == "" {
			typed = fabric.ClusterSetIP
		}
		if affinity == "" {
			affinity = " 0"
		}
		if have := fmt.Sprintf("%s %d", r.Affinity, r.AffinitySeconds); r.Type != typed || have != affinity {
			t.Errorf("%s: %s with affinity %q, want %s with %q", tt.name, r.Type, have, typed, affinity)
		}
	}
}

// TestTheTopologyHasItsWay checks that a declared export has the declared type, ports and affinity,
// regardless of the oldest export.
func TestTheTopologyHasItsWay(t *testing.T) {
	t.Parallel()
	odd := with(service(tcp("http", 80), tcp("admin", 9000)), func(s *mcs.Service) { s.Headless, s.Affinity = true, "ClientIP" })
	all := map[string][]mcs.Export{
		"g1": {export("shop", "web", 1, odd)}, "g2": {export("shop", "web", 2, service(tcp("http", 8080)))},
		"g3": {export("shop", "web", 0, service(tcp("other", 1)))}, // the topology does not declare it for g3
	}
	s := stateOf(seenFrom(sample(), "g1", all), nil)
	want := mcs.Condition{
		Type: "Conflict", Status: "True", Reason: "PortConflict,TypeConflict,SessionAffinityConflict",
		Message: `Conflicting ports. The topology exports "http 80/TCP", the Service in cluster g2 has "http 8080/TCP": correct one of them. ` +
			`Conflicting type. Using "ClusterSetIP" from the topology. 1/2 clusters disagree. ` +
			`Conflicting session affinity. Using "None" from the topology. 1/2 clusters disagree.`,
	}
	if have := condition(s.Exports[0].Conditions, "Conflict"); have != want {
		t.Errorf("the condition is\n%+v, want\n%+v", have, want)
	}
	m := one(t, s, "shop", "web")
	if m.Type != fabric.ClusterSetIP || fmt.Sprint(m.Ports) != fmt.Sprint([]mcs.Port{tcp("http", 80)}) ||
		fmt.Sprint(m.IPs) != "[243.0.0.1]" || fmt.Sprint(m.Clusters) != "[g1 g2]" || len(s.Exports[0].Addrs) != 0 {
		t.Errorf("the import is %+v", m)
	}
	if d := mcs.Decide(seenFrom(sample(), "g1", all)); len(d.Dynamic()) != 0 {
		t.Errorf("a declared export is shadowed by %v", d.Dynamic())
	}
}

// TestAnotherWritesTheImport checks that the clusterset IP stays in use, and the condition of the
// export reports the foreign import.
func TestAnotherWritesTheImport(t *testing.T) {
	t.Parallel()
	w := seenFrom(sample(), "g1", map[string][]mcs.Export{"g1": {export("team-a", "db", 1, service(tcp("sql", 5432)))}})
	w.HasAPI, w.Namespaces = true, []string{"team-a"}
	w.Exports[0].Addrs = addrs("242.1.192.7")
	vips := func() string { return fmt.Sprint(mcs.Decide(w).Dynamic()[0].VIPs) }
	if have := vips(); have != "[]" {
		t.Fatalf("used before it is recorded: %s", have)
	}
	given := fmt.Sprint(one(t, stateOf(w, nil), "team-a", "db").IPs)
	w.Imports = []mcs.Import{{Namespace: "team-a", Name: "db", IPs: addrs("243.0.128.9")}}
	if have := vips(); have != "[243.0.128.9]" {
		t.Errorf("ours: %s", have)
	}
	w.Imports[0].Foreign = true
	if have := vips(); have != "[243.0.128.9]" {
		t.Errorf("another's, and ours before: %s", have)
	}
	s := stateOf(w, nil)
	if have := fmt.Sprint(one(t, s, "team-a", "db").IPs); have != "[243.0.128.9]" {
		t.Errorf("it should have %s", have)
	}
	if have := condition(s.Exports[0].Conditions, "Conflict"); have.Status != "True" || have.Reason != "ImportConflict" {
		t.Errorf("the condition is %+v", have)
	}
	if have := condition(s.Exports[0].Conditions, "Ready"); have.Status != "True" {
		t.Errorf("the condition is %+v", have)
	}
	w.Imports[0].IPs = nil
	if have := vips(); have != given {
		t.Errorf("another's from the beginning: %s, want %s", have, given)
	}
}

// TestDeclaredBecomesDynamic checks that an export that becomes dynamic keeps all its addresses in
// use. The clusters may read the change in any order.
func TestDeclaredBecomesDynamic(t *testing.T) {
	t.Parallel()
	before := sample()
	before.ServicePools = prefixes("243.0.0.0/16")
	before.Exports[0].Namespace, before.Exports[0].Clusters = "team-a", before.Exports[0].Clusters[:1]
	after := *before
	after.Exports = nil
	exports := []mcs.Export{export("team-a", "web", 1, service(tcp("http", 80)))}
	exporter := mcs.ClusterView{Fabric: before, Cluster: "g1", Exports: exports, HasAPI: true, Namespaces: []string{"team-a"}}
	s := stateOf(exporter, nil)
	if have := fmt.Sprint(s.Exports[0].Addrs); have != "[242.1.0.1]" {
		t.Fatalf("recorded while it is declared: %s", have)
	}
	exporter.Exports[0].Addrs = s.Exports[0].Addrs
	vips := one(t, s, "team-a", "web").IPs
	exporter.Imports = []mcs.Import{{Namespace: "team-a", Name: "web", IPs: vips}}
	for _, f := range []*fabric.Fabric{before, &after} {
		exporter.Fabric = f
		exportResults := mcs.Decide(exporter).Exports
		if have := fmt.Sprint(exportResults[0].Offer.Addrs, exportResults[0].Addrs); have != "[242.1.0.1] [242.1.0.1]" {
			t.Errorf("offered and recorded: %s", have)
		}
		importer := mcs.ClusterView{
			Fabric: &after, Cluster: "g2", HasAPI: true, Namespaces: []string{"team-a"},
			Imports: []mcs.Import{{Namespace: "team-a", Name: "web", IPs: vips}},
			Offers:  map[string][]mcs.NamedOffer{"g1": {{Namespace: "team-a", Name: "web", Offer: exportResults[0].Offer}}},
		}
		for _, w := range []mcs.ClusterView{exporter, importer} {
			if w.Fabric == before {
				continue
			}
			e := mcs.Decide(w).Dynamic()[0]
			if fmt.Sprint(e.VIPs, e.Clusters[0].IPs) != "[243.0.0.1] [242.1.0.1]" {
				t.Errorf("%s: %+v", w.Cluster, e)
			}
		}
	}
}

// TestAllClustersAgree checks that all clusters get the same result in any order, except for their
// own clusterset IPs.
func TestAllClustersAgree(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 9))
	cases := conflictCases()
	for round := range 200 {
		all := map[string][]mcs.Export{}
		for _, cluster := range []string{"g1", "g2", "g3"} {
			for _, name := range []string{"a", "b", "c"} {
				if s := cases[rng.IntN(len(cases))].younger; rng.IntN(4) > 0 {
					all[cluster] = append(all[cluster], export("team-"+name, name, rng.IntN(3), s))
				}
			}
		}
		var want []mcs.ResolvedExport
		for i, cluster := range []string{"g1", "g2", "g3"} {
			w := seenFrom(sample(), cluster, all)
			rng.Shuffle(len(w.Exports), func(i, j int) { w.Exports[i], w.Exports[j] = w.Exports[j], w.Exports[i] })
			for _, offers := range w.Offers {
				rng.Shuffle(len(offers), func(i, j int) { offers[i], offers[j] = offers[j], offers[i] })
			}
			have := mcs.Decide(w).Services
			for j := range have {
				have[j].DesiredVIPs, have[j].VIPs = nil, nil
			}
			if i == 0 {
				want = have
			} else if !reflect.DeepEqual(want, have) {
				t.Fatalf("round %d: %s sees %s", round, cluster, cmp.Diff(want, have, cmp.Comparer(sameAddr)))
			}
		}
	}
}

// TestForeignAddressesAreIgnored checks that announced addresses outside the cluster's blocks are
// ignored, and names that the topology does not permit.
func TestForeignAddressesAreIgnored(t *testing.T) {
	t.Parallel()
	offer := func(minute int, ips ...string) *mcs.Offer {
		return &mcs.Offer{Created: at(minute), Ports: []mcs.Port{tcp("http", 80)}, Families: []int{4}, Addrs: addrs(ips...)}
	}
	w := mcs.ClusterView{Fabric: sample(), Cluster: "g1", Offers: map[string][]mcs.NamedOffer{
		"g2": {
			{Namespace: "team-a", Name: "good", Offer: offer(5, "242.2.192.9")},
			{Namespace: "team-a", Name: "twin", Offer: offer(6, "242.2.192.9")}, // a younger one at the same address
			{Namespace: "team-a", Name: "foreign", Offer: offer(1, "242.3.192.9")},
			{Namespace: "team-a", Name: "declared", Offer: offer(1, "242.2.0.1")},
			{Namespace: "other", Name: "web", Offer: offer(1, "242.2.192.10")},
			{Namespace: "team-a", Name: "broken", Offer: &mcs.Offer{Ports: []mcs.Port{{Protocol: "TCP", Port: 70000}}}},
		},
		"g3": {{Namespace: "shop", Name: "web", Offer: offer(1)}}, // declared for others
		"g1": {{Namespace: "team-a", Name: "forged", Offer: offer(1)}},
		"g9": {{Namespace: "team-a", Name: "stranger", Offer: offer(1)}},
	}}
	want := "foreign [] good [242.2.192.9] twin [] "
	have := ""
	for _, e := range mcs.Decide(w).Dynamic() {
		if e.Name == "declared" {
			if len(e.Clusters[0].IPs) != 0 {
				t.Errorf("an address of the topology is taken from an offer: %v", e.Clusters)
			}
			continue
		}
		have += fmt.Sprintf("%s %v ", e.Name, e.Clusters[0].IPs)
	}
	if have != want {
		t.Errorf("have %s, want %s", have, want)
	}
}

// TestClaimsOutsideOfTheTopology checks that exports in a namespace that the topology reserves for
// other clusters are reported. They do not affect the exports of these clusters.
func TestClaimsOutsideOfTheTopology(t *testing.T) {
	t.Parallel()
	f := sample()
	f.DynamicExports.Restrictions = []fabric.DynamicRestriction{{Namespaces: []string{"team-pay"}, Clusters: []string{"g1"}}}
	honest := export("team-pay", "api", 30, service(tcp("http", 80)))
	rogue := export("team-pay", "api", 0, service(tcp("http", 666)))
	rogue.Service.Headless = true
	free := export("team-a", "web", 1, service(tcp("http", 80)))

	// In the exporting cluster the condition has the reason.
	at3 := mcs.ClusterView{Fabric: f, Cluster: "g3", Exports: []mcs.Export{rogue, free}}
	list := mcs.Decide(at3).Exports
	want := mcs.Condition{Type: "Valid", Status: "False", Reason: "NotAllowed",
		Message: "the topology lets only g1 export from namespace team-pay: add g3 to spec.dynamicExports[].clusters, and wait until the agents have that fabric"}
	if list[1].Valid != want || list[1].Offer != nil || list[0].Offer == nil {
		t.Errorf("where it is made: %+v", list)
	}

	// Other clusters ignore the export even if it is announced.
	g := sample()
	w := seenFrom(f, "g1", map[string][]mcs.Export{"g1": {honest}})
	for _, v := range mcs.Decide(mcs.ClusterView{Fabric: g, Cluster: "g3", Exports: []mcs.Export{rogue, free}}).Exports {
		w.Offers["g3"] = append(w.Offers["g3"], mcs.NamedOffer{Namespace: v.Export.Namespace, Name: v.Export.Name, Offer: v.Offer})
	}
	d := mcs.Decide(w)
	for _, r := range d.Services {
		if r.ID() == "team-pay/api" && (len(r.Parts) != 1 || r.Type != fabric.ClusterSetIP || r.Ports[0].Port != 80 || r.Conflict.Status == "True") {
			t.Errorf("g3 changes the export of g1: %+v", r)
		}
	}
	if len(d.Services) != 2 {
		t.Errorf("%d services, want team-pay/api and team-a/web", len(d.Services))
	}
	refused := []mcs.Refusal{{Cluster: "g3", Namespace: "team-pay", Name: "api", Clusters: []string{"g1"}}}
	if diff := cmp.Diff(refused, d.Refused); diff != "" {
		t.Errorf("refusals (-want +got):\n%s", diff)
	}
}

// TestManyRefusals checks that the number of reported refusals is limited for any number of
// announced exports.
func TestManyRefusals(t *testing.T) {
	t.Parallel()
	f := sample()
	f.DynamicExports.Restrictions = []fabric.DynamicRestriction{{Namespaces: []string{"team-pay"}, Clusters: []string{"g1"}}}
	w := seenFrom(f, "g1", nil)
	for i := range 1000 {
		w.Offers["g3"] = append(w.Offers["g3"], mcs.NamedOffer{Namespace: "team-pay", Name: fmt.Sprintf("e%03d", i), Offer: &mcs.Offer{Families: []int{4}}})
	}
	if d := mcs.Decide(w); len(d.Refused) != mcs.MaxRefusals || d.Refused[0].Name != "e000" {
		t.Errorf("%d refusals, from %+v", len(d.Refused), d.Refused[0])
	}
}

// TestReservedLabels checks that no cluster sets labels on which controllers of other programs act.
// All clusters get the same result, so it is no conflict.
func TestReservedLabels(t *testing.T) {
	t.Parallel()
	marks := map[string]string{
		"app.kubernetes.io/instance": "argo", "kubernetes.io/x": "y", "k8s.io/x": "y", "gateway.networking.k8s.io/x": "y",
		"hawser.dev/addresses": "242.1.0.1", "sub.hawser.dev/x": "y",
		"team": "a", "example.com/x": "y", "notkubernetes.io/x": "y", "multicluster.kubernetes.io/source-cluster": "g1",
	}
	want := map[string]string{"team": "a", "example.com/x": "y", "notkubernetes.io/x": "y", "multicluster.kubernetes.io/source-cluster": "g1"}
	first, second := export("team-a", "api", 1, service(tcp("http", 80))), export("team-a", "api", 2, service(tcp("http", 80)))
	first.Labels, first.Annotations, second.Labels, second.Annotations = marks, marks, marks, marks
	all := map[string][]mcs.Export{"g1": {first}, "g2": {second}}
	for _, cluster := range []string{"g1", "g2", "g3"} {
		w := seenFrom(sample(), cluster, all)
		m := one(t, stateOf(w, nil), "team-a", "api")
		if !maps.Equal(m.Labels, want) || !maps.Equal(m.Annotations, want) {
			t.Errorf("import in %s has labels %v, annotations %v", cluster, m.Labels, m.Annotations)
		}
		if d := mcs.Decide(w); d.Services[0].Conflict.Status == "True" {
			t.Errorf("%s: %+v", cluster, d.Services[0].Conflict)
		}
	}
	if len(marks) != 10 {
		t.Error("what the export says was changed")
	}
}

// TestNamespaceMissingHere checks that a cluster without the namespace of a dynamic export reaches
// it like a declared one. Its address does not change when the namespace is created.
func TestNamespaceMissingHere(t *testing.T) {
	t.Parallel()
	w := seenFrom(sample(), "g2", map[string][]mcs.Export{"g1": {export("team-a", "db", 1, service(tcp("sql", 5432)))}})
	w.HasAPI, w.Namespaces = true, []string{"team-z"}
	d := mcs.Decide(w)
	dynamic := d.Dynamic()
	if len(dynamic) != 1 || len(dynamic[0].VIPs) != 1 || fmt.Sprint(dynamic[0].Clusters[0].Name) != "g1" {
		t.Fatalf("dynamic exports without the namespace: %+v", dynamic)
	}
	if s := mcs.Desired(w, d, true, nil); len(s.Imports) != 0 || len(s.Slices) != 0 {
		t.Fatalf("objects in a namespace that does not exist: %+v", s)
	}
	w.Namespaces = []string{"team-a", "team-z"}
	if have := fmt.Sprint(one(t, stateOf(w, nil), "team-a", "db").IPs); have != fmt.Sprint(dynamic[0].VIPs) {
		t.Errorf("the import has %s, the address was %v", have, dynamic[0].VIPs)
	}
}
