//go:build kube

package kube

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

const (
	manyServices = 1000
	manyExported = 20
	// roomForMany is the permitted growth of an agent: twenty exports with five endpoints each, and
	// memory that Go's collector has not yet returned.
	roomForMany = 24 << 10 // KiB
)

// TestMany creates 1 000 Services with 5 000 endpoints in a cluster and exports twenty. The agents need
// memory only for the twenty.
func TestMany(t *testing.T) {
	s := needClusterset(t, samePrefixes)
	before := s.agentMemory(t, "c2")
	t.Cleanup(func() {
		s.kubectl(t, "c2", "delete", "namespace", "dynamic-many", "--ignore-not-found", "--wait=false")
	})
	s.apply(t, "c2", "apiVersion: v1\nkind: Namespace\nmetadata: {name: dynamic-many}\n")
	s.apply(t, "c1", "apiVersion: v1\nkind: Namespace\nmetadata: {name: dynamic-many}\n")
	t.Cleanup(func() {
		s.kubectl(t, "c1", "delete", "namespace", "dynamic-many", "--ignore-not-found", "--wait=false")
	})
	pod := strings.TrimSpace(s.kubectl(t, "c2", "-n", "sample", "get", "pod", "whereami-0", "-o", "jsonpath={.status.podIP}"))
	for from := 0; from < manyServices; from += 100 {
		var text strings.Builder
		for i := from; i < from+100; i++ {
			fmt.Fprintf(&text, manyItem, i, pod, i/250, i%250)
		}
		s.must(t, text.String(), "kubectl", "--context", "c2", "create", "-f", "-")
	}
	var exports strings.Builder
	for i := range manyExported {
		fmt.Fprintf(&exports, "apiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceExport\nmetadata: {name: many-%d, namespace: dynamic-many}\n---\n", i)
	}
	s.apply(t, "c2", exports.String())
	for _, name := range []string{"many-0", "many-" + strconv.Itoa(manyExported-1)} {
		s.eventually(t, contains("243.0."), inPod("c1", "client", "dig", "+short", name+".dynamic-many.svc.clusterset.local")...)
	}
	after := s.agentMemory(t, "c2")
	for node, kib := range after {
		t.Logf("figure: %s: %d KiB before, %d KiB with %d Services and %d endpoints", node, before[node], kib, manyServices, 5*manyServices)
		if kib > before[node]+roomForMany {
			t.Errorf("%s: agent had %d KiB, has %d", node, before[node], kib)
		}
	}
}

// manyItem is a Service without a selector and its five endpoints, of which the first
// is a pod that answers.
const manyItem = `apiVersion: v1
kind: Service
metadata: {name: many-%[1]d, namespace: dynamic-many}
spec:
  ports: [{name: http, port: 80}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: many-%[1]d, namespace: dynamic-many, labels: {kubernetes.io/service-name: many-%[1]d}}
addressType: IPv4
ports: [{name: http, port: 80, protocol: TCP}]
endpoints:
- {addresses: [%[2]s], conditions: {ready: true}}
- {addresses: [10.7.2%[3]d.%[4]d], conditions: {ready: false}}
- {addresses: [10.7.3%[3]d.%[4]d], conditions: {ready: false}}
- {addresses: [10.7.4%[3]d.%[4]d], conditions: {ready: false}}
- {addresses: [10.7.5%[3]d.%[4]d], conditions: {ready: false}}
---
`

// agentMemory returns the resident memory of each node's agent with its tunnels, in KiB.
func (s *clusterset) agentMemory(t *testing.T, cluster string) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, node := range []string{cluster + "n1", cluster + "n2"} {
		text := s.must(t, "", "kubelab", "--dir", s.clusterPair.dir, "node", node, "sh", "-c",
			`for p in $(pidof hawser-agent); do sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' /proc/$p/status; done`)
		for line := range strings.FieldsSeq(text) {
			kib, err := strconv.Atoi(line)
			if err != nil {
				t.Fatal(err)
			}
			out[node] += kib
		}
	}
	return out
}
