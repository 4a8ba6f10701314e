package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/install/apply"
	"hawser.dev/hawser/install/uninstall"
	"hawser.dev/hawser/internal/checkout"
	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/applytree"
	"hawser.dev/hawser/internal/cli/clusterselect"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/schema/load"
)

type uninstallFlags struct {
	clusterselect.Flags
	topology string
	removal  uninstall.Options
	yes      bool
	output   string
}

func NewUninstallCommand(env *cli.Env) *cobra.Command {
	f := uninstallFlags{topology: reconciler.TopologyFile}
	cmd := &cobra.Command{
		Use:   "uninstall CLUSTER...",
		Short: "Uninstall Hawser from clusters",
		Long: `Uninstall Hawser from clusters, however it was installed.

The command has the agents remove their links, routes, rules, nftables tables, sysctls,
imports and entries in the cluster's DNS, and waits for them. Then it deletes Hawser's
objects, the namespace last, and with it the Secret with the age identity. You can
interrupt and repeat it.

Exit codes: 0 done (with --dry-run: nothing is there); 1 refused, a cluster failed, or
with --dry-run: there is something to delete; 2 a cluster cannot be reached, or error.`,
		Example: `  hawser uninstall fra --dry-run
  hawser uninstall fra sin --crds`,
		ValidArgsFunction: completeInstalled,
		Args:              cobra.ArbitraryArgs,
		RunE:              func(cmd *cobra.Command, args []string) error { return runUninstall(cmd.Context(), env, args, f) },
	}
	flags := cmd.Flags()
	f.AddKubeconfig(cmd, false)
	topofile.AddFileFlag(cmd, false, &f.topology, "topology that no longer lists the clusters")
	flags.BoolVar(&f.yes, "yes", false, "uninstall even if the topology lists the cluster or GitOps would reinstall it")
	flags.BoolVar(&f.removal.DryRun, "dry-run", false, "change nothing, print what would be deleted")
	flags.BoolVar(&f.removal.Force, "force", false, "continue without unreachable agents")
	flags.BoolVar(&f.removal.CRDs, "crds", false, "also delete the definitions of the Multi-Cluster Services API, if unused")
	flags.DurationVar(&f.removal.Timeout, "timeout", 5*time.Minute, "how long to wait for agents and deletions")
	cli.OutputFlag(cmd, false, &f.output, "text", "json", "yaml")
	return cmd
}

func runUninstall(ctx context.Context, env *cli.Env, names []string, f uninstallFlags) error {
	if len(names) == 0 {
		return errors.New("say which clusters: hawser uninstall CLUSTER")
	}
	if err := requireRemoved(env, names, f); err != nil && !f.yes && !f.removal.DryRun {
		return err
	}
	clusters, err := f.Access.Clusters(names, names)
	if err != nil {
		return err
	}
	f.removal.Log, f.removal.Foreign = env.LogCluster, f.yes || f.removal.DryRun
	results := make([]apply.Result, len(clusters))
	kubeclient.ForEach(clusters, func(i int, c *kubeclient.Client) {
		results[i] = apply.Result{Cluster: c.Name, Context: c.Context}
		p, err := uninstall.Run(ctx, c, f.removal)
		results[i].Plan = p
		if results[i].Applied = err == nil && !f.removal.DryRun; err != nil {
			results[i].Error, results[i].Unreachable = kubeclient.ErrorText(err), kubeclient.IsUnreachable(err)
		}
	})
	if f.output == "text" {
		err = apply.Print(env.Out, results, f.removal.DryRun)
	} else {
		err = env.Encode(f.output, map[string]any{"clusters": results})
	}
	if err != nil {
		return err
	}
	return applytree.ResultError(results, f.removal.DryRun)
}

// requireRemoved returns an error if other clusters still use one of the clusters.
func requireRemoved(env *cli.Env, names []string, f uninstallFlags) error {
	raw, err := checkout.ReadNamed(f.topology)
	if errors.Is(err, fs.ErrNotExist) {
		return cli.ExitError{Msg: fmt.Sprintf("error: no topology %s: pass the topology without the cluster with --file, or pass --yes", f.topology)}
	}
	if err != nil {
		return fmt.Errorf("read topology: %w", err)
	}
	set, src, list := load.Topology(f.topology, raw)
	if list.HasErrors() {
		return cli.FindingsError{List: list, Files: map[string][]byte{f.topology: raw}}
	}
	if set.Spec.Decommission {
		return nil
	}
	for _, name := range names {
		if set.Cluster(name) != nil {
			return cli.ExitError{Msg: fmt.Sprintf("error: %s: cluster %s is still in the topology: run hawser leave first, or pass --yes",
				src.Pos("clusters["+name+"]"), name)}
		}
	}
	return nil
}

// completeInstalled completes the clusters of the topology and the contexts of the kubeconfig,
// because the topology may no longer contain the cluster.
func completeInstalled(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	var out []string
	for _, name := range append(clusterselect.CompletionNames(cmd, nil, word), clusterselect.ContextNames(cmd, nil, "")...) {
		if !slices.Contains(out, name) && !slices.Contains(args, name) {
			out = append(out, name)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
