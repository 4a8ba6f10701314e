package sniff

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"
)

func rules() Rules {
	return Rules{
		Endpoints: map[netip.Addr]bool{
			netip.MustParseAddr(g1): true, netip.MustParseAddr(g2): true, netip.MustParseAddr(g1six): true, netip.MustParseAddr(g2six): true,
		},
		Ports: [2]uint16{51820, 51825},
		Inside: []netip.Prefix{
			netip.MustParsePrefix("10.7.0.0/16"), netip.MustParsePrefix("172.18.0.0/16"),
			netip.MustParsePrefix("fd00:10:7::/56"), netip.MustParsePrefix("fd00:172:18::/64"),
		},
		Nodes: []netip.Prefix{netip.MustParsePrefix("172.18.0.0/16"), netip.MustParsePrefix("fd00:172:18::/64")},
		VXLAN: 4803,
		Pods:  []netip.Prefix{netip.MustParsePrefix("10.7.0.0/16"), netip.MustParsePrefix("fd00:10:7::/56")},
		Global: map[string][]netip.Prefix{
			"g1": {netip.MustParsePrefix("242.1.0.0/16"), netip.MustParsePrefix("fd7f:1::/48")},
			"g2": {netip.MustParsePrefix("242.2.0.0/16"), netip.MustParsePrefix("fd7f:2::/48")},
		},
		Direct: map[HardwareAddr]DirectNode{
			{1}: {"g1", true, false}, {2}: {"g1", true, false}, {3}: {"g1", false, true}, {4}: {"g1", false, true},
			{5}: {"g2", true, false}, {7}: {"g1", true, true},
		},
		Mark: []byte("watched payload"),
	}
}

// ipv4 returns a frame; body follows the IP header.
func ipv4(src, dst string, proto byte, body []byte) []byte {
	out := make([]byte, 34)
	binary.BigEndian.PutUint16(out[12:], etherIPv4)
	out[14], out[23] = 0x45, proto
	copy(out[26:], netip.MustParseAddr(src).AsSlice())
	copy(out[30:], netip.MustParseAddr(dst).AsSlice())
	return append(out, body...)
}

func udp(src, dst uint16, payload string) []byte {
	out := make([]byte, 8)
	binary.BigEndian.PutUint16(out, src)
	binary.BigEndian.PutUint16(out[2:], dst)
	return append(out, payload...)
}

func icmp(kind byte, quoted []byte) []byte {
	return append([]byte{kind, 3, 0, 0, 0, 0, 0, 0}, quoted...)
}

func other(kind uint16, body ...byte) []byte {
	out := make([]byte, 14)
	binary.BigEndian.PutUint16(out[12:], kind)
	return append(out, body...)
}

func ipv6(next byte, body ...byte) []byte {
	header := make([]byte, 40)
	header[0], header[6] = 0x60, next
	return other(etherIPv6, append(header, body...)...)
}

const (
	g1, g2       = "203.0.113.11", "203.0.113.21"
	g1six, g2six = "2001:db8::11", "2001:db8::21"
	sealed       = "\x04\x00\x00\x00 ciphertext"
)

// ip6 returns a frame; body follows the IP header.
func ip6(src, dst string, proto byte, body []byte) []byte {
	header := make([]byte, 40)
	header[0], header[6] = 0x60, proto
	copy(header[8:], netip.MustParseAddr(src).AsSlice())
	copy(header[24:], netip.MustParseAddr(dst).AsSlice())
	return other(etherIPv6, append(header, body...)...)
}

// after puts an extension header of 8 bytes before a body.
func after(next, second byte, offset uint16, body []byte) []byte {
	return append([]byte{next, second, byte(offset >> 8), byte(offset), 0, 0, 0, 0}, body...)
}

func icmp6(kind byte, quoted []byte) []byte {
	return append([]byte{kind, 0, 0, 0, 0, 0, 0, 0}, quoted...)
}

func fragment(frame []byte) []byte {
	binary.BigEndian.PutUint16(frame[20:], 100)
	return frame
}

