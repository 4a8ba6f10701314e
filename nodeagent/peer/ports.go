package peer

import (
	"encoding/base64"
	"net"
	"net/netip"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/driver"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/peer/endpoint"
	"hawser.dev/hawser/nodeagent/peer/endpointprobe"
	"hawser.dev/hawser/nodeagent/peer/health"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/nodeagent/round"
	"hawser.dev/hawser/schema/fabric"
)

// probeTarget is what a question to a gateway needs, and what tells its endpoint.
type probeTarget struct {
	tunnel desired.Tunnel
	offset int                 // of the other end's port
	keys   endpointprobe.Keys  // of WireGuard
	frame  endpointprobe.Frame // of VXLAN
	ike    func(base int) int  // the port of IPsec at an endpoint
}

// portsOf finds what questions need among what the node should have.
func portsOf(in projection.Input, n *round.DesiredNode) map[string]probeTarget {
	out := map[string]probeTarget{}
	own := in.Fabric.Cluster(in.Cluster)
	gateway := own.GatewayOn(in.Node)
	if gateway == nil {
		return nil
	}
	for _, c := range n.Tunnels {
		name := c.Cluster + "/" + c.Gateway
		remote := in.Fabric.Cluster(c.Cluster).Gateway(c.Gateway)
		if _, done := out[name]; done || remote == nil {
			continue
		}
		if held := in.Tunnels[name]; c.Driver != fabric.DriverIPsec && len(held) > 0 && !sameBut(held[0], in, gateway, c.Cluster, remote) {
			continue // another port may be in use
		}
		if p, ok := portsFor(in, gateway, c, remote); ok {
			out[name] = p
		}
	}
	return out
}

func portsFor(in projection.Input, own *fabric.Gateway, c desired.Tunnel, remote *fabric.Gateway) (probeTarget, bool) {
	switch c.Driver {
	case fabric.DriverWireguard:
		for _, key := range remote.Keys {
			if key.Epoch == c.Epoch {
				return wireguardPorts(in, own, c, key)
			}
		}
	case fabric.DriverVXLAN:
		return vxlanPorts(in.Cluster, own, c, remote)
	case fabric.DriverIPsec:
		usual := in.Fabric.Link(in.Cluster, c.Cluster).BasePort(remote, 0)
		return probeTarget{tunnel: c, ike: func(base int) int { return driver.IKEPort(in.Fabric.Tunnel.IPsec, base, usual) }}, true
	}
	return probeTarget{}, false
}

func vxlanPorts(cluster string, own *fabric.Gateway, c desired.Tunnel, remote *fabric.Gateway) (probeTarget, bool) {
	p := probeTarget{tunnel: c, offset: fabric.VXLANOffset, frame: endpointprobe.Frame{VNI: desired.VXLANTunnelID, Port: desired.ProbePort}}
	from, err := net.ParseMAC(driver.OverlayMAC(cluster, own.Name))
	if err != nil {
		return p, false
	}
	to, err := net.ParseMAC(driver.OverlayMAC(c.Cluster, c.Gateway))
	source, addr, ok := round.SameFamily(own.Addresses, remote.Addresses)
	p.frame.From, p.frame.To, p.frame.Source, p.frame.Addr = from, to, source, addr
	return p, ok && err == nil
}

// sameBut reports whether a tunnel is at the ports that the fabric says, whatever
// its epoch is.
func sameBut(c model.TunnelParams, in projection.Input, own *fabric.Gateway, cluster string, remote *fabric.Gateway) bool {
	usual := projection.TunnelOf(in.Fabric.Link(in.Cluster, cluster), in.Fabric.Epochs, in.Keys, own, remote)
	usual.Epoch = c.Epoch
	return c == usual
}

func wireguardPorts(in projection.Input, own *fabric.Gateway, c desired.Tunnel, key fabric.Key) (probeTarget, bool) {
	p := probeTarget{tunnel: c, offset: driver.PortOffset(key.Epoch, own.Ordinal)}
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

// ask sends the question whether the gateway answers at a candidate.
func (e *endpointSelector) ask(p probeTarget, a endpoint.ProbeRequest) error {
	to := netip.AddrPortFrom(a.Addr.Addr(), a.Addr.Port()+uint16(p.offset))
	answered := func() { e.answered(a) }
	switch p.tunnel.Driver {
	case fabric.DriverVXLAN:
		return endpointprobe.SendVXLAN(to, p.frame, e.prober.NewOffPathProbe(health.GatewayID{Cluster: p.tunnel.Cluster, Gateway: p.tunnel.Gateway}, answered))
	case fabric.DriverIPsec:
		return e.scout.ProbeIKE(netip.AddrPortFrom(to.Addr(), uint16(p.ike(int(to.Port())))), answered)
	}
	return e.scout.ProbeWireGuard(endpointprobe.Request{Keys: p.keys, From: uint16(p.tunnel.Port), To: to}, answered)
}

// base gives where a peer is, as candidates are written, where the ports of an
// endpoint are one behind the other; invalid = not known.
func (p probeTarget) base(text string) netip.AddrPort {
	at, err := netip.ParseAddrPort(text)
	if err != nil || int(at.Port()) <= p.offset {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()-uint16(p.offset))
}

// candidate gives the same for IPsec, and the place itself when it is none of them.
func (p probeTarget) candidate(at netip.AddrPort, among []model.Candidate) netip.AddrPort {
	for _, c := range among {
		if at.Addr() == c.Addr.Addr() && int(at.Port()) == p.ike(int(c.Addr.Port())) {
			return c.Addr
		}
	}
	return at
}

// isAt reports whether a place is that of a candidate.
func (p probeTarget) isAt(text string, only model.Candidate) bool {
	if p.ike == nil {
		return p.base(text) == only.Addr
	}
	place, _ := netip.ParseAddrPort(text) // invalid is no candidate's
	return p.candidate(place, []model.Candidate{only}) == only.Addr
}
