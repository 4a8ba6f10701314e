//go:build kube

package kube

import (
	"strings"
	"testing"
)

// TestReach: pods of c1, on a worker and on the gateway, and a worker itself reach an
// export of c2 by VIP and by name, though both clusters have the same prefixes.
func TestReach(t *testing.T) {
	s := needSet(t, false)
	const url = "whereami-cs.sample.svc.clusterset.local"
	vip := strings.TrimSpace(s.eventually(t, has("243.0."), within("c1", "client", "dig", "+short", url)...))
	for _, pod := range []string{"client", "near", "host"} {
		s.eventually(t, has(`"cluster":"c2"`), within("c1", pod, "curl", "-s", "-m", "3", vip)...)
		s.eventually(t, has(`"cluster":"c2"`), within("c1", pod, "curl", "-s", "-m", "3", url)...)
	}
	// UDP, through the same address.
	s.eventually(t, has(`"cluster":"c2"`), within("c1", "client", "sh", "-c", "echo hello | nc -u -w 1 "+vip+" 80")...)
}
