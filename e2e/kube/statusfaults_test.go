//go:build kube

package kube

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// faultTimeout bounds the time until a command names a fault, and until it reports the repair.
const faultTimeout = 60 * time.Second

// refuseReport denies changes of the HawserNode of one node.
const refuseReport = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: refuse-report}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {apiGroups: [hawser.dev], apiVersions: ["*"], resources: [hawsernodes/status], operations: [UPDATE]}
  validations:
  - {expression: "object.metadata.name != 'c2n2'"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: refuse-report}
spec: {policyName: refuse-report, validationActions: [Deny]}
`

// TestStatusFaults injects the faults that new users made. hawser status must name the cause and the
// next step of each in its first line, and report no problem after the repair.
func TestStatusFaults(t *testing.T) {
	s := needClusterset(t, samePrefixes)
	t.Cleanup(func() { s.reset(t) })
	s.firstLine(t, "no problems: 2 clusters", 0)
	second := func(old, new string) { // in the entry of c2
		t.Helper()
		i := strings.Index(s.topology, "- name: c2")
		if i < 0 || !strings.Contains(s.topology[i:], old) {
			t.Fatalf("%q is not in the entry of c2", old)
		}
		s.write(t, s.topology[:i]+strings.Replace(s.topology[i:], old, new, 1))
		s.sync(t)
	}
	var plain string // the Corefile with the intact block of Hawser
	var thaw func()
	for _, fault := range []struct {
		name   string
		inject func(t *testing.T)
		repair func(t *testing.T)
		cause  string
		code   int
	}{
		{"pod prefix", func(*testing.T) { second("podCIDRs: [10.7.0.0/16]", "podCIDRs: [10.9.0.0/16]") }, s.reset, "podCIDRs", 1},
		{"endpoints of one side", func(*testing.T) { second("172.31.2.11", "172.31.2.91") }, s.reset,
			"no cluster reaches gateway", 1},
		{"endpoints of both sides", func(t *testing.T) {
			s.write(t, strings.NewReplacer("172.31.2.11", "172.31.2.91", "172.31.1.11", "172.31.1.91").Replace(s.topology))
			s.sync(t)
		}, s.reset, "no cluster reaches gateway", 1},
		{"port", func(t *testing.T) {
			i := strings.Index(s.topology, "name: whereami-cs")
			s.write(t, s.topology[:i]+strings.Replace(s.topology[i:], "port: 80", "port: 8081", 1))
			s.sync(t)
		}, s.reset, "PortConflict", 1},
		{"Service deleted", func(t *testing.T) { s.kubectl(t, "c2", "-n", "sample", "delete", "service", "whereami-cs") }, s.workloads,
			"NoService", 1},
		{"gateway node off", func(t *testing.T) { s.kubelab(t, "stop", "c2n1") }, func(t *testing.T) { s.kubelab(t, "start", "c2n1") },
			"c2/c2n1: the node is NotReady", 1},
		// The kubelet restarts the agent after a minute without a response, so it may be gone.
		{"agent frozen", func(t *testing.T) { thaw = s.freezeAgent(t, "c2n2") }, func(*testing.T) { thaw() },
			"c2/c2n2: the agent has failed the kubelet's readiness probe since", 1},
		{"DNS block damaged", func(t *testing.T) {
			d := coreDNS{clusterset: s, t: t}
			plain = d.awaitBlock()
			d.write(strings.Replace(d.corefile(), "# hawser: end\n", "", 1))
		}, func(t *testing.T) {
			d := coreDNS{clusterset: s, t: t}
			d.write(plain)
			d.awaitBlock()
			d.awaitResolution()
		}, "the begin mark has no end mark after it", 1},
		// The API server refuses new reports, so the last one is old and reports ready.
		{"report refused", func(t *testing.T) {
			s.apply(t, "c2", refuseReport)
			s.change(t, "policy: local-first", "policy: spread")
		}, func(t *testing.T) {
			s.kubectl(t, "c2", "delete", "validatingadmissionpolicy/refuse-report", "validatingadmissionpolicybinding/refuse-report")
			s.reset(t)
		}, "c2/c2n2: the agent has failed the kubelet's readiness probe since", 1},
		{"image", func(t *testing.T) {
			s.kubectl(t, "c1", "-n", "hawser-system", "set", "image", "daemonset/hawser-agent", "agent=hawser.dev/hawser-agent:v9.9.9")
		}, s.reset, "hawser-agent:v9.9.9", 1},
	} {
		t.Run(fault.name, func(t *testing.T) {
			begin, repaired := time.Now(), false
			t.Cleanup(func() {
				if !repaired {
					fault.repair(t)
				}
			})
			fault.inject(t)
			line := s.firstLine(t, fault.cause, fault.code)
			t.Logf("figure: status names the fault %q after %.0f s: %s", fault.name, time.Since(begin).Seconds(), line)
			if !strings.Contains(line, "next: ") {
				t.Errorf("no next step in %q", line)
			}
			repaired = true
			fault.repair(t)
			s.firstLine(t, "no problems: 2 clusters", 0)
		})
	}
}

// freezeAgent stops the agent of a node with SIGSTOP, and returns a function that continues it. The
// kernel of the node keeps forwarding.
func (s *clusterset) freezeAgent(t *testing.T, node string) (thaw func()) {
	t.Helper()
	pid := strings.TrimSpace(s.kubelab(t, "node", node, "sh", "-c",
		"for p in $(pidof hawser-agent); do tr '\\0' ' ' </proc/$p/cmdline | grep -q ' run ' && echo $p; done"))
	s.kubelab(t, "node", node, "kill", "-STOP", pid)
	thaw = func() { // the kubelet may have replaced the process
		_, _ = s.try(context.Background(), "", "", "kubelab", "--dir", s.clusterPair.dir, "node", node, "kill", "-CONT", pid)
	}
	t.Cleanup(thaw)
	return thaw
}

// firstLine runs hawser status until its first line contains a text and its exit code is as wanted. It
// returns the line.
func (s *clusterset) firstLine(t *testing.T, text string, code int) string {
	t.Helper()
	out := s.awaitCode(t, text, code, `hawser status -f "$1"`)
	line, _, _ := strings.Cut(out, "\n")
	return line
}

// awaitCode runs a command with the repository ($1) until the first line of its output contains a text and
// its exit code is as wanted. It returns the output, with stderr after stdout.
func (s *clusterset) awaitCode(t *testing.T, text string, code int, command string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), faultTimeout)
	defer cancel()
	script := `{ errors=$(` + command + ` 2>&1 >&3); code=$?; } 3>&1; printf '%s\ncode %s\n' "$errors" "$code"`
	for {
		out, err := s.try(ctx, "", "", "sh", "-c", script, "sh", s.path("repo"))
		line, _, _ := strings.Cut(out, "\n")
		if err == nil && strings.Contains(line, text) && strings.HasSuffix(out, fmt.Sprintf("code %d\n", code)) {
			return out
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: no first line with %q and exit code %d within %s:\n%s%v", command, text, code, faultTimeout, out, err)
		case <-time.After(time.Second):
		}
	}
}

// TestVerifyNetworkPolicy denies ingress to the servers of an export with a NetworkPolicy. hawser status
// cannot detect it without packets. hawser verify fails, and its first line has the next command. That
// command names the rule. After the repair verify succeeds.
func TestVerifyNetworkPolicy(t *testing.T) {
	s := needClusterset(t, samePrefixes)
	const verify = `hawser verify --cluster c1,c2 --export sample/whereami-cs --timeout 1s`
	s.awaitCode(t, "names answered", 0, verify)
	repair := s.denyIngress(t, "c2", "sample", "whereami")
	start := time.Now()
	line, _, _ := strings.Cut(s.awaitCode(t, "no connection to sample/whereami-cs: ", 1, verify), "\n")
	t.Logf("figure: verify names the fault after %.0f s: %s", time.Since(start).Seconds(), line)
	_, next, _ := strings.Cut(line, "; next: ")
	if next != "hawser diagnose --verify --export sample/whereami-cs" || !strings.Contains(line, "c2: NetworkPolicy sample/deny selects pod sample/whereami-") {
		t.Errorf("the first line lacks the policy or the next command: %s", line)
	}
	if !s.shape.network().Policies { // a datapath of BPF or OVN has no rule to name
		s.eventually(t, contains("in chain forward of table inet policies"), "sh", "-c", next+" --cluster c1,c2 --for 5s; true")
	}
	repair()
	s.awaitCode(t, "names answered", 0, verify)
}

// denyIngress creates a NetworkPolicy that denies ingress to the pods of an app, and returns a
// function that deletes it. Some networks, such as the lab's bridge, enforce no policies. There
// nft(8) drops new connections to the pods on the nodes.
func (s *clusterset) denyIngress(t *testing.T, cluster, namespace, app string) (repair func()) {
	t.Helper()
	s.apply(t, cluster, fmt.Sprintf("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: deny, namespace: %s}\n"+
		"spec: {podSelector: {matchLabels: {app: %s}}, policyTypes: [Ingress]}\n", namespace, app))
	if !s.shape.network().Policies {
		pods := strings.Join(strings.Fields(s.kubectl(t, cluster, "-n", namespace, "get", "pods", "-l", "app="+app, "-o", "jsonpath={.items[*].status.podIP}")), ", ")
		for _, node := range []string{cluster + "n1", cluster + "n2"} {
			s.kubelab(t, "node", node, "nft", "table inet policies { chain forward { type filter hook forward priority 0; ip daddr { "+pods+" } ct state new drop; }; }")
		}
	}
	repair = sync.OnceFunc(func() {
		s.kubectl(t, cluster, "-n", namespace, "delete", "networkpolicy", "deny")
		if !s.shape.network().Policies {
			for _, node := range []string{cluster + "n1", cluster + "n2"} {
				s.kubelab(t, "node", node, "nft", "delete table inet policies")
			}
		}
	})
	t.Cleanup(repair)
	return repair
}
