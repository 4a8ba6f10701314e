package kernel

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
)

func mustLink(t testing.TB, w *testNode, name string) netlink.Link {
	t.Helper()
	l, err := w.ns.route.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// linkError returns ENODEV if the link does not exist.
func linkError(w *testNode, name string) error {
	if _, err := w.ns.route.LinkByName(name); isLinkNotFound(err) {
		return unix.ENODEV
	} else if err != nil {
		return err
	}
	return nil
}

func TestMonitor(t *testing.T) {
	t.Parallel()
	w := newTestNode(t)
	w.createDevices(t, nodeLink())
	trigger := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- w.ns.inside(func() error { return Monitor(ctx, trigger) })
	}()
	// The first trigger proves that the subscription works.
	probe := 0
	await(t, "the subscription", func() bool {
		probe++
		w.ip(t, "link set lo mtu "+[]string{"65000", "65001"}[probe%2])
		select {
		case <-trigger:
			return true
		default:
			return false
		}
	})
	for _, event := range []string{
		"link set hw-vx0 mtu 1300",
		"addr add 10.0.0.1/24 dev hw-vx0",
		"route add 10.9.0.0/16 dev hw-vx0 table 7300",
		"-6 route add fd09::/16 dev hw-vx0 table 7300",
		"route del 10.9.0.0/16 dev hw-vx0 table 7300",
		"rule add pref 7300 table 7300",
		"-6 rule add pref 7300 table 7300",
		"neigh add 10.0.0.9 lladdr 02:00:00:00:00:01 dev hw-vx0 nud permanent",
		"neigh del 10.0.0.9 dev hw-vx0",
		"link del hw-vx0",
	} {
		drain(trigger)
		w.ip(t, event)
		select {
		case <-trigger:
		case <-time.After(5 * time.Second):
			t.Errorf("no trigger after: ip %s", event)
		}
	}
	drain(trigger)
	w.ip(t, "link add f0 type veth peer name f1")
	drain(trigger)
	w.ip(t, "neigh add 10.0.0.9 lladdr 02:00:00:00:00:01 dev f0 nud reachable")
	select {
	case <-trigger:
		t.Error("a trigger for a neighbour that the kernel might have learned")
	case <-time.After(100 * time.Millisecond):
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("monitor ended with %v", err)
	}
}

// drain receives triggers until none arrives for a while.
func drain(trigger <-chan struct{}) {
	for {
		select {
		case <-trigger:
		case <-time.After(50 * time.Millisecond):
			return
		}
	}
}

func TestUnderlay(t *testing.T) {
	t.Parallel()
	w := newTestNode(t)
	w.createDevices(t, nodeLink())
	w.foreign("link add u0 mtu 1400 type veth peer name u1", "addr add 192.0.2.1/24 dev u0", "addr add 2001:db8::1/64 dev u0",
		"addr add 10.7.1.1/24 dev u1", "addr add 10.7.0.1/24 dev u1", "addr add 10.7.9.9/24 dev hw-vx0")(t)
	tests := []struct {
		name  string
		addrs []string
		mtu   int
	}{
		{name: "IPv4", addrs: []string{"192.0.2.1"}, mtu: 1400},
		{name: "IPv6", addrs: []string{"2001:db8::1"}, mtu: 1400},
		{name: "second", addrs: []string{"192.0.2.99", "10.7.1.1"}, mtu: 1500},
		{name: "unknown", addrs: []string{"192.0.2.99"}},
		{name: "our own link", addrs: []string{"10.7.9.9"}},
	}
	for _, tt := range tests {
		var addrs []netip.Addr
		for _, a := range tt.addrs {
			addrs = append(addrs, netip.MustParseAddr(a))
		}
		err := w.ns.inside(func() error {
			mtu, err := Underlay(addrs)
			if mtu != tt.mtu {
				t.Errorf("%s: MTU %d, want %d", tt.name, mtu, tt.mtu)
			}
			return err
		})
		if (err != nil) != (tt.mtu == 0) {
			t.Errorf("%s: error %v", tt.name, err)
		}
	}
	var have []netip.Addr
	err := w.ns.inside(func() (err error) {
		have, err = AddressesIn([]netip.Prefix{netip.MustParsePrefix("10.7.0.0/16"), netip.MustParsePrefix("2001:db8::/32")})
		return err
	})
	want := []netip.Addr{netip.MustParseAddr("10.7.0.1"), netip.MustParseAddr("10.7.1.1"), netip.MustParseAddr("2001:db8::1")}
	if d := cmp.Diff(want, have, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" || err != nil {
		t.Errorf("addresses (-want +got), error %v:\n%s", err, d)
	}
}

// TestWaitsForLink checks that objects on a missing device are blocked, not failed.
func TestWaitsForLink(t *testing.T) {
	t.Parallel()
	w := newTestNode(t)
	private, public := newKey(t)
	addr := netip.MustParseAddr("192.0.2.2")
	apply := map[string]func() error{
		"address": func() error {
			return NewAddresses(w.ns).Apply(t.Context(), creations(desired.Address{Device: "hw-no", Prefix: netip.PrefixFrom(addr, 32)}))
		},
		"neighbour": func() error {
			return NewNeighbors(w.ns).Apply(t.Context(), creations(desired.Neighbor{Device: "hw-no", Addr: addr, MAC: "02:00:00:00:00:01"}))
		},
		"route": func() error {
			r := desired.Route{Table: 7300, Dst: netip.PrefixFrom(addr, 32), Type: desired.RouteUnicast, Device: "hw-no"}
			return NewRoutes(w.ns).Apply(t.Context(), creations(r))
		},
		"wireguard": func() error {
			return NewWireguards(w.ns).Apply(t.Context(), creations(desired.Wireguard{Device: "hw-no", PrivateKey: private}))
		},
		"peer": func() error {
			return NewPeers(w.ns).Apply(t.Context(), creations(desired.Peer{Device: "hw-no", PublicKey: public}))
		},
		"sysctl": func() error {
			kind := NewSysctls(w.ns, filepath.Join(t.TempDir(), "sysctls.json"))
			return kind.Apply(t.Context(), creations(desired.Sysctl{Name: "net/ipv4/conf/hw-no/rp_filter", Value: "2"}))
		},
	}
	for name, do := range apply {
		var blocked converge.ErrBlocked
		if err := do(); !errors.As(err, &blocked) {
			t.Errorf("%s: error %v, want ErrBlocked", name, err)
		}
	}
}

func creations[S diff.Spec](s S) []diff.Change[S] {
	return []diff.Change[S]{{Op: diff.Create, Key: s.Key(), Want: s}}
}