func TestWAN(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		frame []byte
		wrong string // part of the finding; empty = the frame may pass
	}{
		{"arp", other(etherARP), ""},
		{"neighbour discovery", ipv6(58, 135), ""},
		{"multicast listener report", ipv6(0, append([]byte{58, 0, 5, 2, 0, 0, 1, 0}, 143)...), ""},
		{"tunnel", ipv4(g1, g2, 17, udp(51820, 51822, sealed)), ""},
		{"second epoch of the last ordinal", ipv4(g1, g2, 17, udp(51825, 51825, sealed)), ""},
		{"later fragment of a tunnel's packet", fragment(ipv4(g1, g2, 17, []byte("anything"))), ""},
		{"refusal of a tunnel's packet", ipv4(g2, g1, 1, icmp(3, ipv4(g1, g2, 17, udp(51820, 51820, ""))[14:])), ""},
		{"refusal of something else", ipv4(g2, g1, 1, icmp(3, ipv4(g1, g2, 6, udp(80, 80, ""))[14:])), "not a tunnel's"},
		{"ping between gateways", ipv4(g1, g2, 1, icmp(8, nil)), "not a tunnel's"},
		{"ports outside the tunnels' range", ipv4(g1, g2, 17, udp(51819, 51826, sealed)), "not a tunnel's"},
		{"a handshake before the own port is known", ipv4(g1, g2, 17, udp(50001, 51820, sealed)), ""},
		{"its answer", ipv4(g2, g1, 17, udp(51820, 50001, sealed)), ""},
		{"no WireGuard in it", ipv4(g1, g2, 17, udp(51820, 51820, "\x45\x00\x00\x00")), "not a tunnel's"},
		{"WireGuard with a wrong reserved byte", ipv4(g1, g2, 17, udp(51820, 51820, "\x04\x00\x01\x00")), "not a tunnel's"},
		{"a stranger", ipv4("10.7.0.2", g2, 17, udp(51820, 51820, sealed)), "not a tunnel's"},
		{"a plain pod's packet", ipv4("10.7.3.3", "242.2.0.10", 6, udp(40000, 8001, "")), "not a tunnel's"},
		{"vxlan", ipv4(g1, g2, 17, udp(4803, 4803, sealed)), "not a tunnel's"},
		{"payload in a tunnel's packet", ipv4(g1, g2, 17, udp(51820, 51820, sealed+"watched payload")), "in clear"},
		{"payload in anything", other(0x88b5, []byte("..watched payload")...), "in clear"},
		{"plain IPv6", ipv6(6, 0, 80), "not a tunnel's"},
		{"tunnel over IPv6", ip6(g1six, g2six, 17, udp(51820, 51822, sealed)), ""},
		{"behind hop-by-hop options", ip6(g1six, g2six, 0, after(17, 0, 0, udp(51820, 51822, sealed))), ""},
		{"first fragment over IPv6", ip6(g1six, g2six, 44, after(17, 0, 1, udp(51820, 51822, sealed))), ""},
		{"later fragment over IPv6", ip6(g1six, g2six, 44, after(17, 0, 8|1, []byte("anything"))), ""},
		{"later fragment of something else", ip6(g1six, g2six, 44, after(6, 0, 8, []byte("anything"))), "not a tunnel's"},
		{"refusal over IPv6", ip6(g2six, g1six, 58, icmp6(1, ip6(g1six, g2six, 17, udp(51820, 51820, ""))[14:])), ""},
		{"too long over IPv6", ip6(g2six, g1six, 58, icmp6(2, ip6(g1six, g2six, 17, udp(51820, 51820, ""))[14:])), ""},
		{"refusal of something else over IPv6", ip6(g2six, g1six, 58, icmp6(1, ip6(g1six, g2six, 6, udp(80, 80, ""))[14:])), "not a tunnel's"},
		{"ping between gateways over IPv6", ip6(g1six, g2six, 58, icmp6(128, nil)), "not a tunnel's"},
		{"no WireGuard over IPv6", ip6(g1six, g2six, 17, udp(51820, 51820, "\x60\x00\x00\x00")), "not a tunnel's"},
		{"a plain pod's packet over IPv6", ip6("fd00:10:7::1:2", "fd7f::2", 6, udp(40000, 8001, "")), "not a tunnel's"},
		{"cut off extension header", ip6(g1six, g2six, 0, []byte{17, 0}), "unknown"},
		{"unknown type", other(0x88b5), "unknown"},
		{"too short", []byte{1, 2}, "2 bytes"},
		{"cut off header", ipv4(g1, g2, 17, nil)[:20], "unknown"},
	} {
		got := rules().WAN(c.frame)
		if (c.wrong == "") != (got == "") || !strings.Contains(got, c.wrong) {
			t.Errorf("%s: %q, want %q", c.name, got, c.wrong)
		}
	}
}

