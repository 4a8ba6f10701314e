package projection_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// backendsOf counts the slots of an address by backend.
func backendsOf(s desired.State, address string) map[string]int {
	out := map[string]int{}
	for _, e := range s.Elements {
		if e.Set == desired.SetSlots && strings.HasPrefix(e.ID, address+" ") {
			out[e.Value]++
		}
	}
	return out
}

// terminate makes all endpoints of a Service terminate; they still serve.
func terminate(s *model.Service) {
	s.Endpoints = slices.Clone(s.Endpoints)
	for i := range s.Endpoints {
		s.Endpoints[i].Ready, s.Endpoints[i].Terminating = false, s.Endpoints[i].Ready
	}
}

// withService returns an input whose Service is a changed copy.
func withService(in projection.Input, name string, change func(*model.Service)) projection.Input {
	in.Facts.Services = slices.Clone(in.Facts.Services)
	for i := range in.Facts.Services {
		if in.Facts.Services[i].Name == name {
			change(&in.Facts.Services[i])
		}
	}
	return in
}

func codes(problems []projection.Problem, code string) []string {
	var out []string
	for _, p := range problems {
		if p.Code == code {
			out = append(out, p.Path+": "+p.Text)
		}
	}
	return out
}

// TestTerminatingEndpoints checks that terminating endpoints that still serve get connections if no
// endpoint is ready (KEP-1669). Ready endpoints of other clusters have precedence.
func TestTerminatingEndpoints(t *testing.T) {
	t.Parallel()
	const l1, l2, c2, c3 = "10.8.0.22 . 8080", "10.8.1.21 . 8080", "242.2.0.32 . 80", "242.3.0.32 . 80"
	tests := []struct {
		name   string
		policy string
		remote map[string]model.ExportState
		want   map[string]int
	}{
		{"no other cluster", fabric.LocalFirst, map[string]model.ExportState{}, map[string]int{l1: 512, l2: 512}},
		{"ready elsewhere", fabric.LocalFirst, map[string]model.ExportState{"c2": {Ready: true}}, map[string]int{c2: 1}},
		{"one of two terminates", fabric.Spread, map[string]model.ExportState{"c2": {Ready: true}, "c3": {Ready: true, Terminating: true}},
			map[string]int{c2: 1}},
		{"all terminate", fabric.Spread, map[string]model.ExportState{"c3": {Ready: true, Terminating: true}},
			map[string]int{l1: 256, l2: 256, c3: 512}},
	}
	for _, tt := range tests {
		w, _ := readWorld(t, "testdata/mixed.txtar")
		in := withService(w.inputs["c1/c1-w1"], "web", terminate)
		in.Fabric.Exports[1].Balance = fabric.Balance{Policy: tt.policy}
		for _, name := range []string{"c2", "c3"} {
			e := tt.remote[name]
			e.Namespace, e.Name = "sample", "web"
			in.ClusterStates[name] = model.ClusterState{Cluster: name, Exports: []model.ExportState{e}}
		}
		state, _ := projection.Desired(in)
		if diff := cmp.Diff(tt.want, backendsOf(state, "243.0.0.1")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		// Other clusters may still connect, and learn that the endpoints terminate.
		if have := backendsOf(state, "242.1.0.32"); len(have) != 2 {
			t.Errorf("%s: the export address leads to %v", tt.name, have)
		}
		i := slices.IndexFunc(projection.ClusterState(in).Exports, func(e model.ExportState) bool { return e.Name == "web" })
		if live := projection.ClusterState(in).Exports[i]; !live.Ready || !live.Terminating {
			t.Errorf("%s: other clusters learn %+v", tt.name, live)
		}
		in.PeersSynced = true
		for _, s := range projection.MCS(in).Slices {
			for _, e := range s.Endpoints {
				if want := s.Cluster == "c1" || tt.remote[s.Cluster].Terminating; s.Import == "web" && e.Terminating != want {
					t.Errorf("%s: slice of %s: %+v", tt.name, s.Cluster, e)
				}
			}
		}
	}
}

// TestReadyWins checks that a single ready endpoint gets all connections.
func TestReadyWins(t *testing.T) {
	t.Parallel()
	w, _ := readWorld(t, "testdata/mixed.txtar")
	in := withService(w.inputs["c1/c1-w1"], "web", func(s *model.Service) {
		terminate(s)
		s.Endpoints[0].Ready, s.Endpoints[0].Terminating = true, false
	})
	state, _ := projection.Desired(in)
	if have := backendsOf(state, "242.1.0.32"); len(have) != 1 {
		t.Errorf("the export address leads to %v", have)
	}
	i := slices.IndexFunc(projection.ClusterState(in).Exports, func(e model.ExportState) bool { return e.Name == "web" })
	if live := projection.ClusterState(in).Exports[i]; !live.Ready || live.Terminating {
		t.Errorf("other clusters learn %+v", live)
	}
}

// TestOfferOnAcceptedNodes checks that the export address does not lead to nodes whose VXLAN this
// node drops. If the Service has no endpoints on other nodes, it does. The clusterset IP leads to
// all endpoints.
func TestOfferOnAcceptedNodes(t *testing.T) {
	t.Parallel()
	w, _ := readWorld(t, "testdata/mixed.txtar")
	in := w.inputs["c1/c1-a"]
	in.ClusterStates = nil
	in.Facts.Nodes = append(slices.Clone(in.Facts.Nodes), model.Node{Name: "booted", Unprotected: true})
	first := func(s *model.Service) {
		s.Endpoints = slices.Clone(s.Endpoints)
		s.Endpoints[0].Node = "booted"
	}
	all := func(s *model.Service) {
		first(s)
		s.Endpoints[1].Node = "booted"
	}
	tests := []struct {
		name   string
		change func(*model.Service)
		want   int // endpoints behind the export address
	}{
		{"one of two", first, 1},
		{"all", all, 2},
	}
	for _, tt := range tests {
		state, _ := projection.Desired(withService(in, "web", tt.change))
		if got := backendsOf(state, "242.1.0.32"); len(got) != tt.want {
			t.Errorf("%s: the export address leads to %v, want %d", tt.name, got, tt.want)
		}
		if got := backendsOf(state, "243.0.0.1"); len(got) < 2 {
			t.Errorf("%s: the clusterset IP leads to %v", tt.name, got)
		}
	}
}

// TestHeadlessIsReadyOnly checks that names lead to ready pods only, as in CoreDNS.
func TestHeadlessIsReadyOnly(t *testing.T) {
	t.Parallel()
	w, _ := readWorld(t, "testdata/globalnet.txtar")
	in := withService(w.inputs["g2/g2-a"], "whereami-ss", terminate)
	state, _ := projection.Desired(in)
	for _, s := range state.Services {
		if s.Name == "whereami-ss" && len(s.Clusters[0].Hosts) > 0 {
			t.Errorf("names lead to %+v", s.Clusters[0].Hosts)
		}
	}
	if live := projection.ClusterState(in).Exports[1]; live.Ready || len(live.Hosts) > 0 {
		t.Errorf("other clusters learn %+v", live)
	}
}

// TestMachineEndpoints checks that other clusters' packets to a machine outside the cluster get the
// gateway's source address. Packets to pods, also on the host network, do not.
func TestMachineEndpoints(t *testing.T) {
	t.Parallel()
	w, _ := readWorld(t, "testdata/globalnet.txtar")
	in := withService(w.inputs["g2/g2-a"], "whereami-cs", func(s *model.Service) {
		port := map[string]int{"TCP/80": 5432}
		s.Endpoints = append(slices.Clone(s.Endpoints),
			model.Endpoint{Addrs: addrs("192.168.2.77"), Ready: true, Ports: port},
			model.Endpoint{Addrs: addrs("192.168.2.2"), Pod: "host", Node: "g2-w1", Ready: true, Ports: port},
			model.Endpoint{Addrs: addrs("10.8.1.5"), Pod: "stray", Node: "g2-w1", Ready: true, Ports: port})
	})
	have := func(in projection.Input) []string {
		var out []string
		state, _ := projection.Desired(in)
		for _, e := range state.Elements {
			if e.Set == desired.SetExternalEndpoints {
				out = append(out, e.ID)
			}
		}
		return out
	}
	if diff := cmp.Diff([]string{"192.168.2.77 . tcp . 5432"}, have(in)); diff != "" {
		t.Errorf("machines (-want +got):\n%s", diff)
	}
	in.Node = "g2-w1"
	if out := have(in); len(out) > 0 {
		t.Errorf("a worker has %v", out)
	}
}

// TestRefusedEndpoints checks that an EndpointSlice cannot lead an export to some addresses: the
// node itself, a cloud's metadata service, the clusterset and other clusters.
func TestRefusedEndpoints(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"127.0.0.1", "127.8.8.8", "0.0.0.0", "0.1.2.3", "169.254.169.254", "169.254.73.53", "224.0.0.1", "239.1.2.3", "255.255.255.255",
		"::1", "::", "fe80::1", "ff02::1", "64:ff9b::a9fe:a9fe", "64:ff9b::7f00:1", "64:ff9b:1::1",
		"100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254",
		"241.0.0.1", "242.1.0.16", "242.2.0.32", "243.0.0.1", // the clusterset
		"10.77.0.5",    // a ClusterIP
		"203.0.113.11", // a gateway of g1
	} {
		w, _ := readWorld(t, "testdata/globalnet.txtar")
		in := withService(w.inputs["g2/g2-a"], "whereami-cs", func(s *model.Service) {
			// The author of the EndpointSlice also controls the name of the node.
			s.Endpoints = []model.Endpoint{{Addrs: []netip.Addr{addr(text)}, Node: "g2-w1", Pod: "p", Ready: true, Ports: map[string]int{"TCP/80": 80}}}
		})
		in.Facts.Exports = []mcs.Export{{Namespace: "sample", Name: "whereami-cs", Service: &mcs.Service{Type: "ClusterIP"}}}
		in.PeersSynced = true
		state, problems := projection.Desired(in)
		for _, e := range state.Elements {
			if strings.Contains(e.Value, text) || e.Set == desired.SetExternalEndpoints {
				t.Errorf("%s: %s", text, e.Key()+" "+e.Value)
			}
		}
		if out := codes(problems, status.EndpointUnsupported); len(out) != 1 || !strings.Contains(out[0], "endpoint "+text+": it ") {
			t.Errorf("%s: problems %q", text, out)
		}
		if live := projection.ClusterState(in).Exports[0]; live.Ready {
			t.Errorf("%s: other clusters learn %+v", text, live)
		}
		conditions := projection.MCS(in).Exports[0].Conditions
		if !slices.ContainsFunc(conditions, func(c mcs.Condition) bool {
			return c.Type == mcs.Supported && c.Status == "False" && strings.Contains(c.Message, text)
		}) {
			t.Errorf("%s: conditions %+v", text, conditions)
		}
	}
	// An endpoint cannot be a pod of another flat cluster.
	w, _ := readWorld(t, "testdata/flat.txtar")
	in := withService(w.inputs["c2/c2-a"], "web", func(s *model.Service) {
		s.Endpoints = []model.Endpoint{{Addrs: addrs("10.8.0.5"), Ready: true, Ports: map[string]int{"TCP/80": 80}}}
	})
	if _, problems := projection.Desired(in); !strings.Contains(fmt.Sprint(codes(problems, status.EndpointUnsupported)), "belongs to cluster c1") {
		t.Errorf("problems %+v", problems)
	}
}

