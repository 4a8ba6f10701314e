package kernel

import (
	"net/netip"
	"testing"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/desired"
)

// TestDial checks that a higher DialCount overrides the endpoint that the kernel learned, even if
// the peer responds there. Later the learned endpoint counts again.
func TestDial(t *testing.T) {
	here, there := netip.MustParseAddrPort("192.0.2.1:51820"), netip.MustParseAddrPort("192.0.2.2:51820")
	key := "pvEyxtqUtWp3QI3u+7nYqBPRMtNzZ7JHOGGUKHXsZUE="
	want := desired.Peer{Device: "hw-wg1", PublicKey: key, Endpoint: there, DialCount: 2}
	have := desired.Peer{Device: "hw-wg1", PublicKey: key, Endpoint: here}
	k := NewPeers(nil)
	for _, answering := range []bool{true, false} {
		k.answering = map[string]bool{have.Key(): answering}
		k.lastDial = map[string]int{have.Key(): 1}
		changes, err := diff.Compute([]desired.Peer{k.Normalize(want, have)}, []desired.Peer{have})
		if err != nil || len(changes) != 1 || changes[0].Want.Endpoint != there {
			t.Fatalf("answering %t: %v, %v", answering, changes, err)
		}
		config, err := peerConfig(changes[0])
		if err != nil {
			t.Fatal(err)
		}
		configs := k.resetForRedial(changes[0], config)
		if anew := len(configs) == 2 && configs[0].Remove && !configs[1].UpdateOnly; anew == answering {
			t.Errorf("answering %t: recreated: %t", answering, anew)
		}
		k.recordDial(changes[0])
		roamed := have
		roamed.Endpoint = netip.MustParseAddrPort("192.0.2.3:40000")
		k.answering[have.Key()] = true
		if changes, err = diff.Compute([]desired.Peer{k.Normalize(want, roamed)}, []desired.Peer{roamed}); err != nil || len(changes) > 0 {
			t.Errorf("a peer that moved by itself is reset: %v, %v", changes, err)
		}
	}
}
