package kernel

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/converge/convergetest"
	"hawser.dev/hawser/nodeagent/desired"
)

func TestLinkLaws(t *testing.T) {
	t.Parallel()
	w := newTestNode(t)
	processes := launcher(t)
	six := desired.Device{
		Name: "hw-vx6", Type: desired.DeviceVXLAN, MTU: 1400, Up: true, MAC: "02:11:22:33:44:66", VNI: 74, Port: 4804,
		Local: netip.MustParseAddr("2001:db8::1"),
	}
	wg := tunnelLink()
	convergetest.Laws(t, func(t *testing.T) converge.Kind[desired.Device] { return NewDevices(w.open(t), processes) },
		convergetest.Samples[desired.Device]{
			Want: []desired.Device{nodeLink(), six, wg},
			Vary: deviceVariants,
			Tamper: map[string]func(*testing.T){
				"vxlan deleted":     w.foreign("link del hw-vx0"),
				"vxlan down":        w.foreign("link set hw-vx0 down"),
				"mtu":               w.foreign("link set hw-vx0 mtu 1300"),
				"address":           w.foreign("link set hw-vx0 address 02:00:00:00:00:01"),
				"learning":          w.foreign("link set hw-vx0 type vxlan learning"),
				"wireguard deleted": w.foreign("link del " + wg.Name),
				"wireguard down":    w.foreign("link set " + wg.Name + " down"),
				"stranger":          w.foreign("link add hw-xx type vxlan id 9 dstport 9", "link set hw-xx alias hawser"),
				"half made":         w.foreign("link del hw-vx6", "link add hw-vx6 group 73 type vxlan id 74 dstport 4804 local 2001:db8::1"),
			},
			Foreign: func(t *testing.T) func() error {
				w.foreign("link add hw-f0 type veth peer name f1", "link set f1 alias hawser",
					"link add other type vxlan id 99 dstport 4999")(t)
				return allChecks(w.expectIP("link show", "hw-f0"), w.expectIP("link show", "f1"), w.expectIP("link show", "other"))
			},
			Conflict: func(t *testing.T) (desired.Device, func() error) {
				w.ip(t, "link add hw-vx7 type vxlan id 7 dstport 7007")
				l := nodeLink()
				l.Name = "hw-vx7"
				return l, w.expectIP("-d link show hw-vx7", "vxlan id 7 ")
			},
		})
}

func deviceVariants(l desired.Device) []desired.Device {
	mtu, down := l, l
	mtu.MTU, down.Up = 1280, false
	if l.Type == desired.DeviceWireguard {
		return []desired.Device{mtu, down}
	}
	mac, vni, port, local := l, l, l, l
	mac.MAC, vni.VNI, port.Port, local.Local = "02:aa:aa:aa:aa:aa", 99, 4999, l.Local.Next()
	return []desired.Device{mtu, down, mac, vni, port, local}
}

func TestAddressLaws(t *testing.T) {
	t.Parallel()
	w := newTestNode(t)
	wg := tunnelLink()
	w.createDevices(t, nodeLink(), wg)
	address := func(link, prefix, scope string) desired.Address {
		return desired.Address{Device: link, Prefix: netip.MustParsePrefix(prefix), Scope: scope}
	}
	convergetest.Laws(t, func(t *testing.T) converge.Kind[desired.Address] { return NewAddresses(w.open(t)) },
		convergetest.Samples[desired.Address]{
			Want: []desired.Address{
				address("hw-vx0", "169.254.73.53/32", "link"), address(wg.Name, "241.0.0.1/32", "global"),
				address(wg.Name, "fd00:73::1/128", "global"), address(wg.Name, "10.1.2.3/24", "host"),
				address("hw-vx0", "fd68:73::53/128", "link"), address(wg.Name, "fec0::1/128", "global"),
			},
			Vary: func(a desired.Address) []desired.Address {
				scope := a
				scope.Scope = map[string]string{"link": "global", "global": "link", "host": "link"}[a.Scope]
				return []desired.Address{scope}
			},
			Tamper: map[string]func(*testing.T){
				"deleted":  w.foreign("addr del 169.254.73.53/32 dev hw-vx0"),
				"stranger": w.foreign("addr add 10.9.9.9/24 dev hw-vx0"),
				"six":      w.foreign("addr del fd00:73::1/128 dev " + wg.Name),
				"flushed":  w.foreign("addr flush dev " + wg.Name),
				"source":   w.foreign("addr change fd68:73::53/128 dev hw-vx0 preferred_lft forever"),
			},
			Foreign: func(t *testing.T) func() error {
				w.foreign("link add f0 type veth peer name f1", "link set f0 up", "addr add 169.254.73.53/32 dev f0 scope link")(t)
				return allChecks(w.expectIP("addr show dev f0", "169.254.73.53/32"), w.expectIP("-6 addr show dev hw-vx0", "fe80:"))
			},
		})
}

