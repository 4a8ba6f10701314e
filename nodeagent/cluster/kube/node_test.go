package kube

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/nodeagent/cluster/kube/kubetest"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric/trust"
)

// statusSource returns the status to a Reporter under test.
type statusSource struct {
	mu     sync.Mutex
	status NodeStatus
}

func (s *statusSource) set(change func(*NodeStatus)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.status)
}

func (s *statusSource) get() NodeStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

func gatewayStatus() NodeStatus {
	return NodeStatus{
		Cluster: "g1", Role: Gateway, Fabric: "abc", Links: &LinkCount{Up: 1, Total: 2}, Up: map[string]bool{"g1/a-g2/a": true, "g1/a-g3/a": false},
		Conditions: []metav1.Condition{{Type: status.ConditionReady, Status: metav1.ConditionTrue, Reason: "Converged"}},
	}
}

func reporting(t *testing.T, server *kubetest.Server, first NodeStatus) (*Reporter, *statusSource) {
	t.Helper()
	client, err := Open(Config{Kubeconfig: server.Kubeconfig(t)})
	if err != nil {
		t.Fatal(err)
	}
	source := &statusSource{status: first}
	r := NewReporter(client, "n1", slog.New(slog.DiscardHandler), source.get)
	r.interval = 5 * time.Millisecond
	return r, source
}

func run(t *testing.T, r *Reporter) {
	t.Helper()
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
}

func eventually(t *testing.T, what string, good func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !good(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s", what)
		}
	}
}

func field(o *unstructured.Unstructured, path ...string) string {
	if o == nil {
		return ""
	}
	out, _, _ := unstructured.NestedString(o.Object, path...)
	return out
}

func TestReporter(t *testing.T) {
	t.Parallel()
	server := kubetest.New(t)
	server.Put(t, "apiVersion: v1\nkind: Node\nmetadata: {name: n1, uid: node-1}")
	r, source := reporting(t, server, gatewayStatus())
	run(t, r)
	object := func() *unstructured.Unstructured { return server.Get("hawsernodes", "n1") }
	eventually(t, "the first status", func() bool { return field(object(), "status", "fabric") == "abc" })
	owners := object().GetOwnerReferences()
	if len(owners) != 1 || owners[0].UID != "node-1" || object().GetLabels()["app.kubernetes.io/managed-by"] != "hawser" {
		t.Errorf("have %+v", object().Object)
	}
	writes := len(server.Writes())
	source.set(func(s *NodeStatus) { s.Fabric, s.Up = "def", map[string]bool{"g1/a-g2/a": false, "g1/a-g3/a": true} })
	eventually(t, "another status", func() bool { return field(object(), "status", "fabric") == "def" })
	eventually(t, "events", func() bool { return len(server.Writes()) == writes+4 })
	var notes []string
	for _, w := range server.Writes()[writes+1:] {
		notes = append(notes, field(w.Object, "type")+" "+field(w.Object, "reason")+": "+field(w.Object, "note"))
	}
	want := []string{"Warning LinkDown: link g1/a-g2/a is down", "Normal LinkUp: link g1/a-g3/a is up", "Normal FabricChanged: fabric changed from abc to def"}
	if diff := cmp.Diff(want, notes); diff != "" {
		t.Errorf("events (-want +have):\n%s", diff)
	}
}

