//go:build kube

package kube

import (
	"strings"
	"testing"
)

// TestReach: from nothing to a pod of c1 that reaches the export of c2, by VIP and by
// name, though both clusters have the same prefixes.
func TestReach(t *testing.T) {
	r := needRig(t, false)
	r.workloads(t)
	s := newSet(t, r, "testdata/clusterset.yaml")
	s.install(t)
	s.ready(t)
	const url = "whereami-cs.sample.svc.clusterset.local"
	vip := strings.TrimSpace(r.eventually(t, has("243.0."), within("c1", "client", "dig", "+short", url)...))
	for _, pod := range []string{"client", "near"} {
		r.eventually(t, has(`"cluster":"c2"`), within("c1", pod, "curl", "-s", "-m", "3", vip)...)
		r.eventually(t, has(`"cluster":"c2"`), within("c1", pod, "curl", "-s", "-m", "3", url)...)
	}
}
