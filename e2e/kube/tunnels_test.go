//go:build kube

package kube

import (
	"regexp"
	"testing"
)

// TestTunnels tests gateways in pods with every driver, with the same rights for all, and the
// migration from one driver to the next.
func TestTunnels(t *testing.T) {
	s := needClusterset(t, samePrefixes)
	defer s.reset(t)
	before := "egressIPs: 8"
	for _, driver := range []string{"ipsec", "vxlan"} {
		after := "egressIPs: 8\n  tunnel: {driver: " + driver + "}"
		s.change(t, before, after)
		before = after
		for _, c := range s.clusters {
			s.eventually(t, regexp.MustCompile(`link .*: `+driver+`.*, connected`).MatchString,
				inPod(c, "hawser-system/"+s.agentOn(t, c, c+"n1"), "/hawser-agent", "status")...)
		}
		s.checkReach(t)
	}
}
