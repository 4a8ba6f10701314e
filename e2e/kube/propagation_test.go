//go:build kube

package kube

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgo "k8s.io/client-go/dynamic"

	"hawser.dev/hawser/lab/netnsexec"
	api "hawser.dev/hawser/nodeagent/cluster/kube"
)

// endpointChanges is the number of removals and additions of the endpoint.
const endpointChanges = 20

// TestPropagation measures the time from the change of an endpoint in its cluster's API until a pod of
// the other cluster uses it: for an export of the topology, and for a dynamic one. It asserts nothing;
// docs/benchmarks.md has the figures of one run.
func TestPropagation(t *testing.T) {
	s := needClusterset(t, samePrefixes)
	t.Cleanup(func() { s.reset(t) })
	namespaces := []string{"declared", "dynamic-changing"}
	for _, namespace := range namespaces {
		for _, c := range s.clusters {
			t.Cleanup(func() { s.kubectl(t, c, "delete", "namespace", namespace, "--ignore-not-found", "--wait=false") })
			s.apply(t, c, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+namespace+"}\n")
		}
	}
	first := "  exports:\n"
	s.change(t, first, first+"  - name: changing\n    namespace: declared\n    clusters: [c2]\n    ports: [{name: http, port: 80, protocol: TCP}]\n")
	for _, namespace := range namespaces {
		s.measurePropagation(t, namespace)
	}
}

// measurePropagation measures the export of a namespace: a Service without a selector with two pods of a
// StatefulSet as endpoints. The first is removed and added again.
func (s *clusterset) measurePropagation(t *testing.T, namespace string) {
	t.Helper()
	var pods []any
	for _, name := range []string{"whereami-0", "whereami-1"} {
		pods = append(pods, strings.TrimSpace(s.kubectl(t, "c2", "-n", "sample", "get", "pod", name, "-o", "jsonpath={.status.podIP}")))
	}
	s.must(t, fmt.Sprintf(changingService, pods...), "kubectl", "--context", "c2", "-n", namespace, "apply", "--server-side", "-f", "-")
	if namespace != "declared" {
		s.must(t, export("changing"), "kubectl", "--context", "c2", "-n", namespace, "apply", "--server-side", "-f", "-")
	}
	name := "changing." + namespace + ".svc.clusterset.local"
	s.awaitAnswer(t, "c1", "client", name, fromCluster("c2"))
	asked := s.startRequests(t, "c1", "client", s.awaitAddresses(t, "c1", "client", name, 1)[0])
	slice := s.endpointSlices(t, "c2", namespace)
	asked.awaitPod(t, "whereami-0", time.Now())
	var gone, back []time.Duration
	for range endpointChanges {
		startedAt := time.Now()
		s.setReady(t, slice, false)
		gone = append(gone, asked.awaitNoPod(t, "whereami-0", startedAt))
		startedAt = time.Now()
		s.setReady(t, slice, true)
		back = append(back, asked.awaitPod(t, "whereami-0", startedAt))
	}
	t.Logf("figure: %s: an endpoint goes: last new connection p50 %s, max %s; it comes: first one p50 %s, max %s; %s",
		namespace, median(gone), slices.Max(gone), median(back), slices.Max(back), asked)
}

const changingService = `apiVersion: v1
kind: Service
metadata: {name: changing}
spec:
  ports: [{name: http, port: 80}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: changing, labels: {kubernetes.io/service-name: changing}}
addressType: IPv4
ports: [{name: http, port: 80, protocol: TCP}]
endpoints:
- {addresses: [%s], conditions: {ready: true}}
- {addresses: [%s], conditions: {ready: true}}
`

func median(list []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(list))[len(list)/2]
}

// endpointSlices returns a client of a namespace's EndpointSlices, which is faster than kubectl.
func (s *clusterset) endpointSlices(t *testing.T, cluster, namespace string) clientgo.ResourceInterface {
	t.Helper()
	client, err := api.Open(api.Config{Kubeconfig: s.kubeconfig, Context: cluster})
	if err != nil {
		t.Fatal(err)
	}
	return client.Dynamic.Resource(schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}).Namespace(namespace)
}

