package peer

import (
	"encoding/base64"
	"net"
	"net/netip"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/driver"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/peer/endpointprobe"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/nodeagent/round"
	"hawser.dev/hawser/schema/fabric"
)

// probeTarget has the parameters of endpoint probes to a gateway. It translates between the base
// port of a candidate and the port of the tunnel.
type probeTarget struct {
	tunnel  desired.Tunnel
	offset  int                 // from the base port to the tunnel's port at the peer
	ikePort func(base int) int  // IPsec: the port at a candidate; nil for other drivers
	keys    endpointprobe.Keys  // WireGuard
	frame   endpointprobe.Frame // VXLAN
}

// probeTargets returns the probe targets of the desired tunnels, by cluster/gateway.
func probeTargets(in projection.Input, n *round.DesiredNode) map[string]probeTarget {
	out := map[string]probeTarget{}
	cluster := in.Fabric.Cluster(in.Cluster)
	gateway := cluster.GatewayOn(in.Node)
	if gateway == nil {
		return nil
	}
	for _, t := range n.Tunnels {
		name := t.Cluster + "/" + t.Gateway
		remote := in.Fabric.Cluster(t.Cluster).Gateway(t.Gateway)
		if _, exists := out[name]; exists || remote == nil {
			continue
		}
		if params := in.Tunnels[name]; t.Driver != fabric.DriverIPsec && len(params) > 0 && !hasFabricPorts(params[0], in, gateway, t.Cluster, remote) {
			continue // during a migration the peer may use other ports
		}
		if target, ok := newProbeTarget(in, gateway, t, remote); ok {
			out[name] = target
		}
	}
	return out
}

// hasFabricPorts reports whether a tunnel has the driver and the ports of the fabric. Its epoch may
// differ.
func hasFabricPorts(t model.TunnelParams, in projection.Input, own *fabric.Gateway, cluster string, remote *fabric.Gateway) bool {
	fromFabric := projection.TunnelOf(in.Fabric.Link(in.Cluster, cluster), in.Fabric.Epochs, in.Keys, own, remote)
	fromFabric.Epoch = t.Epoch
	return t == fromFabric
}

// newProbeTarget returns the target of a tunnel. ok is false if the gateway cannot be probed,
// for example because it has no key.
func newProbeTarget(in projection.Input, own *fabric.Gateway, t desired.Tunnel, remote *fabric.Gateway) (probeTarget, bool) {
	switch t.Driver {
	case fabric.DriverWireguard:
		for _, key := range remote.Keys {
			if key.Epoch == t.Epoch {
				return wireguardTarget(in, own, t, key)
			}
		}
	case fabric.DriverVXLAN:
		return vxlanTarget(in.Cluster, own, t, remote)
	case fabric.DriverIPsec:
		basePort := in.Fabric.Link(in.Cluster, t.Cluster).BasePort(remote, 0)
		return probeTarget{tunnel: t, ikePort: func(base int) int { return driver.IKEPort(in.Fabric.Tunnel.IPsec, base, basePort) }}, true
	}
	return probeTarget{}, false
}

func wireguardTarget(in projection.Input, own *fabric.Gateway, t desired.Tunnel, key fabric.Key) (probeTarget, bool) {
	out := probeTarget{tunnel: t, offset: driver.PortOffset(key.Epoch, own.Ordinal)}
	raw, err := base64.StdEncoding.DecodeString(key.Public)
	epoch := in.Keys.Epoch(key.Epoch)
	if err != nil || len(raw) != len(out.keys.Public) || epoch == nil {
		return probeTarget{}, false
	}
	copy(out.keys.Public[:], raw)
	out.keys.Private = epoch.Gateways[own.Name]
	out.keys.PSK, err = epoch.PSK(in.Cluster+"/"+own.Name, t.Cluster+"/"+t.Gateway)
	return out, err == nil
}

func vxlanTarget(cluster string, own *fabric.Gateway, t desired.Tunnel, remote *fabric.Gateway) (probeTarget, bool) {
	from, err := net.ParseMAC(driver.OverlayMAC(cluster, own.Name))
	if err != nil {
		return probeTarget{}, false
	}
	to, err := net.ParseMAC(driver.OverlayMAC(t.Cluster, t.Gateway))
	if err != nil {
		return probeTarget{}, false
	}
	source, addr, ok := round.FirstCommonFamily(own.Addresses, remote.Addresses)
	frame := endpointprobe.Frame{VNI: desired.TunnelVNI, From: from, To: to, Source: source, Addr: addr, Port: desired.ProbePort}
	return probeTarget{tunnel: t, offset: fabric.VXLANOffset, frame: frame}, ok
}

// outerEndpoint returns the address and port to which the tunnel at a candidate sends its packets.
func (t probeTarget) outerEndpoint(candidate netip.AddrPort) netip.AddrPort {
	port := int(candidate.Port()) + t.offset
	if t.ikePort != nil {
		port = t.ikePort(int(candidate.Port()))
	}
	return netip.AddrPortFrom(candidate.Addr(), uint16(port))
}

// candidateAddr returns the candidate that belongs to an outer endpoint. An IPsec endpoint that
// matches no candidate is returned unchanged: the base port cannot be derived from an IKE port. The
// result is invalid if addr is invalid or, except for IPsec, has a port that is too low.
func (t probeTarget) candidateAddr(addr netip.AddrPort, candidates []model.Candidate) netip.AddrPort {
	if t.ikePort == nil {
		if int(addr.Port()) <= t.offset {
			return netip.AddrPort{}
		}
		return netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port()-uint16(t.offset))
	}
	for _, c := range candidates {
		if addr == t.outerEndpoint(c.Addr) {
			return c.Addr
		}
	}
	return addr
}

// parseAddrPort parses an address and port. It returns the zero value for invalid text.
func parseAddrPort(text string) netip.AddrPort {
	addr, err := netip.ParseAddrPort(text)
	if err != nil {
		return netip.AddrPort{}
	}
	return addr
}
