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
		Long: `Apply each cluster's part of the rendered tree to that cluster: server-side apply
with the field manager "` + kubeclient.FieldManager + `", kinds in the order in which they need each
other, and deletion of what was applied before and left the tree.

The tree is built from the topology (needs the root key), or is a folder that
hawser render wrote (--tree), or the branch that a reconciler publishes (--repo).

With --repo the newest commit counts that the pinned signers of every cluster (Secret
hawser-trust) and those of --signers signed as published. Newer commits are skipped with
a warning. If no commit counts, nothing is applied. Without any signers a warning says
that the branch is not verified.

--dry-run asks the API servers what would change and prints exactly what the apply
then does. On a terminal the apply prints the same plan and asks; --yes skips the
question. Unreachable clusters do not delay the others. ServiceExports of missing
namespaces are skipped until the next apply. A cluster without pinned signers
(Secret hawser-trust) gets them from the root key.

If another field manager set a field of the tree, the tree wins, and the plan names
the manager. Fields that the tree lacks stay. ConfigMap hawser-system/hawser-inventory
lists the applied objects; an object that left the tree is deleted after everything
else was applied, unless it has prune: disabled or is a namespace or a definition.

The first apply to a cluster is refused if the cluster does not look like that of
the topology (gateways' nodes, podCIDRs, serviceCIDRs), as that of another context.

Exit codes: 0 applied, 1 a cluster failed, 2 error; with --dry-run 0 no change,
1 changes, 2 error.`,
		Example: `  hawser apply --root-key root.key --dry-run
  hawser apply --root-key root.key --context fra=admin@fra,sin=admin@sin --wait`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return applytree.Run(cmd.Context(), env, args, f) },
	}
	topofile.AddFlag(env, cmd)
	f.BuildFlags.Add(cmd)
	cmd.Flags().StringVar(&f.Tree, "tree", "", "a folder that hawser render wrote, instead of a topology")
	f.Flags.Add(cmd, false)
	flags := cmd.Flags()
	flags.StringVar(&f.Repo, "repo", "", "path or URL of a repository that a reconciler publishes to, instead of a topology")
	flags.StringVar(&f.Branch, "branch", reconciler.DefaultPublishBranch, "branch of --repo")
	flags.StringVar(&f.Signers, "signers", "", "file with signers of the commits of --repo, in addition to the pinned signers of the clusters")
	flags.BoolVar(&f.DryRun, "dry-run", false, "change nothing, print what would change")
	flags.BoolVar(&f.Yes, "yes", false, "do not ask on a terminal")
	flags.BoolVar(&f.Keep, "keep-crds", false, "leave the definitions of ServiceExports and ServiceImports alone, as clusters[].crds: keep does")
	flags.BoolVar(&f.Wait, "wait", false, "wait until the agents run and follow what was applied")
	flags.DurationVar(&f.Timeout, "timeout", 5*time.Minute, "how long --wait waits")
	flags.BoolVar(&f.Rules.AllowMassDelete, "allow-mass-delete", false, "let an apply remove more than half of the clusters or objects")
	flags.BoolVar(&f.Rules.AllowOtherCluster, "allow-other-cluster", false, "let a first apply go to a cluster that does not look like the topology's")
	cli.OutputFlag(cmd, false, &f.Output, "text", "json", "yaml")
	return cmd
}
