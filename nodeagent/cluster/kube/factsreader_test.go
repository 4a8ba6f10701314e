package kube

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/cluster/facts"
	"hawser.dev/hawser/nodeagent/cluster/kube/kubetest"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/schema/fabric"
)

// testFactsReader is a FactsReader with its test server.
type testFactsReader struct {
	*FactsReader
	server  *kubetest.Server
	changes chan struct{}
}

func start(t *testing.T, server *kubetest.Server, before *model.Facts) *testFactsReader {
	t.Helper()
	client, err := Open(Config{Kubeconfig: server.Kubeconfig(t)})
	if err != nil {
		t.Fatal(err)
	}
	r := &testFactsReader{server: server, changes: make(chan struct{}, 1)}
	r.FactsReader = NewFactsReader(client, "g1", "gateway", before, slog.New(slog.DiscardHandler), func() {
		select {
		case r.changes <- struct{}{}:
		default:
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
	return r
}

// await waits for a state for which good returns true.
func (r *testFactsReader) await(t *testing.T, what string, good func(facts.State) bool) facts.State {
	t.Helper()
	deadline := time.After(60 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		state := r.Current()
		if good(state) {
			return state
		}
		select {
		case <-r.changes:
		case <-tick.C:
		case <-deadline:
			t.Fatalf("timeout: %s (loaded %t, source %s, error %v)\n%+v\nrequests:\n%s", what, state.Loaded, state.Source, state.Err, state.Facts,
				strings.Join(r.server.Requests(), "\n"))
		}
	}
}

// testFabric returns a fabric with a gateway on node "gateway" and an export sample/web of g1.
func testFabric(change func(*fabric.Fabric)) *fabric.Fabric {
	f := &fabric.Fabric{
		Clusters: []fabric.Cluster{{Name: "g1", Gateways: []fabric.Gateway{{Name: "a", Node: "gateway"}}}},
		Exports:  []fabric.Export{{Namespace: "sample", Name: "web", Clusters: []fabric.ExportCluster{{Name: "g1"}}}},
	}
	if change != nil {
		change(f)
	}
	return f
}

func node(name, address string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: %s}\nstatus: {addresses: [{type: InternalIP, address: %s}]}", name, address)
}

func service(namespace, name string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: %s}\nspec: {clusterIP: 10.77.0.1, ports: [{name: http, port: 80}]}", name, namespace)
}

func slice(namespace, name, suffix string, addresses ...string) string {
	text := fmt.Sprintf("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %s-%s, namespace: %s, labels: {kubernetes.io/service-name: %s}}\n"+
		"addressType: IPv4\nports: [{name: http, port: 8080}]\nendpoints:\n", name, suffix, namespace, name)
	for _, a := range addresses {
		text += fmt.Sprintf("- {addresses: [%s], conditions: {ready: true}}\n", a)
	}
	return text
}

func pod(namespace, name, address, labels string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: %s, labels: {%s}}\nspec: {nodeName: n1}\nstatus: {phase: Running, podIP: %s}", name, namespace, labels, address)
}

func export(namespace, name string) string {
	return fmt.Sprintf("apiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceExport\nmetadata: {name: %s, namespace: %s, uid: u-%s}", name, namespace, name)
}

// endpoints returns the addresses of a Service in the facts; nil if absent.
func endpoints(f model.Facts, namespace, name string) []string {
	for _, s := range f.Services {
		if s.Namespace == namespace && s.Name == name {
			out := []string{}
			for _, e := range s.Endpoints {
				out = append(out, e.Addrs[0].String())
			}
			return out
		}
	}
	return nil
}

func serves(namespace, name string, want ...string) func(facts.State) bool {
	return func(s facts.State) bool {
		have := endpoints(s.Facts, namespace, name)
		return s.Loaded && have != nil && strings.Join(have, " ") == strings.Join(want, " ")
	}
}

