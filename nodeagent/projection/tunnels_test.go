package projection_test

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/schema/fabric"
)

// TestTunnelMigration changes a pair's tunnel in the three steps of a migration. The first step
// only adds the second tunnel. The second step only changes routes. The third step only removes the
// first tunnel. So no packet is lost.
func TestTunnelMigration(t *testing.T) {
	t.Parallel()
	was := model.TunnelParams{Driver: "wireguard", LocalPort: 51820, RemotePort: 51820}
	tests := map[string]struct {
		is     model.TunnelParams
		device string
	}{
		"driver":                 {model.TunnelParams{Driver: "vxlan", LocalPort: 51820, RemotePort: 51820}, "hw-vt4-51884"},
		"to IPsec":               {model.TunnelParams{Driver: "ipsec"}, "ipsec0"},
		"port":                   {model.TunnelParams{Driver: "wireguard", LocalPort: 52820, RemotePort: 52820}, "hw-wg1-p52820"},
		"epoch":                  {model.TunnelParams{Driver: "wireguard", LocalPort: 51820, RemotePort: 51820, Epoch: 2}, "hw-wg2"},
		"IPsec of an epoch":      {model.TunnelParams{Driver: "ipsec", Epoch: 2}, "hw-iq4-4807"},
		"other ports of a range": {model.TunnelParams{Driver: "wireguard", LocalPort: 51820, RemotePort: 52820, Alternate: true}, "hw-wg1-p51883"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w, _ := readWorld(t, "testdata/ordinals.txtar")
			in := w.inputs["g1/g1-a"]
			addEpoch(in, 2)
			state := func(tunnels ...model.TunnelParams) map[string]bool {
				in.Tunnels = map[string][]model.TunnelParams{"g2/g2-a": tunnels}
				s, problems := projection.Desired(in)
				for _, p := range problems {
					if strings.Contains(p.Path, "gateways") {
						t.Errorf("%s: %s", p.Code, p.Text)
					}
				}
				return linesOf(text(s))
			}
			one, both, switched, other := state(was), state(was, tt.is), state(tt.is, was), state(tt.is)
			if plain := linesOf(text(w.states["g1/g1-a"])); len(minus(plain, one))+len(minus(one, plain)) > 0 {
				t.Errorf("the tunnel of the fabric differs from an empty list: %v, %v", minus(plain, one), minus(one, plain))
			}
			if lost := widened(minus(one, both)); len(lost) > 0 {
				t.Errorf("second tunnel removed %v", lost)
			}
			if !slices.ContainsFunc(minus(both, one), func(l string) bool { return strings.HasPrefix(l, "link "+tt.device+" ") }) {
				t.Errorf("second tunnel added no %s: %v", tt.device, minus(both, one))
			}
			for _, line := range append(minus(both, switched), minus(switched, both)...) {
				if !strings.HasPrefix(line, "route 730") {
					t.Errorf("switch changed %s", line)
				}
			}
			if gained := widened(minus(other, switched)); len(gained) > 0 {
				t.Errorf("removal added %v", gained)
			}
		})
	}
}

// addEpoch adds keys of another epoch to all gateways.
func addEpoch(in projection.Input, epoch int) {
	keys := in.Keys.Epochs[0]
	keys.Epoch = epoch
	in.Keys.Epochs = append(in.Keys.Epochs, keys)
	for i := range in.Fabric.Clusters {
		for j := range in.Fabric.Clusters[i].Gateways {
			g := &in.Fabric.Clusters[i].Gateways[j]
			g.Keys = append(g.Keys, fabric.Key{Epoch: epoch, Public: "later-" + g.Name, Ed25519: "later-" + g.Name})
		}
	}
}

// TestEpochsOfIPsec migrates from the connection of one epoch to the connection of the next.
// Both exist at once, and share no object that changes.
func TestEpochsOfIPsec(t *testing.T) {
	t.Parallel()
	w, _ := readWorld(t, "testdata/ordinals.txtar")
	in := w.inputs["g1/g1-a"]
	addEpoch(in, 2)
	state := func(epochs ...int) map[string]bool {
		in.Tunnels = map[string][]model.TunnelParams{}
		for _, epoch := range epochs {
			in.Tunnels["g2/g2-a"] = append(in.Tunnels["g2/g2-a"], model.TunnelParams{Driver: "ipsec", Epoch: epoch})
		}
		s, problems := projection.Desired(in)
		if len(problems) > 0 {
			t.Errorf("epochs %v: %v", epochs, problems)
		}
		return linesOf(text(s))
	}
	one, both, switched, other := state(1), state(1, 2), state(2, 1), state(2)
	if lost := minus(one, both); len(lost) > 0 {
		t.Errorf("second connection removed %v", lost)
	}
	for _, want := range []string{"link hw-iq4-4807 ", "ipsec hawser-g2.g2-a.e2 ", "tunnels4 241.0.255.254"} {
		if !slices.ContainsFunc(minus(both, one), func(l string) bool { return strings.HasPrefix(l, want) }) {
			t.Errorf("second connection added no %s: %v", want, strings.Join(minus(both, one), "\n"))
		}
	}
	for _, line := range append(minus(both, switched), minus(switched, both)...) {
		if !strings.HasPrefix(line, "route 730") {
			t.Errorf("switch changed %s", line)
		}
	}
	if gained := minus(other, switched); len(gained) > 0 {
		t.Errorf("removal added %v", gained)
	}
	for line := range other {
		if strings.Contains(line, "hw-ip4") || strings.HasPrefix(line, "ipsec hawser-g2.g2-a ") {
			t.Errorf("removal left %s", line)
		}
	}
}

