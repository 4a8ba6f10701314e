//go:build kube

package kube

import (
	"strings"
	"testing"
	"time"
)

// TestGatewayBySelector tests a gateway on a node picked by a label, the only one of c1. A second
// machine with the label, and with another name and address, replaces its machine. Without a commit, traffic
// recovers, with the same source addresses. The test logs the time from the new node's Ready
// condition, which must be at most 15 s.
func TestGatewayBySelector(t *testing.T) {
	s := needClusterset(t, samePrefixes)
	first := strings.TrimSpace(s.kubelab(t, "add", "c1"))
	s.label(t, "c1", first)
	machines := []string{first}
	t.Cleanup(func() {
		s.reset(t)
		for _, m := range machines {
			s.kubelab(t, "remove", m)
			for _, node := range []string{m, "edge-new"} { // their pods are no longer running
				s.kubectl(t, "c1", "delete", "pods", "-A", "--field-selector", "spec.nodeName="+node, "--force", "--grace-period=0")
			}
		}
		s.workloads(t)
	})
	s.change(t, "      node: c1n1\n      endpoints: [172.31.1.11]\n", "      nodeSelector: {node-restriction.kubernetes.io/hawser-gateway: \"true\"}\n")
	s.awaitReady(t)
	s.awaitHolder(t, "c1", "c1-a-1", first)
	address := s.awaitAddresses(t, "c1", "near", "c2."+serviceName, 1)[0]
	before := s.awaitAnswer(t, "c1", "near", address, fromCluster("c2")).Client
	commit := s.must(t, "", "git", "-C", s.path("repo"), "rev-parse", "HEAD")

	s.kubelab(t, "remove", first)
	machines = nil
	second := strings.TrimSpace(s.kubelab(t, "add", "c1"))
	machines = append(machines, second)
	if second == first {
		s.kubelab(t, "rename", second, "edge-new")
		s.renamed = map[string]string{"edge-new": second}
		t.Cleanup(func() { s.renamed = nil })
	}
	node := second
	if second == first {
		node = "edge-new"
	}
	s.label(t, "c1", node)
	s.kubectl(t, "c1", "wait", "--for=condition=Ready", "node", node, "--timeout="+conditionTimeout.String())
	since := time.Now()
	after := s.awaitAnswer(t, "c1", "near", address, fromCluster("c2")).Client
	t.Logf("figure: the only gateway's machine was replaced: traffic recovered %.1f s after the new node was Ready", time.Since(since).Seconds())
	s.awaitHolder(t, "c1", "c1-a-1", node)
	if before != after {
		t.Errorf("the pod was seen as %s and is seen as %s", before, after)
	}
	if now := s.must(t, "", "git", "-C", s.path("repo"), "rev-parse", "HEAD"); now != commit {
		t.Error("something was committed")
	}
}

// label labels a node as a gateway candidate.
func (s *clusterset) label(t *testing.T, cluster, node string) {
	t.Helper()
	kubectl := "kubectl --context " + cluster
	s.eventually(t, contains("node-restriction.kubernetes.io/hawser-gateway"), "sh", "-c",
		kubectl+" label --overwrite node "+node+" node-restriction.kubernetes.io/hawser-gateway=true >/dev/null 2>&1; "+kubectl+" get node "+node+" --show-labels 2>&1")
}

// awaitHolder waits until a node holds a gateway.
func (s *clusterset) awaitHolder(t *testing.T, cluster, gateway, node string) {
	t.Helper()
	s.eventually(t, func(out string) bool { return strings.TrimSpace(out) == node }, "kubectl", "--context", cluster, "-n", "hawser-system",
		"get", "lease", "hawser-gateway-"+gateway, "-o", "jsonpath={.spec.holderIdentity}")
}
