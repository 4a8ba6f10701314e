package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/view/clustermap"
	"hawser.dev/hawser/view/clustermap/mapstatus"
)

type graphFlags struct {
	showFlags // of the agents to ask; file is the topology
	live      bool
	diff      string
	repo      string
	focus     string
}

func newGraphCommand(a *app) *cobra.Command {
	var f graphFlags
	cmd := &cobra.Command{
		Use:   "graph [FILE|DIR|-]",
		Short: "Draw the map of the clusterset",
		Long: `Draw the clusters of a topology, their gateways and the links between them, as SVG,
Mermaid (which GitHub and GitLab draw), DOT (for Graphviz) or JSON.

With --diff the map shows what is added (green), changed (yellow) and removed (red,
dashed) since a branch, a tag, a commit or a folder of what is published; --diff rendered
compares with what is published now. With --live it asks the agents, and shows what is up
(green), partly up (yellow), down (red) or not known (dotted), with round-trip times.

A mesh of more than 64 clusters shows only links that differ from the others; --focus
shows one cluster and those to which it has a link.

Exit codes: 0 drawn, 2 error.`,
		Example: `  hawser graph -o svg
  hawser graph --diff rendered -o mermaid
  hawser graph --live --context fra,ams -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.graph(cmd.Context(), args, f) },
	}
	f.addAgents(cmd, false)
	cmd.Flags().Lookup("file").Usage = "topology: a file, a folder, or - for stdin; the same as the argument"
	cmd.Flags().BoolVar(&f.live, "live", false, "ask the agents, and show what state they report")
	cmd.Flags().StringVar(&f.diff, "diff", "", "show what changes since this branch, tag, commit or folder")
	cmd.Flags().StringVar(&f.repo, "repo", "", "with --diff: path or URL of the repository with the branch (default: the one that holds the file)")
	cmd.Flags().StringVar(&f.focus, "focus", "", "show this cluster and its neighbours only")
	outputFlag(cmd, false, &f.output, "svg", "mermaid", "dot", "json", "yaml")
	return cmd
}

func (a *app) graph(ctx context.Context, args []string, f graphFlags) error {
	switch {
	case f.live && f.diff != "":
		return errors.New("--live shows what there is and --diff what will be: not both on one map")
	case !f.live && (len(f.sockets) > 0 || f.lab != "" || f.ofClusters()):
		return errors.New("--socket, --lab, --context, --kubeconfig and --cluster say whom to ask: add --live")
	case f.repo != "" && f.diff == "":
		return errors.New("--repo names the repository to compare with: add --diff")
	}
	// The topology is read as the argument, so that -f does not name whom to ask, too.
	if f.file != "" {
		args, f.file = append(args, f.file), ""
	}
	if len(args) > 1 {
		return fmt.Errorf("%s and -f %s: name one topology", args[0], args[1])
	}
	t, err := a.readTopology(args)
	if err != nil {
		return err
	}
	set, source, err := a.load(t)
	if err != nil {
		return err
	}
	c, err := a.compileFrom(t, set, source)
	if err != nil {
		return err
	}
	shown := c.fabric
	if f.focus != "" {
		if shown, err = clustermap.Neighborhood(shown, f.focus); err != nil {
			return err
		}
	}
	m := clustermap.New(shown)
	switch {
	case f.diff != "":
		if m, err = a.graphSince(ctx, t.file, shown, f); err != nil {
			return err
		}
	case f.live:
		agents, silent, err := a.askAll(ctx, f.askedFor(shown))
		if err != nil {
			return err
		}
		a.warnUnreachable(silent)
		mapstatus.Fill(m, agents)
	}
	text := ""
	switch f.output {
	case "svg":
		text = m.SVG()
	case "mermaid":
		text = m.Mermaid()
	case "dot":
		text = m.DOT()
	default:
		return a.encode(f.output, m)
	}
	if _, err := a.out.Write([]byte(text)); err != nil {
		return fmt.Errorf("write the map: %w", err)
	}
	return nil
}

// askedFor names the clusters of a fabric as those to ask where flags name contexts only.
func (f showFlags) askedFor(shown *fabric.Fabric) showFlags {
	if f.ofClusters() && len(f.clusters) == 0 {
		for i := range shown.Clusters {
			f.clusters = append(f.clusters, shown.Clusters[i].Name)
		}
	}
	return f
}

// graphSince gives the map with what changes since what --diff names.
func (a *app) graphSince(ctx context.Context, file string, now *fabric.Fabric, f graphFlags) (*clustermap.Map, error) {
	verify, err := verifiers("", file, buildFlags{})
	if err != nil {
		return nil, err
	}
	defer a.progress("reading branch " + f.diff)()
	have, err := a.readPublished(ctx, publishedInput{file: file, address: f.repo, branch: f.diff, flag: "--diff", asked: true, compare: true, verify: verify, notice: true})
	if err != nil {
		return nil, err
	}
	before := &fabric.Fabric{}
	if len(have.tree) > 0 {
		if before, err = render.FabricOf(have.tree); err != nil {
			return nil, fmt.Errorf("read %s: %w", have.Name, err)
		}
	}
	if f.focus != "" {
		if before.Cluster(f.focus) == nil {
			before = &fabric.Fabric{}
		} else if before, err = clustermap.Neighborhood(before, f.focus); err != nil {
			return nil, err
		}
	}
	return clustermap.Compare(before, now), nil
}
