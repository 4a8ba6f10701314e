package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/health"
	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/clusterselect"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/internal/humanize"
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
		Long: `Show what the clusters' APIs report about Hawser: problems with their next step, causes
first, then agents, links and exports. By default it queries all clusters of the
topology; --cluster and --context select some. It sends no packets: hawser verify tests
names and connections, and finds a NetworkPolicy or firewall that drops them.

--wait waits until all agents run the published version and fabric and no problem is an
error. It prints on stderr what it waits for, and who has to act. It does not wait for
warnings, such as an export that is scaled to zero, but prints them. --watch draws links
and exports and marks each change until it is interrupted.

Exit codes: 0 fine; 1 there are problems (with --wait: there are still errors after
--timeout); 2 unknown, because a cluster cannot be read or no agent has reported, or an
error.`,
		Example: `  hawser status
  hawser status --wait --timeout 10m
  hawser status --watch
  hawser status -o jsonpath={.problems}
  hawser status --context fra=admin@fra -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runStatus(cmd.Context(), env, args, f) },
	}
	topofile.AddFlag(env, cmd)
	f.Add(cmd, false)
	cli.OutputFlag(cmd, false, &f.output, tableOutputs()...)
	flags := cmd.Flags()
	flags.BoolVar(&f.wait, "wait", false, "wait until agents run the published fabric and nothing is an error")
	flags.BoolVar(&f.watch, "watch", false, "show every change, until it is interrupted")
	flags.DurationVar(&f.timeout, "timeout", 5*time.Minute, "how long --wait waits")
	flags.StringVar(&f.repo, "repo", "", "repository with the publish branch (default: the repository of the topology)")
	flags.StringVar(&f.branch, "branch", reconciler.DefaultPublishBranch, "branch that is published")
	cmd.MarkFlagsMutuallyExclusive("wait", "watch")
	return cmd
}

func runStatus(ctx context.Context, env *cli.Env, args []string, f statusFlags) error {
	t, names, all, err := selectClusters(env, args, f.Flags)
	if err != nil {
		return err
	}
	clusters, err := f.Access.Clusters(names, all)
	if err != nil {
		return err
	}
	read := func() overview {
		states := readStates(ctx, clusters)
		return overview{states, health.Assess(states)}
	}
	switch {
	case f.watch && f.output != "text":
		return errors.New("--watch shows text only: -o json and yaml are for one answer")
	case f.watch:
		return watch(ctx, env, read)
	case f.wait:
		return waitHealthy(ctx, env, t, f, read)
	}
	done := env.Progress("reading the clusters")
	o := read()
	done()
	_, _ = fmt.Fprint(env.Err, versionSkewWarning(env.Version, o.states))
	return cmp.Or(printOverview(env, f.output, o), exitError(o.problems))
}

// readStates reads the states of clusters concurrently.
func readStates(ctx context.Context, clusters []*kubeclient.Client) []health.State {
	states := make([]health.State, len(clusters))
	kubeclient.ForEach(clusters, func(i int, c *kubeclient.Client) { states[i] = clusterstatus.Read(ctx, c) })
	return states
}

// overview is the state of the clusters at one time.
type overview struct {
	states   []health.State
	problems []health.Problem
}

func (o overview) String() string { return statusText(o.states, o.problems, false) }

// printOverview prints an overview.
func printOverview(env *cli.Env, output string, o overview) error {
	var err error
	switch output {
	case "text":
		_, err = fmt.Fprint(env.Out, o)
	case outWide:
		_, err = fmt.Fprint(env.Out, statusText(o.states, o.problems, true))
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
		err = env.Encode(output, map[string]any{"clusters": o.states, "problems": append([]health.Problem{}, o.problems...)})
	}
	return err
}

// exitError returns the error with the exit code for the problems.
func exitError(problems []health.Problem) error {
	healthy, known := health.Healthy(problems)
	switch {
	case healthy:
		return nil
	case !known:
		return errors.New("the health of the clusterset is unknown")
	}
	return cli.ExitError{}
}

// selectClusters returns the selected clusters and all clusters, of a topology or of --context.
// Without a topology, t is empty. With --context, errors in a topology that no flag names are only
// a warning.
func selectClusters(env *cli.Env, args []string, f clusterselect.Flags) (t topofile.File, names, all []string, err error) {
	explicit := len(args)+len(env.File) > 0
	if t, err = topofile.Read(env, args); err == nil {
		names, all, err = clusterselect.SelectNames(t, f)
	}
	switch {
	case err == nil || explicit:
		return t, names, all, err
	case !cli.IsMissing(reconciler.TopologyFile) && len(f.Access.Contexts) == 0:
		return t, names, all, err
	case !cli.IsMissing(reconciler.TopologyFile):
		_, _ = fmt.Fprintf(env.Err, "warning: %s has errors and is not used: hawser validate lists them\n", reconciler.TopologyFile)
	}
	names, all, err = clusterselect.NamesByContext(f)
	return topofile.File{}, names, all, err
}

// statusText returns the problems, or a line that reports no problems, and the tables.
func statusText(states []health.State, problems []health.Problem, wide bool) string {
	var out strings.Builder
	// Texts that need no action follow the verdict.
	infos := slices.DeleteFunc(slices.Clone(problems), func(p health.Problem) bool { return p.Severity != health.Info })
	for _, p := range problems {
		if p.Severity != health.Info {
			out.WriteString(diag.Line(p.String()) + "\n")
		}
	}
	if len(infos) == len(problems) {
		agents, links := int64(0), int64(0)
		for _, s := range states {
			agents += s.Running
			for _, n := range s.Nodes {
				links += n.Links
			}
		}
		_, _ = fmt.Fprintf(&out, "no problems: %s, %s, %s\n", humanize.Plural(len(states), "cluster"), humanize.Plural(int(agents), "agent"), humanize.Plural(int(links), "link end"))
	}
	for _, p := range infos {
		out.WriteString(diag.Line("info: "+p.String()) + "\n")
	}
	return out.String() + "\n" + statusTables(states, wide)
}

// statusTables returns the tables. Unless wide, they have at most 120 columns with names of usual
// length.
func statusTables(states []health.State, wide bool) string {
	clusters := cli.Table{Title: "Clusters", Head: []string{"CLUSTER", "AGENTS", "READY", "LINKS", "FABRIC", "EXPORTS", "IMPORTS"}}
	nodes := cli.Table{Title: "Nodes", Head: []string{"CLUSTER", "NODE", "ROLE", "READY", "LINKS", "FABRIC", "VERSION"}}
	exports := cli.Table{Title: "Exports", Head: []string{"CLUSTER", "EXPORT", "HERE", "IPS", "FROM", "PROBLEMS"}}
	if wide {
		clusters.Head = append(clusters.Head, "CONTEXT", "CLUSTERSET", "APPLIED", "NODE NETWORK")
		nodes.Head = append(nodes.Head, "PROBLEM", "REASON")
		exports.Head = []string{"CLUSTER", "EXPORT", "HERE", "IPS", "FROM", "CONDITIONS", "TYPE"}
	}
	for _, s := range states {
		row := clusterRow(s, wide)
		if wide {
			row = append(row, s.Context, s.Clusterset, s.Applied, nodeNetwork(s.Nodes))
		}
		clusters.Rows = append(clusters.Rows, row)
		for _, n := range s.Nodes {
			row := []string{s.Cluster, n.Name, strings.TrimSpace(n.Role + " " + n.Gateway), n.Ready, links(n.LinksUp, n.Links), n.Fabric, n.Version}
			problem := n.FirstProblem()
			if n.NodeNotReady != "" { // the report is old
				row, problem = []string{s.Cluster, n.Name, row[2], "Unknown", "", "", ""}, n.NodeNotReady
			} else if pod, unresponsive := s.Unresponsive(&n); unresponsive {
				row, problem = []string{s.Cluster, n.Name, row[2], "Unknown", "", "", ""}, "not ready "+pod.Reason
			}
			if wide {
				row = append(row, problem, n.Reason)
			}
			nodes.Rows = append(nodes.Rows, row)
		}
		for _, e := range s.Exports {
			var all []string
			for _, c := range e.Conditions {
				switch text := c.Type + "=" + c.Status; {
				case wide && c.Reason != "":
					all = append(all, text+"("+c.Reason+")")
				case wide || c.Code() != "":
					all = append(all, text)
				}
			}
			row := []string{s.Cluster, e.Namespace + "/" + e.Name, cli.YesNo(e.Exported), cellList(e.IPs, 15, wide),
				cellList(e.Clusters, 12, wide), strings.Join(all, " ")}
			if wide {
				row = append(row, e.Type)
			}
			exports.Rows = append(exports.Rows, row)
		}
	}
	return clusters.String() + "\n" + nodes.String() + "\n" + exports.String()
}

func clusterRow(s health.State, wide bool) []string {
	if s.Error != "" {
		return []string{s.Cluster, "?", "?", "?", "?", "?", "?"}
	}
	var up, all int64
	ready, exported, imported := 0, 0, 0
	var fabrics []string
	for _, n := range s.Nodes {
		if _, unresponsive := s.Unresponsive(&n); unresponsive || n.NodeNotReady != "" {
			all += n.Links
			continue
		}
		up, all = up+n.LinksUp, all+n.Links
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
	return []string{s.Cluster, links(s.Running, s.Pods), fmt.Sprintf("%d/%d", ready, len(s.Nodes)), links(up, all),
		cellList(fabrics, 25, wide), fmt.Sprint(exported), fmt.Sprint(imported)}
}

// nodeNetwork returns how many paths between the nodes of a cluster are direct, and why the first
// other path needs VXLAN. It is empty with nodeNetwork: tunnel.
func nodeNetwork(nodes []health.Node) string {
	var sum health.NodePaths
	for _, n := range nodes {
		if p := n.NodeNetwork; p != nil && n.NodeNotReady == "" {
			sum.Direct, sum.VXLAN, sum.Reason = sum.Direct+p.Direct, sum.VXLAN+p.VXLAN, cmp.Or(sum.Reason, p.Reason)
		}
	}
	text := links(sum.Direct, sum.Direct+sum.VXLAN)
	if text == "" {
		return ""
	}
	text += " direct"
	if sum.VXLAN > 0 {
		text += fmt.Sprintf(", %d VXLAN: %s", sum.VXLAN, sum.Reason)
	}
	return text
}

func links(up, all int64) string {
	if all == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", up, all)
}

// versionSkewWarning returns a warning if agents are newer than this program, which may not know
// all fields of their reports. It is empty if no agent is newer.
func versionSkewWarning(own string, states []health.State) string {
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
	return fmt.Sprintf("warning: agents run %s and this is hawser %s, which may not show all that they report: use hawser %[1]s or later\n", newest, own)
}
