//go:build kube

package objects

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

	mcsv1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"hawser.dev/hawser/e2e/kube/api"
	"hawser.dev/hawser/nodeagent/cluster/apiobjects"
	"hawser.dev/hawser/nodeagent/cluster/apiobjects/corefile"
	"hawser.dev/hawser/nodeagent/cluster/kube"
	"hawser.dev/hawser/nodeagent/cluster/listwatch"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/schema/fabric"
)

// limit bounds the wait for a condition on a slow machine.
const limit = 3 * time.Minute

// gateway is the writer of one gateway, with its own watches.
type gateway struct {
	*apiobjects.Writer
	mu      sync.Mutex
	want    apiobjects.Desired
	version int
	reports chan converge.Report
	stop    func()
}

func start(t *testing.T, s *api.Server, want apiobjects.Desired) *gateway {
	t.Helper()
	return startAs(t, s.Kubeconfig, want)
}

// startAs is start with another kubeconfig, for tests of its rights.
func startAs(t *testing.T, kubeconfig string, want apiobjects.Desired) *gateway {
	t.Helper()
	client, err := kube.Open(kube.Config{Kubeconfig: kubeconfig})
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{want: want, reports: make(chan converge.Report, 1000)}
	look := func() {}
	changed := func() { look() }
	exports := &listwatch.Cache[*mcsv1.ServiceExport]{Client: client.Dynamic, Resource: kube.ServiceExports, Convert: apiobjects.DecodeTrimmed[*mcsv1.ServiceExport], OnChange: changed}
	imports := &listwatch.Cache[*mcsv1.ServiceImport]{Client: client.Dynamic, Resource: kube.ServiceImports, Convert: apiobjects.DecodeTrimmed[*mcsv1.ServiceImport], OnChange: changed}
	g.Writer = apiobjects.New(apiobjects.Config{
		Client: client.Dynamic, Exports: exports.Objects, Imports: imports.Objects, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Source: func(context.Context) (apiobjects.Desired, string, bool) {
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
	look = g.Trigger
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	for _, run := range []func(context.Context){exports.Run, imports.Run, g.Run} {
		wait.Go(func() { run(ctx) })
	}
	g.stop = func() { cancel(); wait.Wait() }
	t.Cleanup(g.stop)
	return g
}

func (g *gateway) wants(change func(*apiobjects.Desired)) {
	g.mu.Lock()
	change(&g.want)
	g.version++
	g.mu.Unlock()
	g.Trigger()
}

// settled waits for a report without errors that is newer than the call.
func (g *gateway) settled(t *testing.T) {
	t.Helper()
	from := time.Now()
	g.Trigger()
	deadline := time.After(limit)
	var last converge.Report
	for {
		select {
		case last = <-g.reports:
			if last.Clean() && last.At.After(from) {
				return
			}
		case <-deadline:
			t.Fatalf("it does not settle: failed %v, blocked %v, left %v", last.Failed, last.Blocked, last.Deferred)
		}
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !holds(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}

const corednsMap = `apiVersion: v1
kind: ConfigMap
metadata: {name: coredns, namespace: kube-system}
data:
  Corefile: |
    .:53 {
        errors
        forward . /etc/resolv.conf
    }
`

func prepare(t *testing.T) (*api.Server, apiobjects.Desired) {
	t.Helper()
	s := api.Start(t, "objects", "namespace-controller")
	s.Define(t)
	eventually(t, "kube-system", func() bool { _, err := s.Try("get", "namespace", "kube-system"); return err == nil })
	s.Apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: sample}\n---\n"+corednsMap)
	s.Apply(t, "apiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceExport\nmetadata: {name: web, namespace: sample}\n")
	uid := s.K(t, "-n", "sample", "get", "serviceexport", "web", "-o", "jsonpath={.metadata.uid}")
	addr := netip.MustParseAddr
	return s, apiobjects.Desired{
		DNS: fabric.DNSCoreDNS, Forward: corefile.Forward{Zones: []string{"clusterset.local"}, Servers: []netip.Addr{addr("169.254.73.53")}},
		State: mcs.DesiredObjects{
			PeersSynced: true, Property: map[string]string{mcs.PropertyCluster: "g1"},
			Imports: []mcs.Import{{
				Namespace: "sample", Name: "web", Type: fabric.ClusterSetIP, IPs: []netip.Addr{addr("243.0.0.7"), addr("fd24::7")}, Families: []int{4, 6},
				Ports:    []mcs.Port{{Name: "http", Protocol: "TCP", Port: 80, AppProtocol: "http"}, {Name: "stcp", Protocol: "SCTP", Port: 142}},
				Affinity: "ClientIP", AffinitySeconds: 10, InternalTrafficPolicy: "Cluster", TrafficDistribution: "PreferClose",
				Labels: map[string]string{"tier": "front"}, Annotations: map[string]string{"a/b": "c=d"}, Clusters: []string{"g1", "g2"},
				Conditions: []mcs.Condition{{Type: "Ready", Status: "True", Reason: "Ready", Message: "m"}},
			}},
			Slices: []mcs.Slice{{Namespace: "sample", Name: "web-hw-1", Import: "web", Cluster: "g2", Family: 4,
				Ports: []mcs.Port{{Protocol: "TCP", Port: 80}}, Endpoints: []mcs.Endpoint{{Addr: addr("242.2.0.7"), Hostname: "web-0"}}}},
			Exports: []mcs.Status{{Namespace: "sample", Name: "web", UID: uid, Generation: 1, Addrs: []netip.Addr{addr("242.1.0.7")},
				Conditions: []mcs.Condition{{Type: "Valid", Status: "True", Reason: "Valid", Message: "m"}, {Type: "Conflict", Status: "False", Reason: "NoConflicts"}}}},
		},
	}
}

// versions returns the resource versions of all written objects, which count the writes.
func versions(t *testing.T, s *api.Server) string {
	t.Helper()
	return s.K(t, "get", "serviceimports,serviceexports,endpointslices,clusterproperties", "-n", "sample", "-o",
		`jsonpath={range .items[*]}{.kind}/{.metadata.name}={.metadata.resourceVersion} {end}`) +
		s.K(t, "get", "configmap", "coredns", "-n", "kube-system", "-o", "jsonpath={.metadata.resourceVersion}")
}

// TestGatewaysWrite tests two gateways that write at the same time, and then each fault in turn.
func TestGatewaysWrite(t *testing.T) {
	s, want := prepare(t)
	later := want
	later.WriteOrder = 1
	first, second := start(t, s, want), start(t, s, later)
	first.settled(t)
	second.settled(t)
	before := versions(t, s)
	if !strings.Contains(before, "ServiceImport/web=") || !strings.Contains(before, "EndpointSlice/web-hw-1=") {
		t.Fatalf("not all is there: %s", before)
	}
	if have := s.K(t, "-n", "kube-system", "get", "configmap", "coredns", "-o", "jsonpath={.data.Corefile}"); !strings.HasPrefix(have, "# hawser: begin") {
		t.Errorf("Corefile:\n%s", have)
	}
	shown := s.K(t, "-n", "sample", "get", "serviceexport", "web", "-o",
		`jsonpath={.metadata.annotations.hawser\.dev/addresses} {.status.conditions[*].type} {.status.conditions[*].observedGeneration}`)
	if shown != "242.1.0.7 Conflict Valid 1 1" && shown != "242.1.0.7 Valid Conflict 1 1" {
		t.Errorf("export: %s", shown)
	}
	for range 5 {
		first.settled(t)
		second.settled(t)
	}
	if after := versions(t, s); after != before {
		t.Errorf("the publisher keeps writing:\n%s\n%s", before, after)
	}

	// Changed or deleted objects are restored.
	s.K(t, "-n", "sample", "patch", "serviceimport", "web", "--type=merge", "-p", `{"spec":{"ips":[]},"metadata":{"labels":{"tier":"x","theirs":"y"}}}`)
	s.K(t, "-n", "sample", "delete", "endpointslice", "web-hw-1")
	s.K(t, "-n", "sample", "annotate", "serviceexport", "web", "hawser.dev/addresses=9.9.9.9", "--overwrite")
	eventually(t, "not all is put back", func() bool {
		slice, _ := s.Try("-n", "sample", "get", "endpointslice", "web-hw-1", "-o", "jsonpath={.endpoints[*].addresses[*]}")
		return slice == "242.2.0.7" && s.K(t, "-n", "sample", "get", "serviceimport", "web", "-o",
			"jsonpath={.spec.ips[*]} {.metadata.labels.tier} {.metadata.labels.theirs}") == "243.0.0.7 fd24::7 front y" &&
			s.K(t, "-n", "sample", "get", "serviceexport", "web", "-o", `jsonpath={.metadata.annotations.hawser\.dev/addresses}`) == "242.1.0.7"
	})

	// Another controller overwrites an import of Hawser.
	s.K(t, "-n", "sample", "patch", "serviceimport", "web", "--field-manager=lighthouse", "--type=json", "-p",
		`[{"op":"remove","path":"/spec/ips"},{"op":"remove","path":"/metadata/labels/app.kubernetes.io~1managed-by"},{"op":"replace","path":"/spec/ports","value":[{"port":81,"protocol":"TCP"}]}]`)
	eventually(t, "the import is not taken back", func() bool {
		return s.K(t, "-n", "sample", "get", "serviceimport", "web", "-o",
			`jsonpath={.spec.ips[*]} {.spec.ports[0].port} {.metadata.labels.app\.kubernetes\.io/managed-by}`) == "243.0.0.7 fd24::7 80 hawser"
	})

	// After the first gateway stops, the second one writes the changes some seconds later. It
	// removes labels that are no longer exported.
	first.stop()
	second.wants(func(w *apiobjects.Desired) {
		changed := w.State.Imports[0]
		changed.Labels, changed.Clusters = map[string]string{"other": "z"}, []string{"g2"}
		w.State.Imports = []mcs.Import{changed}
	})
	eventually(t, "the second does not write", func() bool {
		return s.K(t, "-n", "sample", "get", "serviceimport", "web", "-o",
			"jsonpath={.metadata.labels.other}{.metadata.labels.tier}{.metadata.labels.theirs} {.status.clusters[*].cluster}") == "zy g2"
	})

	// Delete the namespace with its objects: nothing blocks the deletion, and nothing fails.
	s.K(t, "delete", "namespace", "sample", "--timeout="+limit.String())
	second.wants(func(w *apiobjects.Desired) {
		w.State = mcs.DesiredObjects{PeersSynced: true, Property: w.State.Property}
	})
	second.settled(t)

	// Everything is removed, and the Corefile is restored.
	second.wants(func(w *apiobjects.Desired) { w.State, w.DNS, w.Decommission = mcs.DesiredObjects{}, "", true })
	second.settled(t)
	if have := s.K(t, "-n", "kube-system", "get", "configmap", "coredns", "-o", "jsonpath={.data.Corefile}"); !strings.Contains(corednsMap, strings.ReplaceAll(strings.TrimSpace(have), "\n", "\n    ")) {
		t.Errorf("Corefile:\n%s", have)
	}
	if have := s.K(t, "get", "clusterproperties", "-o", "name"); have != "" {
		t.Errorf("left: %s", have)
	}
}
