package socket

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

func TestFreebindTakesAnAddressThatDoesNotExist(t *testing.T) {
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
		if have := Index(device); have != want {
			t.Errorf("Index(%q) = %d, want %d", device, have, want)
		}
	}
}
