//go:build kube

package kube

import (
	"strings"
	"testing"
	"time"
)

// TestGatewayBySelector tests a gateway on a node picked by a label, the only one of c1. Its machine is
// replaced by another one with the label and another name and address. Without a commit, traffic
// recovers, with the same source addresses. The test logs the time from the new node's Ready
// condition, which must be at most 15 s.
func TestGatewayBySelector(t *testing.T) {
	s := needSet(t, same)
	first := strings.TrimSpace(s.lab(t, "add", "c1"))
	s.label(t, "c1", first)
	machines := []string{first}
	t.Cleanup(func() {
		s.reset(t)
		for _, m := range machines {
			s.lab(t, "remove", m)
			for _, node := range []string{m, "edge-new"} { // their pods are no longer running
				s.kubectl(t, "c1", "delete", "pods", "-A", "--field-selector", "spec.nodeName="+node, "--force", "--grace-period=0")
			}
		}
		s.workloads(t)
	})
	s.change(t, "      node: c1n1\n      endpoints: [172.31.1.11]\n", "      nodeSelector: {node-restriction.kubernetes.io/hawser-gateway: \"true\"}\n")
	s.ready(t)
	s.holder(t, "c1", "c1-a-1", first)
	address := s.dig(t, "c1", "near", "c2."+service, 1)[0]
	before := s.ask(t, "c1", "near", address, from("c2")).Client
	commit := s.must(t, "", "git", "-C", s.path("repo"), "rev-parse", "HEAD")

	s.lab(t, "remove", first)
	machines = nil
	second := strings.TrimSpace(s.lab(t, "add", "c1"))
	machines = append(machines, second)
	if second == first {
		s.lab(t, "rename", second, "edge-new")
		s.renamed = map[string]string{"edge-new": second}
		t.Cleanup(func() { s.renamed = nil })
	}
	node := second
	if second == first {
		node = "edge-new"
	}
	s.label(t, "c1", node)
	s.kubectl(t, "c1", "wait", "--for=condition=Ready", "node", node, "--timeout="+limit.String())
	since := time.Now()
	after := s.ask(t, "c1", "near", address, from("c2")).Client
	t.Logf("figure: the only gateway's machine was replaced: traffic recovered %.1f s after the new node was Ready", time.Since(since).Seconds())
	s.holder(t, "c1", "c1-a-1", node)
	if before != after {
		t.Errorf("the pod was seen as %s and is seen as %s", before, after)
	}
	if now := s.must(t, "", "git", "-C", s.path("repo"), "rev-parse", "HEAD"); now != commit {
		t.Error("something was committed")
	}
}

// label labels a node as a gateway candidate.
func (s *set) label(t *testing.T, cluster, node string) {
	t.Helper()
	kubectl := "kubectl --context " + cluster
	s.eventually(t, has("node-restriction.kubernetes.io/hawser-gateway"), "sh", "-c",
		kubectl+" label --overwrite node "+node+" node-restriction.kubernetes.io/hawser-gateway=true >/dev/null 2>&1; "+kubectl+" get node "+node+" --show-labels 2>&1")
}

// holder waits until a node holds a gateway.
func (s *set) holder(t *testing.T, cluster, gateway, node string) {
	t.Helper()
	s.eventually(t, func(out string) bool { return strings.TrimSpace(out) == node }, "kubectl", "--context", cluster, "-n", "hawser-system",
		"get", "lease", "hawser-gateway-"+gateway, "-o", "jsonpath={.spec.holderIdentity}")
}
