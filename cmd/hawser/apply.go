package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/install/apply"
	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/reconciler"
)

type applyFlags struct {
	treeFlags
	clusterFlags
	rules   apply.Rules
	dryRun  bool
	yes     bool
	wait    bool
	keep    bool // definitions of others
	timeout time.Duration
	output  string
}

func newApplyCommand(a *app) *cobra.Command {
	var f applyFlags
	cmd := &cobra.Command{
		Use:   "apply [FILE|DIR]",
		Short: "Apply the topology to the clusters, without Flux or Argo CD",
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
then does. On a terminal an apply prints that, too, and asks; --yes goes on without,
as everything else does that is no terminal. A cluster that cannot be reached holds up no other. ServiceExports of
namespaces that do not exist are skipped, and tried again by the next apply. A
cluster without pinned signers (Secret hawser-trust) gets them from the root key.

The first apply to a cluster is refused if the cluster does not look like that of
the topology (gateways' nodes, podCIDRs, serviceCIDRs), as that of another context.

Exit codes: 0 applied, 1 a cluster failed, 2 error; with --dry-run 0 no change,
1 changes, 2 error.`,
		Example: `  hawser apply --root-key root.key --dry-run
  hawser apply --root-key root.key --context fra=admin@fra,sin=admin@sin --wait`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.apply(cmd.Context(), args, f) },
	}
	a.topologyFlag(cmd)
	f.buildFlags.add(cmd)
	cmd.Flags().StringVar(&f.tree, "tree", "", "a folder that hawser render wrote, instead of a topology")
	f.clusterFlags.add(cmd, false)
	flags := cmd.Flags()
	flags.StringVar(&f.repo, "repo", "", "path or URL of a repository that a reconciler publishes to, instead of a topology")
	flags.StringVar(&f.branch, "branch", reconciler.DefaultPublishBranch, "branch of --repo")
	flags.StringVar(&f.signers, "signers", "", "file with signers of the commits of --repo, in addition to the pinned signers of the clusters")
	flags.BoolVar(&f.dryRun, "dry-run", false, "change nothing, print what would change")
	flags.BoolVar(&f.yes, "yes", false, "do not ask on a terminal")
	flags.BoolVar(&f.keep, "keep-crds", false, "leave the definitions of ServiceExports and ServiceImports alone, as clusters[].crds: keep does")
	flags.BoolVar(&f.wait, "wait", false, "wait until the agents run and follow what was applied")
	flags.DurationVar(&f.timeout, "timeout", 5*time.Minute, "how long --wait waits")
	flags.BoolVar(&f.rules.AllowMassDelete, "allow-mass-delete", false, "let an apply remove more than half of the clusters or objects")
	flags.BoolVar(&f.rules.AllowOtherCluster, "allow-other-cluster", false, "let a first apply go to a cluster that does not look like the topology's")
	outputFlag(cmd, false, &f.output, "text", "json", "yaml")
	return cmd
}

func (a *app) apply(ctx context.Context, args []string, f applyFlags) error {
	s, err := a.open(ctx, args, f.treeFlags)
	if err != nil {
		return err
	}
	clusters, err := f.choose(s.clusters)
	if err != nil {
		return err
	}
	if s.from != nil {
		if err := s.verified(ctx, a, clusters, f.treeFlags); err != nil {
			return err
		}
		if clusters, err = f.choose(s.clusters); err != nil {
			return err
		}
	}
	defer a.progress("asking the clusters")()
	tree, err := s.build(ctx, a, clusters, f.treeFlags)
	if err != nil {
		return err
	}
	o := apply.Options{Rules: f.rules, DryRun: f.dryRun, KeepCRDs: f.keep, Say: a.logCluster}
	if s.tree == nil { // of a tree that somebody else made it is not known who should have signed it
		if o.Signers, err = signers(s.set, f.buildFlags); err != nil {
			return err
		}
	}
	if s.from != nil {
		o.Verify = s.from.verify
	}
	if f.wait {
		o.Wait = &apply.Wait{Timeout: f.timeout}
	}
	var agreement confirmation
	if !f.yes && !f.dryRun && isTerminal(a.in) {
		o.Confirm = func(planned []apply.Result) bool { return agreement.ask(ctx, a, planned) }
	}
	results := apply.All(ctx, tree, clusters, o)
	if agreement.refused {
		return answer{"nothing was applied"}
	}
	if f.output == "text" {
		err = apply.Print(a.out, results, f.dryRun)
	} else {
		err = a.encode(f.output, map[string]any{"clusters": results})
	}
	if err != nil {
		return err
	}
	return applied(results, f.dryRun)
}

// applied turns what became of the clusters into the exit code.
func applied(results []apply.Result, dry bool) error {
	failed, changes := 0, false
	for _, r := range results {
		if r.Error != "" {
			failed++
		}
		changes = changes || r.Plan != nil && !r.Empty()
	}
	switch {
	case failed > 0 && dry:
		return fmt.Errorf("%d of %d clusters could not be compared", failed, len(results))
	case failed > 0:
		return answer{fmt.Sprintf("error: %d of %d clusters failed", failed, len(results))}
	case dry && changes:
		return answer{}
	}
	return nil
}

// confirmation is what a person at a terminal says to the plans.
type confirmation struct{ refused bool }

// ask prints the plans and asks; where nothing would change there is no question.
func (g *confirmation) ask(ctx context.Context, a *app, planned []apply.Result) bool {
	changes := 0
	for _, r := range planned {
		if r.Error == "" && r.Plan != nil && !r.Empty() {
			changes++
		}
	}
	if changes == 0 {
		return true
	}
	if err := apply.Print(a.err, planned, true); err != nil {
		g.refused = true
		return false
	}
	g.refused = !a.askYesNo(ctx, fmt.Sprintf("Apply this to %s?", humanize.Plural(changes, "cluster")))
	return !g.refused
}

// askYesNo asks whoever is at the terminal; anything but yes is no.
func (a *app) askYesNo(ctx context.Context, what string) bool {
	_, _ = fmt.Fprint(a.err, what, " [y/N] ")
	said := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(a.in).ReadString('\n') // what cannot be read is no consent
		said <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case word := <-said:
		return word == "y" || word == "yes"
	case <-ctx.Done(): // an interrupt reaches the context alone
		return false
	}
}
