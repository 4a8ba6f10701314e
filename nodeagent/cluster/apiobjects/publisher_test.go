package apiobjects

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/mcs"
)

func TestOneWritesOnce(t *testing.T) {
	t.Parallel()
	s, want := populated(t)
	g := newGateway(t, s, want)
	eventually(t, "not all objects are written", s.done)
	g.report(t, "it does not converge", clean)
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

// TestTwoGatewaysWriteAsOne checks that the second gateway writes only objects that the first
// gateway left incorrect.
func TestTwoGatewaysWriteAsOne(t *testing.T) {
	t.Parallel()
	s, want := populated(t)
	second := want
	second.WriteOrder = 1
	first, other := newGateway(t, s, want), newGateway(t, s, second)
	eventually(t, "not all objects are written", s.done)
	first.report(t, "the first does not converge", clean)
	other.report(t, "the second does not converge", clean)
	if n := len(s.wrote()); n != 7 {
		t.Errorf("%d writes by two gateways, want 7", n)
	}
	// Only the second gateway writes the new value: the first gateway still wants the old
	// value.
	other.wants(func(w *Desired) { w.State.Property = map[string]string{mcs.PropertyCluster: "g9"} })
	eventually(t, "the second gateway does not write", func() bool {
		value, _, _ := unstructured.NestedString(s.get("clusterproperties /"+mcs.PropertyCluster).Object, "spec", "value")
		return value == "g9"
	})
}

func TestServerAwayAndBack(t *testing.T) {
	t.Parallel()
	s, want := populated(t)
	g := newGateway(t, s, want)
	eventually(t, "not all objects are written", s.done)
	s.cut(true)
	g.wants(func(w *Desired) { w.State.Property = map[string]string{mcs.PropertyCluster: "g2"} })
	g.report(t, "nothing fails", func(r converge.Report) bool { return len(r.Failed) > 0 })
	s.wrote()
	s.cut(false)
	eventually(t, "nothing is written when the server is back", func() bool {
		value, _, _ := unstructured.NestedString(s.get("clusterproperties /"+mcs.PropertyCluster).Object, "spec", "value")
		return value == "g2"
	})
	g.report(t, "it does not converge", clean)
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
	r := g.report(t, "the report is incomplete", func(r converge.Report) bool { return len(r.Failed) == 1 && len(r.Blocked) == 3 })
	if have := r.Failed[0].Error(); have != "serviceimport sample/web: serviceimport sample/web already exists and is not managed by Hawser: it has no label app.kubernetes.io/managed-by=hawser" {
		t.Errorf("failed: %s", have)
	}
	var blocked []string
	for _, b := range r.Blocked {
		blocked = append(blocked, b.Error())
	}
	slices.Sort(blocked)
	if have := strings.Join(blocked, "\n"); have != strings.TrimSpace(`
endpointslice sample/web-hw-1: waits for serviceimport sample/web
serviceimport going/web: waits for the deletion of namespace going
serviceimport missing/web: waits for namespace missing and its objects`) {
		t.Errorf("blocked:\n%s", have)
	}
	if s.get("serviceimports sample/web").GetLabels() != nil {
		t.Error("the foreign import was changed")
	}
}

// TestAnotherWritesTheImport checks that Hawser restores the label and the addresses of its import,
// and keeps a foreign label.
func TestAnotherWritesTheImport(t *testing.T) {
	t.Parallel()
	s, want := populated(t)
	g := newGateway(t, s, want)
	eventually(t, "not all objects are written", s.done)
	g.report(t, "it does not converge", clean)
	s.edit("serviceimports sample/web", func(o *unstructured.Unstructured) {
		o.SetLabels(map[string]string{"theirs": "x"})
		unstructured.RemoveNestedField(o.Object, "spec", "ips")
	})
	eventually(t, "the import is not restored", func() bool {
		o := s.get("serviceimports sample/web")
		ips, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "ips")
		return isMarked(o) && len(ips) == 2 && o.GetLabels()["theirs"] == "x"
	})
}

