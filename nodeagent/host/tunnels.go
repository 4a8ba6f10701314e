package host

import (
	"context"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/health"
	"hawser.dev/hawser/nodeagent/kernel"
	"hawser.dev/hawser/nodeagent/round"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// Tunnel is what status reports about the tunnels to one remote gateway.
type Tunnel struct {
	Driver   string
	Epoch    int
	MTU      int // bytes
	Endpoint string
	Rx, Tx   int64 // bytes
	Security *status.Security
}

// Tunnels reads the tunnels to each remote gateway. The one that is used says what
// it is; all of them add to the bytes.
func (h *Host) Tunnels(n *round.Node) map[health.Peer]Tunnel {
	if n == nil {
		return nil
	}
	meters, err := h.namespace.Meters(context.Background(), n.Tunnels)
	if err != nil {
		h.config.Log.Debug("counters not read", "err", err)
	}
	secured := h.secured.States()
	out := map[health.Peer]Tunnel{}
	for i, c := range n.Tunnels {
		peer := health.Peer{Cluster: c.Cluster, Gateway: c.Gateway}
		state, known := out[peer]
		if !known {
			state = Tunnel{Driver: driverText(c, meters[i]), Epoch: c.Epoch, MTU: c.MTU, Endpoint: meters[i].Endpoint}
			if c.Driver == fabric.DriverIPsec {
				s := secured[c.Connection()]
				state.Driver = "ipsec (userspace)"
				if h.charon.InKernel() {
					state.Driver = "ipsec (kernel)"
				}
				if s.Endpoint.IsValid() {
					state.Endpoint = s.Endpoint.String()
				}
				if s.Up {
					state.Security = &status.Security{
						Cipher: s.Cipher, InUDP: s.InUDP, SPIIn: s.SPIIn, SPIOut: s.SPIOut, Since: s.Since, Rekeys: s.Rekeys,
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

// driverText names a driver, with what a person should know of it.
func driverText(c desired.Tunnel, m kernel.Meter) string {
	switch {
	case c.Clear:
		return c.Driver + " (clear)"
	case m.Holder != "":
		return c.Driver + " (" + m.Holder + ")"
	}
	return c.Driver
}
