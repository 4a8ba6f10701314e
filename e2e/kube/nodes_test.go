//go:build kube

package kube

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestNodeRestart powers a worker off and on, then a gateway. Pods reach the other cluster again, also
// pods on the restarted node.
func TestNodeRestart(t *testing.T) {
	s := needClusterset(t, samePrefixes)
	s.awaitAnswer(t, "c1", "client", "c2."+serviceName, fromCluster("c2"))
	for _, node := range []string{"c1n2", "c1n1"} {
		s.kubelab(t, "stop", node)
		s.kubelab(t, "start", node)
		for _, pod := range []string{"client", "near"} {
			s.awaitAnswer(t, "c1", pod, "c2."+serviceName, fromCluster("c2"))
		}
	}
	s.workloads(t)
}

// TestNodeAddress changes the address of a server's node during connections to its pod, then the
// address of a gateway. The nodes of its cluster use the new address at once, other clusters at the
// latest after a commit.
func TestNodeAddress(t *testing.T) {
	s := needClusterset(t, samePrefixes)
	target := s.awaitAddresses(t, "c1", "near", "traffic.sample.svc.clusterset.local", 1)[0] + ":7000"
	near := s.podNetwork(t, "c1", "near")
	kept := s.startStream(t, near, "tcp", "--count", "20", "--patience", "2m", "--open", "60s", target)
	t.Cleanup(func() { s.reset(t) })
	t.Cleanup(func() { s.address(t, "c2n2", "172.31.2.12") })
	s.address(t, "c2n2", "172.31.2.42")
	s.eventually(t, contains(""), slices.Concat(near, netCommand{"nc", "-z", "-w", "3"}, strings.Split(target, ":"))...)
	fresh := s.startStream(t, near, "new", "--rate", "5", "--count", "10", "--timeout", "60s", target)
	if r := fresh(); r.Failed > 0 || r.Attempts == 0 {
		t.Errorf("%d of %d connections failed: %s", r.Failed, r.Attempts, r.FirstError)
	}
	s.checkSurvivors(t, kept())

	kept = s.startStream(t, s.podNetwork(t, "c1", "client"), "tcp", "--count", "20", "--patience", "2m", "--open", "60s", target)
	t.Cleanup(func() { s.address(t, "c1n1", "172.31.1.11") })
	s.address(t, "c1n1", "172.31.1.41")
	s.change(t, "      endpoints: [172.31.1.11]\n", "      endpoints: [172.31.1.41]\n")
	s.eventually(t, contains(`at 172.31.1.41`), s.agentCommand("c2n1")...)
	for _, pod := range []string{"client", "near"} {
		s.awaitAnswer(t, "c1", pod, "c2."+serviceName, fromCluster("c2"))
	}
	s.checkSurvivors(t, kept())
}

// address changes a node's address, and waits until its cluster has it.
func (s *clusterset) address(t *testing.T, node, addr string) {
	t.Helper()
	s.kubelab(t, "address", node, addr)
	cluster := node[:2]
	s.eventually(t, func(out string) bool { return slices.Contains(strings.Fields(out), addr) }, "kubectl", "--context", cluster, "get", "node", node, "-o",
		`jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`)
	s.kubectl(t, cluster, "wait", "--for=condition=Ready", "node", node, "--timeout="+conditionTimeout.String())
}

// TestNodeComesAndGoes adds a node, renames it with its disk, and removes it. Pods on it reach the other
// cluster each time. In the end no trace of it is left.
func TestNodeComesAndGoes(t *testing.T) {
	s := needClusterset(t, samePrefixes)
	machine := strings.TrimSpace(s.kubelab(t, "add", "c1"))
	s.renamed = map[string]string{"late": machine}
	removed := false
	t.Cleanup(func() {
		s.kubectl(t, "c1", "delete", "pod", "late", "--ignore-not-found", "--force", "--grace-period=0")
		if !removed {
			s.kubelab(t, "remove", machine)
		}
		s.workloads(t)
	})
	for _, name := range []string{machine, "late"} {
		if name != machine {
			s.kubelab(t, "rename", machine, name)
		}
		s.kubectl(t, "c1", "delete", "pod", "late", "--ignore-not-found", "--force", "--grace-period=0")
		s.apply(t, "c1", fmt.Sprintf(latePod, name))
		s.awaitAnswer(t, "c1", "late", "c2."+serviceName, fromCluster("c2"))
		s.eventually(t, contains("worker"), "kubectl", "--context", "c1", "get", "hawsernode", name, "-o", "jsonpath={.status.role}")
	}
	// The first name is no longer in use.
	s.eventually(t, contains("NotFound"), "sh", "-c", "kubectl --context c1 get hawsernode "+machine+" 2>&1; true")
	vxlan := s.forwarding("c1n1")
	s.eventually(t, contains("172.31.1.13"), vxlan...)
	s.kubelab(t, "remove", machine)
	removed = true
	s.eventually(t, contains("NotFound"), "sh", "-c", "kubectl --context c1 get hawsernode late 2>&1; true")
	s.eventually(t, func(out string) bool { return !strings.Contains(out, "172.31.1.13") }, vxlan...)
	for _, pod := range []string{"client", "near"} {
		s.awaitAnswer(t, "c1", pod, "c2."+serviceName, fromCluster("c2"))
	}
	// Kubernetes deletes its pods later; waits for all pods must not include them.
	s.eventually(t, func(out string) bool { return out == "" },
		"kubectl", "--context", "c1", "get", "pods", "-A", "--field-selector", "spec.nodeName=late", "-o", "name")
}

// forwarding lists to which nodes a node sends inside its cluster.
func (s *clusterset) forwarding(node string) []string {
	return []string{"kubelab", "--dir", s.clusterPair.dir, "node", node, "bridge", "fdb", "show", "dev", "hw-vx0"}
}

const latePod = `apiVersion: v1
kind: Pod
metadata: {name: late}
spec:
  nodeSelector: {kubernetes.io/hostname: %s}
  terminationGracePeriodSeconds: 0
  containers:
  - {name: tools, image: "hawser/tools:lab", command: [sleep, infinity]}
`
