package facts

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/schema/fabric"
)

const exportsAndImports = `apiVersion: v1
kind: Namespace
metadata: {name: sample}
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata:
  name: web
  namespace: sample
  uid: 6f1c
  generation: 3
  creationTimestamp: "2026-01-02T03:04:05Z"
  annotations: {hawser.dev/addresses: "242.1.0.7, fd24::7, 242.1.0.8, nonsense"}
spec: {exportedLabels: {tier: front}, exportedAnnotations: {team: a}}
---
apiVersion: multicluster.x-k8s.io/v1alpha1
kind: ServiceExport
metadata: {name: missing, namespace: sample, labels: {app.kubernetes.io/part-of: hawser}}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: sample}
spec:
  clusterIP: 10.77.0.9
  ipFamilies: [IPv6, IPv4]
  sessionAffinity: ClientIP
  sessionAffinityConfig: {clientIP: {timeoutSeconds: 60}}
  internalTrafficPolicy: Local
  trafficDistribution: PreferClose
  ports:
  - {name: http, port: 80, appProtocol: http}
  - {name: media, port: 81, protocol: SCTP}
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceImport
metadata: {name: web, namespace: sample, labels: {app.kubernetes.io/managed-by: hawser, tier: front}, creationTimestamp: "2026-01-02T03:04:06Z"}
spec:
  type: ClusterSetIP
  ips: [243.0.128.1]
  ipFamilies: [IPv4]
  sessionAffinity: None
  ports: [{name: http, port: 80, protocol: TCP, appProtocol: http}, {port: 90}]
status:
  clusters: [{cluster: g2}, {cluster: g1}]
  conditions: [{type: Ready, status: "True", reason: Ready, message: "", lastTransitionTime: "2026-01-02T03:04:06Z"}]
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceImport
metadata: {name: others, namespace: sample}
`

func TestExportsAndImports(t *testing.T) {
	t.Parallel()
	objects, err := Decode("mcs.yaml", []byte(exportsAndImports))
	if err != nil {
		t.Fatal(err)
	}
	want := model.Facts{
		Exports: []mcs.Export{
			{Namespace: "sample", Name: "missing", Rendered: true},
			{
				Namespace: "sample", Name: "web", UID: "6f1c", Generation: 3,
				Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
				Labels:  map[string]string{"tier": "front"}, Annotations: map[string]string{"team": "a"},
				Addrs: addrs("242.1.0.7", "fd24::7"),
				Service: &mcs.Service{
					Type: "ClusterIP", Families: []int{6, 4}, Affinity: "ClientIP", AffinitySeconds: 60,
					InternalTrafficPolicy: "Local", TrafficDistribution: "PreferClose",
					Ports: []mcs.Port{
						{Name: "http", Protocol: "TCP", Port: 80, AppProtocol: "http"}, {Name: "media", Protocol: "SCTP", Port: 81},
					},
				},
			},
		},
		Imports: []mcs.Import{{Namespace: "sample", Name: "others", Foreign: true}, {
			Namespace: "sample", Name: "web", Created: time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC), Type: "ClusterSetIP",
			IPs: addrs("243.0.128.1"), Families: []int{4}, Labels: map[string]string{"tier": "front"},
			Ports:    []mcs.Port{{Name: "http", Protocol: "TCP", Port: 80, AppProtocol: "http"}, {Protocol: "TCP", Port: 90}},
			Clusters: []string{"g1", "g2"}, Conditions: []mcs.Condition{{Type: "Ready", Status: "True", Reason: "Ready"}},
		}},
		Namespaces: []string{"sample"},
	}
	have := FromObjects(objects)
	ignored := cmpopts.IgnoreFields(model.Facts{}, "Services")
	if diff := cmp.Diff(want, have, ignored, byValue); diff != "" {
		t.Errorf("facts (-want +have):\n%s", diff)
	}
}

// TestAnotherWritesTheImport checks that the addresses of an import stay in the facts while it
// exists, even after a restart.
func TestAnotherWritesTheImport(t *testing.T) {
	t.Parallel()
	put := func(table *Index, label string, ips ...string) []mcs.Import {
		i := &mcsv1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "web", Labels: map[string]string{fabric.ManagedByLabel: label}}}
		i.Spec.Type, i.Spec.IPs = "ClusterSetIP", ips
		table.PutImport(i)
		return table.Facts().Imports
	}
	held := func(list []mcs.Import) string { return fmt.Sprint(list[0].IPs, list[0].Foreign) }
	table := NewIndex(nil)
	if have := held(put(table, fabric.ManagedByValue, "243.0.0.7")); have != "[243.0.0.7] false" {
		t.Fatal(have)
	}
	if have := held(put(table, fabric.ManagedByValue)); have != "[243.0.0.7] false" {
		t.Errorf("without addresses: %s", have)
	}
	if have := held(put(table, "lighthouse", "100.64.0.1")); have != "[243.0.0.7] true" {
		t.Errorf("written by another writer: %s", have)
	}
	facts := table.Facts()
	table = NewIndex(&facts)
	if have := held(put(table, "lighthouse")); have != "[243.0.0.7] true" {
		t.Errorf("after a restart: %s", have)
	}
	if have := held(put(table, fabric.ManagedByValue, "243.0.0.8")); have != "[243.0.0.8] false" {
		t.Errorf("owned again: %s", have)
	}
	if table.DeleteImport("sample/web"); len(table.Facts().Imports) > 0 {
		t.Error("a deleted import is in the facts")
	}
}

func TestExportOfAnExternalName(t *testing.T) {
	t.Parallel()
	objects := Objects{
		Exports:  []mcsv1.ServiceExport{{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "elsewhere"}}},
		Services: []corev1.Service{{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "elsewhere"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName}}},
	}
	have := FromObjects(objects)
	if len(have.Services) != 1 || !have.Services[0].ExternalName || have.Exports[0].Service == nil || have.Exports[0].Service.Type != "ExternalName" {
		t.Errorf("have %+v", have)
	}
}

// TestIndexFromSavedFacts checks that a saved fact stays until its object is put or deleted, and
// that unchanged lists are not copied.
func TestIndexFromSavedFacts(t *testing.T) {
	t.Parallel()
	objects, err := Decode("mcs.yaml", []byte(exportsAndImports))
	if err != nil {
		t.Fatal(err)
	}
	before := FromObjects(objects)
	table := NewIndex(&before)
	if diff := cmp.Diff(before, table.Facts(), byValue); diff != "" {
		t.Errorf("saved facts (-want +have):\n%s", diff)
	}
	first := table.Facts()
	if table.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}); len(table.Facts().Nodes) != 1 {
		t.Error("the node is not in the facts")
	}
	if &first.Exports[0] != &table.Facts().Exports[0] {
		t.Error("a node made a new list of exports")
	}
	if table.PutService("sample", "web", nil, nil); table.Facts().Exports[1].Service != nil {
		t.Error("a deleted Service is in the facts")
	}
	table.PutExport(&mcsv1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "new"}})
	if have := table.Facts().Exports; len(have) != 2 {
		t.Errorf("an export is in the facts before its Service was looked up: %+v", have)
	}
	if !table.PutService("sample", "new", nil, nil) || len(table.Facts().Exports) != 3 {
		t.Error("an export without a Service is not in the facts")
	}
}
