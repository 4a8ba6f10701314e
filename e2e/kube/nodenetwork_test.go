//go:build kube

package kube

import (
	"strings"
	"testing"
)

// TestDirectInKubernetes checks that agents in pods may list BPF programs, so that nodes exchange
// packets without VXLAN where the network carries them. The lab's network does.
func TestDirectInKubernetes(t *testing.T) {
	s := needClusterset(t, samePrefixes)
	s.eventually(t, func(out string) bool { return strings.Count(out, "2/2 direct") == len(s.clusters) },
		"hawser", "status", "--context", "c1,c2", "-f", s.path("repo/clusterset.yaml"), "-o", "wide")
}
