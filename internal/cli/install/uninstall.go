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
		Long: `Uninstall Hawser from clusters, however it was installed. The agents are told to
undo what they did (links, routes, rules, nftables, sysctls, the part in the
cluster's DNS, imports), and are waited for; then everything of Hawser's is
deleted, the namespace last, and with it the Secret of the age identity. What is
somebody else's stays, also the definitions of the Multi-Cluster Services API,
unless --crds is given and nothing of their kinds is left.

Remove a cluster from the topology first: the others then let go of it. While the
topology still has it, or Flux or Argo CD still keeps it, --yes is needed. It may
be interrupted and repeated.

Exit codes: 0 done (with --dry-run: nothing is there), 1 refused, a cluster failed,
or there is something to delete, 2 error.`,
		Example: `  hawser uninstall fra --dry-run
  hawser uninstall fra sin --crds`,
		ValidArgsFunction: completeInstalled,
		Args:              cobra.ArbitraryArgs,
		RunE:              func(cmd *cobra.Command, args []string) error { return runUninstall(cmd.Context(), env, args, f) },
	}
	flags := cmd.Flags()
	f.AddKubeconfig(cmd, false)
	topofile.AddFileFlag(cmd, false, &f.topology, "topology that must not have the clusters any more")
	flags.BoolVar(&f.yes, "yes", false, "although the topology has the cluster, or something would bring Hawser back")
	flags.BoolVar(&f.removal.DryRun, "dry-run", false, "change nothing, print what would be deleted")
	flags.BoolVar(&f.removal.Force, "force", false, "go on without agents that do not answer")
	flags.BoolVar(&f.removal.CRDs, "crds", false, "delete the definitions of the Multi-Cluster Services API too, if nobody uses them")
	flags.DurationVar(&f.removal.Timeout, "timeout", 5*time.Minute, "how long to wait for the agents, and for what is deleted to be gone")
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
	f.removal.Say, f.removal.Foreign = env.LogCluster, f.yes || f.removal.DryRun
	results := make([]apply.Result, len(clusters))
	kubeclient.ForEach(clusters, func(i int, c *kubeclient.Client) {
		results[i] = apply.Result{Cluster: c.Name, Context: c.Context}
		p, err := uninstall.Run(ctx, c, f.removal)
		results[i].Plan = p
		if results[i].Applied = err == nil && !f.removal.DryRun; err != nil {
			results[i].Error = kubeclient.ErrorText(err)
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

// requireRemoved refuses to take out a cluster that the others still count on.
func requireRemoved(env *cli.Env, names []string, f uninstallFlags) error {
	raw, err := checkout.ReadNamed(f.topology)
	if errors.Is(err, fs.ErrNotExist) {
		return cli.ExitError{Msg: fmt.Sprintf("error: there is no %s that shows that the others have let go of the cluster: name it with --file, or say --yes", f.topology)}
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
			return cli.ExitError{Msg: fmt.Sprintf("error: %s: cluster %s is still in the topology: remove it there first, so that the others let go of it, or say --yes",
				src.Pos("clusters["+name+"]"), name)}
		}
	}
	return nil
}

// completeInstalled completes the clusters of the topology and the contexts of the kubeconfig: the
// topology may lack the cluster already.
func completeInstalled(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	var out []string
	for _, name := range append(clusterselect.CompletionNames(cmd, nil, word), clusterselect.ContextNames(cmd, nil, "")...) {
		if !slices.Contains(out, name) && !slices.Contains(args, name) {
			out = append(out, name)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
