//go:build kube

package kube

import "testing"

// TestNodeRestart: a worker and then a gateway lose power and come back; pods reach the
// other cluster again, also those on a node that was away.
func TestNodeRestart(t *testing.T) {
	s := needSet(t, same)
	s.ask(t, "c1", "client", "c2."+service, from("c2"))
	for _, node := range []string{"c1n2", "c1n1"} {
		s.must(t, "", "kubelab", "--dir", s.rig.dir, "stop", node)
		s.must(t, "", "kubelab", "--dir", s.rig.dir, "start", node)
		for _, pod := range []string{"client", "near"} {
			s.ask(t, "c1", pod, "c2."+service, from("c2"))
		}
	}
	s.workloads(t)
}
