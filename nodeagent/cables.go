package nodeagent

import (
	"context"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/health"
	"hawser.dev/hawser/nodeagent/kernel"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// cableState is what status tells of the cables to one remote gateway.
type cableState struct {
	driver   string
	epoch    int
	mtu      int
	endpoint string
	rx, tx   int64
	security *status.Security
}

// cables reads the cables to each remote gateway. The one that is used says what
// it is; all of them add to the bytes.
func (a *Agent) cables(n *node) map[health.Peer]cableState {
	if n == nil {
		return nil
	}
	meters, err := a.namespace.Meters(context.Background(), n.Cables)
	if err != nil {
		a.log.Debug("counters not read", "err", err)
	}
	secured := a.secured.States()
	out := map[health.Peer]cableState{}
	for i, c := range n.Cables {
		peer := health.Peer{Cluster: c.Cluster, Gateway: c.Gateway}
		state, known := out[peer]
		if !known {
			state = cableState{driver: driverText(c, meters[i]), epoch: c.Epoch, mtu: c.MTU, endpoint: meters[i].Endpoint}
			if c.Driver == fabric.DriverIPsec {
				a.describeIPsec(&state, secured[c.Connection()])
			}
		}
		state.rx += meters[i].RxBytes
		state.tx += meters[i].TxBytes
		out[peer] = state
	}
	return out
}

// driverText names a driver, with what a person should know of it.
func driverText(c desired.Cable, m kernel.Meter) string {
	switch {
	case c.Clear:
		return c.Driver + " (clear)"
	case m.Holder != "":
		return c.Driver + " (" + m.Holder + ")"
	}
	return c.Driver
}

// mtusOf gives what a packet to each remote gateway may have, in bytes.
func mtusOf(n *node) map[health.Peer]int {
	if n == nil {
		return nil
	}
	out := make(map[health.Peer]int, len(n.Cables))
	for _, c := range n.Cables {
		peer := health.Peer{Cluster: c.Cluster, Gateway: c.Gateway}
		if out[peer] == 0 {
			out[peer] = c.MTU
		}
	}
	return out
}
