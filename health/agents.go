package health

import (
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/nodeagent/status"
)

// StatesOf returns the states of clusters as their agents report them. They lack the facts that
// only the clusters' APIs have: pods, conditions of exports and the cluster's DNS.
func StatesOf(agents []status.Status) []State {
	var out []State
	for i := range agents {
		s := &agents[i]
		j := slices.IndexFunc(out, func(o State) bool { return o.Cluster == s.Cluster })
		if j < 0 {
			j, out = len(out), append(out, State{Cluster: s.Cluster})
		}
		out[j].Nodes = append(out[j].Nodes, nodeFromStatus(s))
	}
	return out
}

// nodeFromStatus returns the Node of one agent's report.
func nodeFromStatus(s *status.Status) Node {
	n := Node{Name: s.Node, Cluster: s.Cluster, Role: "worker", Gateway: s.Gateway, Version: s.Version, Fabric: s.Digest, Links: int64(len(s.Connections)),
		Ready: "False", Reason: strings.Join(slices.Concat(s.LastRound.Failed, s.LastRound.Blocked), "; "), Drained: s.Drained, Problems: s.Problems,
		Endpoints: map[string][]netip.Addr{}}
	if s.Gateway != "" {
		n.Role = "gateway"
	}
	if s.Ready {
		n.Ready, n.Reason = "True", ""
	}
	for i := range s.Connections {
		c := &s.Connections[i]
		remote := c.RemoteCluster + "/" + c.RemoteGateway
		if c.Status != status.Connected {
			if c.Reason != "" {
				remote += " (" + c.Reason + ")"
			}
			n.LinksDown = append(n.LinksDown, remote)
			continue
		}
		n.LinksUp++
		if endpoint, err := netip.ParseAddrPort(c.Endpoint); err == nil {
			n.Endpoints[remote] = append(n.Endpoints[remote], endpoint.Addr().Unmap())
		}
	}
	return n
}

// Merge returns the problems that the APIs of clusters report, and problems of agents that no API
// reports. An API reports a problem of an agent with its code, and may do so a few seconds later.
func Merge(apis, agents []Problem) []Problem {
	out := slices.Clone(apis)
	for _, p := range agents {
		if !slices.ContainsFunc(apis, func(o Problem) bool { return o.Code == p.Code && o.Cluster == p.Cluster && o.Node == p.Node }) {
			out = append(out, p)
		}
	}
	return out
}
