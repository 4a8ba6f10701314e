package offline

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/agentquery"
	"hawser.dev/hawser/internal/cli/baseline"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/view/clustermap"
	"hawser.dev/hawser/view/clustermap/mapstatus"
)

type graphFlags struct {
	agentquery.Targets // the agents to query; File is the topology
	live               bool
	diff               string
	repo               string
	focus              string
}

func NewGraphCommand(env *cli.Env) *cobra.Command {
	var f graphFlags
	cmd := &cobra.Command{
		Use:   "graph [FILE|DIR|-]",
		Short: "Draw the map of the clusterset",
		Long: `Draw the clusters of a topology, their gateways and links, as SVG, Mermaid (for GitHub and
GitLab), DOT (for Graphviz) or JSON.

--diff marks what changed since a publication: added (green), changed (yellow) and removed
(red, dashed). Its value is a branch, a tag, a commit or a directory; --diff rendered compares with
the publish branch. --live queries the agents and marks links and gateways as up (green),
partly up (yellow), down (red) or unknown (dotted), with round-trip times.

A mesh of more than 64 clusters shows only links that differ from the others. --focus
shows one cluster and its neighbours.

Exit codes: 0 drawn; 1 the topology has errors; 2 error.`,
		Example: `  hawser graph -o svg
  hawser graph --diff rendered -o mermaid
  hawser graph --live --context fra,ams -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runGraph(cmd.Context(), env, args, f) },
	}
	f.AddFlags(cmd, false)
	cmd.Flags().Lookup("file").Usage = "topology: a file, a directory, or - for stdin; the same as the argument"
	cmd.Flags().BoolVar(&f.live, "live", false, "query the agents and show their state")
	cmd.Flags().StringVar(&f.diff, "diff", "", "show what changes since this branch, tag, commit or directory")
	cmd.Flags().StringVar(&f.repo, "repo", "", "with --diff: path or URL of the repository with the publish branch (default: the topology's)")
	cmd.Flags().StringVar(&f.focus, "focus", "", "show this cluster and its neighbours only")
	cli.OutputFlag(cmd, false, &f.Output, "svg", "mermaid", "dot", "json", "yaml")
	return cmd
}

func runGraph(ctx context.Context, env *cli.Env, args []string, f graphFlags) error {
	switch {
	case f.live && f.diff != "":
		return errors.New("--live and --diff cannot be combined")
	case !f.live && (len(f.Sockets) > 0 || f.Lab != "" || f.OfClusters()):
		return errors.New("--socket, --lab, --context, --kubeconfig and --cluster require --live")
	case f.repo != "" && f.diff == "":
		return errors.New("--repo names the repository to compare with: add --diff")
	}
	// Clear File: -f selects the topology here, and not the agents.
	if f.File != "" {
		args, f.File = append(args, f.File), ""
	}
	if len(args) > 1 {
		return fmt.Errorf("%s and -f %s: name one topology", args[0], args[1])
	}
	t, err := topofile.Read(env, args)
	if err != nil {
		return err
	}
	set, source, err := topofile.Load(env, t)
	if err != nil {
		return err
	}
	c, err := topofile.CompileLoaded(env, t, set, source)
	if err != nil {
		return err
	}
	shown := c.Fabric
	if f.focus != "" {
		if shown, err = clustermap.Neighborhood(shown, f.focus); err != nil {
			return err
		}
	}
	m := clustermap.New(shown)
	switch {
	case f.diff != "":
		if m, err = graphSince(ctx, env, t.Path, shown, f); err != nil {
			return err
		}
	case f.live:
		agents, silent, err := agentquery.QueryStatus(ctx, env, f.For(shown))
		if err != nil {
			return err
		}
		agentquery.WarnUnreachable(env, silent)
		mapstatus.Fill(m, mapstatus.Reports{Agents: agents})
	}
	text := ""
	switch f.Output {
	case "svg":
		text = m.SVG()
	case "mermaid":
		text = m.Mermaid()
	case "dot":
		text = m.DOT()
	default:
		return env.Encode(f.Output, m)
	}
	if _, err := env.Out.Write([]byte(text)); err != nil {
		return fmt.Errorf("write the map: %w", err)
	}
	return nil
}

// graphSince returns the map with the changes since the base of --diff.
func graphSince(ctx context.Context, env *cli.Env, file string, now *fabric.Fabric, f graphFlags) (*clustermap.Map, error) {
	verify, err := baseline.Verifiers("", file, topofile.BuildFlags{})
	if err != nil {
		return nil, err
	}
	defer env.Progress("reading branch " + f.diff)()
	have, err := baseline.Read(ctx, env, baseline.Options{File: file, Address: f.repo, Branch: f.diff, Flag: "--diff", UserSet: true, Compare: true, Verify: verify, Notice: true})
	if err != nil {
		return nil, err
	}
	before := &fabric.Fabric{}
	if len(have.Tree) > 0 {
		if before, err = render.FabricOf(have.Tree); err != nil {
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
