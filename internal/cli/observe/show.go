// Package observe has the commands that show the reports of agents and clusters: show, status,
// verify, diagnose, gather and report.
package observe

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/agentquery"
	"hawser.dev/hawser/nodeagent/status"
)

// Arguments of `hawser show`.
const (
	showConnections = "connections"
	showPaths       = "paths"
	showNodes       = "nodes"
	showExports     = "exports"
	showClusters    = "clusters"
	showAll         = "all"
)

// report is the JSON form of `hawser show`.
type report struct {
	Agents      []status.Status      `json:"agents"`
	Unreachable []status.Unreachable `json:"unreachable,omitempty"`
}

func NewShowCommand(env *cli.Env) *cobra.Command {
	var f agentquery.Targets
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show reports of the agents",
		Long: `Show reports of the agents. By default the command queries the agents of the running lab,
or the agent of this host. With --context or --cluster it queries the agents in the pods
of Kubernetes clusters, which needs the right to exec there.`,
		Args: cli.NoVerb,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return errors.New("say what to show: hawser show connections, paths, nodes, exports, clusters or all")
		},
	}
	cli.OutputFlag(cmd, true, &f.Output, tableOutputs()...)
	f.AddFlags(cmd, true)
	for _, part := range []cobra.Command{
		{
			Use: showConnections, Short: "Show each cluster's links to the others",
			Long: `Show each link between gateways. RTT and LOSS cover the last 64 probes. ACTIVE is yes for
the link with the traffic of its pair of clusters. DRIVER "vxlan (clear)" is not encrypted.

With -o wide, MTU is the largest packet inside, SINCE is when the link came up or went
down, in UTC, and REASON is the reason for the choice.`,
			Example: `  hawser show connections
  hawser show connections --context fra=admin@fra,sin=admin@sin`,
		},
		{
			Use: showPaths, Short: "Show the path to each cluster, and its reason",
			Long: `Show for each cluster the link that its nodes use to each other cluster. With -o wide, also
the last move to another link and its cause. -o json has the last 64 moves of each agent.`,
			Example: `  hawser show paths -o json`,
		},
		{
			Use: showNodes, Short: "Show how packets pass between nodes and gateways",
			Long: `Show for each node how it sends packets of other clusters to the gateways of its cluster, and
for each gateway how it sends them to the other nodes: directly or in VXLAN, and why. With
nodeNetwork: tunnel all of them use VXLAN and the table is empty.`,
			Example: `  hawser show nodes --cluster fra`,
		},
		{
			Use: showExports, Short: "Show the services of the clusterset",
			Long: `Show the exported Services. READY counts the exporting clusters with a ready endpoint. With
-o wide, CLUSTERS has the state and addresses of each of them.`,
			Example: `  hawser show exports --cluster fra`,
		},
		{
			Use: showClusters, Short: "Show the clusters of the clusterset",
			Example: `  hawser show clusters -f clusterset.yaml`,
		},
		{
			Use: showAll, Short: "Show agents, clusters, connections, paths, nodes and exports",
			Example: `  hawser show all --socket /run/hawser/agent.sock`,
		},
	} {
		part.Args = cobra.NoArgs
		part.RunE = func(cmd *cobra.Command, _ []string) error { return runShow(cmd.Context(), env, part.Use, f) }
		cmd.AddCommand(&part)
	}
	return cmd
}

func runShow(ctx context.Context, env *cli.Env, what string, f agentquery.Targets) error {
	agents, silent, err := agentquery.QueryStatus(ctx, env, f)
	if err != nil {
		return err
	}
	agentquery.WarnUnreachable(env, silent)
	if len(agents) == 0 {
		return errors.New("no agent answered (see hawser-agent status on the node)")
	}
	switch f.Output {
	case "text", outWide:
		_, err = env.Out.Write([]byte(tables(what, agents, f.Output == outWide)))
		return err
	case outName:
		_, err = env.Out.Write([]byte(shownNames(what, agents)))
		return err
	}
	out := make([]status.Status, 0, len(agents))
	for _, s := range agents {
		if what != showAll && what != showConnections {
			s.Connections = nil
		}
		if what != showAll && what != showPaths {
			s.Paths, s.Moves = nil, nil
		}
		if what != showAll && what != showNodes {
			s.Nodes = nil
		}
		if what != showAll && what != showExports {
			s.Exports = nil
		}
		if what != showAll && what != showClusters {
			s.Clusters = nil
		}
		out = append(out, s)
	}
	return env.Encode(f.Output, report{Agents: out, Unreachable: silent})
}
