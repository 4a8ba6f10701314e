package kernel

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"hawser.dev/hawser/nodeagent/kernel/nftables"
)

// TestFence checks that packets to and from a gateway's port pass while the fence is open. They are
// dropped after its deadline, even if the agent does not close it. Packets of other programs always
// pass. A deadline in the past opens nothing, as an agent may hang before it writes.
func TestFence(t *testing.T) {
	ns := newTestNode(t).ns
	fence := ns.NewFence(func() []PortRange { return []PortRange{{51820, 51885}, {500, 500}} })
	var own, tunnel, other *net.UDPConn
	err := ns.inside(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(lo); err != nil {
			return err
		}
		for port, to := range map[int]**net.UDPConn{40000: &own, 51833: &tunnel, 40001: &other} {
			if *to, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*net.UDPConn{own, tunnel, other} {
		t.Cleanup(func() { _ = c.Close() })
	}
	passes := func(from, to *net.UDPConn) bool {
		t.Helper()
		if _, err := from.WriteTo([]byte("x"), to.LocalAddr()); err != nil && !errors.Is(err, os.ErrPermission) {
			t.Fatal(err) // the sender gets an error if the output hook drops its packet
		}
		_ = to.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		_, _, err := to.ReadFrom(make([]byte, 8))
		return err == nil
	}
	check := func(when string, want bool) {
		t.Helper()
		if in, out := passes(own, tunnel), passes(tunnel, own); in != want || out != want {
			t.Errorf("%s: to the gateway's port passes %t, from there %t, want %t", when, in, out, want)
		}
		if !passes(own, other) {
			t.Errorf("%s: a packet of another program is dropped", when)
		}
	}
	do := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	check("without a fence", true)
	do("close", fence.Block())
	check("closed", false)
	do("open", fence.AllowUntil(time.Now().Add(time.Minute)))
	check("open", true)
	do("open in the past", fence.AllowUntil(time.Now().Add(-time.Millisecond)))
	check("open until a time that is past", false)
	do("open for a moment", fence.AllowUntil(time.Now().Add(2*time.Second)))
	check("open for a moment", true)
	deadline := time.Now().Add(20 * time.Second)
	for passes(own, tunnel) {
		if time.Now().After(deadline) {
			t.Fatal("the fence does not close by itself")
		}
	}
	check("closed by itself", false)
	do("open again", fence.AllowUntil(time.Now().Add(time.Minute)))
	check("open again", true)
	do("remove", fence.Remove())
	do("remove once more", fence.Remove())
	check("removed", true)
}

// TestFenceClocks checks that each of the two clocks closes the fence. The wall clock does if the
// element expires too late, because the agent hung while it wrote. The element does if the wall
// clock was set back.
func TestFenceClocks(t *testing.T) {
	ns := newTestNode(t).ns
	fence := ns.NewFence(func() []PortRange { return []PortRange{{51820, 51885}} })
	table := func(element, wall time.Time) {
		t.Helper()
		err := fence.ns.nftCommit(func(b *nftables.Batch) { fenceReplace(b, element, fenceChains(wall, fence.ports())) })
		if err != nil {
			t.Fatal(err)
		}
	}
	var from, to *net.UDPConn
	err := ns.inside(func() error {
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		if err == nil {
			from, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		}
		if err == nil {
			to, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 51820})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = from.Close(), to.Close() })
	now := time.Now()
	for _, test := range []struct {
		name          string
		element, wall time.Time
		passes        bool
	}{
		{"both", now.Add(time.Minute), now.Add(time.Minute), true},
		{"the wall clock", now.Add(time.Minute), now.Add(-time.Second), false},
		{"the element", now.Add(-time.Second), now.Add(time.Minute), false},
	} {
		table(test.element, test.wall)
		_, _ = from.WriteTo([]byte("x"), to.LocalAddr())
		_ = to.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		if _, _, err := to.ReadFrom(make([]byte, 8)); (err == nil) != test.passes {
			t.Errorf("%s: a packet passes: %t, want %t", test.name, err == nil, test.passes)
		}
	}
}
