package nodeagent

import (
	"context"

	"hawser.dev/hawser/schema/fabric"
)

// noConnLimit reports whether the kernel lacks what the topology's quota of connections
// needs. It is found out once, and on gateways with a quota alone.
func (a *Agent) noConnLimit(f *fabric.Fabric) bool {
	if f.Limits.Connections == 0 || a.gatewayIn(f) == "" {
		return false
	}
	if a.counting == nil {
		counts, err := a.namespace.CountsConnections(context.Background())
		if err != nil {
			a.log.Warn("there is no quota of connections for now", "err", err)
			return true
		}
		a.counting = &counts
	}
	return !*a.counting
}
