package userspacewg

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/conn"
)

// TestBindFamilies sends to addresses of both families in turn: each packet arrives at its
// destination.
func TestBindFamilies(t *testing.T) {
	t.Parallel()
	b := newBind()
	_, _, err := b.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	type end struct {
		at   *net.UDPConn
		addr conn.Endpoint
	}
	var ends []end
	for _, network := range []string{"udp4", "udp6"} {
		ip := netip.MustParseAddr("127.0.0.1")
		if network == "udp6" {
			ip = netip.IPv6Loopback()
		}
		at, err := net.ListenUDP(network, net.UDPAddrFromAddrPort(netip.AddrPortFrom(ip, 0)))
		if err != nil {
			t.Skipf("needs %s: %v", network, err)
		}
		t.Cleanup(func() { _ = at.Close() })
		addr, err := b.ParseEndpoint(at.LocalAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, end{at, addr})
	}
	buffer := make([]byte, 8)
	for round := range 200 {
		for _, e := range ends {
			if err := b.Send([][]byte{{byte(round)}}, e.addr); err != nil {
				t.Fatalf("round %d to %s: %v", round, e.addr.DstToString(), err)
			}
			_ = e.at.SetReadDeadline(time.Now().Add(30 * time.Second))
			if n, _, err := e.at.ReadFromUDP(buffer); err != nil || n != 1 || buffer[0] != byte(round) {
				t.Fatalf("round %d to %s: got % x, %v", round, e.addr.DstToString(), buffer[:n], err)
			}
		}
	}
}
