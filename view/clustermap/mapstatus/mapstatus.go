// Package mapstatus fills a map of a clusterset with what its agents report. It is pure.
package mapstatus

import (
	"slices"

	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/view/clustermap"
)

// Fill sets the state of every cluster, gateway and link of a map. A gateway is up if its
// agent answered, is ready, and all its links are connected; it is down if no link is. A link
// is up if all pairs of its gateways are connected, as the answering ends report, and down if
// no pair is. A cluster combines the states of its gateways. A state without any answer is
// unknown.
func Fill(m *clustermap.Map, agents []status.Status) {
	heard := map[string]*status.Status{} // by cluster/gateway
	for i := range agents {
		if s := &agents[i]; s.Gateway != "" {
			heard[s.Cluster+"/"+s.Gateway] = s
		}
	}
	linked(m, agents)
	gateways(m, func(name, _ string) string {
		if s := heard[name]; s != nil {
			return gateway(s)
		}
		return clustermap.Unknown
	})
}

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
	gateways(m, func(name, before string) string {
		if before == clustermap.Unknown && broken[name] && !connected[name] {
			return clustermap.Down
		}
		return before
	})
}

// gateways sets each gateway's state (cluster/gateway) from its previous state, and each
// cluster's state from its gateways.
func gateways(m *clustermap.Map, state func(name, before string) string) {
	for i := range m.Clusters {
		c := &m.Clusters[i]
		states := make([]string, len(c.Gateways))
		for j := range c.Gateways {
			g := &c.Gateways[j]
			g.State = state(c.Name+"/"+g.Name, g.State)
			states[j] = g.State
		}
		c.State = together(states)
	}
}

// gateway returns the state of a gateway whose agent answered.
func gateway(s *status.Status) string {
	connected, broken := 0, 0
	for _, c := range s.Connections {
		if c.Status == status.Connected {
			connected++
		} else {
			broken++
		}
	}
	switch {
	case connected == 0 && broken > 0:
		return clustermap.Down
	case broken > 0 || !s.Ready:
		return clustermap.Degraded
	}
	return clustermap.Up
}

// pair holds the agents' reports about one pair of gateways.
type pair struct {
	connected, broken bool
	chosen            bool
	rtt               int64
	loss              float64
}

// linked sets the states of the map's links. Links of a mesh that is too large to list are
// added to the map if they are not up.
func linked(m *clustermap.Map, agents []status.Status) {
	pairs := map[[2]string]map[string]*pair{}
	drivers := map[[2]string]string{}
	told := shown(m, agents)
	for i := range agents {
		s := &agents[i]
		for _, c := range s.Connections {
			between := fabric.SortedPair(s.Cluster, c.RemoteCluster)
			if !told[between] {
				continue
			}
			name := c.Gateway + "-" + c.RemoteGateway
			if between[0] != s.Cluster {
				name = c.RemoteGateway + "-" + c.Gateway
			}
			if pairs[between] == nil {
				pairs[between] = map[string]*pair{}
			}
			p := pairs[between][name]
			if p == nil {
				p = &pair{}
				pairs[between][name] = p
			}
			if c.Status == status.Connected {
				p.connected = true
			} else {
				p.broken = true
			}
			p.chosen = p.chosen || c.Chosen
			if c.RTT != nil {
				p.rtt = max(p.rtt, c.RTT.Avg)
			}
			p.loss = max(p.loss, c.Loss)
			drivers[between] = c.Driver
		}
	}
	for i := range m.Links {
		l := &m.Links[i]
		if l.State = clustermap.Unknown; pairs[l.Between] != nil {
			describe(l, pairs[l.Between])
			delete(pairs, l.Between)
		}
	}
	for between, of := range pairs {
		l := clustermap.Link{Between: between, Driver: drivers[between]}
		if describe(&l, of); m.MeshImplied && l.State != clustermap.Up {
			m.Links = append(m.Links, l)
		}
	}
	slices.SortFunc(m.Links, func(a, b clustermap.Link) int { return fabric.ComparePairs(a.Between, b.Between) })
}

// shown returns the links to evaluate: the links on the map and, in a mesh that is too large
// to list, the links that an agent reports as broken. The other links of such a mesh are up
// or unknown; a thousand clusters have half a million links.
func shown(m *clustermap.Map, agents []status.Status) map[[2]string]bool {
	out := map[[2]string]bool{}
	for i := range m.Links {
		out[m.Links[i].Between] = true
	}
	for i := range agents {
		for j := range agents[i].Connections {
			if c := &agents[i].Connections[j]; m.MeshImplied && c.Status != status.Connected {
				out[fabric.SortedPair(agents[i].Cluster, c.RemoteCluster)] = true
			}
		}
	}
	return out
}

func describe(l *clustermap.Link, of map[string]*pair) {
	states := make([]string, 0, len(of))
	for name, p := range of {
		switch {
		case p.connected && !p.broken:
			states = append(states, clustermap.Up)
		case p.connected:
			states = append(states, clustermap.Degraded)
		default:
			states = append(states, clustermap.Down)
		}
		if p.chosen && p.connected {
			l.Uses = append(l.Uses, name)
			l.RTT, l.Loss = max(l.RTT, p.rtt), max(l.Loss, p.loss)
		}
	}
	slices.Sort(l.Uses)
	l.State = together(states)
}

// together returns the combined state of several parts.
func together(states []string) string {
	count := map[string]int{}
	for _, s := range states {
		count[s]++
	}
	switch all := len(states); {
	case all == 0 || count[clustermap.Unknown] == all:
		return clustermap.Unknown
	case count[clustermap.Up] == all:
		return clustermap.Up
	case count[clustermap.Down]+count[clustermap.Unknown] == all:
		return clustermap.Down
	}
	return clustermap.Degraded
}