// TestAddressIsNoSource checks that the kernel never chooses an IPv6 address that every node has as
// the source of a packet.
func TestAddressIsNoSource(t *testing.T) {
	t.Parallel()
	w := newTestNode(t)
	w.createDevices(t, nodeLink())
	everywhere := desired.Address{Device: "hw-vx0", Prefix: netip.MustParsePrefix("fd68:73::53/128"), Scope: "link"}
	if err := NewAddresses(w.open(t)).Apply(t.Context(), creations(everywhere)); err != nil {
		t.Fatal(err)
	}
	w.foreign("link add n0 type veth peer name n1", "link set n0 up", "addr add 2001:db8::5/64 dev n0 nodad",
		"link set hw-vx0 up", "-6 route add 2001:db8:9::/64 dev hw-vx0")(t)
	if err := w.expectIP("route get 2001:db8:9::1", "src 2001:db8::5")(); err != nil {
		t.Error(err)
	}
}

func TestNeighborLaws(t *testing.T) {
	t.Parallel()
	w := newTestNode(t)
	w.createDevices(t, nodeLink())
	neighbor := func(addr, mac string) desired.Neighbor {
		return desired.Neighbor{Device: "hw-vx0", Addr: netip.MustParseAddr(addr), MAC: mac}
	}
	fdb := func(commands ...string) func(*testing.T) {
		return func(t *testing.T) {
			for _, c := range commands {
				w.bridge(t, c)
			}
		}
	}
	const mac, other = "02:00:00:00:00:02", "02:00:00:00:00:09"
	convergetest.Laws(t, func(t *testing.T) converge.Kind[desired.Neighbor] { return NewNeighbors(w.open(t)) },
		convergetest.Samples[desired.Neighbor]{
			Want: []desired.Neighbor{
				neighbor("192.0.2.2", mac), neighbor("192.0.2.3", "02:00:00:00:00:03"), neighbor("2001:db8::2", mac),
				neighbor("fe80::ff:fe00:2", mac),
			},
			Vary: func(n desired.Neighbor) []desired.Neighbor {
				n.MAC = other
				return []desired.Neighbor{n}
			},
			Tamper: map[string]func(*testing.T){
				"entry deleted":     w.foreign("neigh del 192.0.2.2 dev hw-vx0"),
				"entry changed":     w.foreign("neigh replace 192.0.2.2 lladdr " + other + " dev hw-vx0 nud permanent"),
				"six deleted":       w.foreign("neigh del 2001:db8::2 dev hw-vx0"),
				"stranger":          w.foreign("neigh add 192.0.2.77 lladdr " + other + " dev hw-vx0 nud permanent"),
				"forward deleted":   fdb("fdb del " + mac + " dev hw-vx0 dst 192.0.2.2"),
				"forward elsewhere": fdb("fdb replace " + mac + " dev hw-vx0 dst 192.0.2.99"),
				"forward stranger":  fdb("fdb add " + other + " dev hw-vx0 dst 192.0.2.88"),
				"forward twice":     fdb("fdb add " + other + " dev hw-vx0 dst 192.0.2.2"),
				"flooding":          fdb("fdb append 00:00:00:00:00:00 dev hw-vx0 dst 192.0.2.3"),
			},
			Foreign: func(t *testing.T) func() error {
				w.foreign("link add vxf type vxlan id 8 dstport 4888 local 192.0.2.1", "link set vxf up",
					"neigh add 192.0.2.2 lladdr "+mac+" dev vxf nud permanent")(t)
				w.bridge(t, "fdb add "+mac+" dev vxf dst 192.0.2.2")
				return w.expectIP("neigh show dev vxf", "192.0.2.2 lladdr "+mac)
			},
		})
}

