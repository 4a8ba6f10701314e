package observe

import (
	"context"
	"slices"

	"hawser.dev/hawser/health"
	"hawser.dev/hawser/internal/cli/agentquery"
	"hawser.dev/hawser/nodeagent/status"
)

// assess returns the problems of the clusterset. They come from the clusters' APIs, or from the
// agents if there is no access to the APIs.
func assess(ctx context.Context, agents agentquery.Agents) []health.Problem {
	if len(agents.Sockets) > 0 {
		got, _ := agentquery.QueryAgents[status.Status](ctx, agents, agentquery.StatusRequest()) // the tests report silent agents
		return health.Assess(health.StatesOf(agentquery.Statuses(got)))
	}
	return health.Assess(readStates(ctx, agents.Clusters))
}

// concern returns the problems that may have caused failed tests: problems of the clients' and
// servers' clusters, of their exports, and of the whole clusterset.
func (v verification) concern(problems []health.Problem) []health.Problem {
	var clusters, exports []string
	all := false // the name of a whole service resolves to any cluster
	for _, n := range slices.Concat(v.Nodes, v.Pods) {
		if n.Problem != "" {
			clusters = append(clusters, n.Cluster)
		}
		for _, r := range n.Results {
			if verdict := r.Verdict(); verdict == status.VerdictFailed || verdict == status.VerdictUnknown {
				clusters, exports = append(clusters, n.Cluster, r.Cluster), append(exports, r.Export)
				all = all || r.Cluster == ""
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(problems), func(p health.Problem) bool {
		return p.Severity == health.Info || len(clusters) == 0 || p.Export != "" && !slices.Contains(exports, p.Export) ||
			p.Cluster != "" && !all && !slices.Contains(clusters, p.Cluster)
	})
}
