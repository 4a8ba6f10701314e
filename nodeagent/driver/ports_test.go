package driver

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fabric/firewall"
)

// TestPortsOfFirewalls checks that a gateway listens on exactly the ports that
// schema/fabric/firewall opens, for random drivers, ordinals, epochs and ports.
func TestPortsOfFirewalls(t *testing.T) {
	t.Parallel()
	drivers := []string{fabric.DriverWireguard, fabric.DriverVXLAN, fabric.DriverIPsec}
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		s := site()
		s.Gateway.Endpoints = []string{"192.0.2.1"}
		f := &fabric.Fabric{
			Tunnel: fabric.TunnelDefaults{Driver: drivers[rng.IntN(3)], IPsec: s.IPsec}, Epochs: []int{1, 2}[:1+rng.IntN(2)],
			Clusters: []fabric.Cluster{{Name: s.Cluster, Gateways: []fabric.Gateway{*s.Gateway}}},
		}
		s.Keys.Epochs = append(s.Keys.Epochs, fabric.EpochKeys{Epoch: 2, Gateways: s.Keys.Epochs[0].Gateways, Ed25519: s.Keys.Epochs[0].Ed25519})
		remotes := map[string][]Remote{}
		alt := rng.IntN(2) == 0
		for i := range 1 + rng.IntN(4) {
			name := fmt.Sprintf("r%d", i)
			c := fabric.Cluster{Name: name}
			link := fabric.LinkSettings{Between: fabric.SortedPair(s.Cluster, name), Driver: drivers[rng.IntN(3)]}
			if rng.IntN(2) == 0 {
				link.Port = 53000
			}
			if rng.IntN(2) == 0 {
				f.Links = append(f.Links, link)
			}
			fabric.SortLinks(f.Links)
			for ordinal := range 1 + rng.IntN(3) {
				g := fabric.Gateway{Name: fmt.Sprint("g", ordinal), Ordinal: ordinal, Port: 51820, Endpoints: []string{"192.0.2.9"}}
				c.Gateways = append(c.Gateways, g)
				for _, epoch := range f.Epochs {
					r := far("", i)
					r.Cluster, r.Gateway, r.Link, r.Epoch, r.Alternate = name, &g, f.Link(s.Cluster, name), epoch, alt
					r.LocalBasePort = r.Link.BasePort(s.Gateway, 0)
					r.Gateway.Addresses, r.Gateway.Keys = far("", 10*i+ordinal).Gateway.Addresses, far("", 0).Gateway.Keys
					if remotes[r.Link.Driver] = append(remotes[r.Link.Driver], r); r.Link.Driver != fabric.DriverWireguard {
						break
					}
				}
			}
			f.Clusters = append(f.Clusters, c)
		}
		listens := map[string]bool{}
		for name, list := range remotes {
			b := ByName(name).Build(s, list)
			for _, l := range b.Devices {
				switch {
				case l.Type == desired.DeviceIPsec:
					listens[fmt.Sprint(name, l.Port)], listens[fmt.Sprint(name, l.IKEPort)] = true, true
				case l.Type == desired.DeviceVXLAN && name == fabric.DriverVXLAN:
					listens[fmt.Sprint(name, l.Port)] = true
				}
			}
			for _, w := range b.Wireguards {
				listens[fmt.Sprint(name, w.ListenPort)] = true
			}
		}
		open := map[string]bool{}
		for _, o := range firewall.New(f).Links(s.Cluster, nil) {
			purpose := firewall.PurposeLinks
			if alt && o.Driver != fabric.DriverIPsec {
				purpose = firewall.PurposeMigration
			}
			if o.Purpose == purpose && o.Protocol == firewall.UDP {
				open[fmt.Sprint(o.Driver, o.First)] = true
			}
		}
		want, have := keysOf(listens), keysOf(open)
		if !slices.Equal(want, have) {
			t.Fatalf("seed %d: the gateway listens on %v, and the firewall opens %v", seed, want, have)
		}
	}
}

func keysOf(m map[string]bool) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
