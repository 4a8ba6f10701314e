package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/reconciler/apply"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/render/plan"
	"hawser.dev/hawser/schema"
)

type diffFlags struct {
	buildFlags
	against string
	repo    string
	output  string
	live    bool
	tree    string
	clusterFlags
}

func newDiffCommand(a *app) *cobra.Command {
	var f diffFlags
	cmd := &cobra.Command{
		Use:   "diff [FILE|DIR|-]",
		Short: "Print what publishing this topology would change",
		Long: `Compare the topology as it is on disk, committed or not, with what is published,
and print the plan: what is created (+), changed (~), replaced (±) and deleted (-),
for each cluster, with the line that causes it and who is disrupted.

What is published is the branch "rendered" of the repository that holds the file.
--against names another branch (origin/rendered, after git fetch) or a folder that
hawser render wrote; --repo another repository.

With --live it asks the clusters instead (a server-side dry run, as hawser apply
--dry-run) and names who holds what differs from the topology, or from the folder
of --tree.

No root key is needed. Without it keys that are not published yet show as
"` + render.KnownLater + `", and a change of a recipient does not show.

Exit codes: 0 no change, 1 changes, 2 error (errors in the topology included).`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.live {
				return a.diffLive(cmd, args, f)
			}
			return a.diff(cmd.Context(), args, f)
		},
	}
	a.topologyFlag(cmd)
	f.buildFlags.add(cmd)
	cmd.Flags().StringVar(&f.against, "against", reconciler.DefaultPublishBranch, "branch or folder to compare with")
	cmd.Flags().StringVar(&f.repo, "repo", "", "path or URL of the repository with the branch (default: the one that holds the file)")
	outputFlag(cmd, false, &f.output, diffOutputs()...)
	cmd.Flags().BoolVar(&f.live, "live", false, "compare with the clusters")
	cmd.Flags().StringVar(&f.tree, "tree", "", "with --live: a folder that hawser render wrote, instead of a topology")
	f.clusterFlags.add(cmd, false)
	return cmd
}

// diffLive compares with what stands in the clusters.
func (a *app) diffLive(cmd *cobra.Command, args []string, f diffFlags) error {
	for _, flag := range []string{"against", "repo"} {
		if cmd.Flags().Changed(flag) {
			return fmt.Errorf("--live compares with the clusters: --%s has no meaning then", flag)
		}
	}
	return a.apply(cmd.Context(), args, applyFlags{
		treeFlags: treeFlags{buildFlags: f.buildFlags, tree: f.tree}, clusterFlags: f.clusterFlags,
		// Nothing is deleted by looking.
		rules: apply.Rules{AllowMassDelete: true, AllowOtherCluster: true}, dryRun: true, output: f.output,
	})
}

func (a *app) diff(ctx context.Context, args []string, f diffFlags) error {
	if err := checkOutput(f.output, diffOutputs()...); err != nil {
		return err
	}
	t, err := a.readTopology(args)
	if err != nil {
		return err
	}
	defer a.progress("comparing " + t.file + " with " + f.against)()
	have, err := a.readAgainst(ctx, t, f)
	if err != nil {
		return err
	}
	in, err := buildInput(t, have, f.buildFlags)
	if err != nil {
		return err
	}
	in.Preview = in.Root == nil
	built, list := reconciler.Build(in)
	if list.HasErrors() {
		return a.refuseDiff(f.output, list, t)
	}
	if !forReview(f.output) {
		a.printFindings(built.Warnings, t.files())
	}
	return a.printPlan(planInput{want: built.Tree, have: have, source: built.Source, output: f.output, warnings: built.Warnings})
}

// readAgainst reads what is published: a folder, or a branch.
func (a *app) readAgainst(ctx context.Context, t topology, f diffFlags) (render.Tree, error) {
	if _, err := os.Stat(filepath.Join(f.against, "base")); err == nil {
		dir, err := readRendered(f.against)
		return dir.tree, err
	}
	p, err := readPublished(ctx, f.repo, t.file, f.against)
	if err != nil {
		return nil, fmt.Errorf("%w (hawser diff --against DIR compares with a folder)", err)
	}
	if p.commit == "" {
		_, _ = fmt.Fprintf(a.err, "nothing is published on branch %s yet: everything is new\n", f.against)
	}
	return p.tree, nil
}

// planInput is two trees to be compared.
type planInput struct {
	want, have render.Tree
	source     *schema.Source
	output     string
	warnings   diag.List // of the topology, for outputs that report them
}

// printPlan prints what turns have into want; answer when there is something.
func (a *app) printPlan(in planInput) error {
	p, err := plan.Compute(in.want, in.have)
	if err != nil {
		return err
	}
	p.Locate(func(path string) string {
		pos := in.source.Pos(path)
		if !pos.IsValid() {
			return ""
		}
		return fmt.Sprintf("%s:%d", pos.File, pos.Line)
	})
	switch in.output {
	case "text":
		err = p.Print(a.out, a.colored(a.out))
	case "manifests":
		err = a.printManifests(in.want, in.have)
	case outMarkdown, outGitHub, outSARIF:
		err = a.report(in.output, plan.Report{Plan: p, Want: in.want, Have: in.have, Findings: in.warnings, File: in.source.File})
	default:
		err = a.encode(in.output, p)
	}
	if err != nil || p.Empty() {
		return err
	}
	return answer{}
}

// printManifests prints the files that change, as they will be.
func (a *app) printManifests(want, have render.Tree) error {
	for _, name := range want.Paths() {
		if before, exists := have[name]; exists && string(before) == string(want[name]) {
			continue
		}
		if _, err := fmt.Fprintf(a.out, "---\n# Source: %s\n%s", name, want[name]); err != nil {
			return err
		}
	}
	for _, name := range have.Paths() {
		if _, keep := want[name]; !keep {
			if _, err := fmt.Fprintf(a.out, "---\n# Removed: %s\n", name); err != nil {
				return err
			}
		}
	}
	return nil
}
