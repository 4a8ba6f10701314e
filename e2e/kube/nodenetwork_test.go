//go:build kube

package kube

import (
	"os"
	"strings"
	"testing"
)

// TestDirectInKubernetes checks that agents in pods may list BPF programs, so that nodes exchange
// packets without VXLAN where the network accepts them, as in the lab. Nodes whose device has a BPF
// program use VXLAN, such as nodes with Cilium.
func TestDirectInKubernetes(t *testing.T) {
	s := needClusterset(t, samePrefixes)
	want := "2/2 direct"
	if os.Getenv(cniEnv) == "cilium" {
		want = "0/2 direct, 2 VXLAN: eth0 has a BPF program"
	}
	s.eventually(t, func(out string) bool { return strings.Count(out, want) == len(s.clusters) },
		"hawser", "status", "--context", "c1,c2", "-f", s.path("repo/clusterset.yaml"), "-o", "wide")
}