func TestFactsReaderUpdates(t *testing.T) {
	t.Parallel()
	server := kubetest.New(t)
	server.Put(t, node("gateway", "203.0.113.1"), node("worker", "203.0.113.2"),
		service("sample", "web"), slice("sample", "web", "a", "10.7.0.1"), service("sample", "other"), service("elsewhere", "web"),
		slice("sample", "other", "a", "10.7.9.9"), pod("sample", "p", "10.7.0.1", "app: web"))
	r := start(t, server, nil)
	r.SetFabric(testFabric(nil))
	s := r.await(t, "the first facts", serves("sample", "web", "10.7.0.1"))
	if len(s.Facts.Nodes) != 2 || len(s.Facts.Services) != 1 || len(s.Facts.Pods) != 0 || s.Source != fromAPI || s.Err != nil {
		t.Errorf("have %+v", s)
	}
	server.Put(t, slice("sample", "web", "b", "10.7.0.2"))
	r.await(t, "a second slice", serves("sample", "web", "10.7.0.1", "10.7.0.2"))
	server.Put(t, slice("sample", "web", "a", "10.7.0.3"))
	r.await(t, "a changed slice", serves("sample", "web", "10.7.0.2", "10.7.0.3"))
	server.Delete("endpointslices", "sample/web-b")
	r.await(t, "a deleted slice", serves("sample", "web", "10.7.0.3"))
	server.Delete("nodes", "worker")
	r.await(t, "a deleted node", func(s facts.State) bool { return len(s.Facts.Nodes) == 1 })
	server.Delete("services", "sample/web")
	r.await(t, "a deleted service", func(s facts.State) bool { return endpoints(s.Facts, "sample", "web") == nil })
}

// TestFactsReaderFabricChange checks that watches start and stop as the fabric changes.
func TestFactsReaderFabricChange(t *testing.T) {
	t.Parallel()
	server := kubetest.New(t)
	server.Put(t, node("gateway", "203.0.113.1"), service("sample", "web"), slice("sample", "web", "a", "10.7.0.1"),
		service("other", "db"), slice("other", "db", "a", "10.7.0.5"),
		pod("sample", "p", "10.7.0.1", "app: web"), pod("sample", "q", "10.7.0.2", "app: none"))
	r := start(t, server, nil)
	r.SetFabric(testFabric(nil))
	r.await(t, "the first facts", serves("sample", "web", "10.7.0.1"))
	r.SetFabric(testFabric(func(f *fabric.Fabric) {
		f.Exports = []fabric.Export{{Namespace: "other", Name: "db", Clusters: []fabric.ExportCluster{{Name: "g1"}}}}
		f.Clusters[0].EgressRules = []fabric.EgressRule{{Name: "w", Namespace: "sample", MatchLabels: map[string]string{"app": "web"}}}
	}))
	r.await(t, "another export and a pod", func(s facts.State) bool {
		return endpoints(s.Facts, "sample", "web") == nil && endpoints(s.Facts, "other", "db") != nil && len(s.Facts.Pods) == 1
	})
	server.Put(t, pod("sample", "q", "10.7.0.2", "app: web"))
	r.await(t, "a pod with a new label", func(s facts.State) bool { return len(s.Facts.Pods) == 2 })
	server.Put(t, pod("sample", "p", "10.7.0.1", "app: none"))
	r.await(t, "a pod without the label", func(s facts.State) bool { return len(s.Facts.Pods) == 1 && s.Facts.Pods[0].Name == "q" })
	r.SetFabric(testFabric(func(f *fabric.Fabric) { f.Exports = nil }))
	r.await(t, "no exports and no pods", func(s facts.State) bool { return len(s.Facts.Services) == 0 && len(s.Facts.Pods) == 0 })
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.watches) != 5 || len(r.FactsReader.serviceScopes) != 0 { // nodes, HawserNodes, namespaces, ServiceExports and ServiceImports
		t.Errorf("%d watches and %d Service scopes remain", len(r.watches), len(r.FactsReader.serviceScopes))
	}
}

// TestFactsReaderExports checks that the reader reads the Services of new ServiceExports.
func TestFactsReaderExports(t *testing.T) {
	t.Parallel()
	server := kubetest.New(t)
	server.Put(t, node("gateway", "203.0.113.1"), "apiVersion: v1\nkind: Namespace\nmetadata: {name: team-a}",
		service("team-a", "api"), slice("team-a", "api", "a", "10.7.0.7"))
	r := start(t, server, nil)
	r.SetFabric(testFabric(func(f *fabric.Fabric) {
		f.Exports, f.DynamicExports = nil, &fabric.DynamicExports{Namespaces: []string{"team-*"}}
	}))
	r.await(t, "the first facts", func(s facts.State) bool { return s.Loaded && len(s.Facts.Namespaces) == 1 })
	server.Put(t, export("team-a", "api"), export("team-a", "none"))
	s := r.await(t, "exports", func(s facts.State) bool { return len(s.Facts.Exports) == 2 })
	if s.Facts.Exports[0].Service == nil || s.Facts.Exports[1].Service != nil || endpoints(s.Facts, "team-a", "api") == nil {
		t.Errorf("have %+v and %+v", s.Facts.Exports, s.Facts.Services)
	}
	if list, ok := r.Exports(); !ok || len(list) != 2 || list[0].GetName() != "api" {
		t.Errorf("objects: %v, %t", list, ok)
	}
	server.Delete("serviceexports", "team-a/api")
	r.await(t, "a deleted export", func(s facts.State) bool {
		return len(s.Facts.Exports) == 1 && endpoints(s.Facts, "team-a", "api") == nil
	})
}

