// Package mapstatus adds the agents' reports to the map of a clusterset. It is pure.
package mapstatus

import (
	"slices"

	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/view/clustermap"
)

// Reports are the reports of a clusterset's agents.
type Reports struct {
	Agents []status.Status // of the agents that responded
	// Silent are the gateways (cluster/gateway) whose agents were queried and do not respond.
	Silent map[string]bool
	// Complete reports whether the agents of all clusters were queried.
	Complete bool
}

// gatewayID identifies a gateway of the clusterset.
type gatewayID struct{ cluster, gateway string }

func (g gatewayID) String() string { return g.cluster + "/" + g.gateway }

// reach is what all agents report about a gateway's links.
type reach struct {
	connected, broken bool
	onlyOne           bool // a peer of a broken link has other links that are connected
}

// Fill sets the state of every cluster, gateway and link of a map.
//
// A state marks a cause, not its consequences. A gateway is down if no agent reports a connected
// link of it, and its agent is silent or its peers have other links. It is up if its agent
// responded and is ready, independent of the state of its peers. A link is up if all pairs of its
// gateways are connected according to the responding ends, and down if no pair is. Link.Explained
// reports whether gateways that are down are the reason. A cluster combines the states of its
// gateways. A state without any response is unknown.
func Fill(m *clustermap.Map, r Reports) {
	byGateway := map[gatewayID]*status.Status{}
	for i := range r.Agents {
		if s := &r.Agents[i]; s.Gateway != "" {
			byGateway[gatewayID{s.Cluster, s.Gateway}] = s
		}
	}
	links := reachOf(r.Agents)
	down := map[gatewayID]bool{}
	for i := range m.Clusters {
		c := &m.Clusters[i]
		states := make([]string, len(c.Gateways))
		for j := range c.Gateways {
			g := &c.Gateways[j]
			id := gatewayID{c.Name, g.Name}
			g.State = r.gateway(byGateway[id], r.Silent[id.String()], links[id])
			states[j], down[id] = g.State, g.State == clustermap.Down
		}
		c.State = combinedState(states)
	}
	setLinkStates(m, r.Agents, down)
}

// gateway returns the state of a gateway from its agent's report, which may be nil.
func (r Reports) gateway(s *status.Status, silent bool, links reach) string {
	unreachable := links.broken && !links.connected
	switch {
	case s == nil && unreachable && (silent || r.Complete):
		return clustermap.Down
	case s == nil && silent:
		return clustermap.Silent
	case s == nil:
		return clustermap.Unknown
	case unreachable && (links.onlyOne || !r.Complete):
		return clustermap.Down
	case !s.Ready:
		return clustermap.Degraded
	}
	return clustermap.Up
}

// reachOf returns the agents' reports about the links of each gateway.
func reachOf(agents []status.Status) map[gatewayID]reach {
	out := map[gatewayID]reach{}
	each := func(visit func(local, remote gatewayID, connected bool)) {
		for i := range agents {
			for j := range agents[i].Connections {
				c := &agents[i].Connections[j]
				visit(gatewayID{agents[i].Cluster, c.Gateway}, gatewayID{c.RemoteCluster, c.RemoteGateway}, c.Status == status.Connected)
			}
		}
	}
	each(func(local, remote gatewayID, connected bool) {
		for _, id := range []gatewayID{local, remote} {
			r := out[id]
			r.connected, r.broken = r.connected || connected, r.broken || !connected
			out[id] = r
		}
	})
	each(func(local, remote gatewayID, connected bool) {
		if connected {
			return
		}
		for _, ends := range [][2]gatewayID{{local, remote}, {remote, local}} {
			if r := out[ends[0]]; !r.connected && out[ends[1]].connected {
				r.onlyOne = true
				out[ends[0]] = r
			}
		}
	})
	return out
}

// pair holds the agents' reports about one pair of gateways.
type pair struct {
	connected, broken bool
	explained         bool // one of its gateways is down
	active            bool
	rtt               int64
	loss              float64
}

// setLinkStates sets the states of the map's links. In a mesh that is too large to list, it adds
// links that are not up to the map.
func setLinkStates(m *clustermap.Map, agents []status.Status, down map[gatewayID]bool) {
	pairs := map[[2]string]map[[2]string]*pair{}
	drivers := map[[2]string]string{}
	evaluated := linksToEvaluate(m, agents)
	for i := range agents {
		s := &agents[i]
		for _, c := range s.Connections {
			between := fabric.SortedPair(s.Cluster, c.RemoteCluster)
			if !evaluated[between] {
				continue
			}
			ends := [2]string{c.Gateway, c.RemoteGateway}
			if between[0] != s.Cluster {
				ends = [2]string{c.RemoteGateway, c.Gateway}
			}
			if pairs[between] == nil {
				pairs[between] = map[[2]string]*pair{}
			}
			p := pairs[between][ends]
			if p == nil {
				p = &pair{explained: down[gatewayID{between[0], ends[0]}] || down[gatewayID{between[1], ends[1]}]}
				pairs[between][ends] = p
			}
			if c.Status == status.Connected {
				p.connected = true
			} else {
				p.broken = true
			}
			p.active = p.active || c.Active
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
			setLinkState(l, pairs[l.Between])
			delete(pairs, l.Between)
		}
	}
	for between, linkPairs := range pairs {
		l := clustermap.Link{Between: between, Driver: drivers[between]}
		if setLinkState(&l, linkPairs); m.MeshImplied && l.State != clustermap.Up {
			m.Links = append(m.Links, l)
		}
	}
	slices.SortFunc(m.Links, func(a, b clustermap.Link) int { return fabric.ComparePairs(a.Between, b.Between) })
}

// linksToEvaluate returns the links to evaluate: the links on the map and, in a mesh that is too
// large to list, the links that an agent reports as broken. The other links of such a mesh are up
// or unknown; a thousand clusters have half a million links.
func linksToEvaluate(m *clustermap.Map, agents []status.Status) map[[2]string]bool {
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

func setLinkState(l *clustermap.Link, linkPairs map[[2]string]*pair) {
	states := make([]string, 0, len(linkPairs))
	unexplained := false
	for ends, p := range linkPairs {
		unexplained = unexplained || p.broken && !p.explained
		switch {
		case p.connected && !p.broken:
			states = append(states, clustermap.Up)
		case p.connected:
			states = append(states, clustermap.Degraded)
		default:
			states = append(states, clustermap.Down)
		}
		if p.active && p.connected {
			l.Uses = append(l.Uses, ends[0]+"-"+ends[1])
			l.RTT, l.Loss = max(l.RTT, p.rtt), max(l.Loss, p.loss)
		}
	}
	slices.Sort(l.Uses)
	l.State = combinedState(states)
	l.Explained = l.State != clustermap.Up && !unexplained
}

// combinedState returns the combined state of several parts.
func combinedState(states []string) string {
	count := map[string]int{}
	for _, s := range states {
		count[s]++
	}
	switch all := len(states); {
	case all == 0 || count[clustermap.Unknown] == all:
		return clustermap.Unknown
	case count[clustermap.Unknown]+count[clustermap.Silent] == all:
		return clustermap.Silent
	case count[clustermap.Up] == all:
		return clustermap.Up
	case count[clustermap.Down]+count[clustermap.Unknown]+count[clustermap.Silent] == all:
		return clustermap.Down
	}
	return clustermap.Degraded
}
