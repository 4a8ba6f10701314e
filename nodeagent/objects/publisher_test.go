package objects

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/nodeagent/objects/corefile"
	"hawser.dev/hawser/schema/fabric"
)

// gateway is one publisher with its own watches, as each gateway has them.
type gateway struct {
	*Publisher

	mu      sync.Mutex
	want    Want
	version int
	reports chan converge.Report
}

func newGateway(t *testing.T, s *apiServer, want Want) *gateway {
	t.Helper()
	g := &gateway{want: want, reports: make(chan converge.Report, 1000)}
	client := s.client(t)
	look := func() {}
	exports := &Watch{Client: client, Resource: serviceExports, Changed: func() { look() }, Trim: withoutManagers}
	imports := &Watch{Client: client, Resource: serviceImports, Changed: func() { look() }, Trim: withoutManagers}
	g.Publisher = New(Config{
		Client: client, Exports: exports.Objects, Imports: imports.Objects, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Source: func(context.Context) (Want, string, bool) {
			g.mu.Lock()
			defer g.mu.Unlock()
			return g.want, fmt.Sprint(g.version), true
		},
		OnReport: func(r converge.Report) {
			select {
			case g.reports <- r:
			default:
			}
		},
	})
	look = g.Look
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	for _, run := range []func(context.Context){exports.Run, imports.Run, g.Run} {
		wait.Go(func() { run(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		wait.Wait()
	})
	return g
}

// wants changes what is wanted.
func (g *gateway) wants(change func(*Want)) {
	g.mu.Lock()
	change(&g.want)
	g.version++
	g.mu.Unlock()
	g.Look()
}

// settles waits until a condition holds.
func settles(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(3 * time.Minute)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("after three minutes: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// report waits for a report that fits.
func (g *gateway) report(t *testing.T, what string, fits func(converge.Report) bool) converge.Report {
	t.Helper()
	deadline := time.After(3 * time.Minute)
	var last converge.Report
	for {
		select {
		case last = <-g.reports:
			if fits(last) {
				return last
			}
		case <-deadline:
			t.Fatalf("after three minutes: %s; last failed %v, blocked %v, left %v", what, last.Failed, last.Blocked, last.Left)
		}
	}
}

// populated makes a cluster with a namespace, a ServiceExport and CoreDNS.
func populated(t *testing.T) (*apiServer, Want) {
	t.Helper()
	s := newWorld(t)
	s.put("namespaces", `{"metadata":{"name":"","namespace":"kube-system"}}`)
	s.put("serviceexports", `{"metadata":{"name":"web","namespace":"sample"},"spec":{}}`)
	s.put("configmaps", `{"metadata":{"name":"coredns","namespace":"kube-system"},"data":{"Corefile":"`+kubeadm+`"}}`)
	want := Want{
		DNS: fabric.DNSCoreDNS, Forward: corefile.Forward{Zones: []string{"clusterset.local"}, Servers: []netip.Addr{addr("169.254.73.53")}},
		State: mcs.State{
			Settled: true, Imports: []mcs.Import{sampleImport()}, Property: map[string]string{mcs.PropertyCluster: "g1"},
			Slices: []mcs.Slice{{Namespace: "sample", Name: "web-hw-1", Import: "web", Cluster: "g2", Family: 4, Endpoints: []mcs.Endpoint{{Addr: addr("242.2.0.7")}}}},
			Exports: []mcs.Status{{Namespace: "sample", Name: "web", UID: string(s.get("serviceexports sample/web").GetUID()), Generation: 1,
				Addrs: []netip.Addr{addr("242.1.0.7")}, Conditions: []mcs.Condition{{Type: "Valid", Status: "True", Reason: "Valid"}}}},
		},
	}
	return s, want
}

// done reports whether all of populated's want stands.
func (s *apiServer) done() bool {
	coredns := s.get("configmaps kube-system/coredns")
	text, _, _ := unstructured.NestedString(coredns.Object, "data", "Corefile")
	conditions, _, _ := unstructured.NestedSlice(s.get("serviceexports sample/web").Object, "status", "conditions")
	return strings.Contains(text, "clusterset.local:53") && len(conditions) == 1 &&
		s.get("serviceimports sample/web") != nil && s.get("endpointslices sample/web-hw-1") != nil &&
		s.get("clusterproperties /"+mcs.PropertyCluster) != nil
}

func clean(r converge.Report) bool { return r.Clean() }

func TestOneWritesOnce(t *testing.T) {
	t.Parallel()
	s, want := populated(t)
	g := newGateway(t, s, want)
	settles(t, "not all is written", s.done)
	g.report(t, "it does not settle", clean)
	// Two parts of the import and of the export, one each of the rest.
	writes := s.wrote()
	slices.Sort(writes)
	if have := strings.Join(writes, "\n"); have != strings.TrimSpace(`
patch clusterproperties /cluster.clusterset.k8s.io
patch configmaps kube-system/coredns
patch endpointslices sample/web-hw-1
patch serviceexports sample/web
patch serviceexports sample/web status
patch serviceimports sample/web
patch serviceimports sample/web status`) {
		t.Errorf("writes:\n%s", have)
	}
	raw, err := json.MarshalIndent(stripped(s.get("serviceimports sample/web").Object), "", " ")
	if err != nil || string(raw) != wantImportText {
		t.Errorf("import %s, %v", raw, err)
	}
}

const wantImportText = `{
 "apiVersion": "multicluster.x-k8s.io/v1beta1",
 "kind": "ServiceImport",
 "metadata": {
  "annotations": {
   "a/b": "c=d, e",
   "hawser.dev/exported": "{\"labels\":[\"tier\"],\"annotations\":[\"a/b\"]}"
  },
  "labels": {
   "app.kubernetes.io/managed-by": "hawser",
   "tier": "front"
  },
  "name": "web",
  "namespace": "sample"
 },
 "spec": {
  "internalTrafficPolicy": "Cluster",
  "ipFamilies": [
   "IPv6",
   "IPv4"
  ],
  "ips": [
   "fd24::7",
   "243.0.0.7"
  ],
  "ports": [
   {
    "appProtocol": "kubernetes.io/h2c",
    "name": "http",
    "port": 80,
    "protocol": "TCP"
   },
   {
    "name": "stcp",
    "port": 142,
    "protocol": "SCTP"
   }
  ],
  "sessionAffinity": "ClientIP",
  "sessionAffinityConfig": {
   "clientIP": {
    "timeoutSeconds": 10
   }
  },
  "trafficDistribution": "PreferClose",
  "type": "ClusterSetIP"
 },
 "status": {
  "clusters": [
   {
    "cluster": "g1"
   },
   {
    "cluster": "g2"
   }
  ],
  "conditions": [
   {
    "message": "exported from g1, g2",
    "reason": "Ready",
    "status": "True",
    "type": "Ready"
   }
  ],
  "endpointSliceObjects": "Present"
 }
}`

// stripped leaves out what differs from run to run.
func stripped(object map[string]any) map[string]any {
	metadata := object["metadata"].(map[string]any)
	for _, name := range []string{"managedFields", "uid", "resourceVersion", "creationTimestamp"} {
		delete(metadata, name)
	}
	conditions, _, _ := unstructured.NestedSlice(object, "status", "conditions")
	for _, c := range conditions {
		delete(c.(map[string]any), "lastTransitionTime")
	}
	_ = unstructured.SetNestedSlice(object, conditions, "status", "conditions")
	return object
}

// TestTwoGatewaysWriteAsOne has the second one step in only for what stays wrong.
func TestTwoGatewaysWriteAsOne(t *testing.T) {
	t.Parallel()
	s, want := populated(t)
	second := want
	second.Rank = 1
	first, other := newGateway(t, s, want), newGateway(t, s, second)
	settles(t, "not all is written", s.done)
	first.report(t, "the first does not settle", clean)
	other.report(t, "the second does not settle", clean)
	if n := len(s.wrote()); n != 7 {
		t.Errorf("%d writes by two gateways, want 7", n)
	}
	// The first is gone, or cannot write: it wants nothing new.
	other.wants(func(w *Want) { w.State.Property = map[string]string{mcs.PropertyCluster: "g9"} })
	settles(t, "the second does not step in", func() bool {
		value, _, _ := unstructured.NestedString(s.get("clusterproperties /"+mcs.PropertyCluster).Object, "spec", "value")
		return value == "g9"
	})
}

func TestServerAwayAndBack(t *testing.T) {
	t.Parallel()
	s, want := populated(t)
	g := newGateway(t, s, want)
	settles(t, "not all is written", s.done)
	s.cut(true)
	g.wants(func(w *Want) { w.State.Property = map[string]string{mcs.PropertyCluster: "g2"} })
	g.report(t, "nothing fails", func(r converge.Report) bool { return len(r.Failed) > 0 })
	s.wrote()
	s.cut(false)
	settles(t, "nothing is written when it is back", func() bool {
		value, _, _ := unstructured.NestedString(s.get("clusterproperties /"+mcs.PropertyCluster).Object, "spec", "value")
		return value == "g2"
	})
	g.report(t, "it does not settle", clean)
	if have := s.wrote(); len(have) != 1 {
		t.Errorf("writes: %v", have)
	}
}

func TestForeignAndEnding(t *testing.T) {
	t.Parallel()
	s, want := populated(t)
	s.put("serviceimports", `{"metadata":{"name":"web","namespace":"sample"},"spec":{"type":"Headless"}}`)
	ending := sampleImport()
	ending.Namespace, ending.Name = "going", "web"
	missing := sampleImport()
	missing.Namespace = "missing"
	want.State.Imports = append(want.State.Imports, ending, missing)
	s.ending["going"] = true
	g := newGateway(t, s, want)
	r := g.report(t, "not all is told", func(r converge.Report) bool { return len(r.Failed) == 1 && len(r.Blocked) == 3 })
	if have := r.Failed[0].Error(); have != "serviceimport sample/web: serviceimport sample/web exists and is not ours: it has no label app.kubernetes.io/managed-by=hawser" {
		t.Errorf("failed: %s", have)
	}
	var blocked []string
	for _, b := range r.Blocked {
		blocked = append(blocked, b.Error())
	}
	slices.Sort(blocked)
	if have := strings.Join(blocked, "\n"); have != strings.TrimSpace(`
endpointslice sample/web-hw-1: waits for serviceimport sample/web
serviceimport going/web: waits for the end of namespace going
serviceimport missing/web: waits for namespace missing and what is in it`) {
		t.Errorf("blocked:\n%s", have)
	}
	if s.get("serviceimports sample/web").GetLabels() != nil {
		t.Error("the foreign import was changed")
	}
}

func TestOldSchema(t *testing.T) {
	t.Parallel()
	s, want := populated(t)
	s.lacks = "endpointSliceObjects"
	g := newGateway(t, s, want)
	settles(t, "not all is written", func() bool {
		if !s.done() {
			return false
		}
		clusters, _, _ := unstructured.NestedSlice(s.get("serviceimports sample/web").Object, "status", "clusters")
		return len(clusters) == 2
	})
	g.report(t, "it does not settle", clean)
}

func TestNothingGoesBeforeAllWereHeard(t *testing.T) {
	t.Parallel()
	s, want := populated(t)
	g := newGateway(t, s, want)
	settles(t, "not all is written", s.done)
	g.wants(func(w *Want) { w.State.Imports, w.State.Slices, w.State.Settled = nil, nil, false })
	g.report(t, "deletes do not wait", func(r converge.Report) bool { return len(r.Blocked) == 2 })
	if s.get("serviceimports sample/web") == nil {
		t.Error("the import is gone")
	}
	g.wants(func(w *Want) { w.State.Settled = true })
	settles(t, "the import stays", func() bool {
		return s.get("serviceimports sample/web") == nil && s.get("endpointslices sample/web-hw-1") == nil
	})
}

func TestDecommission(t *testing.T) {
	t.Parallel()
	s, want := populated(t)
	before := s.get("configmaps kube-system/coredns").Object["data"]
	g := newGateway(t, s, want)
	settles(t, "not all is written", s.done)
	g.wants(func(w *Want) { w.State, w.DNS = mcs.State{}, "" })
	g.report(t, "a lost state is not refused", func(r converge.Report) bool { return len(r.Failed) == 1 })
	if !s.done() {
		t.Fatal("something was taken away without decommission")
	}
	g.wants(func(w *Want) { w.Decommission = true })
	settles(t, "something is left", func() bool {
		return s.get("serviceimports sample/web") == nil && s.get("endpointslices sample/web-hw-1") == nil &&
			s.get("clusterproperties /"+mcs.PropertyCluster) == nil && len(s.get("serviceexports sample/web").GetAnnotations()) == 0 &&
			fmt.Sprint(s.get("configmaps kube-system/coredns").Object["data"]) == fmt.Sprint(before)
	})
	g.report(t, "it does not settle", clean)
}

// TestOthersOwnTheCorefile has somebody write it back again and again.
func TestOthersOwnTheCorefile(t *testing.T) {
	t.Parallel()
	s, want := populated(t)
	text := func() string {
		text, _, _ := unstructured.NestedString(s.get("configmaps kube-system/coredns").Object, "data", "Corefile")
		return text
	}
	plain := text()
	g := newGateway(t, s, want)
	for range undoneMost {
		settles(t, "the block is not written", func() bool { return text() != plain })
		written := time.Now()
		g.Look()
		g.report(t, "it does not settle", func(r converge.Report) bool { return r.Clean() && r.At.After(written) })
		s.edit("configmaps kube-system/coredns", set(plain, "data", "Corefile"))
	}
	r := g.report(t, "it goes on", func(r converge.Report) bool {
		return len(r.Failed) == 1 && strings.Contains(r.Failed[0].Error(), "somebody took it out 3 times")
	})
	if text() != plain || len(r.Changed) > 0 {
		t.Errorf("it was written again")
	}
	// Whoever it is changes something else: that may be the end of it.
	s.edit("configmaps kube-system/coredns", set(plain+"# new\n", "data", "Corefile"))
	settles(t, "the block is not written after a change", func() bool { return strings.HasSuffix(text(), plain+"# new\n") && text() != plain+"# new\n" })
}

func TestManyImports(t *testing.T) {
	t.Parallel()
	s, want := populated(t)
	want.State.Imports, want.State.Slices = nil, nil
	for i := range 100 {
		m := sampleImport()
		m.Name = fmt.Sprintf("web-%d", i)
		want.State.Imports = append(want.State.Imports, m)
	}
	g := newGateway(t, s, want)
	g.report(t, "it does not settle", func(r converge.Report) bool { return r.Clean() && r.Objects["serviceimport"] == 100 })
	if n := len(s.wrote()); n != 200+4 {
		t.Errorf("%d writes", n)
	}
	g.wants(func(w *Want) {
		w.State.Imports = slices.Clone(w.State.Imports)
		w.State.Imports[50].Ports = []mcs.Port{{Protocol: "UDP", Port: 1}}
	})
	g.report(t, "it does not settle", func(r converge.Report) bool { return r.Clean() && len(r.Changed) == 1 })
	if have := s.wrote(); len(have) != 1 {
		t.Errorf("one change made %d writes", len(have))
	}
}
