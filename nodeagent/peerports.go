package nodeagent

import (
	"encoding/base64"
	"net/netip"
	"strings"

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
		remote := in.Fabric.Cluster(c.Cluster)
		if len(in.Cables[name]) > 0 {
			continue // it changes; another port may be in use
		}
		if _, done := out[name]; done || c.Driver != fabric.DriverWireguard || remote == nil || len(c.Received) == 0 {
			continue
		}
		_, public, _ := strings.Cut(c.Received[0], "/")
		for _, g := range remote.Gateways {
			for _, key := range g.Keys {
				if p, ok := portsFor(in, gateway, c, key); ok && g.Name == c.Gateway && key.Public == public {
					out[name] = p
				}
			}
		}
	}
	return out
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
