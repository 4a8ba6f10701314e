package endpointprobe

import (
	"net"
	"net/netip"
	"testing"
	"time"
)

// TestProbeIKE checks that a reply counts if it has the probe's SPI after the non-ESP marker.
func TestProbeIKE(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reply func(probe []byte) []byte
		want  bool
	}{
		"its own":      {func(q []byte) []byte { return q }, true},
		"longer":       {func(q []byte) []byte { return append(q, 1, 2, 3) }, true},
		"too short":    {func(q []byte) []byte { return q[:20] }, false},
		"another's":    {func(q []byte) []byte { q[5] ^= 1; return q }, false},
		"ESP":          {func(q []byte) []byte { q[0] = 1; return q }, false},
		"empty packet": {func([]byte) []byte { return nil }, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			c := New()
			replied := make(chan struct{}, 1)
			if err := c.ProbeIKE(netip.MustParseAddrPort(conn.LocalAddr().String()), func() { replied <- struct{}{} }); err != nil {
				t.Fatal(err)
			}
			buffer := make([]byte, maxReplyLength)
			n, from, err := conn.ReadFromUDPAddrPort(buffer)
			if err != nil {
				t.Fatal(err)
			}
			if n != 32 || buffer[4+17] != 3<<4 || buffer[31] != 28 {
				t.Errorf("probe %x", buffer[:n])
			}
			if _, err := conn.WriteToUDPAddrPort(tt.reply(buffer[:n:n]), from); err != nil {
				t.Fatal(err)
			}
			if tt.want {
				select {
				case <-replied:
				case <-time.After(60 * time.Second):
					t.Error("the reply does not count")
				}
			}
			c.Close() // waits until all replies are read
			if !tt.want && len(replied) > 0 {
				t.Error("the reply counts")
			}
		})
	}
}
