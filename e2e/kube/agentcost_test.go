//go:build kube

package kube

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// measureTime is the duration of a measurement of the agents.
const measureTime = 30 * time.Second

// TestFigures measures memory and processor time of the agents. It asserts nothing; docs/benchmarks.md
// has the figures of one run.
func TestFigures(t *testing.T) {
	s := needClusterset(t, samePrefixes)
	for node, kib := range s.agentMemory(t, "c2") {
		t.Logf("figure: %s: agent and tunnels have %d MiB", node, kib>>10)
	}
	s.logCost(t, "idle", func(time.Duration) int { return 0 })
	// A Service without a selector, whose only endpoint is added and removed.
	pod := strings.TrimSpace(s.kubectl(t, "c2", "-n", "sample", "get", "pod", "whereami-0", "-o", "jsonpath={.status.podIP}"))
	for _, c := range s.clusters {
		t.Cleanup(func() {
			s.kubectl(t, c, "delete", "namespace", "dynamic-figures", "--ignore-not-found", "--wait=false")
		})
		s.apply(t, c, "apiVersion: v1\nkind: Namespace\nmetadata: {name: dynamic-figures}\n")
	}
	slice := func(ready bool) string { return fmt.Sprintf(figuresSlice, pod, ready) }
	s.apply(t, "c2", slice(true)+figuresExport)
	s.awaitAnswer(t, "c1", "client", "changing.dynamic-figures.svc.clusterset.local", fromCluster("c2"))
	s.logCost(t, "under change", func(long time.Duration) (changes int) {
		for end := time.Now().Add(long); time.Now().Before(end); changes++ {
			s.apply(t, "c2", slice(changes%2 == 1))
		}
		return changes
	})
}

const figuresSlice = `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: changing, namespace: dynamic-figures, labels: {kubernetes.io/service-name: changing}}
addressType: IPv4
ports: [{name: http, port: 80, protocol: TCP}]
endpoints:
- {addresses: [%s], conditions: {ready: %t}}
`

const figuresExport = `---
apiVersion: v1
kind: Service
metadata: {name: changing, namespace: dynamic-figures}
spec:
  ports: [{name: http, port: 80}]
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {name: changing, namespace: dynamic-figures}
`

// logCost logs the processor time of c2's agents while do runs.
func (s *clusterset) logCost(t *testing.T, what string, do func(time.Duration) int) {
	t.Helper()
	before := s.agentTime(t, "c2")
	start := time.Now()
	changes := do(measureTime)
	if left := measureTime - time.Since(start); left > 0 {
		time.Sleep(left) // the duration of the measurement; no condition to wait for
	}
	long := time.Since(start)
	for node, now := range s.agentTime(t, "c2") {
		spent := now - before[node]
		text := fmt.Sprintf("figure: %s, %s: %.2f %% of a core", node, what, 100*spent.Seconds()/long.Seconds())
		if changes > 0 {
			text += fmt.Sprintf(", %d changes in %.0f s", changes, long.Seconds())
		}
		t.Log(text)
	}
}

// agentTime returns the processor time of each node's agent with its tunnels.
func (s *clusterset) agentTime(t *testing.T, cluster string) map[string]time.Duration {
	t.Helper()
	out := map[string]time.Duration{}
	for _, node := range []string{cluster + "n1", cluster + "n2"} {
		// Fields 14 and 15 of proc_pid_stat(5), in ticks of 10 ms.
		text := s.must(t, "", "kubelab", "--dir", s.clusterPair.dir, "node", node, "sh", "-c",
			`for p in $(pidof hawser-agent); do sed 's/.*) //' /proc/$p/stat | cut -d' ' -f12,13; done`)
		for ticks := range strings.FieldsSeq(text) {
			n, err := strconv.Atoi(ticks)
			if err != nil {
				t.Fatal(err)
			}
			out[node] += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return out
}
