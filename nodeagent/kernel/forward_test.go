package kernel

import (
	"net/netip"
	"testing"

	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/converge/convergetest"
	"hawser.dev/hawser/nodeagent/desired"
)

// tunnelDevices are VXLAN devices to other clusters, one for each outer family. Both
// have the same VNI and port.
func tunnelDevices() (four, six desired.Device) {
	four = desired.Device{
		Name: "hw-vt4-51884", Type: desired.DeviceVXLAN, MTU: 1450, Up: true, MAC: "02:11:22:33:44:01", VNI: 74, Port: 51884,
		Local: netip.IPv4Unspecified(),
	}
	six = four
	six.Name, six.MTU, six.Local = "hw-vt6-51884", 1430, netip.IPv6Unspecified()
	return four, six
}

func TestTunnelLinkLaws(t *testing.T) {
	t.Parallel()
	w := newTestNode(t)
	four, six := tunnelDevices()
	convergetest.Laws(t, func(t *testing.T) converge.Kind[desired.Device] { return NewDevices(w.open(t), nil) },
		convergetest.Samples[desired.Device]{
			Want: []desired.Device{four, six},
			Vary: func(l desired.Device) []desired.Device {
				port, local := l, l
				port.Port, local.Local = 4999, l.Local.Next()
				return []desired.Device{port, local}
			},
			Tamper: map[string]func(*testing.T){
				"deleted": w.foreign("link del hw-vt6-51884"),
				"source":  w.foreign("link del hw-vt4-51884", "link add hw-vt4-51884 group 73 type vxlan id 74 dstport 51884 local 192.0.2.1"),
			},
			Foreign: func(t *testing.T) func() error {
				w.foreign("link add other type vxlan id 74 dstport 4999")(t)
				return w.expectIP("link show", "other")
			},
		})
}

func TestForwardLaws(t *testing.T) {
	t.Parallel()
	w := newTestNode(t)
	four, six := tunnelDevices()
	w.createDevices(t, nodeLink(), four, six)
	forward := func(link desired.Device, mac, to string) desired.Forward {
		return desired.Forward{Device: link.Name, MAC: mac, To: netip.MustParseAddrPort(to)}
	}
	fdb := func(commands ...string) func(*testing.T) {
		return func(t *testing.T) {
			for _, c := range commands {
				w.bridge(t, c)
			}
		}
	}
	const mac, other = "02:00:00:00:00:02", "02:00:00:00:00:09"
	convergetest.Laws(t, func(t *testing.T) converge.Kind[desired.Forward] { return NewForwards(w.open(t)) },
		convergetest.Samples[desired.Forward]{
			Want: []desired.Forward{
				forward(four, mac, "192.0.2.2:51884"), forward(four, "02:00:00:00:00:03", "192.0.2.3:51948"),
				forward(six, mac, "[2001:db8::2]:51884"), forward(six, "02:00:00:00:00:03", "[2001:db8::3]:61884"),
			},
			Vary: func(f desired.Forward) []desired.Forward {
				port, addr := f, f
				port.To = netip.AddrPortFrom(f.To.Addr(), 4999)
				addr.To = netip.AddrPortFrom(f.To.Addr().Next().Next(), f.To.Port())
				return []desired.Forward{port, addr}
			},
			Tamper: map[string]func(*testing.T){
				"deleted":       fdb("fdb del " + mac + " dev hw-vt4-51884"),
				"elsewhere":     fdb("fdb replace " + mac + " dev hw-vt4-51884 dst 192.0.2.99"),
				"other port":    fdb("fdb replace " + mac + " dev hw-vt6-51884 dst 2001:db8::2 port 4999"),
				"other network": fdb("fdb del "+mac+" dev hw-vt4-51884", "fdb add "+mac+" dev hw-vt4-51884 dst 192.0.2.2 vni 99"),
				"stranger":      fdb("fdb add " + other + " dev hw-vt4-51884 dst 192.0.2.88"),
				"flooding":      fdb("fdb append 00:00:00:00:00:00 dev hw-vt6-51884 dst 2001:db8::3"),
				"flooding more": fdb("fdb append 00:00:00:00:00:00 dev hw-vt4-51884 dst 192.0.2.2", "fdb append 00:00:00:00:00:00 dev hw-vt4-51884 dst 192.0.2.3"),
				"not permanent": fdb("fdb del "+mac+" dev hw-vt4-51884", "fdb add "+mac+" dev hw-vt4-51884 dst 192.0.2.2 dynamic"),
			},
			Foreign: func(t *testing.T) func() error {
				w.foreign("link add vxf type vxlan id 8 dstport 4888 local 192.0.2.1", "link set vxf up")(t)
				w.bridge(t, "fdb add "+mac+" dev vxf dst 192.0.2.2")
				w.bridge(t, "fdb add "+mac+" dev hw-vx0 dst 192.0.2.2")
				return allChecks(w.expectIP("-d link show vxf", "dstport 4888"), w.expectBridge("fdb show dev hw-vx0", mac+" dst 192.0.2.2"),
					w.expectBridge("fdb show dev vxf", mac+" dst 192.0.2.2"))
			},
		})
}

