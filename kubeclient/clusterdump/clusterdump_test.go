package clusterdump

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/kubeclient/fakeapi"
	"hawser.dev/hawser/schema/fabric"
)

// memorySink records the files of Gather.
type memorySink struct {
	mu    sync.Mutex
	files map[string]string
	errs  map[string]error
}

func gatherAll(t *testing.T, c *kubeclient.Client) *memorySink {
	t.Helper()
	s := &memorySink{files: map[string]string{}, errs: map[string]error{}}
	Gather(t.Context(), c, 90*time.Minute, func(file string, text []byte, err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err != nil {
			s.errs[file] = err
		}
		if text != nil {
			s.files[file] = string(text)
		}
	})
	return s
}

// podSpec has secrets where people put them.
func podSpec() map[string]any {
	return map[string]any{"nodeName": "n1", "containers": []any{
		map[string]any{"name": "agent", "args": []any{"run"}, "env": []any{
			map[string]any{"name": "HAWSER_NODE", "value": "shown-node"}, map[string]any{"name": "HTTPS_PROXY", "value": "planted-2"},
		}},
		map[string]any{"name": "sidecar", "image": "shown-image", "args": []any{"--token=planted-3"}},
	}}
}

// addObjects adds objects to a cluster with values to show and values to redact.
func addObjects(t *testing.T, f *fakeapi.API) {
	t.Helper()
	f.Kinds["v1"] = append(f.Kinds["v1"], fakeapi.Resource{Name: "nodes", Kind: "Node"}, fakeapi.Resource{Name: "events", Kind: "Event", Namespaced: true})
	raw, err := fabric.Encode(&fabric.Fabric{APIVersion: fabric.APIVersion, Name: "demo", Domain: "clusterset.local", Clusters: []fabric.Cluster{{Name: "g1"}}})
	if err != nil {
		t.Fatal(err)
	}
	packed, err := fabric.Compress(raw)
	if err != nil {
		t.Fatal(err)
	}
	system := "/api/v1/namespaces/hawser-system/"
	f.Objects = map[string]map[string]any{
		system + "secrets/hawser-keys": fakeapi.Object("Secret", "hawser-system", "hawser-keys", map[string]any{"data": map[string]any{"keys.age": "planted-4"}}),
		system + "pods/hawser-agent-1": fakeapi.Object("Pod", "hawser-system", "hawser-agent-1", map[string]any{"spec": podSpec(),
			"status": map[string]any{"phase": "Running", "containerStatuses": []any{map[string]any{"name": "agent", "restartCount": 2}}}}),
		system + "pods/hawser-agent-1/log": {"msg": "a line"},
		system + "pods/hawser-ui-1": {"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "hawser-ui-1", "namespace": "hawser-system",
			"labels": map[string]any{"app.kubernetes.io/name": "hawser-ui"}}, "status": map[string]any{"phase": "Running"}},
		system + "pods/hawser-ui-1/log": {"msg": "http://127.0.0.1:8080/?#token=planted-13"},
		system + "pods/hawser-agent-2": fakeapi.Object("Pod", "hawser-system", "hawser-agent-2", map[string]any{"spec": podSpec(),
			"status": map[string]any{"phase": "Pending"}}),
		"/apis/apps/v1/namespaces/hawser-system/daemonsets/hawser-agent": fakeapi.Object("DaemonSet", "hawser-system", "hawser-agent",
			map[string]any{"spec": map[string]any{"template": map[string]any{"spec": podSpec()}}}),
		system + "configmaps/hawser-fabric": fakeapi.Object("ConfigMap", "hawser-system", "hawser-fabric",
			map[string]any{"binaryData": map[string]any{"fabric.json.gz": base64.StdEncoding.EncodeToString(packed)}}),
		system + "configmaps/hawser-identity": fakeapi.Object("ConfigMap", "hawser-system", "hawser-identity", map[string]any{"data": map[string]any{"cluster": "shown-g1"}}),
		system + "configmaps/theirs":          fakeapi.Object("ConfigMap", "hawser-system", "theirs", map[string]any{"data": map[string]any{"shown-key": "planted-5"}}),
		"/api/v1/namespaces/kube-system/configmaps/coredns": fakeapi.Object("ConfigMap", "kube-system", "coredns", map[string]any{"data": map[string]any{
			"Corefile": "shown.zone:53 {\n  tsig {\n    secret id.key. planted-6\n  }\n  route53 x.:Z {\n    aws_access_key planted-7 planted-8\n  }\n  forward . 1.1.1.1\n}\n"}}),
		"/api/v1/namespaces/kube-system/configmaps/other": fakeapi.Object("ConfigMap", "kube-system", "other", map[string]any{"data": map[string]any{"a": "planted-9"}}),
		"/api/v1/nodes/n1": fakeapi.Object("Node", "", "n1", map[string]any{"spec": map[string]any{"podCIDRs": []any{"10.7.0.0/24"}, "providerID": "planted-10"},
			"status": map[string]any{"nodeInfo": map[string]any{"kubeletVersion": "shown-v1.34"}, "images": []any{"planted-11"}}}),
		system + "events/late":                     fakeapi.Object("Event", "hawser-system", "late", map[string]any{"message": "shown-event"}),
		"/api/v1/namespaces/default/events/ours":   fakeapi.Object("Event", "default", "ours", map[string]any{"reportingComponent": "hawser.dev/agent", "message": "shown-link"}),
		"/api/v1/namespaces/default/events/theirs": fakeapi.Object("Event", "default", "theirs", map[string]any{"reportingComponent": "kubelet", "message": "planted-12"}),
	}
}