func TestRuleLaws(t *testing.T) {
	t.Parallel()
	w := newTestNode(t)
	convergetest.Laws(t, func(t *testing.T) converge.Kind[desired.Rule] { return NewRules(w.open(t)) },
		convergetest.Samples[desired.Rule]{
			Want: []desired.Rule{
				{Priority: 7300, Table: 7300}, {Priority: 7301, Table: 7301, IIF: "hw-wg1"},
				{Priority: 7296, Table: 7304, IPv6: true, OIF: "hw-vx0"},
				{Priority: 7300, Table: 7300, IPv6: true}, {Priority: 7301, Table: 7301, IPv6: true, IIF: "hw-wg1"},
				{Priority: 7297, Table: 7303, UDPPort: 4807}, {Priority: 7297, Table: 7303, UDPPort: 4807, IPv6: true},
				{Priority: 7290, Table: 7307, IIF: "lo", TCPPort: 4805}, {Priority: 7291, Table: 7307, IIF: "lo", TCPFrom: 4805},
				{Priority: 7291, Table: 7307, IIF: "lo", TCPFrom: 4805, IPv6: true},
				{Priority: 7289, Goto: 33000, IIF: "hw-wg1", Mark: 0x70000000, Mask: 0xf0000000},
				{Priority: 7289, Goto: 33000, IIF: "hw-wg2", Mark: 0x70000000, Mask: 0xf0000000},
				{Priority: 33000, Goto: 33001, Mark: 0x70000000, Mask: 0xff000000}, {Priority: 33000, Goto: 33002, Mark: 0x71000000, Mask: 0xff000000},
				{Priority: 33001, Goto: 33017, Mark: 0x70001000, Mask: 0xf000f000, IPv6: true},
				{Priority: 33017, Table: 7401, Mark: 0x70000001, Mask: 0xf000000f}, {Priority: 33017, Table: 7402, Mark: 0x70000002, Mask: 0xf000000f},
			},
			Vary: func(r desired.Rule) []desired.Rule {
				table, iif, oif, port := r, r, r, r
				table.Table, iif.IIF, oif.OIF = 254, "hw-wg3", "hw-vx1"
				port.UDPPort, port.TCPPort, port.TCPFrom = 9, 0, 0
				table.Goto = 0
				return []desired.Rule{table, iif, oif, port}
			},
			Tamper: map[string]func(*testing.T){
				"deleted":    w.foreign("rule del pref 7300"),
				"six":        w.foreign("-6 rule del pref 7301"),
				"second":     w.foreign("rule add pref 7300 table 7301 protocol 73"),
				"selective":  w.foreign("rule del pref 7301", "rule add pref 7301 iif hw-wg1 fwmark 9 table 7301 protocol 73"),
				"stranger":   w.foreign("rule add pref 99 table 7300 protocol 73"),
				"ports":      w.foreign("rule del pref 7297", "rule add pref 7297 ipproto udp dport 4807-4808 table 7303 protocol 73"),
				"proto":      w.foreign("rule del pref 7297", "rule add pref 7297 ipproto tcp dport 4807 table 7303 protocol 73"),
				"direction":  w.foreign("rule del pref 7291", "rule add pref 7291 iif lo ipproto tcp dport 4805 table 7307 protocol 73"),
				"mask":       w.foreign("rule del pref 33017 fwmark 0x70000002/0xf000000f", "rule add pref 33017 fwmark 0x70000002/0xf00000ff table 7402 protocol 73"),
				"elsewhere":  w.foreign("rule del pref 33000 fwmark 0x70000000/0xff000000", "rule add pref 33000 fwmark 0x70000000/0xff000000 goto 33002 protocol 73"),
				"both ports": w.foreign("rule del pref 7290", "rule add pref 7290 iif lo ipproto tcp sport 4805 dport 4805 table 7307 protocol 73"),
			},
			Foreign: func(t *testing.T) func() error {
				w.foreign("rule add pref 7300 table 7300 protocol 5", "rule add pref 7309 table 7300")(t)
				return allChecks(w.expectIP("rule show", "proto 5"), w.expectIP("rule show", "7309:"), w.expectIP("rule show", "32766:"))
			},
		})
}

