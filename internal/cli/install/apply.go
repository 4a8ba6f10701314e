package install

import (
	"time"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/applytree"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/reconciler"
)

func NewApplyCommand(env *cli.Env) *cobra.Command {
	var f applytree.Flags
	cmd := &cobra.Command{
		Use:   "apply [FILE|DIR]",
		Short: "Apply the topology to clusters without Flux or Argo CD",
		Long: `Apply the rendered manifests to clusters with server-side apply, as field manager
"` + kubeclient.FieldManager + `". Objects that left the tree are deleted last.

The manifests come from the topology, which needs the root key. --tree takes a directory of
hawser render instead, and --repo the publish branch of a repository. On a terminal, the
command prints the plan and asks before it applies it. --dry-run has the API servers
compute the plan, prints it and stops.

With --repo, the newest commit counts that the pinned signers of every cluster (Secret
hawser-trust) and of --signers signed. Newer commits are skipped with a warning. If no
commit counts, nothing is applied. Without any signers, a warning says that the branch
is not verified. The command prints the commit of the topology that it applies, and a
warning if the branch of --ref has newer commits that are not published.

Exceptions:
- Unreachable clusters do not delay the others.
- If another field manager set a field of the tree, the tree wins, and the plan names that
  manager. Fields that the tree lacks do not change.
- Namespaces, definitions and objects with prune: disabled are never deleted. ConfigMap
  hawser-system/hawser-inventory lists the applied objects.
- ServiceExports of missing namespaces are skipped until the next apply.
- A cluster without pinned signers gets them from the root key.
- The first apply to a cluster is refused if its gateway nodes, podCIDRs or serviceCIDRs
  differ from the topology, because the context may belong to another cluster.

Exit codes: 0 applied; 1 refused, or a cluster failed; 2 a cluster cannot be reached, or
error. With --dry-run: 0 no change; 1 changes; 2 a cluster could not be compared, or
error.`,
		Example: `  hawser apply --root-key root.key --dry-run
  hawser apply --root-key root.key --context fra=admin@fra,sin=admin@sin --wait`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return applytree.Run(cmd.Context(), env, args, f) },
	}
	topofile.AddFlag(env, cmd)
	f.BuildFlags.Add(cmd)
	cmd.Flags().StringVar(&f.Tree, "tree", "", "apply a directory of hawser render instead of a topology")
	f.Flags.Add(cmd, false)
	flags := cmd.Flags()
	flags.StringVar(&f.Repo, "repo", "", "apply the publish branch of the repository at this path or URL instead of a topology")
	flags.StringVar(&f.Branch, "branch", reconciler.DefaultPublishBranch, "branch of --repo")
	flags.StringVar(&f.Ref, "ref", "main", "branch of --repo with the topology")
	flags.StringVar(&f.Signers, "signers", "", "file with additional signers of the commits of --repo")
	flags.BoolVar(&f.DryRun, "dry-run", false, "change nothing, print what would change")
	flags.BoolVar(&f.Yes, "yes", false, "skip the confirmation prompt")
	flags.BoolVar(&f.KeepCRDs, "keep-crds", false, "do not change the definitions of ServiceExport and ServiceImport, as clusters[].crds: keep")
	flags.BoolVar(&f.Wait, "wait", false, "wait until the agents run the applied version and fabric")
	flags.DurationVar(&f.Timeout, "timeout", 5*time.Minute, "how long --wait waits")
	flags.BoolVar(&f.Rules.AllowMassDelete, "allow-mass-delete", false, "allow the removal of more than half of the clusters or objects")
	flags.BoolVar(&f.Rules.AllowOtherCluster, "allow-other-cluster", false, "allow the first apply to a cluster that differs from the topology")
	cli.OutputFlag(cmd, false, &f.Output, "text", "json", "yaml")
	return cmd
}
