package endpointprobe

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
)

// TestWrap checks the headers and their checksums as a receiver does.
func TestWrap(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		source, addr string
		kind         uint16
		ip           int // length of its header
		addrs        int // offset of its addresses
	}{
		"IPv4": {"241.0.0.1", "241.0.0.2", 0x0800, 20, 12},
		"IPv6": {"fd00::1", "fd00::2", 0x86dd, 40, 8},
	}
	for name, tt := range tests {
		for _, payload := range []string{"", "odd", "even"} {
			f := Frame{
				VNI: 74, From: net.HardwareAddr{2, 0, 0, 0, 0, 1}, To: net.HardwareAddr{2, 0, 0, 0, 0, 2},
				Source: netip.MustParseAddr(tt.source), Addr: netip.MustParseAddr(tt.addr), Port: 4804,
			}
			raw := f.Wrap([]byte(payload))
			ip, udp := raw[22:22+tt.ip], raw[22+tt.ip:]
			if raw[0] != 8 || binary.BigEndian.Uint32(raw[4:]) != 74<<8 || raw[13] != 2 || raw[19] != 1 || binary.BigEndian.Uint16(raw[20:]) != tt.kind {
				t.Errorf("%s: begins with %x", name, raw[:22])
			}
			if tt.ip == 20 && checksum(ip) != 0xffff {
				t.Errorf("%s: header sums up to %x", name, checksum(ip))
			}
			pseudo := append([]byte(nil), ip[tt.addrs:]...)
			pseudo = append(pseudo, 0, byte(len(udp)), 0, 17)
			if have := checksum(append(pseudo, udp...)); have != 0xffff {
				t.Errorf("%s: datagram %q sums up to %x", name, payload, have)
			}
			if len(udp) != 8+len(payload) || string(udp[8:]) != payload || udp[1] != udp[3] {
				t.Errorf("%s: datagram %x", name, udp)
			}
		}
	}
}
