package socket

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestFreebindBindsMissingAddress(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"192.0.2.73", "2001:db8::73"} {
		addr := netip.AddrPortFrom(netip.MustParseAddr(address), 0)
		plain := net.ListenConfig{}
		if conn, err := plain.ListenPacket(context.Background(), Network("udp", addr.Addr()), addr.String()); err == nil {
			_ = conn.Close()
			t.Fatalf("%s exists on this host, so the test shows nothing", address)
		}
		free := net.ListenConfig{Control: Options{Freebind: true}.Control}
		conn, err := free.ListenPacket(context.Background(), Network("udp", addr.Addr()), addr.String())
		if err != nil {
			t.Fatalf("listen on %s: %v", address, err)
		}
		_ = conn.Close()
	}
}

// silentSet returns a Set that sends no replies. It is closed at the end of the test.
func silentSet(t *testing.T) *Set {
	t.Helper()
	set := NewSet(SetConfig{
		Log: slog.New(slog.DiscardHandler), MaxDatagram: 100,
		Read: func(Arrival, []byte) []Datagram { return nil },
	})
	t.Cleanup(set.Close)
	return set
}

// TestSetSendsFromOwnAddressesOnly checks that nothing leaves from an address that the host
// does not have yet, with and without routes.
func TestSetSendsFromOwnAddressesOnly(t *testing.T) {
	t.Parallel()
	set := silentSet(t)
	for _, tt := range []struct {
		from, to string
		sent     uint64
	}{
		{"192.0.2.73", "127.0.0.1", 0},
		{"127.0.0.1", "127.0.0.1", 1},
		{"2001:db8::73", "::1", 0},
		{"::1", "::1", 1},
	} {
		from := Bind{Addr: netip.MustParseAddr(tt.from)}
		to := netip.AddrPortFrom(netip.MustParseAddr(tt.to), 9)
		if conn, err := net.ListenPacket("udp", net.JoinHostPort(tt.to, "0")); err != nil {
			continue // the host does not have this family
		} else {
			_ = conn.Close()
		}
		set.Update(time.Now(), func(bool) map[Bind]bool { return map[Bind]bool{from: true} })
		if sent, failed := set.Send([]Datagram{{From: from, To: to, Raw: []byte("x")}}); sent != tt.sent || sent+failed != 1 {
			t.Errorf("from %s: sent %d, failed %d", from.Addr, sent, failed)
		}
	}
}

// TestSetStaysOnTheLink checks that no router forwards packets of a Set.
func TestSetStaysOnTheLink(t *testing.T) {
	t.Parallel()
	set := silentSet(t)
	for _, tt := range []struct {
		addr          string
		level, option int
	}{
		{"127.0.0.1", unix.IPPROTO_IP, unix.IP_RECVTTL},
		{"::1", unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT},
	} {
		there, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(tt.addr), 0)))
		if err != nil {
			continue // the host does not have this family
		}
		defer func() { _ = there.Close() }()
		raw, err := there.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if err := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), tt.level, tt.option, 1) }); err != nil {
			t.Fatal(err)
		}
		from := Bind{Addr: netip.MustParseAddr(tt.addr)}
		set.Update(time.Now(), func(bool) map[Bind]bool { return map[Bind]bool{from: true} })
		set.Send([]Datagram{{From: from, To: there.LocalAddr().(*net.UDPAddr).AddrPort(), Raw: []byte("x")}})
		if have := nextHopLimit(t, there); have != 1 {
			t.Errorf("from %s: hop limit %d, want 1", tt.addr, have)
		}
	}
}