func TestFactsReaderServerUnreachable(t *testing.T) {
	t.Parallel()
	server := kubetest.New(t)
	server.Put(t, node("gateway", "203.0.113.1"), service("sample", "web"), slice("sample", "web", "a", "10.7.0.1"))
	server.SetUnreachable(true)
	before := &model.Facts{Nodes: []model.Node{{Name: "old"}}, Services: []model.Service{{Namespace: "sample", Name: "web", Endpoints: []model.Endpoint{}}}}
	r := start(t, server, before)
	r.SetFabric(testFabric(nil))
	s := r.await(t, "an error for the unreachable server", func(s facts.State) bool { return s.Err != nil })
	if !s.Loaded || s.Source != fromCopy || s.DegradedSince.IsZero() || len(s.Facts.Nodes) != 1 || len(s.Facts.Services) != 1 {
		t.Errorf("while unreachable: %+v", s)
	}
	server.SetUnreachable(false)
	r.await(t, "the server", func(s facts.State) bool {
		return serves("sample", "web", "10.7.0.1")(s) && s.Source == fromAPI && s.Err == nil && s.Facts.Nodes[0].Name == "gateway"
	})
	server.SetUnreachable(true)
	s = r.await(t, "an error the second time", func(s facts.State) bool { return s.Err != nil && s.Source == fromCopy })
	if !serves("sample", "web", "10.7.0.1")(s) {
		t.Errorf("while unreachable again: %+v", s)
	}
	server.Put(t, slice("sample", "web", "a", "10.7.0.9"))
	server.SetUnreachable(false)
	r.await(t, "changes made in the meantime", serves("sample", "web", "10.7.0.9"))
}

// TestFactsReaderLateCRD checks that the reader reads a kind soon after its CRD exists, even if the CRD
// was missing for long.
func TestFactsReaderLateCRD(t *testing.T) {
	t.Parallel()
	server := kubetest.New(t)
	server.Put(t, node("gateway", "203.0.113.1"), service("sample", "web"), slice("sample", "web", "a", "10.7.0.1"), export("sample", "db"))
	server.SetResourceMissing("serviceexports", true)
	r := start(t, server, nil)
	r.SetFabric(testFabric(func(f *fabric.Fabric) { f.DynamicExports = &fabric.DynamicExports{Namespaces: []string{"*"}} }))
	r.await(t, "the declared export", serves("sample", "web", "10.7.0.1"))
	tries := func() (n int) {
		for _, url := range server.Requests() {
			if strings.Contains(url, "/serviceexports") && !strings.Contains(url, "watch=") {
				n++
			}
		}
		return n
	}
	var last time.Time
	for seen := 0; seen < 7; {
		r.await(t, "another attempt", func(facts.State) bool { return tries() > seen })
		seen = tries()
		if now := time.Now(); seen > 1 && now.Sub(last) > 2*time.Second {
			t.Fatalf("attempt %d %s after the previous one", seen, now.Sub(last))
		}
		last = time.Now()
	}
	server.SetResourceMissing("serviceexports", false)
	r.await(t, "the export", func(s facts.State) bool { return len(s.Facts.Exports) == 1 && s.Err == nil })
}

