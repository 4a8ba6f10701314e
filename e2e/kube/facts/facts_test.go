//go:build kube

// Package facts tests the objects that agents read from and write to a Kubernetes API, with a real
// API server.
package facts

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hawser.dev/hawser/e2e/kube/api"
	"hawser.dev/hawser/nodeagent/cluster/facts"
	"hawser.dev/hawser/nodeagent/cluster/kube"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fabric/trust"
)

const objects = `apiVersion: v1
kind: Namespace
metadata: {name: sample}
---
apiVersion: v1
kind: Node
metadata: {name: gateway}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: sample}
spec: {ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: sample}
spec: {clusterIP: None, ports: [{name: sql, port: 5432}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-a, namespace: sample, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.7.0.1], conditions: {ready: true}}]
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: sample, labels: {app: web}}
spec: {nodeName: gateway, containers: [{name: c, image: none}]}
`

const export = `apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {name: db, namespace: sample}
`

func theFabric() *fabric.Fabric {
	return &fabric.Fabric{
		DynamicExports: &fabric.DynamicExports{Namespaces: []string{"*"}},
		Clusters: []fabric.Cluster{{
			Name: "g1", Gateways: []fabric.Gateway{{Name: "a", Node: "gateway"}},
			EgressRules: []fabric.EgressRule{{Name: "w", Namespace: "sample", MatchLabels: map[string]string{"app": "web"}}},
		}},
		Exports: []fabric.Export{{Namespace: "sample", Name: "web", Clusters: []fabric.ExportCluster{{Name: "g1"}}}},
	}
}

// source runs a source until the test ends.
func source(t *testing.T, kubeconfig string, before *model.Facts) *kube.FactsReader {
	t.Helper()
	client, err := kube.Open(kube.Config{Kubeconfig: kubeconfig})
	if err != nil {
		t.Fatal(err)
	}
	s := kube.NewFactsReader(client, "g1", "gateway", before, slog.New(slog.NewTextHandler(os.Stderr, nil)), func() {})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		s.Run(ctx)
		close(done)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	s.SetFabric(theFabric())
	return s
}

func await(t *testing.T, s *kube.FactsReader, what string, good func(facts.State) bool) facts.State {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		state := s.Current()
		if good(state) {
			return state
		}
		if time.Now().After(end) {
			t.Fatalf("waited for %s, have %+v", what, state)
		}
	}
}

func TestFacts(t *testing.T) {
	server := api.Start(t, "g1")
	server.Apply(t, objects)
	s := source(t, server.Kubeconfig, nil)
	state := await(t, s, "the first facts, without CRDs", func(s facts.State) bool {
		return s.Loaded && s.Err != nil && len(s.Facts.Services) == 1 && len(s.Facts.Services[0].Endpoints) == 1
	})
	if !strings.Contains(state.Err.Error(), "the cluster has no resource serviceexports") || len(state.Facts.Nodes) != 1 || len(state.Facts.Namespaces) < 2 {
		t.Errorf("have %+v", state)
	}
	server.Define(t)
	defined := time.Now()
	await(t, s, "the definitions", func(s facts.State) bool { return s.Err == nil })
	if took := time.Since(defined); took > 2*time.Second {
		t.Errorf("definitions were found %s after they were established", took)
	}
	server.Apply(t, export)
	await(t, s, "an export", func(s facts.State) bool {
		return s.Err == nil && len(s.Facts.Exports) == 1 && s.Facts.Exports[0].Service != nil && len(s.Facts.Services) == 2
	})
	server.K(t, "patch", "pod", "-n", "sample", "p", "--subresource=status", "--type=merge", "-p", `{"status":{"phase":"Running","podIP":"10.7.0.1","podIPs":[{"ip":"10.7.0.1"}]}}`)
	await(t, s, "a pod", func(s facts.State) bool { return len(s.Facts.Pods) == 1 })
	server.K(t, "patch", "endpointslice", "-n", "sample", "web-a", "--type=merge", "-p", `{"endpoints":[{"addresses":["10.7.0.2"]},{"addresses":["10.7.0.3"]}]}`)
	await(t, s, "other endpoints", func(s facts.State) bool { return len(s.Facts.Services[1].Endpoints) == 2 })
	server.K(t, "delete", "serviceexport", "-n", "sample", "db")
	await(t, s, "no export", func(s facts.State) bool { return len(s.Facts.Exports) == 0 && len(s.Facts.Services) == 1 })
}