// TestReporterResumes checks that the time of a condition survives restarts, and that writes resume
// when the server is back.
func TestReporterResumes(t *testing.T) {
	t.Parallel()
	server := kubetest.New(t)
	server.Put(t, "apiVersion: hawser.dev/v1alpha1\nkind: HawserNode\nmetadata: {name: n1}\nstatus:\n  fabric: old\n  conditions:\n"+
		"  - {type: Ready, status: \"True\", reason: Converged, message: \"\", lastTransitionTime: \"2026-01-02T03:04:05Z\"}\n")
	server.SetForbidden("hawsernodes", true)
	r, source := reporting(t, server, gatewayStatus())
	run(t, r)
	eventually(t, "trouble", func() bool { return r.Err() != nil })
	if text := r.Err().Error(); !strings.Contains(text, "read HawserNode n1") || !strings.Contains(text, "forbidden") {
		t.Errorf("have %s", text)
	}
	if !r.Outdated() {
		t.Error("an object that cannot be read is not outdated")
	}
	server.SetForbidden("hawsernodes", false)
	condition := func() map[string]any {
		list, _, _ := unstructured.NestedSlice(server.Get("hawsernodes", "n1").Object, "status", "conditions")
		if len(list) == 0 {
			return nil
		}
		return list[0].(map[string]any)
	}
	eventually(t, "the status", func() bool { return field(server.Get("hawsernodes", "n1"), "status", "fabric") == "abc" })
	if have := condition()["lastTransitionTime"]; have != "2026-01-02T03:04:05Z" {
		t.Errorf("a condition that did not change has %v", have)
	}
	eventually(t, "a current object", func() bool { return !r.Outdated() })
	server.SetForbidden("hawsernodes", true)
	source.set(func(s *NodeStatus) { s.Fabric = "def" })
	eventually(t, "an outdated object", r.Outdated)
	server.SetForbidden("hawsernodes", false)
	eventually(t, "the written object", func() bool {
		return !r.Outdated() && field(server.Get("hawsernodes", "n1"), "status", "fabric") == "def"
	})
	source.set(func(s *NodeStatus) {
		s.Conditions = []metav1.Condition{{Type: status.ConditionReady, Status: metav1.ConditionFalse, Reason: "Failed", Message: "no"}}
	})
	eventually(t, "the condition", func() bool { return condition()["status"] == "False" })
	if have := condition()["lastTransitionTime"]; have == "2026-01-02T03:04:05Z" {
		t.Error("a changed condition has the old time")
	}
}

// TestReporterKeepsRules checks that the rules stay reported while the agent restarts and has not
// finished a round. The report disappears when the agent removes the rules.
func TestReporterKeepsRules(t *testing.T) {
	t.Parallel()
	server := kubetest.New(t)
	server.Put(t, "apiVersion: hawser.dev/v1alpha1\nkind: HawserNode\nmetadata: {name: n1}\nstatus: {fabric: old, rulesBootID: b1}")
	boot := func() string { return field(server.Get("hawsernodes", "n1"), "status", "rulesBootID") }
	r, source := reporting(t, server, NodeStatus{Cluster: "g1", Role: Worker, Fabric: "abc"})
	run(t, r)
	eventually(t, "the first status", func() bool { return field(server.Get("hawsernodes", "n1"), "status", "fabric") == "abc" })
	if boot() != "b1" {
		t.Errorf("an agent without a round reports boot %q, want the previous boot", boot())
	}
	source.set(func(s *NodeStatus) { s.RulesBootID = "b2" })
	eventually(t, "the rules of another boot", func() bool { return boot() == "b2" })
	source.set(func(s *NodeStatus) { s.RulesBootID, s.RulesRemoved = "", true })
	eventually(t, "no rules", func() bool { return boot() == "" })
}

// memoryReport is a reportStore in memory. boots has the time of the first write of each boot.
type memoryReport struct {
	NodeStatus
	boots map[string]time.Time
}

func (r *memoryReport) read(context.Context) (NodeStatus, error) { return r.NodeStatus, nil }

func (r *memoryReport) write(_ context.Context, status NodeStatus) error {
	r.NodeStatus = status
	if _, ok := r.boots[status.RulesBootID]; !ok {
		r.boots[status.RulesBootID] = time.Now()
	}
	return nil
}

func (r *memoryReport) event(context.Context, NodeStatus, NodeStatus) error { return nil }

// TestReporterAfterReboot checks that the reporter writes the rules of a new boot within a second.
// Until then the other nodes accept no VXLAN, although the report of the previous boot remains.
func TestReporterAfterReboot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &memoryReport{NodeStatus: NodeStatus{Fabric: "abc", RulesBootID: "b1"}, boots: map[string]time.Time{}}
		inPlace := time.Now().Add(1200 * time.Millisecond)
		status := func() NodeStatus {
			if time.Now().Before(inPlace) {
				return NodeStatus{Fabric: "abc"}
			}
			return NodeStatus{Fabric: "abc", RulesBootID: "b2"}
		}
		r := &Reporter{store: store, node: "n1", log: slog.New(slog.DiscardHandler), nodeStatus: status, interval: reportInterval}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r.Run(ctx)
		if at, ok := store.boots["b2"]; !ok || at.Sub(inPlace) > time.Second {
			t.Errorf("boot b2 reported %s after its rules were in place (%v)", at.Sub(inPlace), ok)
		}
	})
}

