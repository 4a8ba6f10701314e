package lab

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"hawser.dev/hawser/lab/netnsexec"
)

const natTopology = `apiVersion: hawser.dev/v1alpha1
kind: ClusterSet
metadata: {name: test}
spec:
  clusters:
  - {name: one, podCIDRs: [10.1.0.0/16], serviceCIDRs: [10.101.0.0/16], gateways: [{name: a, node: gw, endpoints: [203.0.113.1, "2001:db8::1"]}]}
  - {name: two, podCIDRs: [10.2.0.0/16], serviceCIDRs: [10.102.0.0/16], gateways: [{name: a, node: gw, endpoints: [203.0.113.2, "2001:db8::2", 10.99.0.2]}]}
  - {name: full, podCIDRs: [10.3.0.0/16], serviceCIDRs: [10.103.0.0/16], gateways: [{name: a, node: gw}]}
  - {name: some, podCIDRs: [10.4.0.0/16], serviceCIDRs: [10.104.0.0/16], gateways: [{name: a, node: gw, endpoints: [203.0.113.40]}]}
  - {name: sym, podCIDRs: [10.5.0.0/16], serviceCIDRs: [10.105.0.0/16], gateways: [{name: a, node: gw}]}
  - {name: plain, podCIDRs: [10.6.0.0/16], serviceCIDRs: [10.106.0.0/16], gateways: [{name: a, node: gw, endpoints: [203.0.113.6, 10.99.0.6]}]}
`

const natUnderlay = `
segments:
- {name: backbone, cidrs: [10.99.0.0/24]}
routers:
- {name: full, uplinkOf: [full], nat: full-cone, addresses: [203.0.113.30, "2001:db8::30"]}
- name: some
  uplinkOf: [some/gw]
  nat: port-restricted
  addresses: [203.0.113.40, "2001:db8::40"]
  forward: [{port: 6000, count: 2, to: some/gw, toPort: 51820}]
- {name: sym, uplinkOf: [sym], nat: symmetric, addresses: [203.0.113.50, "2001:db8::50"]}
- name: wall
  uplinkOf: [plain]
  addresses: [203.0.113.60]
  firewall: [{drop: udp, port: 9000, direction: in}, {drop: icmp}]
- {name: detour, addresses: [203.0.113.70]}
paths:
- {from: one, to: two, via: detour}
`

// udpHost is a UDP socket on a node.
type udpHost struct {
	t    *testing.T
	conn *net.UDPConn
}

// at opens a socket; its address is the zero one of the family of addr unless given.
func (r *testLab) at(node string, addr string) udpHost {
	r.t.Helper()
	var conn *net.UDPConn
	err := netnsexec.Do(r.ns(node), func() (err error) {
		conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(addr)))
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	return udpHost{t: r.t, conn: conn}
}

func (s udpHost) send(to netip.AddrPort, text string) {
	s.t.Helper()
	if _, err := s.conn.WriteToUDPAddrPort([]byte(text), to); err != nil {
		s.t.Fatal(err)
	}
}

// expectPacket waits for a packet and returns its source address.
func (s udpHost) expectPacket(want string) netip.AddrPort {
	s.t.Helper()
	buffer := make([]byte, 100)
	if err := s.conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		s.t.Fatal(err)
	}
	n, from, err := s.conn.ReadFromUDPAddrPort(buffer)
	if err != nil {
		s.t.Fatalf("waiting for %q: %v", want, err)
	}
	if have := string(buffer[:n]); have != want {
		s.t.Errorf("have %q, want %q", have, want)
	}
	return netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
}

// TestKindsOfNAT proves with packets what each kind of router lets through: which
// ports others see, and who may answer there.
func TestKindsOfNAT(t *testing.T) {
	t.Parallel()
	r := newTestLabFrom(t, UpOptions{}, map[string]string{"clusterset.yaml": natTopology, "underlay.yaml": natUnderlay})
	type hosts struct{ one, other, two udpHost }
	for _, family := range []struct{ any, one, two, net string }{
		{"0.0.0.0", "203.0.113.1", "203.0.113.2", "203.0.113."},
		{"[::]", "[2001:db8::1]", "[2001:db8::2]", "2001:db8::"},
	} {
		f := hosts{r.at("one/gw", family.one+":7001"), r.at("one/gw", family.one+":7002"), r.at("two/gw", family.two+":7001")}
		one, two := netip.MustParseAddrPort(family.one+":7001"), netip.MustParseAddrPort(family.two+":7001")
		for _, kind := range []struct {
			node, router string
			cone, open   bool // same mapping for all; strangers get in
		}{
			{"full/gw", "30", true, true}, {"some/gw", "40", true, false}, {"sym/gw", "50", false, false},
		} {
			t.Run(kind.node+" "+family.net, func(t *testing.T) {
				mine := *r
				mine.t = t
				inside := mine.at(kind.node, family.any+":51820")
				inside.send(one, "to one")
				first := f.one.expectPacket("to one")
				inside.send(two, "to two")
				second := f.two.expectPacket("to two")
				if want := netip.MustParseAddr(family.net + kind.router); first.Addr() != want || second.Addr() != want {
					t.Errorf("seen as %s and %s, want %s", first, second, want)
				}
				if (first == second) != kind.cone {
					t.Errorf("seen as %s and %s, want the same: %t", first, second, kind.cone)
				}
				f.other.send(first, "stranger")
				if kind.open {
					inside.expectPacket("stranger")
				}
				f.one.send(first, "friend") // comes after the stranger, if that comes
				inside.expectPacket("friend")
				if err := r.client.Fault(context.Background(), Fault{Kind: "remap", Target: kind.node}); err != nil {
					t.Fatal(err)
				}
				inside.send(one, "again")
				if again := f.one.expectPacket("again"); again == first {
					t.Errorf("seen as %s after the mappings were forgotten too", again)
				}
			})
		}
	}
	r.checkForward(t)
	r.checkDetour(t)
	r.checkFirewall(t)
	r.checkIsolation(t)
	r.checkRenumber(t)
}

