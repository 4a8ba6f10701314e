package pathmtu

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"hawser.dev/hawser/internal/netnstest"
	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/nodeagent/peer/transport"
)

// startFinder runs a finder in the namespace until the test ends. The channel receives each change.
func startFinder(t *testing.T, s *netnstest.Space, name string, own []netip.Addr, links []Link) (*Finder, <-chan struct{}) {
	t.Helper()
	changed := make(chan struct{}, 1)
	f := New(Config{Port: 4804, Log: slog.New(slog.DiscardHandler), Wake: trigger.New(), OnChange: func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}})
	f.Set(name, own, links)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go s.Inside(func() {
		done <- transport.New(transport.Config{
			Port: 4804, Log: f.config.Log, Wake: f.config.Wake, Protocols: []transport.Protocol{f},
		}).Run(ctx)
	})
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return f, changed
}

// await waits until all paths of a finder have a state and value.
func await(t *testing.T, f *Finder, changed <-chan struct{}, state string, value int) {
	t.Helper()
	end := time.After(20 * time.Second)
	for {
		all := true
		for _, p := range f.Snapshot() {
			all = all && p.State == state && p.PathMTU == value
		}
		if all {
			return
		}
		select {
		case <-changed:
		case <-end:
			t.Fatalf("paths %+v, want %s %d; stats %+v", f.Snapshot(), state, value, f.Stats())
		}
	}
}

// TestPackets runs two finders on a line that drops large packets silently in one direction for a
// while.
func TestPackets(t *testing.T) {
	t.Parallel()
	a, b := netnstest.New(t, "nft"), netnstest.New(t, "nft")
	a.IP("link add hw-wg1 type veth peer name hw-wg1 netns " + b.Name)
	addrs := [][]netip.Addr{
		{netip.MustParseAddr("241.0.0.1"), netip.MustParseAddr("fd00:41::1")},
		{netip.MustParseAddr("241.0.0.2"), netip.MustParseAddr("fd00:41::2")},
	}
	for i, s := range []*netnstest.Space{a, b} {
		s.IP("link set hw-wg1 mtu 1420 up", "addr add "+addrs[i][0].String()+"/24 dev hw-wg1",
			"addr add "+addrs[i][1].String()+"/64 dev hw-wg1 nodad")
	}
	paths := func(peer string, from, to []netip.Addr) (out []Link) {
		for i := range from {
			out = append(out, Link{Peer: peer, Source: from[i], Addr: to[i], MTU: 1420, InUse: true})
		}
		return out
	}
	// The MTU of a route must not affect the probes.
	a.IP("route add 241.0.0.2/32 dev hw-wg1 src 241.0.0.1 mtu 1300", "route add fd00:41::2/128 dev hw-wg1 src fd00:41::1 mtu 1300")
	links := paths("g2/a", addrs[0], addrs[1])
	there, changedThere := startFinder(t, a, "g1/a", addrs[0], links)
	back, changedBack := startFinder(t, b, "g2/a", addrs[1], paths("g1/a", addrs[1], addrs[0]))
	there.SetTraffic(map[string]bool{"g2": true})
	back.SetTraffic(map[string]bool{"g1": true})
	await(t, there, changedThere, OK, 1420)
	await(t, back, changedBack, OK, 1420)
	b.NFT("table inet t { chain in { type filter hook input priority 0; meta length > 1337 drop; }; }")
	await(t, there, changedThere, BlackHole, 1337)
	await(t, back, changedBack, OK, 1420)
	if s := there.Stats(); s.Failed > 0 || s.Malformed > 0 {
		t.Errorf("stats %+v", s)
	}
	b.NFT("delete table inet t")
	end := time.Now()
	for _, p := range there.links {
		there.mu.Lock()
		p.recoverAt = end // otherwise the test takes twenty seconds
		p.next = end
		there.queue.Schedule(p, end)
		there.mu.Unlock()
	}
	there.config.Wake.Fire()
	await(t, there, changedThere, OK, 1420)
}
