package socket

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"hawser.dev/hawser/internal/netnstest"
)

// TestOverEachTunnel connects two nodes by two devices. The routes use only the first. Packets sent
// over the second by name arrive there with the port of the Set.
func TestOverEachTunnel(t *testing.T) {
	t.Parallel()
	a, b := netnstest.New(t), netnstest.New(t)
	addrs := [][2]string{{"241.0.0.1", "241.0.0.2"}, {"fd00:41::1", "fd00:41::2"}}
	for _, device := range []string{"hw-one", "hw-two"} {
		a.IP("link add " + device + " type veth peer name " + device + " netns " + b.Name)
		for i, s := range []*netnstest.Space{a, b} {
			s.IP("link set "+device+" up", "addr add "+addrs[0][i]+"/32 dev "+device, "addr add "+addrs[1][i]+"/128 dev "+device+" nodad")
			metric := map[string]string{"hw-one": "100", "hw-two": "7301"}[device]
			s.IP("route add "+addrs[0][1-i]+"/32 dev "+device+" src "+addrs[0][i]+" metric "+metric,
				"route add "+addrs[1][1-i]+"/128 dev "+device+" src "+addrs[1][i]+" metric "+metric)
		}
	}
	const port = 4804
	arrived := make(chan Arrival, 10)
	config := SetConfig{Port: port, Log: slog.New(slog.DiscardHandler), MaxDatagram: 100, Read: func(in Arrival, _ []byte) []Datagram {
		arrived <- in
		return nil
	}}
	here, there := NewSet(config), NewSet(config)
	defer here.Close()
	defer there.Close()
	binds := func(i int) map[Bind]bool {
		return map[Bind]bool{{Addr: netip.MustParseAddr(addrs[0][i])}: true, {Addr: netip.MustParseAddr(addrs[1][i])}: true}
	}
	index := map[string]int{}
	b.Inside(func() {
		there.Update(time.Now(), func(bool) map[Bind]bool { return binds(1) })
		index["hw-one"], index["hw-two"] = DeviceIndex("hw-one"), DeviceIndex("hw-two")
	})
	index[""] = index["hw-one"]
	for _, family := range addrs {
		from, to := netip.MustParseAddr(family[0]), netip.MustParseAddr(family[1])
		for _, device := range []string{"", "hw-one", "hw-two"} {
			a.Inside(func() {
				here.Update(time.Now(), func(bool) map[Bind]bool { return binds(0) })
				d := Datagram{From: Bind{Addr: from}, To: netip.AddrPortFrom(to, port), Device: device, Raw: []byte("x")}
				if sent, failed := here.Send([]Datagram{d}); sent != 1 || failed != 0 {
					t.Errorf("from %s over %q: sent %d, failed %d", from, device, sent, failed)
				}
			})
			select {
			case in := <-arrived:
				if in.From != netip.AddrPortFrom(from, port) || in.Local.Addr != to || in.Index != index[device] {
					t.Errorf("from %s over %q: arrived as %+v, want index %d", from, device, in, index[device])
				}
			case <-time.After(10 * time.Second):
				t.Errorf("from %s over %q: nothing arrives", from, device)
			}
		}
	}
}
