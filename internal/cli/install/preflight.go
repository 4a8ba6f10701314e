package install

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/discover"
	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/clusterselect"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/document"
)

type preflightFlags struct {
	clusterselect.Flags
	image  string
	pods   bool
	output string
}

// preflighted is the result of preflight for one cluster.
type preflighted struct {
	Cluster  string    `json:"cluster"`
	Context  string    `json:"context"`
	Findings diag.List `json:"findings"`
}

func NewPreflightCommand(env *cli.Env) *cobra.Command {
	var f preflightFlags
	cmd := &cobra.Command{
		Use:   "preflight [FILE|DIR]",
		Short: "Compare clusters with the topology before installing",
		Long: `Find what prevents Hawser from working in the clusters of a topology: versions, CIDRs
and gateways' nodes that differ from the topology, addresses in the clusterset's pools,
the namespace's Pod Security level, the cluster's DNS, identities that are missing, and
other software that connects clusters by the same names. It only reads.

With --pods it also runs a pod with the agent's image on the node of each gateway. The pod
listens on the UDP ports of the tunnels and probes the ports of other gateways. It finds
whether the image can be pulled, which ports are closed in which direction, how large a
packet passes, how far clocks are apart, and whether a network that the node is connected
to has addresses of another cluster. The pods have the network of their
node and no rights; they are removed again, with their namespace hawser-preflight-....

Exit codes: 0 no errors (there may be warnings); 1 errors; 2 no other error than that a
cluster cannot be reached, or the command failed.`,
		Example: `  hawser preflight
  hawser preflight --pods
  hawser preflight --context fra=admin@fra -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runPreflight(cmd.Context(), env, args, f) },
	}
	f.Add(cmd, false)
	cmd.Flags().StringVar(&f.image, "image", "", "image of the agent, as hawser apply gets it")
	cmd.Flags().BoolVar(&f.pods, "pods", false, "ask from gateway to gateway too, in pods that are removed again")
	cli.OutputFlag(cmd, false, &f.output, "text", "json", "yaml")
	return cmd
}

func runPreflight(ctx context.Context, env *cli.Env, args []string, f preflightFlags) error {
	t, set, src, clusters, err := clusterselect.LoadWithClusters(env, args, &f.Flags)
	if err != nil {
		return err
	}
	results, err := preflightClusters(ctx, env, clusters, set, src)
	if err != nil {
		return err
	}
	common := diag.List{}
	image := cmp.Or(set.Spec.Agent.Image, f.image, render.DefaultImage(env.Version))
	var ports []portResult
	if f.pods {
		c, err := topofile.CompileLoaded(env, t, set, src)
		if err != nil {
			return err
		}
		reached := slices.DeleteFunc(clusters, func(c *kubeclient.Client) bool {
			return slices.ContainsFunc(results, func(r preflighted) bool {
				return r.Cluster == c.Name && slices.ContainsFunc(r.Findings, func(d diag.Diagnostic) bool { return d.Code == codeUnreachable })
			})
		})
		portFindings, list, err := checkPorts(ctx, env, c.Fabric, reached, image)
		if err != nil {
			return err
		}
		for i := range results {
			results[i].Findings = append(results[i].Findings, reconciler.WithPositions(portFindings[results[i].Cluster], src)...)
		}
		ports = list
	}
	if !pinned(image) {
		common = append(common, diag.Diagnostic{Severity: diag.Warning, Code: "image-not-pinned",
			Summary: fmt.Sprintf("image %s has no fixed version: nodes that start later may run another version", image),
			Hint:    "pass --image with a version or a digest, to hawser apply or hawser reconcile too"})
	}
	if f.output != "text" {
		out := map[string]any{"clusters": results, "findings": common}
		if f.pods {
			out["paths"] = ports
		}
		err = env.Encode(f.output, out)
	} else {
		if err = showPreflight(env, env.Out, results, common, t); err == nil && len(ports) > 0 {
			t := &cli.Table{Title: "Paths between gateways", Head: []string{"FROM", "TO", "AT", "ANSWERED", "LARGEST", "RTT", "CLOCK"}}
			for _, m := range ports {
				row := []string{m.From, m.To, m.At, "no", "", "", ""}
				if m.Answered > 0 {
					row = []string{m.From, m.To, m.At, "yes", fmt.Sprint(m.Largest), (time.Duration(m.RTT) * time.Microsecond).String(),
						fmt.Sprintf("%+d ms", m.ClockOffset)}
				}
				t.Rows = append(t.Rows, row)
			}
			_, err = env.Out.Write([]byte(t.String()))
		}
	}
	if err == nil {
		return preflightError(results, nil)
	}
	return err
}

// codeUnreachable is the code of the finding that the API server of a cluster cannot be reached.
const codeUnreachable = "unreachable"

// preflightError returns the error with the exit code of the results: 1 for errors, and 2 if
// clusters that cannot be reached are the only errors. Errors with the codes of ignore do not count.
func preflightError(results []preflighted, ignore []string) error {
	var unreachable []string
	for _, r := range results {
		for _, d := range r.Findings {
			switch {
			case d.Severity != diag.Error || slices.Contains(ignore, d.Code):
			case d.Code != codeUnreachable:
				return cli.ExitError{}
			default:
				unreachable = append(unreachable, r.Cluster)
			}
		}
	}
	if len(unreachable) > 0 {
		return fmt.Errorf("could not read %s: check the contexts and the network to the API servers", strings.Join(unreachable, ", "))
	}
	return nil
}

// preflightClusters returns the result of each cluster.
func preflightClusters(ctx context.Context, env *cli.Env, clusters []*kubeclient.Client, set *schema.ClusterSet, src *document.Source) ([]preflighted, error) {
	defer env.Progress("asking the clusters")()
	results := make([]preflighted, len(clusters))
	kubeclient.ForEach(clusters, func(i int, c *kubeclient.Client) {
		list, err := c.Preflight(ctx, discover.Expected{
			Cluster: set.Cluster(c.Name),
			Pools:   slices.Concat(set.GlobalPools(), set.ServicePools(), set.TunnelPools()),
			Domains: append([]string{set.Spec.Domain}, set.Spec.ExtraDomains...),
		})
		if err != nil {
			list = diag.List{{Severity: diag.Error, Code: codeUnreachable, Path: "clusters[" + c.Name + "]", Summary: err.Error(),
				Hint: "check the context and the network to its API server"}}
		}
		results[i] = preflighted{Cluster: c.Name, Context: c.Context, Findings: cli.OrEmpty(reconciler.WithPositions(list, src))}
	})
	return results, context.Cause(ctx)
}

// pinned reports whether the name of an image selects one version: a digest, or a tag other than
// latest.
func pinned(image string) bool {
	if strings.Contains(image, "@") {
		return true
	}
	_, tag, tagged := strings.Cut(image[strings.LastIndexByte(image, '/')+1:], ":")
	return tagged && tag != "latest"
}

func showPreflight(env *cli.Env, w io.Writer, results []preflighted, findings diag.List, t topofile.File) error {
	for _, r := range results {
		errs := 0
		for _, d := range r.Findings {
			if d.Severity == diag.Error {
				errs++
			}
		}
		if _, err := fmt.Fprintf(w, "cluster %s (context %s): %s, %s\n", r.Cluster, r.Context, humanize.Plural(errs, "error"),
			humanize.Plural(len(r.Findings)-errs, "warning")); err != nil {
			return err
		}
		if err := diag.Print(w, r.Findings, t.Texts(), env.Colored(w)); err != nil {
			return err
		}
	}
	return diag.Print(w, findings, nil, env.Colored(w))
}
