package health

import (
	"net/netip"
	"testing"
	"time"
)

// TestOffPath checks that an off-path probe gets a normal reply and changes no state. Only its own
// reply counts, once.
func TestOffPath(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	here, there := netip.MustParseAddr("241.0.0.1"), netip.MustParseAddr("241.0.0.2")
	a := New(Config{Cluster: "a", Gateway: "gw", Settings: testSettings})
	b := New(Config{Cluster: "b", Gateway: "gw", Settings: testSettings})
	a.clock, b.clock = func() time.Time { return now }, func() time.Time { return now }
	a.SetTargets([]Target{{Peer: GatewayID{"b", "gw"}, Source: here, Addr: there}})
	b.SetTargets([]Target{{Peer: GatewayID{"a", "gw"}, Source: there, Addr: here}})
	count := 0
	probe := a.NewOffPathProbe(GatewayID{"b", "gw"}, func() { count++ })
	replies := b.receive(now, Listen{Addr: there}, netip.AddrPortFrom(here, 4804), probe)
	if len(replies) != 1 {
		t.Fatalf("%d replies", len(replies))
	}
	other, err := decode(replies[0].Raw)
	if err != nil {
		t.Fatal(err)
	}
	other.nonce++
	from := netip.AddrPortFrom(there, 4804)
	a.receive(now, Listen{Addr: here}, from, other.encode())
	if count != 0 {
		t.Error("another reply counts")
	}
	for range 2 {
		a.receive(now, Listen{Addr: here}, from, replies[0].Raw)
	}
	if count != 1 {
		t.Errorf("%d replies", count)
	}
	for _, p := range []*Prober{a, b} {
		for _, l := range p.Snapshot().Links {
			if !l.Answered.IsZero() || l.linkStates != nil {
				t.Errorf("link %+v", l)
			}
		}
	}
	late := a.NewOffPathProbe(GatewayID{"b", "gw"}, func() { count++ })
	replies = b.receive(now, Listen{Addr: there}, netip.AddrPortFrom(here, 4804), late)
	now = now.Add(2 * offPathTimeout)
	a.receive(now, Listen{Addr: here}, from, replies[0].Raw)
	if count != 1 {
		t.Error("a late reply counts")
	}
}
