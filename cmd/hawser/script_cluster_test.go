package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"sigs.k8s.io/yaml"

	"hawser.dev/hawser/nodeagent/cluster/kube/kubetest"
)

// clustersKey is the key of a script's clusters.
type clustersKey struct{}

// scriptTB is a testing.TB for helpers that a script uses.
type scriptTB struct {
	testing.TB
	ts *testscript.TestScript
}

func (t scriptTB) Helper()           {}
func (t scriptTB) Cleanup(f func())  { t.ts.Defer(f) }
func (t scriptTB) Fatal(args ...any) { t.ts.Fatalf("%s", fmt.Sprint(args...)) }

// clusterAPI CONTEXT FILE [DENIED...] serves the objects of a file as the API of a cluster until
// the script ends, without the denied resources. It adds the context to $WORK/kubeconfig. Like an
// API server with the range 10.96.0.0/16, it refuses every address of a Service.
func clusterAPI(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: cluster CONTEXT FILE [DENIED...]")
	}
	context := args[0]
	tb := scriptTB{ts: ts}
	server := kubetest.New(tb)
	text := ts.ReadFile(args[1])
	agents := strings.Contains(text, "kind: HawserNode")  // otherwise the API lacks the kind
	services := strings.Contains(text, "kind: Service\n") // discovery lists them
	if strings.TrimSpace(text) != "" {
		server.Put(tb, text)
	}
	for _, resource := range args[2:] {
		server.SetForbidden(resource, true)
	}
	ts.Value(clustersKey{}).(map[string]*kubetest.Server)[context] = server
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/version":
			_, _ = w.Write([]byte(`{"major":"1","minor":"33","gitVersion":"v1.33.1"}`))
		case services && r.URL.Path == "/api":
			_, _ = w.Write([]byte(`{"kind":"APIVersions","versions":["v1"]}`))
		case services && r.URL.Path == "/api/v1":
			_, _ = w.Write([]byte(`{"kind":"APIResourceList","groupVersion":"v1",` +
				`"resources":[{"name":"services","kind":"Service","namespaced":true,"verbs":["get","list"]}]}`))
		case agents && r.URL.Path == "/apis":
			_, _ = w.Write([]byte(`{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"hawser.dev",` +
				`"versions":[{"groupVersion":"hawser.dev/v1alpha1","version":"v1alpha1"}],` +
				`"preferredVersion":{"groupVersion":"hawser.dev/v1alpha1","version":"v1alpha1"}}]}`))
		case agents && r.URL.Path == "/apis/hawser.dev/v1alpha1":
			_, _ = w.Write([]byte(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"hawser.dev/v1alpha1",` +
				`"resources":[{"name":"hawsernodes","kind":"HawserNode","namespaced":false,"verbs":["get","list"]}]}`))
		case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/services") &&
			r.URL.Query().Get("dryRun") == "All":
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422,` +
				`"message":"Service \"hawser-discover\" is invalid: spec.clusterIPs: Invalid value: ` +
				`[\"192.0.2.1\"]: failed to allocate IP 192.0.2.1: ` +
				`the provided IP (192.0.2.1) is not in the valid range. The range of valid IPs is 10.96.0.0/16"}`))
		default:
			server.ServeHTTP(w, r)
		}
	}))
	ts.Defer(proxy.Close)

	path := ts.MkAbs("kubeconfig")
	config := map[string]any{"apiVersion": "v1", "kind": "Config"}
	if raw, err := os.ReadFile(path); err == nil {
		ts.Check(yaml.Unmarshal(raw, &config))
	}
	add := func(list string, entry map[string]any) {
		have, _ := config[list].([]any)
		config[list] = append(have, entry)
	}
	add("clusters", map[string]any{"name": context, "cluster": map[string]any{"server": proxy.URL}})
	add("users", map[string]any{"name": context, "user": map[string]any{}})
	add("contexts", map[string]any{"name": context, "context": map[string]any{"cluster": context, "user": context}})
	raw, err := yaml.Marshal(config)
	ts.Check(err)
	ts.Check(os.WriteFile(path, raw, 0o600))
}

// putObjects CONTEXT FILE adds the objects of a file to a cluster, or changes them.
func putObjects(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: put CONTEXT FILE")
	}
	ts.Value(clustersKey{}).(map[string]*kubetest.Server)[args[0]].Put(scriptTB{ts: ts}, ts.ReadFile(args[1]))
}

// writtenTo implements the command written CONTEXT FILE. It writes the write requests to a cluster
// to a file: method, path and object, one request per line.
func writtenTo(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: written CONTEXT FILE")
	}
	var out strings.Builder
	for _, w := range ts.Value(clustersKey{}).(map[string]*kubetest.Server)[args[0]].Writes() {
		raw, err := json.Marshal(w.Object)
		ts.Check(err)
		_, _ = fmt.Fprintf(&out, "%s %s %s\n", w.Method, w.Path, raw)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(out.String()), 0o600))
}
