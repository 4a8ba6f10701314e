package socket

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"hawser.dev/hawser/internal/netnstest"
	"hawser.dev/hawser/internal/trigger"
)

// TestReplacedDevice checks that a new device, or a replaced device with the same name, gets a
// socket. It is opened at the first Update after Changed.
func TestReplacedDevice(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	const name = "hw-one"
	bind := Bind{Addr: netip.MustParseAddr("192.0.2.1"), Device: name}
	changed := trigger.New()
	set := NewSet(SetConfig{
		Log: slog.New(slog.DiscardHandler), MaxDatagram: 100, Changed: changed.Fire,
		Read: func(Arrival, []byte) []Datagram { return nil },
	})
	defer set.Close()
	// The time does not advance, so only Changed makes Update check the device.
	now := time.Now()
	update := func() (device, bound int) {
		ns.Inside(func() {
			set.Update(now, func(bool) map[Bind]bool { return map[Bind]bool{bind: true} })
			device = DeviceIndex(name)
		})
		if c := set.open[bind]; c != nil {
			bound = c.device
		}
		return device, bound
	}
	if device, bound := update(); device != 0 || bound != 0 {
		t.Fatalf("device %d and socket on %d before the device exists", device, bound)
	}
	last := 0
	for range 3 {
		ns.IP("link add " + name + " type bridge")
		for device, bound := update(); bound == last || bound != device; device, bound = update() {
			select {
			case <-changed:
			case <-time.After(time.Minute):
				t.Fatalf("no change reported; device %d, socket on %d", device, bound)
			}
		}
		_, last = update()
		ns.IP("link del " + name)
	}
}