func TestFactsReaderForbidden(t *testing.T) {
	t.Parallel()
	server := kubetest.New(t)
	server.Put(t, node("gateway", "203.0.113.1"), service("sample", "web"), slice("sample", "web", "a", "10.7.0.1"))
	server.SetForbidden("namespaces", true)
	server.SetResourceMissing("serviceexports", true)
	r := start(t, server, nil)
	r.SetFabric(testFabric(nil))
	s := r.await(t, "the rest of the facts", func(s facts.State) bool {
		return serves("sample", "web", "10.7.0.1")(s) && s.Err != nil && strings.Contains(s.Err.Error(), "serviceexports") && strings.Contains(s.Err.Error(), "forbidden")
	})
	for _, want := range []string{
		`cannot list resource "namespaces": grant get, list and watch as base/rbac.yaml of the publish branch does`,
		"the cluster has no resource serviceexports of multicluster.x-k8s.io/v1beta1: apply base/crds.yaml of the publish branch; until then Hawser ignores them",
	} {
		if !strings.Contains(s.Err.Error(), want) {
			t.Errorf("want %q in %q", want, s.Err)
		}
	}
	if s.Source != fromAPI {
		t.Errorf("from %s", s.Source)
	}
	server.SetResourceMissing("serviceexports", false)
	server.SetForbidden("namespaces", false)
	r.await(t, "no error", func(s facts.State) bool { return s.Err == nil })
}

// TestFactsReaderReports checks that a node counts as protected (Hawser's rules are loaded) while
// rulesBootID of its HawserNode equals the bootID of its Node. A reboot ends the protection. A
// deleted HawserNode does not end it, nor does a restart of this agent without permission to list
// HawserNodes.
func TestFactsReaderReports(t *testing.T) {
	t.Parallel()
	server := kubetest.New(t)
	node := func(name, boot string) string {
		return "apiVersion: v1\nkind: Node\nmetadata: {name: " + name + "}\nstatus: {nodeInfo: {bootID: \"" + boot + "\"}}"
	}
	report := func(name, boot string) string {
		return "apiVersion: hawser.dev/v1alpha1\nkind: HawserNode\nmetadata: {name: " + name + "}\nstatus: {rulesBootID: \"" + boot + "\"}"
	}
	for _, text := range []string{
		node("agent", "b1"), report("agent", "b1"), node("rebooted", "b2"), report("rebooted", "b1"), node("silent", "b1"), report("silent", ""),
		node("none", "b1"), node("no-boot-id", ""), report("no-boot-id", "b7"),
	} {
		server.Put(t, text)
	}
	unprotected := func(f model.Facts) string {
		var names []string
		for _, n := range f.Nodes {
			if n.Unprotected {
				names = append(names, n.Name)
			}
		}
		return strings.Join(names, " ")
	}
	is := func(want string) func(facts.State) bool {
		return func(s facts.State) bool { return s.Loaded && unprotected(s.Facts) == want }
	}
	r := start(t, server, nil)
	r.SetFabric(testFabric(nil))
	r.await(t, "the nodes without a report", is("none rebooted silent"))
	server.Put(t, report("none", "b1"))
	r.await(t, "a report", is("rebooted silent"))
	server.Put(t, node("agent", "b2"))
	r.await(t, "a reboot", is("agent rebooted silent"))
	server.Put(t, report("agent", "b2"))
	r.await(t, "the report after the reboot", is("rebooted silent"))
	server.Delete("hawsernodes", "agent")
	server.Put(t, report("silent", "b1"))
	r.await(t, "a report after a deletion", is("rebooted"))
	server.Delete("nodes", "none")
	r.await(t, "a deleted node", func(s facts.State) bool { return len(s.Facts.Nodes) == 4 })
	server.Put(t, node("none", "b1"))
	r.await(t, "a new node of the same name, without a report", is("none rebooted"))

	// A restarted agent uses the saved facts until all reports are listed.
	saved := r.Current().Facts
	secondServer := kubetest.New(t)
	secondServer.Put(t, node("agent", "b2"))
	secondServer.Put(t, node("rebooted", "b2"))
	secondServer.SetForbidden("hawsernodes", true)
	restarted := start(t, secondServer, &saved)
	restarted.SetFabric(testFabric(nil))
	restarted.await(t, "the nodes, without reports", func(s facts.State) bool {
		return len(s.Facts.Nodes) == 2 && unprotected(s.Facts) == "rebooted"
	})
	secondServer.Put(t, node("new", "b1"))
	restarted.await(t, "a new node, without reports", is("new rebooted"))
	unsaved := start(t, secondServer, nil)
	unsaved.SetFabric(testFabric(nil))
	unsaved.await(t, "the nodes, without saved facts and reports", is("agent new rebooted"))
}
