package kernel

import (
	"testing"
	"time"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/desired"
)

// TestSnapshotIsUsedOnce checks that one Observe may use the peers that were read with the devices.
// A change, or snapshotAge, invalidates them.
func TestSnapshotIsUsedOnce(t *testing.T) {
	t.Parallel()
	w := newTestNode(t)
	link := tunnelLink()
	w.createDevices(t, link)
	devices, peers := NewWireguards(w.ns), NewPeers(w.ns)
	observe := func() int {
		t.Helper()
		have, err := peers.Observe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(have)
	}
	read := func() {
		t.Helper()
		if _, err := devices.Observe(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	want := manyPeers(t, link.Name, 2)
	write := func(p desired.Peer) {
		t.Helper()
		change := diff.Change[desired.Peer]{Op: diff.Create, Key: p.Key(), Want: p}
		if err := peers.Apply(t.Context(), []diff.Change[desired.Peer]{change}); err != nil {
			t.Fatal(err)
		}
	}
	read()
	write(want[0])
	if n := observe(); n != 1 {
		t.Errorf("%d peers after a change, want 1", n)
	}
	read()
	if w.ns.wgSnapshot == nil || observe() != 1 || w.ns.wgSnapshot != nil {
		t.Error("a snapshot was not used, or was used twice")
	}
	read()
	w.ns.wgSnapshot.devices, w.ns.wgSnapshot.at = nil, time.Now().Add(-snapshotAge)
	if n := observe(); n != 1 {
		t.Errorf("%d peers of an expired snapshot, want 1", n)
	}
}