func routeSamples(wg string) []desired.Route {
	prefix, addr := netip.MustParsePrefix, netip.MustParseAddr
	return []desired.Route{
		{Table: 7300, Dst: prefix("242.1.0.0/24"), Type: "unicast", Device: "hw-vx0", Via: addr("192.0.2.2"), Src: addr("10.1.0.1"), MTU: 1380},
		{Table: 7300, Dst: prefix("242.2.0.0/24"), Type: "unicast", Device: wg},
		{Table: 7300, Dst: prefix("242.2.0.0/24"), Type: "unicast", Device: "hw-vx0", Metric: 2001},
		{Table: 7300, Dst: prefix("242.3.0.0/16"), Type: "blackhole"},
		{Table: 7301, Dst: prefix("10.7.0.9/32"), Type: "throw"}, {Table: 7301, Dst: prefix("fd00:7::9/128"), Type: "throw"},
		{Table: 7401, Dst: prefix("0.0.0.0/0"), Type: "unicast", Device: "hw-vx0", Via: addr("192.0.2.2")},
		{Table: 7401, Dst: prefix("::/0"), Type: "unicast", Device: "hw-vx0", Via: addr("fe80::2")},
		{Table: 7301, Dst: prefix("242.1.0.0/24"), Type: "unicast", Device: "hw-vx0", Via: addr("192.0.2.3")},
		{Table: 7300, Dst: prefix("0.0.0.0/0"), Type: "unicast", Device: wg},
		{Table: 7300, Dst: prefix("fd00:1::/48"), Type: "unicast", Device: "hw-vx0", Via: addr("2001:db8::2"), Src: addr("fd00:9::1"), MTU: 1380},
		{Table: 7300, Dst: prefix("fd00:4::/48"), Type: "unicast", Device: "hw-vx0", Via: addr("fe80::2"), MTU: 1216},
		{Table: 7304, Dst: prefix("2001:db8::9/128"), Type: "unicast", Device: "hw-vx0"},
		{Table: 7300, Dst: prefix("242.4.0.0/24"), Type: "unicast", Device: "hw-vx0", Via: addr("fe80::2")},
		{Table: 7300, Dst: prefix("fd00:2::/48"), Type: "blackhole"},
		{Table: 7301, Dst: prefix("fd00:3::/48"), Type: "unicast", Device: wg},
		{Table: 7301, Dst: prefix("fd00:3::/48"), Type: "unicast", Device: "hw-vx0", Metric: 2001},
		{Table: 7300, Dst: prefix("::/0"), Type: "unicast", Device: wg},
	}
}

func routeVariants(r desired.Route) []desired.Route {
	if r.Type == desired.RouteBlackhole || r.Type == desired.RouteThrow {
		r.Type, r.Device = desired.RouteUnicast, "hw-vx0"
		return []desired.Route{r}
	}
	hole, link, mtu, out := r, r, r, []desired.Route{}
	hole.Type, hole.Device, hole.Via, hole.Src, hole.MTU = desired.RouteBlackhole, "", netip.Addr{}, netip.Addr{}, 0
	link.Device = "hw-vx1"
	mtu.MTU = 1300
	out = append(out, hole, link, mtu)
	if r.Via.IsValid() {
		via, none := r, r
		via.Via, none.Via = r.Via.Next(), netip.Addr{}
		out = append(out, via, none)
	}
	if r.Src.IsValid() {
		src := r
		src.Src = netip.Addr{}
		out = append(out, src)
	}
	return out
}

