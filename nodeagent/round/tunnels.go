package round

import (
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/driver"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/peer/migration"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/schema/fabric"
	"slices"
	"strings"
)

// pairsOf gives the pairs of this gateway that are probed through tunnels, each with the
// tunnel that the fabric says. Those of secondary go over a second one for now.
func pairsOf(in Observed, f *fabric.Fabric, p ProbeSpec, secondary map[string]model.RemoteEndpoint) []migration.PairConfig {
	var out []migration.PairConfig
	for _, t := range p.Targets {
		want, ok := tunnelOf(f, in.Keys, in.Cluster, p.Gateway, t.Peer.Cluster, t.Peer.Gateway)
		if t.Device != "" || !ok {
			continue
		}
		out = append(out, migration.PairConfig{
			Name: t.Peer.String(), Want: want, Keys: keysOf(f, in.Keys, in.Cluster, p.Gateway, t.Peer.Cluster, t.Peer.Gateway),
			Secondary: secondary[t.Peer.String()].Pending.IsValid(), Source: t.Source, Addr: t.Addr,
		})
	}
	return out
}

// tunnelOf is the tunnel of a pair that the fabric says.
func tunnelOf(f *fabric.Fabric, keys *fabric.Keys, own, gateway, cluster, remote string) (migration.TunnelID, bool) {
	a, b := f.Cluster(own).Gateway(gateway), f.Cluster(cluster).Gateway(remote)
	if a == nil || b == nil {
		return migration.TunnelID{}, false
	}
	is := projection.TunnelOf(f.Link(own, cluster), f.Epochs, keys, a, b)
	if d := driver.ByName(is.Driver); d != nil && d.Traits().FixedPorts {
		return migration.TunnelID{Driver: is.Driver, Epoch: is.Epoch}, true
	}
	return ofPair(own+"/"+gateway, cluster+"/"+remote, is), true
}

// keysOf gives the epochs in which a pair can have tunnels. An agent to which no keys
// came yet gives up none of those that the run before had.
func keysOf(f *fabric.Fabric, keys *fabric.Keys, own, gateway, cluster, remote string) migration.Keys {
	if keys == nil {
		return nil
	}
	a, b := f.Cluster(own).Gateway(gateway), f.Cluster(cluster).Gateway(remote)
	out := migration.Keys{}
	for _, d := range driver.Drivers() {
		name := d.Traits().Name
		out[name] = driver.Epochs(name, f.Epochs, keys, a, b)
	}
	return out
}

// ofGateway gives a tunnel as this end sees it.
func ofGateway(self, peer string, c migration.TunnelID) model.TunnelParams {
	if self > peer {
		c.Ports[0], c.Ports[1] = c.Ports[1], c.Ports[0]
	}
	return model.TunnelParams{Driver: c.Driver, LocalPort: c.Ports[0], RemotePort: c.Ports[1], Alternate: c.Alternate, Epoch: c.Epoch}
}

// ofPair gives a tunnel of this end as both ends write it.
func ofPair(self, peer string, p model.TunnelParams) migration.TunnelID {
	out := migration.TunnelID{Driver: p.Driver, Ports: [2]int{p.LocalPort, p.RemotePort}, Alternate: p.Alternate, Epoch: p.Epoch}
	if self > peer {
		out.Ports[0], out.Ports[1] = out.Ports[1], out.Ports[0]
	}
	return out
}

// tunnelsOf gives the tunnels of pairs that change theirs, as the projection takes them.
func tunnelsOf(in Observed, p ProbeSpec, tunnels map[string][]migration.TunnelID) map[string][]model.TunnelParams {
	out := map[string][]model.TunnelParams{}
	for peer, all := range tunnels {
		for _, one := range all {
			out[peer] = append(out[peer], ofGateway(in.Cluster+"/"+p.Gateway, peer, one))
		}
	}
	return out
}

// InstalledTunnels gives, by remote gateway, the tunnels that a round left in the kernel. One of
// which anything failed does not stand. It is nil where this node is no gateway, or the
// round did not come to its end.
func (p *Projection) InstalledTunnels(r converge.Report) map[string]migration.Installed {
	if r.Interrupted || p.Node == nil || p.Input.Fabric == nil {
		return nil
	}
	own := p.Input.Fabric.Cluster(p.Input.Cluster)
	if own == nil {
		return nil
	}
	gateway := own.GatewayOn(p.Input.Node)
	if gateway == nil {
		return nil
	}
	all := map[string]migration.Installed{}
	for _, made := range p.Node.Tunnels {
		peer := made.Cluster + "/" + made.Gateway
		one, ok := tunnelMade(p.Input, gateway.Name, made)
		if !ok {
			continue
		}
		if _, known := all[peer]; !known {
			use := one
			if held := p.Input.Tunnels[peer]; len(held) > 0 {
				use = ofPair(own.Name+"/"+gateway.Name, peer, held[0])
			}
			all[peer] = migration.Installed{Active: use, Devices: map[migration.TunnelID][]string{}}
		}
		if !slices.ContainsFunc(slices.Concat(r.Failed, r.Blocked, r.Fights), func(p converge.Problem) bool { return concerns(p, made) }) {
			all[peer].Devices[one] = append(all[peer].Devices[one], made.Link)
		}
	}
	return all
}

// tunnelMade finds which of the tunnels of its pair a way to a remote gateway is.
func tunnelMade(in projection.Input, gateway string, made desired.Tunnel) (migration.TunnelID, bool) {
	self, peer := in.Cluster+"/"+gateway, made.Cluster+"/"+made.Gateway
	if held := in.Tunnels[peer]; len(held) > 0 {
		if made.Preference >= len(held) {
			return migration.TunnelID{}, false
		}
		return ofPair(self, peer, held[made.Preference]), true
	}
	return tunnelOf(in.Fabric, in.Keys, in.Cluster, gateway, made.Cluster, made.Gateway)
}

// concerns reports whether a problem may keep a tunnel from working: all but those
// of names and of other tunnels.
func concerns(p converge.Problem, made desired.Tunnel) bool {
	switch p.Kind {
	case "dns zone", "dns service":
		return false
	case "ipsec":
		return made.Driver == fabric.DriverIPsec && (p.Key == "" || p.Key == made.Connection())
	}
	link, _, _ := strings.Cut(p.Key, "/")
	return !desired.IsTunnel(link) || link == made.Link
}
