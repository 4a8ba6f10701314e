package offline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/access"
	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/clusterselect"
	"hawser.dev/hawser/internal/cli/explainview"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/view/swimlane"
)

func NewExplainCommand(env *cli.Env) *cobra.Command {
	var f explainview.Flags
	cmd := &cobra.Command{
		Use:   "explain FROM TO",
		Short: "Explain whether one cluster can reach a service in another",
		Long: `Report whether a pod of one cluster can reach a destination in another cluster: by which
lines of the topology, over which links, and which addresses each side sees. It reads
only the topology and its lock, and assumes that links are up and backends are ready.

With --live it also queries the agents of the clusters on the path: which links are up
and in use, which backends are ready, and which parts are missing. The answer is no if
the topology allows the connection but no packet would arrive. It queries the agents of
the running lab, or of this host; with --context, --kubeconfig or --cluster, or without
these agents, the agents in the pods of the clusters (this needs the right to exec
there), and names the NetworkPolicies that select the pods, which may drop packets. It
lists what it could not query; the answer is then never yes.

FROM is a pod (g1/shop/client), any pod of a cluster (g1), a pod's address (g1/10.7.2.5,
or 10.7.2.5 where one cluster has it), or a process on a node (g1/node).
-o svg draws the path, one swimlane for each cluster and gateway, with its end in red.

TO is a name (web.shop, g2.web.shop, with or without .svc.clusterset.local), an export
(shop/web), or an address (243.0.0.1, g2/10.8.1.9), with a port (:80, :http, :53/udp).

Exit codes: 0 yes, 1 no, 2 error, or unknown.`,
		Example: `  hawser explain g1/shop/client web.shop:80
  hawser explain g1/shop/client web.shop:80 --live --context g1=admin@g1
  hawser explain g1 10.8.2.5:443 -o svg`,
		ValidArgsFunction: completeFromTo,
		Args:              cobra.RangeArgs(1, 3),
		RunE:              func(cmd *cobra.Command, args []string) error { return runExplain(cmd.Context(), env, args, f) },
	}
	f.AddFlags(cmd, false)
	cmd.Flags().Lookup("file").Usage = "topology file, directory, or - (default: clusterset.yaml here)"
	cmd.Flags().BoolVar(&f.Live, "live", false, "query the agents: links that are up and in use, and ready backends")
	cli.OutputFlag(cmd, false, &f.Output, "text", "svg\tthe path as a picture", "json", "yaml")
	return cmd
}

func runExplain(ctx context.Context, env *cli.Env, args []string, f explainview.Flags) error {
	if !f.Live && (len(f.Sockets) > 0 || f.Lab != "" || f.OfClusters()) {
		return errors.New("--socket, --lab, --context, --kubeconfig and --cluster require --live")
	}
	var file []string
	if f.File != "" {
		file = []string{f.File}
	}
	c, err := topofile.Compile(env, file)
	if err != nil {
		return err
	}
	result, err := explainview.Explain(ctx, env, c, args, f)
	if err != nil {
		return err
	}
	switch f.Output {
	case "text":
		_, err = env.Out.Write([]byte(explainText(result)))
	case "svg":
		_, err = env.Out.Write([]byte(swimlane.Draw(result.Summary(), explainview.Swimlanes(result, c.PositionOf)).String()))
	default:
		err = env.Encode(f.Output, result)
	}
	switch {
	case err != nil || result.Reached():
		return err
	case result.Live != nil && result.Live.Verdict == access.Unknown:
		return errors.New("it is not known whether it arrives")
	}
	return cli.ExitError{}
}

// explainText formats an answer.
func explainText(a *access.Answer) string {
	var out strings.Builder
	writeLine := func(format string, args ...any) { _, _ = fmt.Fprintf(&out, format+"\n", args...) }
	verdict := "no: "
	switch {
	case a.Reached():
		verdict = "yes: "
	case a.Live != nil && a.Live.Verdict == access.Unknown:
		verdict = "" // the reason starts with the verdict
	}
	writeLine("%s%s", verdict, a.Summary())
	for i := range a.Destinations {
		t := &a.Destinations[i]
		out.WriteString("\n")
		if !t.Allowed {
			writeLine("in %s: no, %s", t.Cluster, t.Reason)
			continue
		}
		writeLine("in %s: yes", t.Cluster)
		if len(t.Requested) > 0 {
			requested := explainview.AddrsText(t.Requested)
			if a.Name != "" {
				requested = a.Name + ", " + requested
			}
			writeLine("  destination            %s", requested)
		}
		if t.Cluster == a.From.Cluster {
			writeLine("  it stays in the cluster")
			continue
		}
		for _, l := range t.Links {
			writeLine("  link                   %s - %s (%s)", l.From, l.To, l.Driver)
			for _, name := range slices.Sorted(maps.Keys(l.NodeSelectors)) {
				writeLine("  %-22s runs on a node %s", name, l.NodeSelectors[name])
			}
		}
		if len(t.Translated) > 0 {
			writeLine("  destination on link    %s", explainview.AddrsText(t.Translated))
		}
		if a.To.Export == "" || len(t.Translated) > 0 {
			sources := "the client's own address"
			if len(t.Sources) > 0 {
				sources = strings.Join(t.Sources, ", ")
			}
			writeLine("  source on link         %s", sources)
		}
		writeLine("  backend                %s", t.Backend)
	}
	if a.Live != nil {
		out.WriteString(liveText(a))
	}
	if len(a.Lines) > 0 {
		t := cli.Table{Title: "\nBecause of", Head: []string{"LINE", "PATH", "SAYS"}}
		for _, l := range a.Lines {
			t.Rows = append(t.Rows, []string{l.Source, l.Path, l.Text})
		}
		out.WriteString(t.String())
	}
	return out.String()
}

// completeFromTo completes a source cluster and an export.
func completeFromTo(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return clusterselect.CompletionNames(cmd, nil, toComplete), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	case 1:
		var out []string
		for _, id := range topofile.ExportNames(cmd, nil, toComplete) {
			namespace, name, _ := strings.Cut(id, "/")
			out = append(out, name+"."+namespace)
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}