func TestLAN(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		frame []byte
		wrong string
	}{
		{"arp", other(etherARP), ""},
		{"vxlan with anything in it", ipv4("172.18.0.2", "172.18.0.5", 17, udp(50000, 4803, "watched payload")), ""},
		{"pod to pod", ipv4("10.7.1.2", "10.7.3.3", 6, udp(40000, 8001, "watched payload")), ""},
		{"node to pod", ipv4("172.18.0.2", "10.7.3.3", 1, icmp(3, nil)), ""},
		{"membership of a group", ipv4("172.18.0.2", "224.0.0.22", 2, nil), ""},
		{"refusal of a tunnel's packet", ipv4(g2, g1, 1, icmp(3, ipv4(g1, g2, 17, udp(51820, 51820, ""))[14:])), ""},
		{"refusal of something else", ipv4(g2, g1, 1, icmp(3, ipv4(g1, g2, 6, udp(80, 80, ""))[14:])), "in clear"},
		{"vxlan to the outside", ipv4("172.18.0.2", "203.0.113.21", 17, udp(50000, 4803, "")), "in clear"},
		{"pod to another cluster", ipv4("10.7.1.2", "242.2.0.10", 6, udp(40000, 8001, "")), "in clear"},
		{"the same, masqueraded", ipv4("172.18.0.5", "242.2.0.10", 6, udp(40000, 8001, "")), "in clear"},
		{"clusterset address", ipv4("172.18.0.5", "243.0.0.2", 17, udp(40000, 8002, "")), "in clear"},
		{"from another cluster", ipv4("242.1.3.3", "10.7.3.3", 6, udp(40000, 8001, "")), "in clear"},
		{"to a gateway elsewhere", ipv4("172.18.0.5", g2, 17, udp(51820, 51820, sealed)), "in clear"},
		{"datagrams to a group", ipv4("172.18.0.5", "239.1.1.1", 17, udp(1, 4803, "")), "in clear"},
		{"unknown type", other(0x88b5), "unknown"},
		{"vxlan over IPv6", ip6("fd00:172:18::2", "fd00:172:18::5", 17, udp(50000, 4803, "watched payload")), ""},
		{"pod to pod over IPv6", ip6("fd00:10:7::1:2", "fd00:10:7::3:3", 6, udp(40000, 8001, "watched payload")), ""},
		{"pod to another cluster over IPv6", ip6("fd00:10:7::1:2", "fd7f::2", 6, udp(40000, 8001, "")), "in clear"},
		{"from another cluster over IPv6", ip6("fd7f::2", "fd00:10:7::3:3", 6, udp(40000, 8001, "")), "in clear"},
		{"to a gateway elsewhere over IPv6", ip6("fd00:172:18::5", g2six, 17, udp(51820, 51820, sealed)), "in clear"},
	} {
		got := rules().LAN(c.frame)
		if (c.wrong == "") != (got == "") || !strings.Contains(got, c.wrong) {
			t.Errorf("%s: %q, want %q", c.name, got, c.wrong)
		}
	}
}

// between sets the hardware addresses of a frame.
func between(from, to byte, frame []byte) []byte {
	frame[0], frame[6] = to, from
	return frame
}

