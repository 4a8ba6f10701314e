package nodeagent

import (
	"encoding/base64"
	"net/netip"

	"hawser.dev/hawser/nodeagent/cable"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/project"
	"hawser.dev/hawser/nodeagent/scout"
	"hawser.dev/hawser/schema/fabric"
)

// peerPorts is what a question to a gateway needs, and what tells its endpoint.
type peerPorts struct {
	cable  desired.Cable
	keys   scout.Keys
	offset int // of the other end's port
}

// portsOf finds what questions need among what the node should have.
func portsOf(in project.Input, n *node) map[string]peerPorts {
	out := map[string]peerPorts{}
	own := in.Fabric.Cluster(in.Cluster)
	gateway := own.GatewayOn(in.Node)
	if gateway == nil {
		return nil
	}
	for _, c := range n.Cables {
		name := c.Cluster + "/" + c.Gateway
		remote := gatewayOf(in.Fabric.Cluster(c.Cluster), c.Gateway)
		if _, done := out[name]; done || c.Driver != fabric.DriverWireguard || remote == nil {
			continue
		}
		if held := in.Cables[name]; len(held) > 0 && !sameBut(held[0], in, gateway, c.Cluster, remote) {
			continue // another port may be in use
		}
		for _, key := range remote.Keys {
			if p, ok := portsFor(in, gateway, c, key); ok && key.Epoch == c.Epoch {
				out[name] = p
			}
		}
	}
	return out
}

// sameBut reports whether a cable is at the ports that the fabric says, whatever
// its epoch is.
func sameBut(c project.Cable, in project.Input, own *fabric.Gateway, cluster string, remote *fabric.Gateway) bool {
	usual := project.CableOf(in.Fabric.Link(in.Cluster, cluster), in.Fabric.Epochs, in.Keys, own, remote)
	usual.Epoch = c.Epoch
	return c == usual
}

func portsFor(in project.Input, own *fabric.Gateway, c desired.Cable, key fabric.Key) (peerPorts, bool) {
	p := peerPorts{cable: c, offset: cable.PortOffset(key.Epoch, own.Lane)}
	raw, err := base64.StdEncoding.DecodeString(key.Public)
	epoch := in.Keys.Epoch(key.Epoch)
	if err != nil || len(raw) != len(p.keys.Public) || epoch == nil {
		return p, false
	}
	copy(p.keys.Public[:], raw)
	p.keys.Private = epoch.Gateways[own.Name]
	p.keys.PSK, err = epoch.PSK(in.Cluster+"/"+own.Name, c.Cluster+"/"+c.Gateway)
	return p, err == nil
}

// base gives where a peer is, as candidates are written; invalid = not known.
func (p peerPorts) base(text string) netip.AddrPort {
	at, err := netip.ParseAddrPort(text)
	if err != nil || int(at.Port()) <= p.offset {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()-uint16(p.offset))
}