func TestOldSchema(t *testing.T) {
	t.Parallel()
	s, want := populated(t)
	s.lacks = "endpointSliceObjects"
	g := newGateway(t, s, want)
	eventually(t, "not all objects are written", func() bool {
		if !s.done() {
			return false
		}
		clusters, _, _ := unstructured.NestedSlice(s.get("serviceimports sample/web").Object, "status", "clusters")
		return len(clusters) == 2
	})
	g.report(t, "it does not converge", clean)
}

func TestDeletesWaitForAllClusters(t *testing.T) {
	t.Parallel()
	s, want := populated(t)
	g := newGateway(t, s, want)
	eventually(t, "not all objects are written", s.done)
	g.wants(func(w *Desired) { w.State.Imports, w.State.Slices, w.State.PeersSynced = nil, nil, false })
	g.report(t, "deletes do not wait", func(r converge.Report) bool { return len(r.Blocked) == 2 })
	if s.get("serviceimports sample/web") == nil {
		t.Error("the import is gone")
	}
	g.wants(func(w *Desired) { w.State.PeersSynced = true })
	eventually(t, "the import stays", func() bool {
		return s.get("serviceimports sample/web") == nil && s.get("endpointslices sample/web-hw-1") == nil
	})
}

func TestDecommission(t *testing.T) {
	t.Parallel()
	s, want := populated(t)
	before := s.get("configmaps kube-system/coredns").Object["data"]
	g := newGateway(t, s, want)
	eventually(t, "not all objects are written", s.done)
	g.wants(func(w *Desired) { w.State, w.DNS = mcs.DesiredObjects{}, "" })
	g.report(t, "a lost state is not refused", func(r converge.Report) bool { return len(r.Failed) == 1 })
	if !s.done() {
		t.Fatal("an object was deleted without decommission")
	}
	g.wants(func(w *Desired) { w.Decommission = true })
	eventually(t, "an object remains", func() bool {
		return s.get("serviceimports sample/web") == nil && s.get("endpointslices sample/web-hw-1") == nil &&
			s.get("clusterproperties /"+mcs.PropertyCluster) == nil && len(s.get("serviceexports sample/web").GetAnnotations()) == 0 &&
			fmt.Sprint(s.get("configmaps kube-system/coredns").Object["data"]) == fmt.Sprint(before)
	})
	g.report(t, "it does not converge", clean)
}

// TestOthersOwnTheCorefile checks that Hawser stops restoring its block after another writer has
// removed it maxReverts times.
func TestOthersOwnTheCorefile(t *testing.T) {
	t.Parallel()
	s, want := populated(t)
	text := func() string {
		text, _, _ := unstructured.NestedString(s.get("configmaps kube-system/coredns").Object, "data", "Corefile")
		return text
	}
	plain := text()
	g := newGateway(t, s, want)
	for range maxReverts {
		eventually(t, "the block is not written", func() bool { return text() != plain })
		written := time.Now()
		g.Trigger()
		g.report(t, "it does not converge", func(r converge.Report) bool { return r.Clean() && r.At.After(written) })
		s.edit("configmaps kube-system/coredns", set(plain, "data", "Corefile"))
	}
	r := g.report(t, "Hawser does not stop restoring", func(r converge.Report) bool {
		return len(r.Failed) == 1 && strings.Contains(r.Failed[0].Error(), "another writer removed it 3 times")
	})
	if text() != plain || len(r.Changed) > 0 {
		t.Errorf("it was written again")
	}
	// The other writer changes other text, which resets the count.
	s.edit("configmaps kube-system/coredns", set(plain+"# new\n", "data", "Corefile"))
	eventually(t, "the block is not written after a change", func() bool { return strings.HasSuffix(text(), plain+"# new\n") && text() != plain+"# new\n" })
}

