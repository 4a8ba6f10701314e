package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/clusterselect"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/kubeclient/clusterstatus"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/render"
)

type statusFlags struct {
	clusterselect.Flags
	output       string
	wait, watch  bool
	timeout      time.Duration
	repo, branch string
}

func NewStatusCommand(env *cli.Env) *cobra.Command {
	var f statusFlags
	cmd := &cobra.Command{
		Use:   "status [FILE|DIR]",
		Short: "Show the health of the clusterset",
		Long: `Show what the clusters' APIs tell of Hawser: agents, the fabric that they follow,
links, and every export with what is wrong with it. The clusters are those of the
topology, of --cluster, or those that --context names.

With --wait it comes back when all is well and every agent follows what is published
for the topology, and says on stderr what it waits for. With --watch it draws
links and exports, marks what changed, and shows each change until it is interrupted.

Exit codes: 0 all is well, 1 something is not, or a cluster cannot be reached,
2 error.`,
		Example: `  hawser status
  hawser status --wait --timeout 10m
  hawser status --watch
  hawser status -o jsonpath={.trouble}
  hawser status --context fra=admin@fra -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runStatus(cmd.Context(), env, args, f) },
	}
	topofile.AddFlag(env, cmd)
	f.Add(cmd, false)
	cli.OutputFlag(cmd, false, &f.output, tableOutputs()...)
	flags := cmd.Flags()
	flags.BoolVar(&f.wait, "wait", false, "wait until all is well, and all agents follow what is published")
	flags.BoolVar(&f.watch, "watch", false, "show every change, until it is interrupted")
	flags.DurationVar(&f.timeout, "timeout", 5*time.Minute, "how long --wait waits")
	flags.StringVar(&f.repo, "repo", "", "repository that is published to (default: the one that holds the topology)")
	flags.StringVar(&f.branch, "branch", reconciler.DefaultPublishBranch, "branch that is published")
	cmd.MarkFlagsMutuallyExclusive("wait", "watch")
	return cmd
}

func runStatus(ctx context.Context, env *cli.Env, args []string, f statusFlags) error {
	t, names, all, err := named(env, args, f.Flags)
	if err != nil {
		return err
	}
	clusters, err := f.Access.Clusters(names, all)
	if err != nil {
		return err
	}
	look := func() overview {
		states := make([]clusterstatus.State, len(clusters))
		kubeclient.ForEach(clusters, func(i int, c *kubeclient.Client) { states[i] = clusterstatus.Read(ctx, c) })
		return overview{states, findProblems(states)}
	}
	switch {
	case f.watch && f.output != "text":
		return errors.New("--watch shows text only: -o json and yaml are for one answer")
	case f.watch:
		return watch(ctx, env, look)
	case f.wait:
		return await(ctx, env, t, f, look)
	}
	done := env.Progress("asking the clusters")
	seen := look()
	done()
	_, _ = fmt.Fprint(env.Err, versionSkewWarning(env.Version, seen.states))
	return printOverview(env, f.output, seen)
}

// overview is what clusters say at one time.
type overview struct {
	states   []clusterstatus.State
	problems []string
}

func (o overview) String() string { return statusTables(o.states, o.problems, false) }

// printOverview gives answer where there is trouble.
func printOverview(env *cli.Env, output string, o overview) error {
	var err error
	switch output {
	case "text":
		_, err = fmt.Fprint(env.Out, o)
	case outWide:
		_, err = fmt.Fprint(env.Out, statusTables(o.states, o.problems, true))
	case outName:
		var names []string
		for _, s := range o.states {
			names = append(names, "cluster/"+s.Cluster)
			for _, n := range s.Nodes {
				names = append(names, "node/"+s.Cluster+"/"+n.Name)
			}
			for _, e := range s.Exports {
				names = append(names, "export/"+e.Namespace+"/"+e.Name)
			}
		}
		_, err = fmt.Fprint(env.Out, linesOnce(names))
	default:
		err = env.Encode(output, map[string]any{"clusters": o.states, "trouble": append([]string{}, o.problems...)})
	}
	if err == nil && len(o.problems) > 0 {
		return cli.ExitError{}
	}
	return err
}

// named gives the clusters to ask, and all that there are: those of a topology, or those
// that flags name. Then the topology has no text.
func named(env *cli.Env, args []string, f clusterselect.Flags) (t topofile.File, names, all []string, err error) {
	t, err = topofile.Read(env, args)
	if err != nil && len(args)+len(env.File) == 0 && cli.IsMissing(reconciler.TopologyFile) {
		names, all, err = clusterselect.NamesByContext(f)
		return t, names, all, err
	}
	if err == nil {
		names, all, err = clusterselect.SelectNames(t, f)
	}
	return t, names, all, err
}

// findProblems says what a person should look at.
func findProblems(states []clusterstatus.State) []string {
	var out []string
	digests := map[string][]string{}
	for _, s := range states {
		add := func(format string, args ...any) { out = append(out, s.Cluster+": "+fmt.Sprintf(format, args...)) }
		if s.Error != "" {
			add("%s", s.Error)
			continue
		}
		if s.Running < s.Pods {
			add("%d of %d agents run", s.Running, s.Pods)
		}
		if len(s.Nodes) == 0 {
			add("no agent has reported (there is no HawserNode)")
		}
		for _, n := range s.Nodes {
			if digest := n.Fabric; digest != "" && !slices.Contains(digests[digest], s.Cluster) {
				digests[digest] = append(digests[digest], s.Cluster)
			}
			if n.Ready != "True" {
				add("node %s is not ready: %s", n.Name, cmp.Or(n.LastError, n.Why, "it says nothing"))
			} else if n.LastError != "" {
				add("node %s: %s", n.Name, n.LastError)
			}
			if n.Up < n.Links {
				add("node %s: %d of %d links are up", n.Name, n.Up, n.Links)
			}
		}
		if s.DNSProblem != "" {
			add("%s", s.DNSProblem)
		}
		for _, e := range s.Exports {
			for _, c := range e.Conditions {
				if text := c.Problem(); text != "" {
					add("export %s/%s: %s", e.Namespace, e.Name, text)
				}
			}
		}
	}
	if len(digests) > 1 {
		var parts []string
		for _, digest := range slices.Sorted(maps.Keys(digests)) {
			parts = append(parts, digest+" in "+strings.Join(digests[digest], ", "))
		}
		out = append(out, "different fabrics are in force: "+strings.Join(parts, "; "))
	}
	return out
}

func statusTables(states []clusterstatus.State, trouble []string, wide bool) string {
	clusters := cli.Table{Title: "Clusters", Head: []string{"CLUSTER", "CONTEXT", "AGENTS", "READY", "LINKS", "FABRIC", "EXPORTS", "IMPORTS"}}
	nodes := cli.Table{Title: "Nodes", Head: []string{"CLUSTER", "NODE", "ROLE", "READY", "LINKS", "FABRIC", "VERSION", "ERROR"}}
	exports := cli.Table{Title: "Exports", Head: []string{"CLUSTER", "EXPORT", "HERE", "TYPE", "IPS", "FROM", "CONDITIONS"}}
	if wide {
		clusters.Head = append(clusters.Head, "CLUSTERSET", "APPLIED")
		nodes.Head = append(nodes.Head, "WHY")
	}
	for _, s := range states {
		row := clusterRow(s)
		if wide {
			row = append(row, s.Clusterset, s.Applied)
		}
		clusters.Rows = append(clusters.Rows, row)
		for _, n := range s.Nodes {
			row := []string{s.Cluster, n.Name, strings.TrimSpace(n.Role + " " + n.Gateway), n.Ready, links(n.Up, n.Links), n.Fabric, n.Version, n.LastError}
			if wide {
				row = append(row, n.Why)
			}
			nodes.Rows = append(nodes.Rows, row)
		}
		for _, e := range s.Exports {
			var all []string
			for _, c := range e.Conditions {
				text := c.Type + "=" + c.Status
				if wide && c.Reason != "" {
					text += "(" + c.Reason + ")"
				}
				all = append(all, text)
			}
			exports.Rows = append(exports.Rows, []string{s.Cluster, e.Namespace + "/" + e.Name, cli.YesNo(e.Exported), e.Type,
				strings.Join(e.IPs, ","), strings.Join(e.Clusters, ","), strings.Join(all, " ")})
		}
	}
	out := clusters.String() + "\n" + nodes.String() + "\n" + exports.String()
	if len(trouble) == 0 {
		return out
	}
	return out + "\nTrouble\n  " + strings.Join(trouble, "\n  ") + "\n"
}

func clusterRow(s clusterstatus.State) []string {
	if s.Error != "" {
		return []string{s.Cluster, s.Context, "?", "?", "?", "?", "?", "?"}
	}
	var up, all int64
	ready, exported, imported := 0, 0, 0
	var fabrics []string
	for _, n := range s.Nodes {
		up, all = up+n.Up, all+n.Links
		if n.Ready == "True" {
			ready++
		}
		if n.Fabric != "" && !slices.Contains(fabrics, n.Fabric) {
			fabrics = append(fabrics, n.Fabric)
		}
	}
	for _, e := range s.Exports {
		if e.Exported {
			exported++
		}
		if e.Type != "" {
			imported++
		}
	}
	return []string{s.Cluster, s.Context, links(s.Running, s.Pods), fmt.Sprintf("%d/%d", ready, len(s.Nodes)), links(up, all),
		strings.Join(fabrics, ","), fmt.Sprint(exported), fmt.Sprint(imported)}
}

func links(up, all int64) string {
	if all == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", up, all)
}

// versionSkewWarning is the warning that agents are newer than a program of some version, whose
// answers may lack what they say; empty if none is.
func versionSkewWarning(own string, states []clusterstatus.State) string {
	newest := own
	for _, s := range states {
		for _, n := range s.Nodes {
			if render.VersionLess(newest, n.Version) {
				newest = n.Version
			}
		}
	}
	if newest == own {
		return ""
	}
	return fmt.Sprintf("warning: there are agents of %s, and this is hawser %s, which may not know all that they say: use hawser %[1]s or a newer one\n", newest, own)
}
