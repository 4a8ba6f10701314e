package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/discover"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/kubeclient/clusterstatus"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/render"
)

type statusFlags struct {
	clusterFlags
	output       string
	wait, watch  bool
	timeout      time.Duration
	repo, branch string
}

func newStatusCommand(a *app) *cobra.Command {
	var f statusFlags
	cmd := &cobra.Command{
		Use:   "status [FILE|DIR]",
		Short: "Show clusterset health, from the APIs of its clusters",
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
		RunE: func(cmd *cobra.Command, args []string) error { return a.status(cmd.Context(), args, f) },
	}
	a.topologyFlag(cmd)
	f.add(cmd, false)
	outputFlag(cmd, false, &f.output, tableOutputs()...)
	flags := cmd.Flags()
	flags.BoolVar(&f.wait, "wait", false, "wait until all is well, and all agents follow what is published")
	flags.BoolVar(&f.watch, "watch", false, "show every change, until it is interrupted")
	flags.DurationVar(&f.timeout, "timeout", 5*time.Minute, "how long --wait waits")
	flags.StringVar(&f.repo, "repo", "", "repository that is published to (default: the one that holds the topology)")
	flags.StringVar(&f.branch, "branch", reconciler.DefaultPublishBranch, "branch that is published")
	cmd.MarkFlagsMutuallyExclusive("wait", "watch")
	return cmd
}

func (a *app) status(ctx context.Context, args []string, f statusFlags) error {
	t, names, all, err := a.named(args, f.clusterFlags)
	if err != nil {
		return err
	}
	clusters, err := f.access.Clusters(names, all)
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
		return a.watch(ctx, look)
	case f.wait:
		return a.await(ctx, t, f, look)
	}
	done := a.progress("asking the clusters")
	seen := look()
	done()
	_, _ = fmt.Fprint(a.err, versionSkewWarning(version, seen.states))
	return a.printOverview(f.output, seen)
}

// overview is what clusters say at one time.
type overview struct {
	states   []clusterstatus.State
	problems []string
}

func (o overview) String() string { return statusTables(o.states, o.problems, false) }

// printOverview gives answer where there is trouble.
func (a *app) printOverview(output string, o overview) error {
	var err error
	switch output {
	case "text":
		_, err = fmt.Fprint(a.out, o)
	case outWide:
		_, err = fmt.Fprint(a.out, statusTables(o.states, o.problems, true))
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
		_, err = fmt.Fprint(a.out, linesOnce(names))
	default:
		err = a.encode(output, map[string]any{"clusters": o.states, "trouble": append([]string{}, o.problems...)})
	}
	if err == nil && len(o.problems) > 0 {
		return answer{}
	}
	return err
}

// named gives the clusters to ask, and all that there are: those of a topology, or those
// that flags name. Then the topology has no text.
func (a *app) named(args []string, f clusterFlags) (t topology, names, all []string, err error) {
	t, err = a.readTopology(args)
	if err != nil && len(args)+present(a.file) == 0 && missingFile(reconciler.TopologyFile) {
		names, all, err = namedBy(f)
		return t, names, all, err
	}
	if err == nil {
		names, all, err = t.clusters(f)
	}
	return t, names, all, err
}

// namedBy gives the clusters that flags alone name.
func namedBy(f clusterFlags) (names, all []string, err error) {
	all = slices.Clone(f.clusters)
	for _, pair := range f.access.Contexts {
		name, _, ok := strings.Cut(pair, "=")
		if !ok {
			name = discover.NameOf(pair)
		}
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	if len(all) == 0 {
		return nil, nil, errors.New("say which clusters: a topology, --cluster, or --context CLUSTER=CONTEXT")
	}
	if names = f.clusters; len(names) == 0 {
		names = all
	}
	return names, all, nil
}

func missingFile(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
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
				add("node %s is not ready: %s", n.Name, firstOf(n.LastError, n.Why, "it says nothing"))
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

func firstOf(texts ...string) string {
	i := slices.IndexFunc(texts, func(t string) bool { return t != "" })
	return texts[i]
}

func statusTables(states []clusterstatus.State, trouble []string, wide bool) string {
	clusters := table{title: "Clusters", head: []string{"CLUSTER", "CONTEXT", "AGENTS", "READY", "LINKS", "FABRIC", "EXPORTS", "IMPORTS"}}
	nodes := table{title: "Nodes", head: []string{"CLUSTER", "NODE", "ROLE", "READY", "LINKS", "FABRIC", "VERSION", "ERROR"}}
	exports := table{title: "Exports", head: []string{"CLUSTER", "EXPORT", "HERE", "TYPE", "IPS", "FROM", "CONDITIONS"}}
	if wide {
		clusters.head = append(clusters.head, "CLUSTERSET", "APPLIED")
		nodes.head = append(nodes.head, "WHY")
	}
	for _, s := range states {
		row := clusterRow(s)
		if wide {
			row = append(row, s.Clusterset, s.Applied)
		}
		clusters.rows = append(clusters.rows, row)
		for _, n := range s.Nodes {
			row := []string{s.Cluster, n.Name, strings.TrimSpace(n.Role + " " + n.Gateway), n.Ready, links(n.Up, n.Links), n.Fabric, n.Version, n.LastError}
			if wide {
				row = append(row, n.Why)
			}
			nodes.rows = append(nodes.rows, row)
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
			exports.rows = append(exports.rows, []string{s.Cluster, e.Namespace + "/" + e.Name, yes(e.Exported), e.Type,
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
