//go:build kube

package kube

import (
	"strings"
	"testing"
)

// TestFailover powers off each of two gateways of c1 in turn; one of them has the active link to c2.
// A pod on a node without gateway has idle, busy and pushed connections. All survive, with every
// network of the clusters.
func TestFailover(t *testing.T) {
	s := needClusterset(t, samePrefixes)
	machine := strings.TrimSpace(s.kubelab(t, "add", "c1"))
	off := ""
	t.Cleanup(func() {
		if off == "c1n2" { // still off after a failure; other tests need the node
			s.kubelab(t, "start", off)
		}
		s.reset(t)
		s.kubelab(t, "remove", machine)
		// Delete the pods of the stopped node, so that later waits do not include them.
		s.kubectl(t, "c1", "delete", "pods", "-A", "--field-selector", "spec.nodeName="+machine, "--force", "--grace-period=0")
		s.workloads(t)
	})
	s.change(t, "      node: c1n1\n      endpoints: [172.31.1.11]\n", `      node: c1n2
      endpoints: [172.31.1.12]
    - name: c1-b
      node: `+machine+`
      endpoints: [172.31.1.13]
`)
	both := func(out string) bool { return strings.Contains(out, "c1-a") && strings.Contains(out, "c1-b") }
	connected := []string{
		"sh", "-c", "kubectl --context c2 -n hawser-system exec ds/hawser-gateway -- /hawser-agent status | grep connected",
	}
	s.eventually(t, both, connected...)
	s.awaitReady(t)
	// The cluster's own DNS may be on a node that loses power.
	address := s.awaitAddresses(t, "c1", "near", "c2."+serviceName, 1)[0]
	target := s.awaitAddresses(t, "c1", "near", "traffic.sample.svc.clusterset.local", 1)[0] + ":7000"
	// A measured stall includes the time until the peer sends its next message.
	tcp := s.startFlow(t, "tcp", "--count", "80", "--interval", "50ms", "--patience", "60s", "--open", "60s", target)
	udp := s.startFlow(t, "udp", "--rate", "500", "--grace", "5s", target)
	for _, node := range []string{machine, "c1n2"} {
		s.kubelab(t, "stop", node)
		off = node
		other := map[string]string{machine: "c1-a", "c1n2": "c1-b"}[node]
		s.eventually(t, func(out string) bool { return strings.Contains(out, other) && !both(out) }, connected...)
		s.awaitAnswer(t, "c1", "near", address, fromCluster("c2"))
		s.kubelab(t, "start", node)
		off = ""
		s.eventually(t, both, connected...)
	}
	s.kubectl(t, "c1", "exec", "near", "--", "touch", "/tmp/until-tcp", "/tmp/until-udp")
	t.Logf("figure: two gateways lost power in turn: longest time without a datagram of 500 a second %.0f ms", (<-udp).read(t).Silence.Long)
	report := (<-tcp).read(t)
	if report.Survivors != report.Connections || report.Connections != 80 {
		t.Errorf("%d of %d connections live: %d resets, %d timeouts", report.Survivors, report.Connections, report.Resets, report.Timeouts)
	}
	for kind, of := range report.Kinds {
		t.Logf("figure: two gateways lost power in turn: longest stall of connections of kind %s %.0f ms", kind, of.Stall.Max)
	}
}