// TestReservedDomain checks that the agent omits a domain that contains the cluster's own domain,
// and reports it.
func TestReservedDomain(t *testing.T) {
	t.Parallel()
	s, want := populated(t)
	text := func() string {
		text, _, _ := unstructured.NestedString(s.get("configmaps kube-system/coredns").Object, "data", "Corefile")
		return text
	}
	plain := text()
	want.Forward.Domains = []string{"clusterset.local"}
	g := newGateway(t, s, want)
	eventually(t, "the block is not written", func() bool { return text() != plain })
	const own = "k8s:53 {\n    kubernetes k8s.clusterset.local\n}\n"
	s.edit("configmaps kube-system/coredns", set(text()+own, "data", "Corefile"))
	eventually(t, "the block is not removed", func() bool { return text() == plain+own })
	g.report(t, "the report lacks the reason", func(r converge.Report) bool {
		return len(r.Failed) == 1 && strings.Contains(r.Failed[0].Error(),
			"kube-system/coredns/Corefile: error: clusterset.local contains k8s.clusterset.local, the DNS domain of a cluster; change domain or extraDomains in the topology")
	})
}

// TestAnotherServesTheDomain adds a foreign server block for the domain. Hawser removes its own
// block at once, and restores it when the foreign block is gone.
func TestAnotherServesTheDomain(t *testing.T) {
	t.Parallel()
	s, want := populated(t)
	text := func() string {
		text, _, _ := unstructured.NestedString(s.get("configmaps kube-system/coredns").Object, "data", "Corefile")
		return text
	}
	plain := text()
	g := newGateway(t, s, want)
	eventually(t, "the block is not written", func() bool { return text() != plain })
	whole := text()
	const theirs = "clusterset.local {\n    forward . 10.1.1.1\n}\n"
	for range 2 {
		s.edit("configmaps kube-system/coredns", set(whole+theirs, "data", "Corefile"))
		eventually(t, "the domain is served twice", func() bool { return text() == plain+theirs })
		g.report(t, "the conflict is not reported", func(r converge.Report) bool {
			return len(r.Failed) == 1 && strings.Contains(r.Failed[0].Error(), "kube-system/coredns/Corefile:6:1: error: a foreign server block serves clusterset.local")
		})
		s.edit("configmaps kube-system/coredns", set(plain, "data", "Corefile"))
		eventually(t, "the block is not restored", func() bool { return text() == whole })
		written := time.Now()
		g.Trigger()
		g.report(t, "it does not converge", func(r converge.Report) bool { return r.Clean() && r.At.After(written) })
	}
	// The same in a file that the Corefile imports.
	s.edit("configmaps kube-system/coredns", set(whole+"import custom/*.server\n", "data", "Corefile"))
	s.put("configmaps", escaped(`{"metadata":{"name":"coredns-custom","namespace":"kube-system"},"data":{"their.server":"`+theirs+`"}}`))
	eventually(t, "the domain is served twice", func() bool { return text() == plain+"import custom/*.server\n" })
	s.edit("configmaps kube-system/coredns-custom", set("", "data", "their.server"))
	eventually(t, "the block is not restored", func() bool { return text() == whole+"import custom/*.server\n" })
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
	g.report(t, "it does not converge", func(r converge.Report) bool { return r.Clean() && r.Objects["serviceimport"] == 100 })
	if n := len(s.wrote()); n != 200+4 {
		t.Errorf("%d writes", n)
	}
	g.wants(func(w *Desired) {
		w.State.Imports = slices.Clone(w.State.Imports)
		w.State.Imports[50].Ports = []mcs.Port{{Protocol: "UDP", Port: 1}}
	})
	g.report(t, "it does not converge", func(r converge.Report) bool { return r.Clean() && len(r.Changed) == 1 })
	if have := s.wrote(); len(have) != 1 {
		t.Errorf("one change made %d writes", len(have))
	}
}
