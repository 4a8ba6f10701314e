package apiobjects

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	mcsv1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"hawser.dev/hawser/nodeagent/cluster/apiobjects/corefile"
	"hawser.dev/hawser/nodeagent/cluster/listwatch"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/schema/fabric"
)

// gateway is the Writer of one gateway with its own watches.
type gateway struct {
	*Writer

	mu      sync.Mutex
	want    Desired
	version int
	reports chan converge.Report
}

func newGateway(t *testing.T, s *apiServer, want Desired) *gateway {
	t.Helper()
	g := &gateway{want: want, reports: make(chan converge.Report, 1000)}
	client := s.client(t)
	trigger := func() {}
	exports := &listwatch.Cache[*mcsv1.ServiceExport]{Client: client, Resource: serviceExports, Convert: DecodeTrimmed[*mcsv1.ServiceExport], OnChange: func() { trigger() }}
	imports := &listwatch.Cache[*mcsv1.ServiceImport]{Client: client, Resource: serviceImports, Convert: DecodeTrimmed[*mcsv1.ServiceImport], OnChange: func() { trigger() }}
	g.Writer = New(Config{
		Client: client, Exports: exports.Objects, Imports: imports.Objects, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Source: func(context.Context) (Desired, string, bool) {
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
	trigger = g.Trigger
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

// wants changes the desired content.
func (g *gateway) wants(change func(*Desired)) {
	g.mu.Lock()
	change(&g.want)
	g.version++
	g.mu.Unlock()
	g.Trigger()
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(3 * time.Minute)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("after three minutes: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// report waits for a report for which fits returns true.
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
			t.Fatalf("after three minutes: %s; last failed %v, blocked %v, deferred %v", what, last.Failed, last.Blocked, last.Deferred)
		}
	}
}

// populated returns a cluster with a namespace, a ServiceExport and CoreDNS.
func populated(t *testing.T) (*apiServer, Desired) {
	t.Helper()
	s := newWorld(t)
	s.put("namespaces", `{"metadata":{"name":"","namespace":"kube-system"}}`)
	s.put("serviceexports", `{"metadata":{"name":"web","namespace":"sample"},"spec":{}}`)
	s.put("configmaps", `{"metadata":{"name":"coredns","namespace":"kube-system"},"data":{"Corefile":"`+kubeadm+`"}}`)
	want := Desired{
		DNS: fabric.DNSCoreDNS, Forward: corefile.Forward{Zones: []string{"clusterset.local"}, Servers: []netip.Addr{addr("169.254.73.53")}},
		State: mcs.DesiredObjects{
			PeersSynced: true, Imports: []mcs.Import{sampleImport()}, Property: map[string]string{mcs.PropertyCluster: "g1"},
			Slices: []mcs.Slice{{Namespace: "sample", Name: "web-hw-1", Import: "web", Cluster: "g2", Family: 4, Endpoints: []mcs.Endpoint{{Addr: addr("242.2.0.7")}}}},
			Exports: []mcs.Status{{Namespace: "sample", Name: "web", UID: string(s.get("serviceexports sample/web").GetUID()), Generation: 1,
				Addrs: []netip.Addr{addr("242.1.0.7")}, Conditions: []mcs.Condition{{Type: "Valid", Status: "True", Reason: "Valid"}}}},
		},
	}
	return s, want
}

// done reports whether all objects of populated exist.
func (s *apiServer) done() bool {
	coredns := s.get("configmaps kube-system/coredns")
	text, _, _ := unstructured.NestedString(coredns.Object, "data", "Corefile")
	conditions, _, _ := unstructured.NestedSlice(s.get("serviceexports sample/web").Object, "status", "conditions")
	return strings.Contains(text, "clusterset.local:53") && len(conditions) == 1 &&
		s.get("serviceimports sample/web") != nil && s.get("endpointslices sample/web-hw-1") != nil &&
		s.get("clusterproperties /"+mcs.PropertyCluster) != nil
}

func clean(r converge.Report) bool { return r.Clean() }

// stripped removes the fields that differ between runs.
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
