package endpointprobe

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
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

// gateway starts a WireGuard device on a free port of this host. It returns the keys of its
// peer and the port.
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

// TestHandshake sends an initiation to wireguard-go. Only its own response counts, even after
// forged ones.
func TestHandshake(t *testing.T) {
	t.Parallel()
	keys, port := gateway(t)
	conn, err := net.Dial("udp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	h, message, err := newInitiation(keys)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(message); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(60 * time.Second)); err != nil {
		t.Fatal(err)
	}
	reply := make([]byte, maxReplyLength)
	n, err := conn.Read(reply)
	if err != nil {
		t.Fatal(err)
	}
	reply = reply[:n]
	if index, ok := replyIndex(reply); !ok || index != h.index {
		t.Fatalf("receiver %d %t, want %d", index, ok, h.index)
	}
	for i := responseHeaderLength; i < len(reply)-macsLength; i += 7 { // ephemeral key and tag
		forged := bytes.Clone(reply)
		forged[i] ^= 1
		if h.isReply(forged) {
			t.Errorf("a response with a changed byte %d counts", i)
		}
	}
	lowOrder := bytes.Clone(reply)
	clear(lowOrder[responseHeaderLength:][:device.NoisePublicKeySize])
	if h.isReply(lowOrder) {
		t.Error("a response with a key of low order counts")
	}
	other, _, err := newInitiation(keys)
	if err != nil {
		t.Fatal(err)
	}
	if other.isReply(reply) {
		t.Error("the response to another initiation counts")
	}
	if !h.isReply(reply) {
		t.Error("the peer's response does not count after forged ones")
	}
}

// TestCookieReply checks the reply of a peer under load: a cookie, which only the holder of its key
// can make for this initiation.
func TestCookieReply(t *testing.T) {
	t.Parallel()
	private, public := newKey(t)
	_, peerPublic := newKey(t)
	h, message, err := newInitiation(Keys{Private: private, Public: peerPublic})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[[32]byte]bool{peerPublic: true, public: false} {
		var peer device.CookieChecker
		peer.Init(key)
		reply, err := peer.CreateReply(message, h.index, []byte{192, 0, 2, 1, 4, 0})
		if err != nil {
			t.Fatal(err)
		}
		raw, err := binary.Append(nil, binary.LittleEndian, reply)
		if err != nil {
			t.Fatal(err)
		}
		if index, ok := replyIndex(raw); !ok || index != h.index || h.isReply(raw) != want {
			t.Errorf("receiver %d %t, want %d; a cookie of the peer: %t", index, ok, h.index, want)
		}
	}
}

// TestProbeWireGuard sends probes through raw sockets, over both families.
func TestProbeWireGuard(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		if os.Getenv("REQUIRE_KERNEL") == "1" {
			t.Fatal("needs root")
		}
		t.Skip("needs root")
	}
	keys, port := gateway(t)
	s := New()
	defer s.Close()
	for _, text := range []string{"127.0.0.1", "::1"} {
		addr := netip.MustParseAddr(text)
		own := listener(t, addr)
		replied := make(chan struct{}, 1)
		// A device drops an initiation within 20 ms of the previous one.
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		deadline := time.After(60 * time.Second)
		for done := false; !done; {
			err := s.ProbeWireGuard(Request{Keys: keys, From: own, To: netip.AddrPortFrom(addr, port)}, func() {
				select {
				case replied <- struct{}{}:
				default: // an earlier probe got a reply
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			select {
			case <-replied:
				done = true
			case <-tick.C:
			case <-deadline:
				t.Fatalf("no reply from %s", text)
			}
		}
	}
}

// listener binds a free port, as a tunnel device does, and returns it.
func listener(t *testing.T, addr netip.Addr) uint16 {
	t.Helper()
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return netip.MustParseAddrPort(c.LocalAddr().String()).Port()
}

// FuzzReply checks that no datagram makes the reader panic or counts by chance.
func FuzzReply(f *testing.F) {
	keys, _ := gateway(f)
	h, message, err := newInitiation(keys)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(message)
	f.Add(append([]byte{2, 0, 0, 0}, make([]byte, 88)...))
	f.Add(append([]byte{3, 0, 0, 0}, make([]byte, 60)...))
	c := New()
	c.pending[0] = pending{initiation: h, onReply: func() {}}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if c.matchReply(raw) != nil {
			t.Error("a random reply counts")
		}
	})
}
