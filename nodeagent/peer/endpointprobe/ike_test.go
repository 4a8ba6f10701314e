package endpointprobe

import (
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"
)

// TestAskIKE: the answer counts that names the question, behind the marker of IKE.
func TestAskIKE(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		answer func(question []byte) []byte
		want   bool
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
			s := New(slog.New(slog.DiscardHandler))
			answered := make(chan struct{}, 1)
			if err := s.ProbeIKE(netip.MustParseAddrPort(conn.LocalAddr().String()), func() { answered <- struct{}{} }); err != nil {
				t.Fatal(err)
			}
			buffer := make([]byte, longest)
			n, from, err := conn.ReadFromUDPAddrPort(buffer)
			if err != nil {
				t.Fatal(err)
			}
			if n != 32 || buffer[4+17] != 3<<4 || buffer[31] != 28 {
				t.Errorf("question %x", buffer[:n])
			}
			if _, err := conn.WriteToUDPAddrPort(tt.answer(buffer[:n:n]), from); err != nil {
				t.Fatal(err)
			}
			if tt.want {
				select {
				case <-answered:
				case <-time.After(60 * time.Second):
					t.Error("the answer does not count")
				}
			}
			s.Close() // and so all that was read is judged
			if !tt.want && len(answered) > 0 {
				t.Error("the answer counts")
			}
		})
	}
}