// setReady sets the readiness of the first endpoint.
func (s *clusterset) setReady(t *testing.T, slice clientgo.ResourceInterface, ready bool) {
	t.Helper()
	patch := fmt.Sprintf(`[{"op": "replace", "path": "/endpoints/0/conditions/ready", "value": %t}]`, ready)
	if _, err := slice.Patch(t.Context(), "changing", types.JSONPatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// requestLog connects to an address repeatedly from the network of a pod. It records the start and the
// answering pod of each connection.
type requestLog struct {
	mu    sync.Mutex
	conns []request
}

type request struct {
	startedAt time.Time
	took      time.Duration
	pod       string // empty without an answer
}

// startRequests starts the connections.
func (s *clusterset) startRequests(t *testing.T, cluster, pod, addr string) *requestLog {
	t.Helper()
	argv := s.podNetwork(t, cluster, pod)
	space := strings.TrimPrefix(argv[len(argv)-1], "--net=")
	machine := argv[slices.Index(argv, "node")+1]
	var record struct{ Process netnsexec.Process }
	raw, err := os.ReadFile(filepath.Join(s.clusterPair.dir, "machines", machine+".json"))
	if err == nil {
		err = json.Unmarshal(raw, &record)
	}
	if err != nil {
		t.Fatal(err)
	}
	a, end, done := &requestLog{}, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		err := netnsexec.Do(fmt.Sprintf("/proc/%d/root%s", record.Process.PID, space), func() error {
			for {
				select {
				case <-end:
					return nil
				default:
					one := request{startedAt: time.Now()}
					one.pod = answeringPod(net.JoinHostPort(addr, "80"))
					one.took = time.Since(one.startedAt)
					a.mu.Lock()
					a.conns = append(a.conns, one)
					a.mu.Unlock()
				}
			}
		})
		if err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { close(end); <-done })
	return a
}

// answeringPod returns the pod that answers a new connection.
func answeringPod(addr string) string {
	conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		time.Sleep(time.Millisecond) // a refused connection returns at once: limit the rate
		return ""
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		return ""
	}
	raw, _ := io.ReadAll(conn)
	_, body, _ := strings.Cut(string(raw), "\r\n\r\n")
	var a answer
	_ = json.Unmarshal([]byte(body), &a)
	return a.Pod
}

// awaitPod waits for a connection to a pod that started after a moment, and returns the time between.
func (a *requestLog) awaitPod(t *testing.T, pod string, moment time.Time) time.Duration {
	t.Helper()
	for end := time.Now().Add(conditionTimeout); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		a.mu.Lock()
		i := slices.IndexFunc(a.conns, func(one request) bool { return one.pod == pod && !one.startedAt.Before(moment) })
		a.mu.Unlock()
		if i >= 0 {
			return a.conns[i].startedAt.Sub(moment).Round(time.Millisecond)
		}
	}
	t.Fatalf("no connection reaches %s", pod)
	return 0
}

// awaitNoPod waits until no connection has reached a pod for two seconds. It returns the time from a
// moment to the start of the last connection.
func (a *requestLog) awaitNoPod(t *testing.T, pod string, moment time.Time) time.Duration {
	t.Helper()
	last := moment
	for end := time.Now().Add(conditionTimeout); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		a.mu.Lock()
		for _, one := range a.conns {
			if one.pod == pod && one.startedAt.After(last) {
				last = one.startedAt
			}
		}
		a.mu.Unlock()
		if time.Since(last) > 2*time.Second {
			return last.Sub(moment).Round(time.Millisecond)
		}
	}
	t.Fatalf("%s is still reached", pod)
	return 0
}

// String returns the numbers of failed and all connections, and the time of the slowest.
func (a *requestLog) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	failed, slowest := 0, time.Duration(0)
	for _, one := range a.conns {
		if one.pod == "" {
			failed++
		}
		slowest = max(slowest, one.took)
	}
	return fmt.Sprintf("%d of %d connections failed, the slowest took %s", failed, len(a.conns), slowest.Round(time.Millisecond))
}