// TestServiceFaults checks faults of the exported Service. The agent's problem and the condition of
// the ServiceExport must have the same text, so that hawser status prints it once.
func TestServiceFaults(t *testing.T) {
	t.Parallel()
	w, _ := readWorld(t, "testdata/globalnet.txtar")
	for _, name := range []string{"whereami-cs", "whereami-ss"} {
		for code, fault := range map[string]struct {
			spec *mcs.Service
			text string
		}{
			status.ServiceType:    {&mcs.Service{Type: "ExternalName"}, "is of type ExternalName, which cannot be exported"},
			status.ServiceMissing: {nil, "there is no Service sample/" + name},
		} {
			in := withService(w.inputs["g2/g2-a"], name, func(s *model.Service) {
				*s = model.Service{Namespace: s.Namespace, Name: s.Name, ExternalName: true}
			})
			if fault.spec == nil {
				in.Facts.Services = slices.DeleteFunc(in.Facts.Services, func(s model.Service) bool { return s.Name == name })
			}
			in.Facts.Exports = []mcs.Export{{Namespace: "sample", Name: name, Service: fault.spec}}
			_, problems := projection.Desired(in)
			problems = slices.DeleteFunc(problems, func(p projection.Problem) bool {
				return p.Code != status.ServiceType && p.Code != status.ServiceMissing
			})
			if len(problems) != 1 || problems[0].Code != code || !strings.Contains(problems[0].Text, fault.text) {
				t.Fatalf("%s: problems %+v, want %s", name, problems, code)
			}
			if c := projection.MCS(in).Exports[0].Conditions[0]; c.Type != mcs.Valid || c.Status != "False" || c.Message != problems[0].Text {
				t.Errorf("%s: condition %+v, problem %q", name, c, problems[0].Text)
			}
		}
	}
}