// TestGather: what a reader needs is there, and nothing that was secret.
func TestGather(t *testing.T) {
	t.Parallel()
	api, c := fakeapi.New(t, "g1")
	addObjects(t, api)
	s := gatherAll(t, c)
	want := []string{"fabric.json", "logs/hawser-agent-1.log", "logs/hawser-agent-1.previous.log",
		"objects/configmaps.yaml", "objects/daemonsets.yaml", "objects/dns.yaml", "objects/events.yaml", "objects/nodes.yaml", "objects/pods.yaml", "version.json"}
	if have := slices.Sorted(maps.Keys(s.files)); !slices.Equal(have, want) {
		t.Errorf("files %q, want %q", have, want)
	}
	if len(s.errs) != 1 || s.errs["logs/hawser-agent-2.log"] == nil {
		t.Errorf("errors: %v", s.errs)
	}
	all := ""
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		all += "== " + name + "\n" + s.files[name]
	}
	for _, shown := range []string{"shown-node", "shown-image", "shown-g1", "shown-key", "shown.zone", "shown-v1.34", "shown-event", "shown-link",
		"10.7.0.0/24", "a line", `"domain": "clusterset.local"`, "v1.34.0", "forward . 1.1.1.1", "note: kept"} {
		if !strings.Contains(all, shown) {
			t.Errorf("%q is missing", shown)
		}
	}
	for i := 1; i <= 13; i++ {
		if planted := fmt.Sprintf("planted-%d", i); strings.Contains(all, planted) {
			t.Errorf("%s is there", planted)
		}
	}
	if strings.Contains(all, "managedFields") || t.Failed() {
		t.Errorf("gathered:\n%s", all)
	}
	for _, request := range api.Requests {
		if strings.Contains(request, "/secrets") || !strings.HasPrefix(request, "GET ") {
			t.Errorf("asked %s", request)
		}
	}
	if !slices.Contains(api.Requests, "GET /api/v1/namespaces/hawser-system/pods/hawser-agent-1/log?container=agent&sinceSeconds=5400&timeout=1m0s") ||
		!slices.Contains(api.Requests, "GET /api/v1/namespaces/hawser-system/pods/hawser-agent-1/log?container=agent&previous=true&timeout=1m0s") {
		t.Errorf("logs were asked for otherwise: %q", api.Requests)
	}
}

// TestPageIsNoAgent: the pod of the page is not an agent: it is not queried or waited for.
func TestPageIsNoAgent(t *testing.T) {
	t.Parallel()
	api, c := fakeapi.New(t, "g1")
	addObjects(t, api)
	if err := c.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	list, err := c.AgentPods(t.Context())
	if err != nil || len(list) != 2 {
		t.Fatalf("%d agents, %v", len(list), err)
	}
	for i := range list {
		if !strings.HasPrefix(list[i].GetName(), "hawser-agent-") {
			t.Errorf("%s counts as an agent", list[i].GetName())
		}
	}
}

// TestGatherNothing: a cluster without objects of Hawser is reported.
func TestGatherNothing(t *testing.T) {
	t.Parallel()
	_, c := fakeapi.New(t, "g1")
	s := gatherAll(t, c)
	if len(s.files) != 1 || s.files["version.json"] == "" {
		t.Errorf("files %q", s.files)
	}
	if err := s.errs["fabric.json"]; len(s.errs) != 1 || err == nil || !strings.Contains(err.Error(), "there is no ConfigMap hawser-system/hawser-fabric") {
		t.Errorf("errors %v", s.errs)
	}
}

func TestWithoutCredentials(t *testing.T) {
	t.Parallel()
	tests := []struct{ text, want string }{
		{".:53 {\n  forward . /etc/resolv.conf\n  cache 30\n}", ""},
		{"  secret key. abc=", "  secret (not shown)"},
		{"\tclient_secret abc", "\tclient_secret (not shown)"},
		{"aws_access_key ID KEY\n", "aws_access_key (not shown)\n"},
		{"credentials default /x", "credentials (not shown)"},
		{"password  hush", "password  (not shown)"},
		{"  apikey x\n  api_key y", "  apikey (not shown)\n  api_key (not shown)"},
		{"secret", ""}, // a word of a zone's name, say
		{"hosts {\n  10.0.0.1 secret.example.org\n}", ""},
	}
	for _, tt := range tests {
		want := tt.want
		if want == "" {
			want = tt.text
		}
		if have := withoutCredentials(tt.text); have != want {
			t.Errorf("%q: have %q, want %q", tt.text, have, want)
		}
	}
}

func TestNewestLog(t *testing.T) {
	t.Parallel()
	no := errors.New("no")
	tests := []struct {
		text, want string
		omitted    int64
		err        error
	}{
		{"a\n", "a\n", 0, nil},
		{"a\n", "(hawser gather: 7 bytes before this were left out)\na\n", 7, nil},
		{"a\n", "a\n", 0, no},
	}
	for _, tt := range tests {
		if have, err := NewestLog([]byte(tt.text), tt.omitted, tt.err); string(have) != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%q, %d: %q %v", tt.text, tt.omitted, have, err)
		}
	}
}
