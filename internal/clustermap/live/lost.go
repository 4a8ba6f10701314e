package live

import (
	"hawser.dev/hawser/internal/clustermap"
	"hawser.dev/hawser/nodeagent/status"
)

// Lost says down of gateways whose agent was asked and did not answer, if every gateway of
// another cluster that answered calls its links to them broken. Fill leaves them unknown, as
// it does not know who was asked. Call it after Fill.
func Lost(m *clustermap.Map, agents []status.Status) {
	broken, connected := map[string]bool{}, map[string]bool{} // by cluster/gateway
	for i := range agents {
		for _, c := range agents[i].Connections {
			if c.Status == status.Connected {
				connected[c.RemoteCluster+"/"+c.RemoteGateway] = true
			} else {
				broken[c.RemoteCluster+"/"+c.RemoteGateway] = true
			}
		}
	}
	for i := range m.Clusters {
		c := &m.Clusters[i]
		states := make([]string, len(c.Gateways))
		for j := range c.Gateways {
			g := &c.Gateways[j]
			if name := c.Name + "/" + g.Name; g.State == clustermap.Unknown && broken[name] && !connected[name] {
				g.State = clustermap.Down
			}
			states[j] = g.State
		}
		c.State = together(states)
	}
}