// TestPodsOutside checks that the agent reports observed pods outside podCIDRs. It ignores
// Node.spec.podCIDRs, which not every CNI uses.
func TestPodsOutside(t *testing.T) {
	t.Parallel()
	w, _ := readWorld(t, "testdata/flat.txtar")
	in := w.inputs["c2/c2-a"]
	if _, problems := projection.Desired(in); len(codes(problems, status.PodsOutsideCIDRs))+len(codes(problems, status.EndpointsOutsideCIDRs)) > 0 {
		t.Errorf("problems without pods outside: %+v", problems)
	}
	in.Facts.Nodes = slices.Clone(in.Facts.Nodes)
	for i := range in.Facts.Nodes {
		in.Facts.Nodes[i].PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.200.0.0/24")}
	}
	if _, problems := projection.Desired(in); len(codes(problems, status.PodsOutsideCIDRs)) > 0 {
		t.Errorf("Node.spec.podCIDRs alone: %+v", problems)
	}
	in.Local.PodRoutes = []netip.Prefix{netip.MustParsePrefix("10.200.0.7/32")}
	_, problems := projection.Desired(in)
	if out := codes(problems, status.PodsOutsideCIDRs); len(out) != 1 || !strings.Contains(out[0], "10.200.0.7/32") || !strings.Contains(out[0], "podCIDRs") {
		t.Errorf("a route to a pod: %q", out)
	}
	in.Local.PodRoutes = nil
	in = withService(in, "web", func(s *model.Service) {
		s.Endpoints = []model.Endpoint{{Addrs: addrs("10.200.1.9"), Pod: "web-1", Node: "c2-w1", Ready: true, Ports: map[string]int{"TCP/80": 80}}}
	})
	_, problems = projection.Desired(in)
	if out := codes(problems, status.EndpointsOutsideCIDRs); len(out) != 1 || !strings.Contains(out[0], "10.200.1.9 (web-1 on c2-w1)") {
		t.Errorf("an endpoint on another node: %q", out)
	}
	if out := codes(problems, status.PodsOutsideCIDRs); len(out) != 0 {
		t.Errorf("an endpoint on another node: %q", out)
	}
	in.Node = "c2-w1"
	_, problems = projection.Desired(in)
	if out := codes(problems, status.PodsOutsideCIDRs); len(out) != 1 || !strings.Contains(out[0], "10.200.1.9") {
		t.Errorf("an endpoint on this node: %q", out)
	}
}