// TestTunnelNeighborLaws checks that on devices to other clusters a neighbour has no forwarding
// entry. Forwards owns these entries.
func TestTunnelNeighborLaws(t *testing.T) {
	t.Parallel()
	w := newTestNode(t)
	four, _ := tunnelDevices()
	w.createDevices(t, nodeLink(), four)
	neighbor := func(addr, mac string) desired.Neighbor {
		return desired.Neighbor{Device: four.Name, Addr: netip.MustParseAddr(addr), MAC: mac}
	}
	const mac = "02:00:00:00:00:02"
	convergetest.Laws(t, func(t *testing.T) converge.Kind[desired.Neighbor] { return NewNeighbors(w.open(t)) },
		convergetest.Samples[desired.Neighbor]{
			Want: []desired.Neighbor{
				neighbor("241.0.0.2", mac), neighbor("fe80::ff:fe00:2", mac), neighbor("fd00:41::2", mac),
				{Device: "hw-vx0", Addr: netip.MustParseAddr("fe80::ff:fe00:7"), MAC: "02:00:00:00:00:07"},
			},
			Vary: func(n desired.Neighbor) []desired.Neighbor {
				n.MAC = "02:00:00:00:00:09"
				return []desired.Neighbor{n}
			},
			Tamper: map[string]func(*testing.T){
				"deleted":  w.foreign("neigh del 241.0.0.2 dev hw-vt4-51884"),
				"changed":  w.foreign("neigh replace fe80::ff:fe00:2 lladdr 02:00:00:00:00:09 dev hw-vt4-51884 nud permanent"),
				"stranger": w.foreign("neigh add 241.0.0.9 lladdr " + mac + " dev hw-vt4-51884 nud permanent"),
			},
			Foreign: func(t *testing.T) func() error {
				w.bridge(t, "fdb add "+mac+" dev hw-vt4-51884 dst 192.0.2.2")
				return w.expectBridge("fdb show dev hw-vt4-51884", mac+" dst 192.0.2.2")
			},
		})
}

// TestTunnelRuleLaws checks that rules that share a priority are distinguished by their devices.
func TestTunnelRuleLaws(t *testing.T) {
	t.Parallel()
	w := newTestNode(t)
	rule := func(iif string, six bool) desired.Rule {
		return desired.Rule{Priority: desired.RuleTunnel, Table: 7301, IIF: iif, IPv6: six}
	}
	convergetest.Laws(t, func(t *testing.T) converge.Kind[desired.Rule] { return NewRules(w.open(t)) },
		convergetest.Samples[desired.Rule]{
			Want: []desired.Rule{rule("hw-vt4-51884", false), rule("hw-wg1-p51900", false), rule("hw-vt4-51884", true)},
			Vary: func(r desired.Rule) []desired.Rule {
				r.Table = 254
				return []desired.Rule{r}
			},
			Tamper: map[string]func(*testing.T){
				"deleted":   w.foreign("rule del pref 7365 iif hw-wg1-p51900"),
				"second":    w.foreign("rule add pref 7365 iif hw-wg1-p51900 table 254 protocol 73"),
				"selective": w.foreign("rule del pref 7365 iif hw-vt4-51884", "rule add pref 7365 iif hw-vt4-51884 fwmark 9 table 7301 protocol 73"),
				"stranger":  w.foreign("rule add pref 7365 iif lo table 7300 protocol 73"),
			},
			Foreign: func(t *testing.T) func() error {
				w.foreign("rule add pref 7365 iif hw-vt4-51884 table 7301 protocol 5")(t)
				return w.expectIP("rule show", "proto 5")
			},
		})
}
