package ipsec

import (
	"net/netip"
	"testing"

	"hawser.dev/hawser/nodeagent/peer/endpointprobe"
)

// TestIKEProbe: charon replies to the probe of package endpointprobe, and stores no state for
// it.
func TestIKEProbe(t *testing.T) {
	t.Parallel()
	a, b := pair(t, false)
	s := endpointprobe.New()
	defer s.Close()
	answered := make(chan struct{}, 1000)
	eventually(t, "an answer", func() bool {
		a.inside(t, func() error {
			return s.ProbeIKE(netip.AddrPortFrom(b.outer, 14500), func() { answered <- struct{}{} })
		})
		return len(answered) > 0
	})
	if all := b.states(t); len(all) > 0 {
		t.Errorf("states %v", all)
	}
}