// TestHeadlessOutside checks a pod without an address for other clusters in a flat cluster. The
// agent reports it, and it does not count as ready.
func TestHeadlessOutside(t *testing.T) {
	t.Parallel()
	w, _ := readWorld(t, "testdata/flat.txtar")
	in := withService(w.inputs["c2/c2-a"], "db", func(s *model.Service) {
		s.Endpoints = slices.Clone(s.Endpoints)
		for i := range s.Endpoints {
			s.Endpoints[i].Addrs = addrs("10.200.1.9")
		}
	})
	if live := projection.ClusterState(in).Exports[0]; live.Ready || len(live.Hosts) > 0 {
		t.Errorf("other clusters learn %+v", live)
	}
	_, problems := projection.Desired(in)
	if out := codes(problems, status.HeadlessNoAddr); len(out) == 0 || !strings.Contains(out[0], "podCIDRs") {
		t.Errorf("problems %+v", problems)
	}
}

// TestManyHosts checks that a cluster announces a bounded number of pods of a headless export.
// The receiver enforces the same limit.
func TestManyHosts(t *testing.T) {
	t.Parallel()
	w, _ := readWorld(t, "testdata/flat.txtar")
	own := withService(w.inputs["c2/c2-a"], "db", func(s *model.Service) {
		ep, a := s.Endpoints[0], addr("10.9.1.1")
		s.Endpoints = nil
		for i := range 3 * mcs.MaxHosts {
			ep.Hostname, ep.Pod, ep.Addrs, ep.Ready = fmt.Sprintf("x-%04d", i), fmt.Sprintf("x-%04d", i), []netip.Addr{a}, true
			s.Endpoints = append(s.Endpoints, ep)
			a = a.Next()
		}
	})
	live := projection.ClusterState(own)
	if n := len(live.Exports[0].Hosts); n != mcs.MaxHosts {
		t.Errorf("%d hosts are announced", n)
	}
	_, problems := projection.Desired(own)
	if out := codes(problems, status.TooManyHeadlessPods); len(out) != 1 || !strings.Contains(out[0], "768 pods are ready") {
		t.Errorf("problems %q", out)
	}
	other := w.inputs["c1/c1-a"]
	live.Exports = slices.Clone(live.Exports)
	for a := addr("10.9.64.1"); len(live.Exports[0].Hosts) < 10*mcs.MaxHosts; a = a.Next() {
		live.Exports[0].Hosts = append(slices.Clip(live.Exports[0].Hosts), model.ExportHost{Name: fmt.Sprintf("y-%d", len(live.Exports[0].Hosts)), IPs: []netip.Addr{a}})
	}
	other.ClusterStates["c2"] = live
	state, _ := projection.Desired(other)
	for _, s := range state.Services {
		for _, c := range s.Clusters {
			if s.Name == "db" && c.Name == "c2" && len(c.Hosts) != mcs.MaxHosts {
				t.Errorf("the name server has %d hosts", len(c.Hosts))
			}
		}
	}
}