// TestDirect tests the packets that a cluster's network may have without VXLAN: between a gateway and
// another node.
func TestDirect(t *testing.T) {
	t.Parallel()
	out := func() []byte { return ipv4("10.7.1.2", "242.2.0.10", 6, udp(40000, 8001, "watched payload")) }
	back := func() []byte { return ipv4("242.2.0.10", "10.7.1.2", 6, udp(8001, 40000, "watched payload")) }
	out6 := func() []byte { return ip6("fd00:10:7::1:2", "fd7f:2::10", 6, udp(40000, 8001, "")) }
	const gateway, sibling, worker, other, foreign, unknown, both = 1, 2, 3, 4, 5, 6, 7
	for _, c := range []struct {
		name  string
		frame []byte
		fine  bool
	}{
		{"from a worker to its gateway", between(worker, gateway, out()), true},
		{"from a gateway to a worker", between(gateway, worker, back()), true},
		{"over IPv6", between(worker, gateway, out6()), true},
		{"from a node that may be a gateway", between(both, worker, back()), true},
		{"from a node that may be a worker", between(both, gateway, out()), true},
		{"from a worker to a worker", between(worker, other, out()), false},
		{"from a gateway to a gateway", between(gateway, sibling, out()), false},
		{"to a gateway of another cluster", between(worker, foreign, out()), false},
		{"to the default gateway of the network", between(worker, unknown, out()), false},
		{"from a host that is no node", between(unknown, gateway, out()), false},
		{"from a gateway in the direction of the worker", between(gateway, worker, out()), false},
		{"from a worker in the direction of the gateway", between(worker, gateway, back()), false},
		{"to an address of the own cluster", between(worker, gateway, ipv4("10.7.1.2", "242.1.0.10", 6, udp(1, 2, ""))), false},
		{"from an address of the own cluster", between(gateway, worker, ipv4("242.1.0.10", "10.7.1.2", 6, udp(1, 2, ""))), false},
		{"masqueraded", between(worker, gateway, ipv4("172.18.0.5", "242.2.0.10", 6, udp(1, 2, ""))), false},
		{"to a clusterset address", between(worker, gateway, ipv4("10.7.1.2", "243.0.0.2", 6, udp(1, 2, ""))), false},
		{"a test packet of a worker", between(gateway, worker, ipv4("242.2.255.254", "172.18.0.5", 17, udp(50000, 4804, ""))), true},
		{"a test packet of another port", between(gateway, worker, ipv4("242.2.255.254", "172.18.0.5", 17, udp(50000, 4805, ""))), false},
		{"an error of a worker", between(worker, gateway, ipv4("172.18.0.5", "242.2.0.10", 1, icmp(3, nil))), true},
		{"a ping of a worker", between(worker, gateway, ipv4("172.18.0.5", "242.2.0.10", 1, icmp(8, nil))), false},
		{"an error of a gateway inside the tunnels", between(gateway, worker, ipv4("241.0.0.1", "10.7.1.2", 1, icmp(3, nil))), true},
		{"a ping of a gateway inside the tunnels", between(gateway, worker, ipv4("241.0.0.1", "10.7.1.2", 1, icmp(8, nil))), false},
	} {
		if wrong := rules().LAN(c.frame); (wrong == "") != c.fine {
			t.Errorf("%s: %q, want fine %v", c.name, wrong, c.fine)
		}
	}
}

func TestSource(t *testing.T) {
	t.Parallel()
	if got := Source(ipv4("242.1.3.3", "10.7.3.3", 6, nil)); got != netip.MustParseAddr("242.1.3.3") {
		t.Errorf("source %v", got)
	}
	if got := Source(ip6("fd7f::1", "fd00:10:7::3:3", 6, nil)); got != netip.MustParseAddr("fd7f::1") {
		t.Errorf("source over IPv6: %v", got)
	}
	for _, frame := range [][]byte{other(etherARP), ip6("fe80::1", "ff02::1", 58, []byte{135}), {1}} {
		if got := Source(frame); got.IsValid() {
			t.Errorf("source of %x: %v", frame, got)
		}
	}
}

func TestInnerResets(t *testing.T) {
	t.Parallel()
	tcp := func(flags byte) []byte { return append(append(make([]byte, 13), flags), 0, 0, 0, 0, 0, 0) }
	reset, plain := ipv4("10.7.1.2", "242.2.0.10", 6, tcp(0x14)), ipv4("10.7.1.2", "242.2.0.10", 6, tcp(0x10))
	if !Resets(reset) || Resets(plain) || Resets(other(etherARP)) || Resets(reset[:40]) {
		t.Error("Resets is wrong")
	}
	if !Refuses(ipv4(g1, g2, 1, icmp(11, nil))) || Refuses(ipv4(g1, g2, 1, icmp(8, nil))) || Refuses(reset) {
		t.Error("Refuses is wrong")
	}
	if six := ip6("fd00:10:7::1:2", "fd7f::1", 6, tcp(0x14)); !Resets(six) || Refuses(six) ||
		!Refuses(ip6(g1six, g2six, 58, icmp6(3, nil))) || Refuses(ip6(g1six, g2six, 58, icmp6(128, nil))) {
		t.Error("Resets or Refuses is wrong over IPv6")
	}
	packed := ipv4("172.18.0.2", "172.18.0.5", 17, append(udp(50000, 4803, "12345678"), reset...))
	if got := Inner(packed, 4803); string(got) != string(reset) {
		t.Errorf("inner frame: %x", got)
	}
	if Inner(packed, 4804) != nil || Inner(reset, 4803) != nil || Inner(packed[:45], 4803) != nil {
		t.Error("Inner returned a frame for a packet without one")
	}
}
