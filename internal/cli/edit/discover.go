package edit

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/discover"
	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/clusterselect"
	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/kubeclient"
)

type discoverFlags struct {
	access kubeclient.Kubeconfig
	output string
}

func NewDiscoverCommand(env *cli.Env) *cobra.Command {
	var f discoverFlags
	cmd := &cobra.Command{
		Use:   "discover --context CONTEXT,...",
		Short: "Detect CIDRs, DNS and gateway nodes of clusters",
		Long: `Detect the values of clusters that a topology needs: pod and Service CIDRs, DNS, the pod
network, and possible gateway nodes. Each value has a source and a confidence: certain,
likely, or guess. Findings list contradicting sources and known obstacles for Hawser.

The command only reads. If no object shows the Service CIDRs, it sends the API server a
Service with an invalid address as a dry run: the error names the range.

Exit codes: 0 all that a topology needs was found; 1 a value is missing; 2 a cluster
cannot be reached, or error.`,
		Example: `  hawser discover --context fra,ams=admin@ams
  hawser discover --context fra -o yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDiscover(cmd.Context(), env, f) },
	}
	clusterselect.AddContextFlags(cmd, &f.access)
	cli.OutputFlag(cmd, false, &f.output, "table", "json", "yaml")
	return cmd
}

func runDiscover(ctx context.Context, env *cli.Env, f discoverFlags) error {
	if len(f.access.Contexts) == 0 {
		return errors.New("name the clusters to look into with --context")
	}
	clusters, err := f.access.FromContexts()
	if err != nil {
		return err
	}
	list, errs := discoverAll(ctx, env, clusters)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	complete := true
	var unreachable []string
	for i := range list {
		if errs[i] != nil {
			unreachable = append(unreachable, clusters[i].Name)
			list[i] = discover.Cluster{Name: clusters[i].Name, Context: clusters[i].Context, Findings: diag.List{{
				Severity: diag.Error, Code: "unreachable", Path: "clusters[" + clusters[i].Name + "]", Summary: errs[i].Error(),
			}}}
		}
		complete = complete && (errs[i] != nil || !list[i].Incomplete())
	}
	if f.output != "table" {
		err = env.Encode(f.output, map[string]any{"clusters": list})
	} else {
		err = showFound(env, list)
	}
	switch {
	case err != nil:
		return err
	case !complete:
		return cli.ExitError{}
	case len(unreachable) > 0:
		return fmt.Errorf("could not read %s: check the contexts and the network to the API servers", strings.Join(unreachable, ", "))
	}
	return nil
}

// discoverAll reads all clusters, even if one fails. Its errors have the order of clusters.
func discoverAll(ctx context.Context, env *cli.Env, clusters []*kubeclient.Client) ([]discover.Cluster, []error) {
	defer env.Progress("asking the clusters")()
	out, errs := make([]discover.Cluster, len(clusters)), make([]error, len(clusters))
	kubeclient.ForEach(clusters, func(i int, c *kubeclient.Client) { out[i], errs[i] = c.Discover(ctx) })
	return out, errs
}

// showFound writes the detected values as text, and the findings to stderr.
func showFound(env *cli.Env, list []discover.Cluster) error {
	for i, c := range list {
		text := foundTable(&c).String()
		if more := len(c.Gateways) - maxGatewaysShown; more > 0 {
			text += fmt.Sprintf("and %s that can be gateways (-o json lists them)\n", humanize.Plural(more, "more node"))
		}
		if i > 0 {
			text = "\n" + text
		}
		if _, err := fmt.Fprint(env.Out, text); err != nil {
			return err
		}
	}
	for _, c := range list {
		env.Findings(c.Findings, nil)
	}
	return nil
}

const maxGatewaysShown = 5

func foundTable(c *discover.Cluster) cli.Table {
	t := cli.Table{Title: fmt.Sprintf("Cluster %q, context %q", c.Name, c.Context),
		Head: []string{"WHAT", "VALUE", "CERTAINTY", "SOURCE"}}
	add := func(label, value string, sure discover.Confidence, from string) {
		if value == "" {
			value, sure, from = "unknown", "", ""
		}
		t.Rows = append(t.Rows, []string{label, value, string(sure), from})
	}
	if c.Version == "" {
		return t
	}
	add("Kubernetes", c.Version, discover.Certain, "API server")
	add("network", c.CNI.Value, c.CNI.Confidence, c.CNI.From)
	add("kube-proxy", c.KubeProxy.Value, c.KubeProxy.Confidence, c.KubeProxy.From)
	add("podCIDRs", humanize.Join(c.PodCIDRs.CIDRs, ","), c.PodCIDRs.Confidence, c.PodCIDRs.From)
	add("serviceCIDRs", humanize.Join(c.ServiceCIDRs.CIDRs, ","), c.ServiceCIDRs.Confidence, c.ServiceCIDRs.From)
	add("dns", c.DNS.Value, c.DNS.Confidence, c.DNS.From)
	for i, g := range c.Gateways {
		if i == maxGatewaysShown {
			break
		}
		role := "other node"
		if g.Selected {
			role = "gateway"
		}
		text := []string{g.Node}
		for _, e := range g.Endpoints {
			text = append(text, e.String())
		}
		if g.ControlPlane {
			text = append(text, "(control plane)")
		}
		add(role, strings.Join(text, " "), g.Confidence, g.From)
	}
	return t
}
