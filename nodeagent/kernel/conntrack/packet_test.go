package conntrack

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

func TestBuild(t *testing.T) {
	t.Parallel()
	tuples := map[string]Tuple{
		"IPv4": {netip.MustParseAddrPort("10.7.1.5:40000"), netip.MustParseAddrPort("242.2.0.32:80")},
		"IPv6": {netip.MustParseAddrPort("[fd00:7::5]:40000"), netip.MustParseAddrPort("[fd00:42:2::32]:80")},
	}
	for family, tuple := range tuples {
		for name, protocol := range map[string]uint8{"TCP": unix.IPPROTO_TCP, "UDP": unix.IPPROTO_UDP} {
			t.Run(family+" "+name, func(t *testing.T) {
				t.Parallel()
				packet := buildRefresh(protocol, tuple, refreshTTL)
				segment := checkHeader(t, packet, protocol, tuple)
				if sum := checksum(pseudoHeaderSum(protocol, tuple, len(segment)), segment); sum != 0 {
					t.Errorf("checksum of the segment leaves %#x", sum)
				}
				if binary.BigEndian.Uint16(segment) != 40000 || binary.BigEndian.Uint16(segment[2:]) != 80 {
					t.Errorf("ports % x", segment[:4])
				}
				if protocol == unix.IPPROTO_TCP && (len(segment) != 20 || segment[12] != 0x50 || segment[13] != 0x10) {
					t.Errorf("% x is no ACK without data", segment)
				}
				if protocol == unix.IPPROTO_UDP && (len(segment) != 8 || binary.BigEndian.Uint16(segment[4:]) != 8) {
					t.Errorf("% x is no empty datagram", segment)
				}
			})
		}
	}
}

// checkHeader checks the IP header and returns the payload.
func checkHeader(t *testing.T, packet []byte, protocol uint8, tuple Tuple) []byte {
	t.Helper()
	if tuple.From.Addr().Is4() {
		h, err := ipv4.ParseHeader(packet)
		if err != nil {
			t.Fatal(err)
		}
		if h.TTL != refreshTTL || h.Protocol != int(protocol) || h.TotalLen != len(packet) ||
			h.Src.String() != tuple.From.Addr().String() || h.Dst.String() != tuple.To.Addr().String() {
			t.Errorf("header %v", h)
		}
		if sum := checksum(0, packet[:h.Len]); sum != 0 {
			t.Errorf("checksum of the header leaves %#x", sum)
		}
		return packet[h.Len:]
	}
	h, err := ipv6.ParseHeader(packet)
	if err != nil {
		t.Fatal(err)
	}
	if h.HopLimit != refreshTTL || h.NextHeader != int(protocol) || h.PayloadLen != len(packet)-ipv6.HeaderLen ||
		h.Src.String() != tuple.From.Addr().String() || h.Dst.String() != tuple.To.Addr().String() {
		t.Errorf("header %v", h)
	}
	return packet[ipv6.HeaderLen:]
}

// TestChecksumUDP finds a datagram whose checksum is zero, which means "none"
// in UDP and must be sent as ones.
func TestChecksumUDP(t *testing.T) {
	t.Parallel()
	to := netip.MustParseAddrPort("242.2.0.32:80")
	for port := range 1 << 16 {
		packet := buildRefresh(unix.IPPROTO_UDP, Tuple{netip.AddrPortFrom(netip.MustParseAddr("10.7.1.5"), uint16(port)), to}, refreshTTL)
		if binary.BigEndian.Uint16(packet[sizeIPv4+6:]) == 0 {
			t.Fatalf("port %d: no checksum", port)
		}
	}
}

func TestLookup(t *testing.T) {
	t.Parallel()
	l := newPrefixTable()
	l.add("g2", remotePrefixes)
	l.add("g3", []netip.Prefix{netip.MustParsePrefix("242.2.4.0/24"), netip.MustParsePrefix("0.0.0.0/1")})
	for addr, want := range map[string]string{
		"242.2.0.32": "g2", "242.2.4.1": "g3", "10.0.0.1": "g3", "200.0.0.1": "", "fd00:42:2::1": "g2", "::1": "",
	} {
		if got, ok := l.find(netip.MustParseAddr(addr)); got != want || ok != (want != "") {
			t.Errorf("%s belongs to %q %v, want %q", addr, got, ok, want)
		}
	}
}