// checkForward checks that a port of the router leads to the node behind it.
func (r *testLab) checkForward(t *testing.T) {
	inside, outside := r.at("some/gw", "0.0.0.0:51821"), r.at("one/gw", "203.0.113.1:7003")
	outside.send(netip.MustParseAddrPort("203.0.113.40:6001"), "in")
	inside.send(inside.expectPacket("in"), "out")
	if from := outside.expectPacket("out"); from != netip.MustParseAddrPort("203.0.113.40:6001") {
		t.Errorf("the answer comes from %s", from)
	}
}

// checkDetour checks that packets of one direction pass a router, which counts a hop.
func (r *testLab) checkDetour(t *testing.T) {
	there, back := r.hops("one/gw", "203.0.113.1:7004", "two/gw", "203.0.113.2:7004"), r.hops("two/gw", "203.0.113.2:7005", "one/gw", "203.0.113.1:7005")
	if there != 63 || back != 64 {
		t.Errorf("packets arrive with %d and %d hops left, want 63 and 64", there, back)
	}
}

// checkFirewall tests a router without translation: it keeps addresses and applies its filter.
func (r *testLab) checkFirewall(t *testing.T) {
	open, closed, outside := r.at("plain/gw", "203.0.113.6:9001"), r.at("plain/gw", "203.0.113.6:9000"), r.at("two/gw", "203.0.113.2:7006")
	outside.send(netip.MustParseAddrPort("203.0.113.6:9000"), "dropped")
	outside.send(netip.MustParseAddrPort("203.0.113.6:9001"), "passes")
	if from := open.expectPacket("passes"); from != netip.MustParseAddrPort("203.0.113.2:7006") {
		t.Errorf("seen as %s", from)
	}
	if err := closed.conn.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, _, err := closed.conn.ReadFromUDPAddrPort(make([]byte, 10)); err == nil {
		t.Errorf("%d bytes came through the firewall", n)
	}
}

// checkIsolation checks that the internet does not reach an address of a segment.
func (r *testLab) checkIsolation(t *testing.T) {
	inside, outside := r.at("two/gw", "10.99.0.2:7007"), r.at("one/gw", "203.0.113.1:7007")
	outside.send(netip.MustParseAddrPort("10.99.0.2:7007"), "lost")
	if err := inside.conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, from, err := inside.conn.ReadFromUDPAddrPort(make([]byte, 10)); err == nil {
		t.Errorf("a packet came from %s into the segment", from)
	}
}

// checkRenumber changes the address of the router of a gateway, and of a gateway itself.
func (r *testLab) checkRenumber(t *testing.T) {
	inside, outside := r.at("sym/gw", "0.0.0.0:7100"), r.at("two/gw", "203.0.113.2:7008")
	for _, f := range []Fault{{Kind: "renumber", Target: "sym/gw", Value: "203.0.113.51"}, {Kind: "renumber", Target: "sym/gw", Value: "203.0.113.52"}} {
		if err := r.client.Fault(context.Background(), f); err != nil {
			t.Fatal(err)
		}
	}
	inside.send(netip.MustParseAddrPort("203.0.113.2:7008"), "hello")
	if from := outside.expectPacket("hello"); from.Addr() != netip.MustParseAddr("203.0.113.52") {
		t.Errorf("seen as %s", from)
	}
	if err := r.client.Fault(context.Background(), Fault{Kind: "renumber", Target: "one/gw", Value: "203.0.113.9"}); err != nil {
		t.Fatal(err)
	}
	host := r.at("one/gw", "203.0.113.9:7009")
	outside.send(netip.MustParseAddrPort("203.0.113.9:7009"), "found")
	host.expectPacket("found")
}

// hops sends a packet and returns its time to live on arrival.
func (r *testLab) hops(from, source, to, dst string) int {
	r.t.Helper()
	sender, receiver := r.at(from, source), r.at(to, dst)
	raw, err := receiver.conn.SyscallConn()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := receiveTTL(raw); err != nil {
		r.t.Fatal(err)
	}
	sender.send(netip.MustParseAddrPort(dst), "hop")
	if err := receiver.conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		r.t.Fatal(err)
	}
	control := make([]byte, 100)
	_, n, _, _, err := receiver.conn.ReadMsgUDPAddrPort(make([]byte, 10), control)
	if err != nil {
		r.t.Fatal(err)
	}
	return ttlOf(r.t, control[:n])
}
