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
		at := slices.IndexFunc(out, func(o State) bool { return o.Cluster == s.Cluster })
		if at < 0 {
			at, out = len(out), append(out, State{Cluster: s.Cluster})
		}
		out[at].Nodes = append(out[at].Nodes, nodeOf(s))
	}
	return out
}

// nodeOf returns the Node of one agent's report.
func nodeOf(s *status.Status) Node {
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
		end := c.RemoteCluster + "/" + c.RemoteGateway
		if c.Status != status.Connected {
			if c.Reason != "" {
				end += " (" + c.Reason + ")"
			}
			n.LinksDown = append(n.LinksDown, end)
			continue
		}
		n.Up++
		if at, err := netip.ParseAddrPort(c.Endpoint); err == nil {
			n.Endpoints[end] = append(n.Endpoints[end], at.Addr().Unmap())
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
