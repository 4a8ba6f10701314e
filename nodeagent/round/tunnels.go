package round

import (
	"slices"
	"strings"

	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/driver"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/peer/migration"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/schema/fabric"
)

// pairConfigs returns the pairs of this gateway that it probes through tunnels, each with its
// tunnel of the fabric. A pair whose endpoint in secondary is Pending needs a secondary tunnel.
func pairConfigs(in Observed, f *fabric.Fabric, p ProbeSpec, secondary map[string]model.RemoteEndpoint) []migration.PairConfig {
	var out []migration.PairConfig
	for _, t := range p.Targets {
		want, ok := wantedTunnel(f, in.Keys, in.Cluster, p.Gateway, t.Peer.Cluster, t.Peer.Gateway)
		if t.Device != "" || !ok {
			continue
		}
		out = append(out, migration.PairConfig{
			Name: t.Peer.String(), Want: want, Keys: tunnelKeys(f, in.Keys, in.Cluster, p.Gateway, t.Peer.Cluster, t.Peer.Gateway),
			Secondary: secondary[t.Peer.String()].Pending.IsValid(), Source: t.Source, Addr: t.Addr,
		})
	}
	return out
}

// wantedTunnel returns the tunnel of a pair in the fabric.
func wantedTunnel(f *fabric.Fabric, keys *fabric.Keys, own, gateway, cluster, remote string) (migration.TunnelID, bool) {
	a, b := f.Cluster(own).Gateway(gateway), f.Cluster(cluster).Gateway(remote)
	if a == nil || b == nil {
		return migration.TunnelID{}, false
	}
	params := projection.TunnelOf(f.Link(own, cluster), f.Epochs, keys, a, b)
	if d := driver.ByName(params.Driver); d != nil && d.Traits().FixedPorts {
		return migration.TunnelID{Driver: params.Driver, Epoch: params.Epoch}, true
	}
	return tunnelID(own+"/"+gateway, cluster+"/"+remote, params), true
}

// tunnelKeys returns the epochs of a pair's keys by driver. It returns nil without keys: the agent
// then keeps all tunnels of the previous agent.
func tunnelKeys(f *fabric.Fabric, keys *fabric.Keys, own, gateway, cluster, remote string) migration.Keys {
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

// tunnelID returns the identity of a tunnel, which is the same at both gateways. self and peer are
// cluster/gateway.
func tunnelID(self, peer string, p model.TunnelParams) migration.TunnelID {
	out := migration.TunnelID{Driver: p.Driver, Ports: [2]int{p.LocalPort, p.RemotePort}, Alternate: p.Alternate, Epoch: p.Epoch}
	if self > peer {
		out.Ports[0], out.Ports[1] = out.Ports[1], out.Ports[0]
	}
	return out
}

// tunnelParams returns the tunnels of migrating pairs with the ports from this gateway's point of
// view, by peer.
func tunnelParams(in Observed, p ProbeSpec, tunnels map[string][]migration.TunnelID) map[string][]model.TunnelParams {
	self := in.Cluster + "/" + p.Gateway
	out := map[string][]model.TunnelParams{}
	for peer, ids := range tunnels {
		for _, c := range ids {
			if self > peer {
				c.Ports[0], c.Ports[1] = c.Ports[1], c.Ports[0]
			}
			out[peer] = append(out[peer], model.TunnelParams{
				Driver: c.Driver, LocalPort: c.Ports[0], RemotePort: c.Ports[1], Alternate: c.Alternate, Epoch: c.Epoch,
			})
		}
	}
	return out
}

// InstalledTunnels returns, by peer, the tunnels that a round left in the kernel, except those with
// a problem. It returns nil if this node is not a gateway or the round was interrupted.
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
	problems := slices.Concat(r.Failed, r.Blocked, r.Fights)
	out := map[string]migration.Installed{}
	for _, t := range p.Node.Tunnels {
		peer := t.Cluster + "/" + t.Gateway
		id, ok := desiredTunnelID(p.Input, gateway.Name, t)
		if !ok {
			continue
		}
		if _, known := out[peer]; !known {
			active := id
			if migrating := p.Input.Tunnels[peer]; len(migrating) > 0 {
				active = tunnelID(own.Name+"/"+gateway.Name, peer, migrating[0])
			}
			out[peer] = migration.Installed{Active: active, Devices: map[migration.TunnelID][]string{}}
		}
		if !slices.ContainsFunc(problems, func(p converge.Problem) bool { return affects(p, t) }) {
			out[peer].Devices[id] = append(out[peer].Devices[id], t.Device)
		}
	}
	return out
}

// desiredTunnelID returns the ID of a desired tunnel.
func desiredTunnelID(in projection.Input, gateway string, t desired.Tunnel) (migration.TunnelID, bool) {
	self, peer := in.Cluster+"/"+gateway, t.Cluster+"/"+t.Gateway
	migrating := in.Tunnels[peer]
	switch {
	case len(migrating) == 0:
		return wantedTunnel(in.Fabric, in.Keys, in.Cluster, gateway, t.Cluster, t.Gateway)
	case t.Preference >= len(migrating):
		return migration.TunnelID{}, false
	}
	return tunnelID(self, peer, migrating[t.Preference]), true
}

// affects reports whether a problem may affect a tunnel. Problems with DNS and with other tunnels
// do not.
func affects(p converge.Problem, t desired.Tunnel) bool {
	switch p.Kind {
	case "dns zone", "dns service":
		return false
	case "ipsec":
		return t.Driver == fabric.DriverIPsec && (p.Key == "" || p.Key == t.Connection())
	}
	device, _, _ := strings.Cut(p.Key, "/")
	return !desired.IsTunnel(device) || device == t.Device
}
