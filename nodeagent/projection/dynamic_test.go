package projection_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

func newExport(name string, minute int, ports ...mcs.Port) mcs.Export {
	return mcs.Export{
		Namespace: "team-a", Name: name, Created: time.Date(2026, 1, 2, 3, minute, 0, 0, time.UTC),
		Service: &mcs.Service{Type: "ClusterIP", Ports: ports, Families: []int{4}},
	}
}

func serves(name, pod, node string, ports map[string]int, clusterIP string) model.Service {
	s := model.Service{
		Namespace: "team-a", Name: name,
		Endpoints: []model.Endpoint{{Addrs: []netip.Addr{addr(pod)}, Pod: name + "-1", Node: node, Ready: true, Ports: ports}},
	}
	if clusterIP != "" {
		s.ClusterIPs = []netip.Addr{addr(clusterIP)}
	}
	for port := range ports {
		protocol, number, _ := strings.Cut(port, "/")
		var n int
		_, _ = fmt.Sscan(number, &n)
		s.Ports = append(s.Ports, model.ServicePort{Protocol: protocol, Port: n})
	}
	return s
}

// dynamicWorld returns two flat clusters with dynamic exports. Export "split" has each port in one
// cluster. Export "same" has one port name with two numbers, and the export of c1 is older. Export
// "pods" is headless.
func dynamicWorld(t *testing.T) *world {
	t.Helper()
	w, _ := readWorld(t, "testdata/flat.txtar")
	w.fabric.Exports = nil
	w.fabric.DynamicExports = &fabric.DynamicExports{Namespaces: []string{"team-*"}, VIPs: []netip.Prefix{netip.MustParsePrefix("243.0.128.0/17")}}
	for i := range w.fabric.Clusters {
		w.fabric.Clusters[i].Dynamic = []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("242.%d.0.64/26", i+1))}
	}
	port := func(name string, number int) mcs.Port { return mcs.Port{Name: name, Protocol: "TCP", Port: number} }
	headless := newExport("pods", 1, port("sql", 5432))
	headless.Service.Headless = true
	exports := map[string][]mcs.Export{
		"c1": {newExport("same", 1, port("tcp", 42)), newExport("split", 1, port("a", 42))},
		"c2": {headless, newExport("same", 2, port("tcp", 4242)), newExport("split", 2, port("b", 4242))},
	}
	services := map[string][]model.Service{
		"c1": {
			serves("same", "10.8.1.31", "c1-w1", map[string]int{"TCP/42": 8042}, "10.88.0.31"),
			serves("split", "10.8.1.32", "c1-w1", map[string]int{"TCP/42": 8042}, "10.88.0.32"),
		},
		"c2": {
			serves("same", "10.9.1.31", "c2-w1", map[string]int{"TCP/4242": 8042}, "10.99.0.31"),
			serves("split", "10.9.1.32", "c2-w1", map[string]int{"TCP/4242": 8042}, "10.99.0.32"),
			serves("pods", "10.9.1.33", "c2-w1", map[string]int{"TCP/5432": 6432}, ""),
		},
	}
	lives := map[string]model.ClusterState{}
	for range 2 { // a cluster's state depends on the states of other clusters
		for name, in := range w.inputs {
			in.Fabric, in.Facts.Exports, in.Facts.Services = w.fabric, exports[in.Cluster], services[in.Cluster]
			in.ClusterStates = map[string]model.ClusterState{}
			for cluster, live := range lives {
				if cluster != in.Cluster {
					in.ClusterStates[cluster] = live
				}
			}
			in.Fabric, in.MCSDecision = projection.EffectiveFabric(in)
			w.inputs[name] = in
		}
		for _, in := range w.inputs {
			lives[in.Cluster] = projection.ClusterState(in)
		}
	}
	w.project()
	return w
}

// vipOf returns the clusterset IP of an export on a node.
func (w *world) vipOf(node, id string) netip.Addr {
	for _, e := range w.inputs[node].Fabric.Exports {
		if e.ID() == id && len(e.VIPs) == 1 {
			return e.VIPs[0]
		}
	}
	return netip.Addr{}
}

// TestPacketsToDynamicExports checks that each port leads to the clusters that have it, from both
// clusters. The packets keep their source.
func TestPacketsToDynamicExports(t *testing.T) {
	t.Parallel()
	w := dynamicWorld(t)
	tests := []struct {
		from, src, export string
		port              int
		want              string
	}{
		{"c1/c1-w1", "10.8.1.5", "team-a/split", 42, "c1/c1-w1 10.8.1.32:8042 from 10.8.1.5"},
		{"c1/c1-w1", "10.8.1.5", "team-a/split", 4242, "c2/c2-w1 10.9.1.32:8042 from 10.8.1.5"},
		{"c2/c2-w1", "10.9.1.5", "team-a/split", 42, "c1/c1-w1 10.8.1.32:8042 from 10.9.1.5"},
		{"c2/c2-w1", "10.9.1.5", "team-a/split", 4242, "c2/c2-w1 10.9.1.32:8042 from 10.9.1.5"},
		{"c1/c1-w1", "10.8.1.5", "team-a/same", 42, "c1/c1-w1 10.8.1.31:8042 from 10.8.1.5"},
		{"c2/c2-w1", "10.9.1.5", "team-a/same", 42, "c1/c1-w1 10.8.1.31:8042 from 10.9.1.5"},
		{"c2/c2-w1", "10.9.1.5", "team-a/same", 4242, "refused"},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s to %s port %d", tt.from, tt.export, tt.port), func(t *testing.T) {
			t.Parallel()
			first := packet{proto: "tcp", src: addr(tt.src), dst: w.vipOf(tt.from, tt.export), sport: 40000, dport: tt.port}
			checkFlow(t, newTracer(w, 0), hop{node: tt.from, iif: "pod", packet: first}, tt.want)
		})
	}
}

