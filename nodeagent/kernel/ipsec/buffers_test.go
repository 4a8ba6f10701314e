package ipsec

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestReceiveBuffer: charon waits for a processor while packets arrive. The socket buffer drops
// none.
func TestReceiveBuffer(t *testing.T) {
	t.Parallel()
	a, b := pair(t, false)
	process, err := b.charon.process()
	if err != nil || process < 0 {
		t.Fatal(process, err)
	}
	defer unix.Close(process)
	if err := sendSignal(process, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sendSignal(process, unix.SIGCONT) })
	const packets = 1000
	a.inside(t, func() error {
		c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(b.outer, 14500)))
		if err != nil {
			return err
		}
		defer c.Close()
		for range packets {
			if _, err := c.Write([]byte("of no security association")); err != nil {
				return err
			}
		}
		return nil
	})
	counters, err := b.sh("grep ^Udp: /proc/net/snmp")
	if err != nil {
		t.Fatal(counters, err)
	}
	names, values, _ := strings.Cut(strings.TrimSpace(counters), "\n")
	for i, name := range strings.Fields(names) {
		if value := strings.Fields(values)[i]; name == "RcvbufErrors" && value != "0" {
			t.Errorf("%s of %d packets were dropped", value, packets)
		}
	}
}