// TestSetPastRoutes checks that packets over a named device leave from the port of the Set,
// and that both ends know the interface on which they arrive.
func TestSetPastRoutes(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		if os.Getenv("REQUIRE_KERNEL") == "1" {
			t.Fatal("needs root")
		}
		t.Skip("needs root")
	}
	const port = 48041
	lo := DeviceIndex("lo")
	for _, address := range []string{"127.0.0.1", "::1"} {
		addr := netip.MustParseAddr(address)
		if conn, err := net.ListenPacket("udp", net.JoinHostPort(address, "0")); err != nil {
			continue // the host does not have this family
		} else {
			_ = conn.Close()
		}
		arrived := make(chan Arrival, 4)
		set := NewSet(SetConfig{
			Port: port, Log: slog.New(slog.DiscardHandler), MaxDatagram: 100,
			Read: func(in Arrival, raw []byte) []Datagram {
				arrived <- in
				if string(raw) == "ask" {
					return []Datagram{{From: Bind{Addr: addr}, Device: "lo", To: in.From, Raw: []byte("answer")}}
				}
				return nil
			},
		})
		defer set.Close()
		set.Update(time.Now(), func(bool) map[Bind]bool { return map[Bind]bool{{Addr: addr}: true} })
		request := Datagram{From: Bind{Addr: addr}, Device: "lo", To: netip.AddrPortFrom(addr, port), Raw: []byte("ask")}
		if sent, failed := set.Send([]Datagram{request}); sent != 1 || failed != 0 {
			t.Fatalf("%s: sent %d, failed %d", address, sent, failed)
		}
		for range 2 {
			select {
			case in := <-arrived:
				if in.From != request.To || in.Local != request.From || in.Index != lo || DeviceName(in.Index) != "lo" {
					t.Errorf("%s: arrived as %+v", address, in)
				}
			case <-time.After(time.Minute):
				t.Fatalf("%s: nothing arrives", address)
			}
		}
		if sent, _ := set.Send([]Datagram{{From: request.From, Device: "hw-none", To: request.To, Raw: request.Raw}}); sent != 0 {
			t.Errorf("%s: sent over a device that does not exist", address)
		}
	}
}

// TestPortIsTaken checks that no other user receives packets for a Set by binding its port.
func TestPortIsTaken(t *testing.T) {
	t.Parallel()
	free, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.LocalAddr().(*net.UDPAddr).AddrPort()
	_ = free.Close()
	set := NewSet(SetConfig{
		Port: address.Port(), Log: slog.New(slog.DiscardHandler), MaxDatagram: 100,
		Read: func(Arrival, []byte) []Datagram { return nil },
	})
	defer set.Close()
	set.Update(time.Now(), func(bool) map[Bind]bool { return map[Bind]bool{{Addr: address.Addr()}: true} })
	for _, option := range []int{unix.SO_REUSEADDR, unix.SO_REUSEPORT} {
		other := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
			var failed error
			err := raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, option, 1) })
			return errors.Join(err, failed)
		}}
		if conn, err := other.ListenPacket(context.Background(), "udp4", address.String()); err == nil {
			_ = conn.Close()
			t.Errorf("with option %d another socket is bound to %s", option, address)
		}
	}
}

// nextHopLimit returns the hop limit of the next received datagram.
func nextHopLimit(t *testing.T, conn *net.UDPConn) int {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	data, control := make([]byte, 10), make([]byte, 100)
	_, n, _, _, err := conn.ReadMsgUDPAddrPort(data, control)
	if err != nil {
		t.Fatal(err)
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil || len(messages) != 1 || len(messages[0].Data) < 4 {
		t.Fatalf("control messages %v: %v", messages, err)
	}
	return int(binary.NativeEndian.Uint32(messages[0].Data))
}

func TestUnknownDeviceIsAnError(t *testing.T) {
	t.Parallel()
	config := net.ListenConfig{Control: Options{Device: "hw-none"}.Control}
	conn, err := config.ListenPacket(context.Background(), "udp4", "127.0.0.1:0")
	if err == nil {
		_ = conn.Close()
	}
	if !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EPERM) {
		t.Fatalf("bound to a device that does not exist: %v", err)
	}
}

func TestIndex(t *testing.T) {
	t.Parallel()
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Skip("needs a loopback interface")
	}
	for device, want := range map[string]int{"lo": lo.Index, "": 0, "hw-none": 0, "a-name-that-is-too-long": 0} {
		if have := DeviceIndex(device); have != want {
			t.Errorf("Index(%q) = %d, want %d", device, have, want)
		}
		if have := DeviceName(want); want > 0 && have != device || want == 0 && have != "" {
			t.Errorf("Device(%d) = %q", want, have)
		}
	}
}