func TestRouteLaws(t *testing.T) {
	t.Parallel()
	w := newTestNode(t)
	wg, second := tunnelLink(), nodeLink()
	second.Name, second.VNI, second.MAC = "hw-vx1", 74, "02:11:22:33:44:77"
	w.createDevices(t, nodeLink(), second, wg)
	// The kernel refuses a route whose source address is still tentative. A kernel worker ends
	// that state some time later.
	w.foreign("addr add 10.1.0.1/32 dev lo", "addr add fd00:9::1/128 dev lo nodad")(t)
	convergetest.Laws(t, func(t *testing.T) converge.Kind[desired.Route] { return NewRoutes(w.open(t)) },
		convergetest.Samples[desired.Route]{
			Want: routeSamples(wg.Name),
			Vary: routeVariants,
			Tamper: map[string]func(*testing.T){
				"deleted":      w.foreign("route del 242.1.0.0/24 table 7300"),
				"link bounced": w.foreign("link set hw-vx0 down", "link set hw-vx0 up"),
				"hole gone":    w.foreign("route del blackhole 242.3.0.0/16 table 7300", "-6 route del blackhole fd00:2::/48 table 7300"),
				"via":          w.foreign("route replace 242.1.0.0/24 via 192.0.2.9 dev hw-vx0 onlink table 7300 proto 73"),
				"six via":      w.foreign("-6 route replace fd00:1::/48 via 2001:db8::9 dev hw-vx0 onlink table 7300 proto 73"),
				"several":      w.foreign("route add 242.1.0.0/24 dev hw-vx0 metric 9 table 7300 proto 73"),
				"six several":  w.foreign("-6 route add fd00:1::/48 dev hw-vx0 metric 9 table 7300 proto 73"),
				"multipath":    w.foreign("-6 route append fd00:1::/48 via 2001:db8::9 dev hw-vx0 onlink table 7300 proto 73"),
				"unreachable":  w.foreign("route replace unreachable 242.1.0.0/24 table 7300 proto 73"),
				"stranger":     w.foreign("route add 9.9.9.0/24 dev hw-vx0 table 7301 proto 73"),
			},
			Foreign: func(t *testing.T) func() error {
				w.foreign("route add 7.0.0.0/8 dev hw-vx0 table 7300 proto 5", "route add 7.0.0.0/8 dev hw-vx0 proto 73",
					"-6 route add fd07::/48 dev hw-vx0 table 7300")(t)
				return allChecks(w.expectIP("route show table 7300", "7.0.0.0/8"), w.expectIP("route show table main", "7.0.0.0/8"),
					w.expectIP("-6 route show table 7300", "fd07::/48"))
			},
			Conflict: func(t *testing.T) (desired.Route, func() error) {
				w.ip(t, "route add 8.0.0.0/8 dev hw-vx0 table 7300 proto 5")
				r := routeSamples(wg.Name)[1]
				r.Dst = netip.MustParsePrefix("8.0.0.0/8")
				return r, w.expectIP("route show table 7300", "8.0.0.0/8 dev hw-vx0 proto 5")
			},
		})
}

func TestSysctlLaws(t *testing.T) {
	t.Parallel()
	w := newTestNode(t)
	file := filepath.Join(t.TempDir(), "state", "sysctls.json")
	value := func(name string) string {
		out, err := NewSysctls(w.ns, file).read(name)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	set := func(name, value string) func(*testing.T) {
		return func(t *testing.T) {
			if err := NewSysctls(w.ns, file).write(name, value); err != nil {
				t.Fatal(err)
			}
		}
	}
	const forward, loose, ports = "net/ipv4/ip_forward", "net/ipv4/conf/lo/rp_filter", "net/ipv4/ip_local_port_range"
	found := map[string]string{forward: value(forward), loose: value(loose), ports: value(ports)}
	outside, err := os.ReadFile("/proc/sys/" + ports)
	if err != nil {
		t.Fatal(err)
	}
	convergetest.Laws(t, func(*testing.T) converge.Kind[desired.Sysctl] { return NewSysctls(w.ns, file) },
		convergetest.Samples[desired.Sysctl]{
			Want: []desired.Sysctl{{Name: forward, Value: "1"}, {Name: loose, Value: "2"}, {Name: ports, Value: "20000 40000"}},
			Vary: func(s desired.Sysctl) []desired.Sysctl {
				s.Value = map[string]string{forward: "0", loose: "1", ports: "20001 40000"}[s.Name]
				return []desired.Sysctl{s}
			},
			Tamper: map[string]func(*testing.T){"forward": set(forward, "0"), "filter": set(loose, "1")},
			Foreign: func(t *testing.T) func() error {
				set("net/ipv4/conf/all/rp_filter", "2")(t)
				return func() error {
					if v := value("net/ipv4/conf/all/rp_filter"); v != "2" {
						return fmt.Errorf("another setting became %s", v)
					}
					return nil
				}
			},
		})
	for name, want := range found {
		if have := value(name); have != want {
			t.Errorf("%s is %s in the end, was %s at first", name, have, want)
		}
	}
	if now, err := os.ReadFile("/proc/sys/" + ports); err != nil || string(now) != string(outside) {
		t.Errorf("the setting changed outside of the namespace: %s (%v)", now, err)
	}
}