// TestDenied tests that a forbidden request is reported with verb and resource, and that the
// objects are read after the right is granted.
func TestDenied(t *testing.T) {
	server := api.Start(t, "g1")
	server.Define(t)
	server.Apply(t, objects)
	server.K(t, "create", "clusterrole", "some", "--verb=get,list,watch", "--resource=nodes,services,namespaces,endpointslices.discovery.k8s.io")
	server.K(t, "create", "clusterrolebinding", "some", "--clusterrole=some", "--user=agent")
	raw, err := os.ReadFile(server.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	limited := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(limited, []byte(strings.Replace(string(raw), "token: ", "as: agent, token: ", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	s := source(t, limited, nil)
	state := await(t, s, "what may be read", func(s facts.State) bool { return s.Loaded && s.Err != nil && len(s.Facts.Services) == 1 })
	for _, want := range []string{`cannot list resource "pods"`, `cannot list resource "serviceexports"`, "grant get, list and watch"} {
		if !strings.Contains(state.Err.Error(), want) {
			t.Errorf("want %q in %q", want, state.Err)
		}
	}
	server.K(t, "create", "clusterrolebinding", "all", "--clusterrole=cluster-admin", "--user=agent")
	await(t, s, "no complaint", func(s facts.State) bool { return s.Err == nil })
}

// TestManyObjects tests that the agent's memory does not grow with objects that it does not need.
func TestManyObjects(t *testing.T) {
	server := api.Start(t, "g1")
	server.Define(t)
	server.Apply(t, objects)
	s := source(t, server.Kubeconfig, nil)
	await(t, s, "the first facts", func(s facts.State) bool { return s.Loaded && len(s.Facts.Services) == 1 })
	before := heap()
	var many strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&many, "---\napiVersion: v1\nkind: Service\nmetadata: {name: other-%d, namespace: sample}\nspec: {ports: [{port: 80}]}\n", i)
		fmt.Fprintf(&many, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: other-%d, namespace: sample, labels: {kubernetes.io/service-name: other-%d}}\n"+
			"addressType: IPv4\nports: [{port: 80}]\nendpoints: [{addresses: [10.9.0.1]}, {addresses: [10.9.0.2]}, {addresses: [10.9.0.3]}, {addresses: [10.9.0.4]}, {addresses: [10.9.0.5]}]\n", i, i)
	}
	server.Apply(t, many.String())
	server.K(t, "patch", "endpointslice", "-n", "sample", "web-a", "--type=merge", "-p", `{"endpoints":[{"addresses":["10.7.0.9"]}]}`)
	state := await(t, s, "the relevant state", func(s facts.State) bool {
		return len(s.Facts.Services) == 1 && s.Facts.Services[0].Endpoints[0].Addrs[0].String() == "10.7.0.9"
	})
	if len(state.Facts.Services) != 1 {
		t.Errorf("have %d services", len(state.Facts.Services))
	}
	after := heap()
	t.Logf("heap before %d KiB, with 1 000 services and 5 000 endpoints more %d KiB", before>>10, after>>10)
	if after > before+2<<20 {
		t.Errorf("the heap grew from %d to %d bytes", before, after)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestHawserNode tests that the CRD accepts a HawserNode, and that its columns show the values.
func TestHawserNode(t *testing.T) {
	server := api.Start(t, "g1")
	server.Define(t)
	server.Apply(t, objects)
	client, err := kube.Open(kube.Config{Kubeconfig: server.Kubeconfig})
	if err != nil {
		t.Fatal(err)
	}
	r := kube.NewReporter(client, "gateway", slog.New(slog.NewTextHandler(os.Stderr, nil)), func() kube.NodeStatus {
		return kube.NodeStatus{
			Cluster: "g1", Role: kube.Gateway, Version: "v1", Fabric: "abc", Links: &kube.LinkCount{Up: 1, Total: 2},
			FabricProof: strings.Repeat("p", trust.MaxReported), // as long as the CRD allows
			Conditions:  []metav1.Condition{{Type: status.ConditionReady, Status: metav1.ConditionTrue, Reason: "Converged"}},
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		r.Run(ctx)
		close(done)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	server.K(t, "wait", "--for=create", "hawsernode/gateway", "--timeout=60s")
	server.K(t, "wait", "--for=condition=Ready", "hawsernode/gateway", "--timeout=60s")
	table := strings.Fields(server.K(t, "get", "hawsernodes", "gateway", "--no-headers"))
	if have := strings.Join(table[:min(6, len(table))], " "); have != "gateway gateway abc 1 2 True" {
		t.Errorf("columns: %s", have)
	}
	if have := server.K(t, "get", "hawsernode", "gateway", "-o", "jsonpath={.metadata.ownerReferences[0].kind}"); have != "Node" {
		t.Errorf("owner: %s", have)
	}
	if proofs, err := client.Proofs(ctx, trust.Fabric); err != nil || len(proofs) != 1 || len(proofs[0]) != trust.MaxReported {
		t.Errorf("%d proofs, %v", len(proofs), err)
	}
	if r.Err() != nil {
		t.Error(r.Err())
	}
}
