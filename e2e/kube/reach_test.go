//go:build kube

package kube

import (
	"strings"
	"testing"
)

// TestReach tests that pods of c1, on a worker and on the gateway, and a worker reach an export of c2 by
// VIP and by name. Both clusters have the same prefixes.
func TestReach(t *testing.T) {
	needClusterset(t, samePrefixes).checkReach(t)
}

// TestProxies is TestReach with kube-proxy in iptables mode, and without kube-proxy.
func TestProxies(t *testing.T) {
	for _, proxy := range []string{"iptables", "none"} {
		t.Run(proxy, func(t *testing.T) {
			s := needClusterset(t, labOptions{proxy: proxy})
			defer s.down()
			s.checkReach(t)
		})
	}
}

func (s *clusterset) checkReach(t *testing.T) {
	t.Helper()
	vip := strings.TrimSpace(s.eventually(t, contains("243.0."), inPod("c1", "client", "dig", "+short", serviceName)...))
	for _, pod := range []string{"client", "near", "host"} {
		s.eventually(t, contains(`"cluster":"c2"`), inPod("c1", pod, "curl", "-s", "-m", "3", vip)...)
		s.eventually(t, contains(`"cluster":"c2"`), inPod("c1", pod, "curl", "-s", "-m", "3", serviceName)...)
	}
	// UDP, through the same address.
	s.eventually(t, contains(`"cluster":"c2"`), inPod("c1", "client", "sh", "-c", "echo hello | nc -u -w 1 "+vip+" 80")...)
	// Every node and a pod on each of them reach every export, over TCP and UDP. The pods are removed.
	out := s.eventually(t, contains("pod on c2/c2n2: "), "hawser", "verify", "--cluster", "c1,c2", "--export", "sample/whereami-cs,sample/whereami-ss")
	if strings.Contains(out, "0 of") || !strings.Contains(out, "\nc1/c1n2: ") || !strings.Contains(out, "\npod on c1/c1n1: ") {
		t.Errorf("hawser verify:\n%s", out)
	}
	if out := s.must(t, "", "hawser", "verify", "--cluster", "c1,c2", "--export", "sample/whereami-cs", "--from", "pods", "-o", "json"); !strings.Contains(out, "/UDP\"") || strings.Contains(out, "unknown") {
		t.Errorf("hawser verify from pods:\n%s", out)
	}
	for _, c := range []string{"c1", "c2"} {
		if out := s.kubectl(t, c, "get", "namespaces", "-o", "name"); strings.Contains(out, "hawser-verify-") {
			t.Errorf("%s still has the namespace of the pods: %s", c, out)
		}
	}
	// The cluster's own Service still works.
	if s.shape.proxy != "none" {
		s.eventually(t, contains(`"cluster":"c1"`), inPod("c1", "client", "curl", "-s", "-m", "3", "whereami-cs.sample")...)
	}
}