// TestFileReporter checks that a file has the same HawserNode as the API. The reporter keeps the
// boot that the previous agent reported.
func TestFileReporter(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	content := func() *unstructured.Unstructured {
		raw, err := os.ReadFile(filepath.Join(dir, "n1.json"))
		if err != nil {
			return nil
		}
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(raw); err != nil {
			t.Error(err)
		}
		return o
	}
	start := func(status NodeStatus) (*statusSource, context.CancelFunc) {
		source := &statusSource{status: status}
		r := NewFileReporter(dir, "n1", slog.New(slog.DiscardHandler), source.get)
		r.interval = 5 * time.Millisecond
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			r.Run(ctx)
			close(done)
		}()
		return source, func() { cancel(); <-done }
	}
	status := gatewayStatus()
	status.RulesBootID = "b1"
	_, stop := start(status)
	eventually(t, "the first status", func() bool { return field(content(), "status", "rulesBootID") == "b1" })
	stop()
	if o := content(); o.GetName() != "n1" || o.GetKind() != "HawserNode" || field(o, "status", "fabric") != "abc" {
		t.Errorf("have %+v", o)
	}
	source, stop := start(NodeStatus{Cluster: "g1", Role: Worker, Fabric: "def"})
	defer stop()
	eventually(t, "another status", func() bool { return field(content(), "status", "fabric") == "def" })
	if boot := field(content(), "status", "rulesBootID"); boot != "b1" {
		t.Errorf("an agent without a round reports boot %q, want the previous boot", boot)
	}
	source.set(func(s *NodeStatus) { s.RulesRemoved = true })
	eventually(t, "no rules", func() bool { return field(content(), "status", "rulesBootID") == "" })
}

// TestProofs checks that a client lists each proof of the HawserNodes once, by kind, and fails
// without permission to list them.
func TestProofs(t *testing.T) {
	t.Parallel()
	server := kubetest.New(t)
	client, err := Open(Config{Kubeconfig: server.Kubeconfig(t)})
	if err != nil {
		t.Fatal(err)
	}
	for name, status := range map[string]string{
		"a": "fabricProof: f1, keysProof: k1", "b": "fabricProof: f1", "c": "fabricProof: f2", "d": "fabric: abc", "e": "fabricProof: [1]",
	} {
		server.Put(t, "apiVersion: hawser.dev/v1alpha1\nkind: HawserNode\nmetadata: {name: "+name+"}\nstatus: {"+status+"}")
	}
	for kind, want := range map[trust.Kind][]string{trust.Fabric: {"f1", "f2"}, trust.Keys: {"k1"}} {
		have, err := client.Proofs(t.Context(), kind)
		slices.Sort(have)
		if err != nil || !slices.Equal(have, want) {
			t.Errorf("%s: %q, %v, want %q", kind, have, err, want)
		}
	}
	server.SetForbidden("hawsernodes", true)
	if have, err := client.Proofs(t.Context(), trust.Fabric); err == nil || !strings.Contains(err.Error(), "list HawserNodes: ") {
		t.Errorf("denied: %q, %v", have, err)
	}
}

func TestEventsAreBounded(t *testing.T) {
	t.Parallel()
	server := kubetest.New(t)
	r, _ := reporting(t, server, NodeStatus{})
	sent := r.store.(*apiReport).events
	up, down := NodeStatus{Up: map[string]bool{"l": true}}, NodeStatus{Up: map[string]bool{"l": false}}
	for range 20 {
		for _, change := range [][2]NodeStatus{{up, down}, {down, up}} {
			if err := sent.record(context.Background(), change[0], change[1]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if have := len(server.Writes()); have < eventBurst || have > 2*eventBurst || sent.dropped == 0 {
		t.Errorf("%d events sent, %d dropped", have, sent.dropped)
	}
}
