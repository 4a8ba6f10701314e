package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/nodeagent/status"
)

// What `hawser show` can show.
const (
	showConnections = "connections"
	showPaths       = "paths"
	showExports     = "exports"
	showClusters    = "clusters"
	showAll         = "all"
)

type showFlags struct {
	output  string
	sockets []string
	lab     string
	file    string // topology whose clusters to ask
	clusterFlags
}

// report is the JSON form of `hawser show`.
type report struct {
	Agents      []status.Status      `json:"agents"`
	Unreachable []status.Unreachable `json:"unreachable,omitempty"`
}

func newShowCommand(a *app) *cobra.Command {
	var f showFlags
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show what the agents report",
		Long: `Show what the agents report. Without flags it asks the agents of the running lab,
or the agent of this host. With --context or --cluster it asks those of Kubernetes
clusters, in their pods (this needs the right to exec there).`,
		Args: noVerb,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return errors.New("say what to show: hawser show connections, paths, exports, clusters or all")
		},
	}
	outputFlag(cmd, true, &f.output, tableOutputs()...)
	f.addAgents(cmd, true)
	for _, part := range []cobra.Command{
		{
			Use: showConnections, Short: "Show each cluster's links to the others",
			Example: `  hawser show connections
  hawser show connections --context fra=admin@fra,sin=admin@sin`,
		},
		{
			Use: showPaths, Short: "Show which link each cluster uses to each other, and why",
			Example: `  hawser show paths -o json`,
		},
		{
			Use: showExports, Short: "Show the services of the clusterset",
			Example: `  hawser show exports --cluster fra`,
		},
		{
			Use: showClusters, Short: "Show the members of the clusterset",
			Example: `  hawser show clusters -f clusterset.yaml`,
		},
		{
			Use: showAll, Short: "Show agents, clusters, connections, paths and exports",
			Example: `  hawser show all --socket /run/hawser/agent.sock`,
		},
	} {
		part.Args = cobra.NoArgs
		part.RunE = func(cmd *cobra.Command, _ []string) error { return a.show(cmd.Context(), part.Use, f) }
		cmd.AddCommand(&part)
	}
	return cmd
}

// addAgents adds the flags that say which agents to ask.
func (f *showFlags) addAgents(cmd *cobra.Command, below bool) {
	flags := cmd.Flags()
	if below {
		flags = cmd.PersistentFlags()
	}
	flags.StringArrayVar(&f.sockets, "socket", nil, "unix socket of an agent, or a pattern of several; may be repeated")
	flags.StringVar(&f.lab, "lab", "", "folder of a lab whose agents to ask")
	fileFlag(cmd, below, &f.file, "topology whose clusters to ask")
	f.add(cmd, below)
}

func (a *app) show(ctx context.Context, what string, f showFlags) error {
	agents, silent, err := a.askAll(ctx, f)
	if err != nil {
		return err
	}
	a.warnUnreachable(silent)
	if len(agents) == 0 {
		return errors.New("no agent answered (see hawser-agent status on the node)")
	}
	switch f.output {
	case "text", outWide:
		_, err = a.out.Write([]byte(tables(what, agents, f.output == outWide)))
		return err
	case outName:
		_, err = a.out.Write([]byte(shownNames(what, agents)))
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
		if what != showAll && what != showExports {
			s.Exports = nil
		}
		if what != showAll && what != showClusters {
			s.Clusters = nil
		}
		out = append(out, s)
	}
	return a.encode(f.output, report{Agents: out, Unreachable: silent})
}

// chosen gives the clusters to ask: those of the topology, or those that the flags name.
func (f showFlags) chosen() ([]*kubeclient.Client, error) {
	if len(f.sockets) > 0 || f.lab != "" {
		return nil, errors.New("--socket and --lab name agents on this machine, --context and --cluster those of clusters: not both")
	}
	names, all, err := namedBy(f.clusterFlags)
	if f.file != "" {
		t, failed := openTopology(f.file)
		if failed != nil {
			return nil, failed
		}
		names, all, err = t.clusters(f.clusterFlags)
	}
	if err != nil {
		return nil, err
	}
	return f.access.Clusters(names, all)
}