// TestAPIObjects checks the objects in the importing and the exporting cluster.
func TestAPIObjects(t *testing.T) {
	t.Parallel()
	w := dynamicWorld(t)
	list := func(node string) []string {
		var out []string
		in := w.inputs[node]
		in.PeersSynced = true
		s := projection.MCS(in)
		for _, m := range s.Imports {
			out = append(out, fmt.Sprintf("%s %s %v", m.Name, m.Type, m.Clusters))
		}
		for _, sl := range s.Slices {
			out = append(out, fmt.Sprintf("%s of %s %v %v", sl.Import, sl.Cluster, sl.Ports, sl.Endpoints))
		}
		return out
	}
	own := func(node, id string) string {
		for _, v := range mcs.Decide(mcs.ClusterView{Fabric: w.fabric, Cluster: w.inputs[node].Cluster, Exports: w.inputs[node].Facts.Exports}).Exports {
			if v.Export.Namespace+"/"+v.Export.Name == id {
				return v.Addrs[0].String()
			}
		}
		return ""
	}
	want := map[string]bool{
		"pods Headless [c2]": true, "same ClusterSetIP [c1 c2]": true, "split ClusterSetIP [c1 c2]": true,
		"pods of c2 [{sql TCP 6432 }] [{10.9.1.33 10-9-1-33 false}]":                    true,
		"same of c1 [{tcp TCP 42 }] [{" + own("c1/c1-a", "team-a/same") + "  false}]":   true,
		"same of c2 [] [{" + own("c2/c2-a", "team-a/same") + "  false}]":                false,
		"split of c1 [{a TCP 42 }] [{" + own("c1/c1-a", "team-a/split") + "  false}]":   true,
		"split of c2 [{b TCP 4242 }] [{" + own("c2/c2-a", "team-a/split") + "  false}]": true,
	}
	for _, node := range []string{"c1/c1-a", "c2/c2-a", "c2/c2-w1"} {
		have := map[string]bool{}
		for _, line := range list(node) {
			have[line] = true
		}
		for line, expected := range want {
			if have[line] != expected {
				t.Errorf("%s: %q is %t, want %t in %q", node, line, have[line], expected, list(node))
			}
			delete(have, line)
		}
		if len(have) > 0 {
			t.Errorf("%s: also %v", node, have)
		}
	}
}

// TestForeignImport checks that a foreign ServiceImport is reported on every node.
func TestForeignImport(t *testing.T) {
	t.Parallel()
	w := dynamicWorld(t)
	in := w.inputs["c2/c2-w1"]
	in.Facts.Imports = []mcs.Import{
		{Namespace: "elsewhere", Name: "theirs", Foreign: true}, {Namespace: "team-a", Name: "same", Foreign: true}, {Namespace: "team-a", Name: "split"},
	}
	in.MCSDecision = nil
	_, problems := projection.Desired(in)
	var have []string
	for _, p := range problems {
		if p.Code == status.ImportConflict {
			have = append(have, p.Path)
		}
	}
	if fmt.Sprint(have) != "[serviceimports[team-a/same]]" {
		t.Errorf("problems %v", have)
	}
}

// TestRefusedIsReported checks that a cluster reports another cluster's export in a namespace that
// the topology does not permit to that cluster.
func TestRefusedIsReported(t *testing.T) {
	t.Parallel()
	w := dynamicWorld(t)
	in := w.inputs["c2/c2-w1"]
	f := *in.Fabric
	d := *f.DynamicExports
	d.Restrictions = []fabric.DynamicRestriction{{Namespaces: []string{"team-a"}, Clusters: []string{"c2"}}}
	f.DynamicExports = &d
	in.Fabric, in.MCSDecision = &f, nil
	_, problems := projection.Desired(in)
	var have []string
	for _, p := range problems {
		if p.Code == status.ExportRefused {
			have = append(have, p.Path+" "+p.Text)
		}
	}
	want := "serviceexports[team-a/same] cluster c1 announces an export that the topology permits only to c2 (spec.dynamicExports[].clusters), so it is ignored"
	if !slices.Contains(have, want) {
		t.Errorf("problems %q", have)
	}
}

// TestDynamicNeverShadows checks that dynamic exports do not change a declared export.
func TestDynamicNeverShadows(t *testing.T) {
	t.Parallel()
	w, _ := readWorld(t, "testdata/flat.txtar")
	in := w.inputs["c1/c1-w1"]
	declared := w.fabric.Exports
	f := *w.fabric
	f.DynamicExports = &fabric.DynamicExports{Namespaces: []string{"*"}, VIPs: []netip.Prefix{netip.MustParsePrefix("243.0.0.0/16")}}
	in.Fabric = &f
	web := newExport("web", 0, mcs.Port{Name: "other", Protocol: "TCP", Port: 1})
	web.Namespace = "sample"
	in.Facts.Exports = []mcs.Export{newExport("new", 1, mcs.Port{Protocol: "TCP", Port: 80}), web}
	effective, _ := projection.EffectiveFabric(in)
	var have []fabric.Export
	for _, e := range effective.Exports {
		if !e.Dynamic {
			have = append(have, e)
		}
	}
	if diff := cmp.Diff(declared, have, cmp.Comparer(sameAddr)); diff != "" || len(effective.Exports) != len(declared)+1 {
		t.Errorf("declared exports (-want +got), of %d:\n%s", len(effective.Exports), diff)
	}
}
