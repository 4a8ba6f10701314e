package endpointprobe

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun/tuntest"

	"hawser.dev/hawser/schema/fabric"
)

func newKey(t testing.TB) (private fabric.Secret, public [32]byte) {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	copy(private[:], key.Bytes())
	copy(public[:], key.PublicKey().Bytes())
	return private, public
}

// gateway is a WireGuard device on a free port of this host, and the keys of one
// that it knows.
func gateway(t testing.TB) (Keys, uint16) {
	t.Helper()
	own, ownPublic := newKey(t)
	peer, peerPublic := newKey(t)
	var psk fabric.Secret
	_, _ = rand.Read(psk[:])
	log := device.NewLogger(device.LogLevelError, "")
	d := device.NewDevice(tuntest.NewChannelTUN().TUN(), conn.NewDefaultBind(), log)
	t.Cleanup(d.Close)
	err := d.IpcSet(fmt.Sprintf("private_key=%x\nlisten_port=0\npublic_key=%x\npreshared_key=%s\n", own[:], peerPublic[:], hex.EncodeToString(psk[:])))
	if err == nil {
		err = d.Up()
	}
	if err != nil {
		t.Fatal(err)
	}
	var port uint16
	text, err := d.IpcGet()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(text, "\n") {
		if _, err := fmt.Sscanf(line, "listen_port=%d", &port); err == nil {
			break
		}
	}
	return Keys{Private: peer, Public: ownPublic, PSK: psk}, port
}

// TestHandshake: WireGuard itself answers our first message, and only its answer counts.
func TestHandshake(t *testing.T) {
	t.Parallel()
	keys, port := gateway(t)
	conn, err := net.Dial("udp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	h, raw, err := newInitiation(keys)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(raw); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(60 * time.Second)); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, longest)
	n, err := conn.Read(answer)
	if err != nil {
		t.Fatal(err)
	}
	answer = answer[:n]
	if index, ok := replyIndex(answer); !ok || index != h.index {
		t.Fatalf("receiver %d %t, want %d", index, ok, h.index)
	}
	if !h.verifies(answer) {
		t.Error("the answer does not prove anything")
	}
	for i := 12; i < 60; i += 7 { // ephemeral key and tag
		answer[i] ^= 1
		if h.verifies(answer) {
			t.Errorf("an answer that was changed at byte %d counts", i)
		}
		answer[i] ^= 1
	}
	other, _, err := newInitiation(keys)
	if err != nil {
		t.Fatal(err)
	}
	if other.verifies(answer) {
		t.Error("the answer to another question counts")
	}
}

// TestAsk sends real questions through raw sockets, over both families.
func TestAsk(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		if os.Getenv("REQUIRE_KERNEL") == "1" {
			t.Fatal("needs root")
		}
		t.Skip("needs root")
	}
	keys, port := gateway(t)
	s := New(slog.New(slog.DiscardHandler))
	defer s.Close()
	for _, text := range []string{"127.0.0.1", "::1"} {
		addr := netip.MustParseAddr(text)
		own := listener(t, addr)
		answered := make(chan struct{}, 1)
		// One may be lost, or come within 20 ms of the last.
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		deadline := time.After(60 * time.Second)
		for done := false; !done; {
			err := s.ProbeWireGuard(Request{Keys: keys, From: own, To: netip.AddrPortFrom(addr, port)}, func() {
				select {
				case answered <- struct{}{}:
				default: // another one came before
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			select {
			case <-answered:
				done = true
			case <-tick.C:
			case <-deadline:
				t.Fatalf("no answer from %s", text)
			}
		}
	}
}

// listener holds a port, as a tunnel device would.
func listener(t *testing.T, addr netip.Addr) uint16 {
	t.Helper()
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return netip.MustParseAddrPort(c.LocalAddr().String()).Port()
}

// FuzzAnswer checks that no datagram makes the reader panic or counts by chance.
func FuzzAnswer(f *testing.F) {
	keys, _ := gateway(f)
	h, raw, err := newInitiation(keys)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add(append([]byte{2, 0, 0, 0}, make([]byte, 88)...))
	f.Add(append([]byte{3, 0, 0, 0}, make([]byte, 60)...))
	s := New(slog.New(slog.DiscardHandler))
	s.open[0] = pending{handshake: h, answer: func() {}}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if s.matchReply(raw) != nil {
			t.Error("a made-up answer counts")
		}
	})
}