// TestLongNames checks pods whose DNS names are one octet too long. A problem and a condition of
// the ServiceExport must report them.
func TestLongNames(t *testing.T) {
	t.Parallel()
	w, _ := readWorld(t, "testdata/flat.txtar")
	in := withService(w.inputs["c2/c2-a"], "db", func(s *model.Service) { s.Endpoints[0].Pod, s.Endpoints[0].Hostname = "db-0", "db-0" })
	if _, problems := projection.Desired(in); strings.Contains(fmt.Sprint(codes(problems, status.EndpointUnsupported)), "too long") {
		t.Errorf("problems of short names %q", problems)
	}
	e := in.Fabric.Exports[slices.IndexFunc(in.Fabric.Exports, func(e fabric.Export) bool { return e.Name == "db" })]
	in.Facts.Exports = []mcs.Export{{Namespace: e.Namespace, Name: e.Name, Service: &mcs.Service{Type: "ClusterIP"}}}
	in.PeersSynced = true
	f := *in.Fabric
	rest := strings.Join([]string{"db-0", "c2", "db", e.Namespace, "svc", ""}, ".")
	for extra, want := range map[int]int{fabric.MaxName - len(rest): 0, fabric.MaxName - len(rest) + 1: 1} {
		f.ExtraDomains = []string{strings.Repeat("x.", extra)[:extra]}
		in.Fabric = &f
		_, problems := projection.Desired(in)
		var found []string
		for _, text := range codes(problems, status.EndpointUnsupported) {
			if strings.Contains(text, "pod db-0 has no DNS record: the name db-0.c2.db.") && strings.Contains(text, "is too long (254 octets, 253 are allowed)") {
				found = append(found, text)
			}
		}
		if len(found) != want {
			t.Errorf("domain of %d octets: problems %q, want %d", extra, problems, want)
		}
		var conditions []string
		for _, c := range projection.MCS(in).Exports[0].Conditions {
			if c.Type == mcs.Supported && c.Status == "False" && c.Reason == "Unsupported" {
				conditions = append(conditions, c.Message)
			}
		}
		if len(conditions) != want || want > 0 && !strings.Contains(conditions[0], "pod db-0 has no DNS record: the name db-0.c2.db.") {
			t.Errorf("domain of %d octets: conditions %q, want %d", extra, conditions, want)
		}
	}
}
