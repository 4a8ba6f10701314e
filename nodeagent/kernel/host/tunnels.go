package host

import (
	"context"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/kernel"
	"hawser.dev/hawser/nodeagent/peer/health"
	"hawser.dev/hawser/nodeagent/round"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// TunnelStatus is the status of the tunnels to one remote gateway.
type TunnelStatus struct {
	Driver   string
	Epoch    int
	MTU      int // bytes
	Endpoint string
	Rx, Tx   int64 // bytes
	Security *status.Security
}

// Tunnels returns the status of the tunnels to each remote gateway. The text fields describe
// the tunnel in use. The byte counters are sums over all tunnels.
func (h *Host) Tunnels(n *round.DesiredNode) map[health.GatewayID]TunnelStatus {
	if n == nil {
		return nil
	}
	meters, err := h.namespace.TunnelCounters(context.Background(), n.Tunnels)
	if err != nil {
		h.config.Log.Debug("counters not read", "err", err)
	}
	ipsecStates := h.ipsecSupervisor.States()
	out := map[health.GatewayID]TunnelStatus{}
	for i, tunnel := range n.Tunnels {
		peer := health.GatewayID{Cluster: tunnel.Cluster, Gateway: tunnel.Gateway}
		state, known := out[peer]
		if !known {
			state = TunnelStatus{Driver: driverText(tunnel, meters[i]), Epoch: tunnel.Epoch, MTU: tunnel.MTU, Endpoint: meters[i].Endpoint}
			if tunnel.Driver == fabric.DriverIPsec {
				s := ipsecStates[tunnel.Connection()]
				state.Driver = "ipsec (userspace)"
				if h.charon.InKernel() {
					state.Driver = "ipsec (kernel)"
				}
				if s.Endpoint.IsValid() {
					state.Endpoint = s.Endpoint.String()
				}
				if s.Up {
					state.Security = &status.Security{
						Cipher: s.Cipher, InUDP: s.UDPEncap, SPIIn: s.SPIIn, SPIOut: s.SPIOut, Since: s.Since, Rekeys: s.Rekeys,
					}
				}
			}
		}
		state.Rx += meters[i].RxBytes
		state.Tx += meters[i].TxBytes
		out[peer] = state
	}
	return out
}

// driverText returns the name of a driver with its relevant details.
func driverText(tunnel desired.Tunnel, m kernel.TunnelCounters) string {
	switch {
	case tunnel.Clear:
		return tunnel.Driver + " (clear)"
	case m.Mode != "":
		return tunnel.Driver + " (" + m.Mode + ")"
	}
	return tunnel.Driver
}
