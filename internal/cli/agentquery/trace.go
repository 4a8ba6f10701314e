package agentquery

import (
	"context"
	"time"

	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/view/packettrace"
)

// TracePackets has the agents answer a question of questionOf("diagnose"), and joins the traces.
func TracePackets(ctx context.Context, f Targets, q Request) (*packettrace.Report, error) {
	got, unreachable, err := Query[status.Diagnosis](ctx, f, q)
	if err != nil {
		return nil, err
	}
	var nodes []packettrace.NodeTrace
	for _, r := range got {
		if r.Value.Node == "" {
			unreachable = append(unreachable, status.Unreachable{Agent: r.Agent, Error: "the agent is older than this hawser and does not report traces"})
			continue
		}
		nodes = append(nodes, packettrace.NodeTrace{Diagnosis: r.Value, Start: r.at.Add(-time.Duration(r.Value.Seconds * float64(time.Second)))})
	}
	return packettrace.NewReport(nodes, unreachable), nil
}