// minus returns the lines that only a has, sorted.
func minus(a, b map[string]bool) []string {
	var out []string
	for line := range a {
		if !b[line] {
			out = append(out, line)
		}
	}
	slices.Sort(out)
	return out
}

// widened returns the lines that do not depend on the largest MTU of all tunnels.
func widened(lines []string) []string {
	return slices.DeleteFunc(lines, func(l string) bool {
		return strings.HasPrefix(l, "table ") || strings.HasPrefix(l, "link hw-vx0 ")
	})
}

// TestSecondaryIPsec checks a second connection with the same keys at the better endpoint. It uses
// alternate addresses and does not change the first connection.
func TestSecondaryIPsec(t *testing.T) {
	t.Parallel()
	w, _ := readWorld(t, "testdata/ordinals.txtar")
	in := w.inputs["g1/g1-a"]
	remote := in.Fabric.Cluster("g2")
	for i := range remote.Gateways {
		if remote.Gateways[i].Name == "g2-a" {
			remote.Gateways[i].Endpoints = []string{"10.99.0.2", "203.0.113.99"}
		}
	}
	usual, secondary := model.TunnelParams{Driver: "ipsec", Epoch: 1}, model.TunnelParams{Driver: "ipsec", Epoch: 1, Alternate: true}
	at := func(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }
	state := func(endpoint model.RemoteEndpoint, tunnels ...model.TunnelParams) (map[string]bool, map[string]string) {
		in.Local.RemoteEndpoints = map[string]model.RemoteEndpoint{"g2/g2-a": endpoint}
		in.Tunnels = map[string][]model.TunnelParams{"g2/g2-a": tunnels}
		s, _ := projection.Desired(in)
		to := map[string]string{}
		for _, c := range s.IPsecs {
			if strings.HasPrefix(c.Name, "hawser-g2.g2-a") {
				to[c.Name] = c.Remote.Addr().String()
			}
		}
		return linesOf(text(s)), to
	}
	second := model.RemoteEndpoint{Addr: at("203.0.113.99:51820")}
	before, _ := state(second, usual)
	second.Pending = at("10.99.0.2:51820")
	both, to := state(second, usual, secondary)
	if lost := widened(minus(before, both)); len(lost) > 0 {
		t.Errorf("second connection removed %v", lost)
	}
	if want := map[string]string{"hawser-g2.g2-a": "203.0.113.99", "hawser-g2.g2-a.alt": "10.99.0.2"}; !maps.Equal(to, want) {
		t.Errorf("connections to %v, want %v", to, want)
	}
	// With only the second connection, the first one is created again at the better endpoint.
	// That does not change the second one.
	alone, _ := state(second, secondary)
	again, to := state(model.RemoteEndpoint{Addr: second.Pending, DialCount: 1}, secondary, usual)
	if lost := widened(minus(alone, again)); len(lost) > 0 {
		t.Errorf("recreation removed %v", lost)
	}
	if want := map[string]string{"hawser-g2.g2-a": "10.99.0.2", "hawser-g2.g2-a.alt": "10.99.0.2"}; !maps.Equal(to, want) {
		t.Errorf("connections to %v, want %v", to, want)
	}
}

// TestMTUOfIPsec checks that the MTU of an IPsec link leaves space for all headers: of the outer
// packet, and of the VXLAN packet between the tunnel addresses inside.
func TestMTUOfIPsec(t *testing.T) {
	t.Parallel()
	const esp, vxlan = 8 + 8 + 8 + 3 + 2 + 16, 8 + 8 + 14
	for _, tt := range []struct {
		name      string
		pools     string
		device    string
		kernelESP bool
		want      int
	}{
		{"IPv4 tunnel addresses", "241.0.0.0/16", "hw-ip4-4807", true, 1500 - 40 - esp - 20 - vxlan},
		{"IPv6 tunnel addresses", "fd41::/64", "hw-ip6-4807", true, 1500 - 40 - esp - 40 - vxlan},
		{"IPv4 tunnel addresses, charon encrypts", "241.0.0.0/16", "hw-ip4-4807", false, 1400 - 20 - vxlan - 1},
		{"IPv6 tunnel addresses, charon encrypts", "fd41::/64", "hw-ip6-4807", false, 1400 - 40 - vxlan - 1},
	} {
		w, _ := readWorld(t, "testdata/ipv6.txtar")
		in := w.inputs["d1/d1-a"]
		in.Fabric.Tunnel.Driver, in.Local.KernelESP = fabric.DriverIPsec, tt.kernelESP
		in.Fabric.TunnelPools = []netip.Prefix{netip.MustParsePrefix(tt.pools)}
		for i := range in.Fabric.Clusters {
			g := &in.Fabric.Clusters[i].Gateways[0]
			g.Addresses = slices.DeleteFunc(g.Addresses, func(a netip.Addr) bool { return !in.Fabric.TunnelPools[0].Contains(a) })
			g.Keys[0].Ed25519 = "pub-" + g.Name
		}
		s, _ := projection.Desired(in)
		i := slices.IndexFunc(s.Devices, func(d desired.Device) bool { return d.Name == tt.device })
		if i < 0 || s.Devices[i].MTU != tt.want {
			t.Errorf("%s: want %s with MTU %d, have %+v", tt.name, tt.device, tt.want, s.Devices)
		}
	}
}
