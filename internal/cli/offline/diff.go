package offline

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/install/apply"
	"hawser.dev/hawser/internal/checkout"
	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/applytree"
	"hawser.dev/hawser/internal/cli/baseline"
	"hawser.dev/hawser/internal/cli/clusterselect"
	"hawser.dev/hawser/internal/cli/planview"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/render/plan"
)

type diffFlags struct {
	topofile.BuildFlags
	base    string
	repo    string
	signers string
	output  string
	live    bool
	tree    string
	rules   reconciler.Rules
	failOn  []string
	clusterselect.Flags
}

func NewDiffCommand(env *cli.Env) *cobra.Command {
	var f diffFlags
	cmd := &cobra.Command{
		Use:   "diff [FILE|DIR|-]",
		Short: "Print what publishing this topology would change",
		Long: `Print the plan from the published tree to the topology on disk, committed or not: objects
that are created (+), changed (~), replaced (±) and deleted (-) in each cluster, the line
that causes each change, and which connections it breaks. At the end the plan lists access
between clusters that is added and removed.

The base is the branch "rendered" of the repository with the topology. --against selects
another branch, a tag, a commit or a directory of hawser render, and --repo another
repository. If the clone lacks the branch, the command reads it from the remote. A missing
base is an error, unless nothing was ever published. --against none compares with nothing.

Of a branch, the newest commit counts that a signer signed: of --signers FILE, of the root
key, or of ` + baseline.SignersFile + ` next to the topology. Newer commits are skipped
with a warning. If no commit has such a signature, the exit code is 2. Without signers, a
warning says that the base is not verified.

--live compares with the clusters instead (a server-side dry run, as hawser apply
--dry-run), and names the field manager of each difference. --tree compares a directory with
them.

The command reports everything that a reconciler would refuse, except missing signatures
of commits. It needs no root key; without one, new keys show as
"` + render.KnownAfterPublish + `" and changed recipients do not show.

Exit codes: 0 no change; 1 changes, errors in the topology, or a reconciler would
refuse it; 2 error. --fail-on selects the changes that count: any, disruptive, those
that add access between clusters (access), or none.`,
		Example: `  hawser diff
  hawser diff --against origin/rendered
  hawser diff -o markdown
  hawser diff --live --cluster fra`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, v := range f.failOn {
				if !slices.Contains(planview.FailOns(), v) {
					return fmt.Errorf("--fail-on %q: it is %s", v, strings.Join(planview.FailOns(), ", "))
				}
			}
			if f.live {
				for _, flag := range []string{"against", "repo", "fail-on", "signers"} {
					if cmd.Flags().Changed(flag) {
						return fmt.Errorf("--live compares with the clusters: --%s has no meaning then", flag)
					}
				}
				return applytree.Run(cmd.Context(), env, args, applytree.Flags{
					TreeFlags: applytree.TreeFlags{BuildFlags: f.BuildFlags, Tree: f.tree}, Flags: f.Flags,
					// A comparison deletes nothing.
					Rules: apply.Rules{AllowMassDelete: true, AllowOtherCluster: true}, DryRun: true, Output: f.output,
				})
			}
			return runDiff(env, cmd, args, f)
		},
	}
	topofile.AddFlag(env, cmd)
	f.BuildFlags.Add(cmd)
	cmd.Flags().StringVar(&f.base, "against", reconciler.DefaultPublishBranch, "branch, tag, commit or directory to compare with, or none")
	cmd.Flags().StringVar(&f.repo, "repo", "", "path or URL of the repository with the publish branch (default: the topology's)")
	cmd.Flags().StringVar(&f.signers, "signers", "", baseline.SignersHelp)
	cli.OutputFlag(cmd, false, &f.output, "text", "json", "yaml", "manifests\tthe files that change",
		planview.Markdown+"\ta comment of a pull request", planview.GitHub+"\tannotations of its lines")
	cmd.Flags().BoolVar(&f.live, "live", false, "compare with the clusters")
	cmd.Flags().StringVar(&f.tree, "tree", "", "with --live: compare a directory of hawser render instead of a topology")
	cmd.Flags().BoolVar(&f.rules.WriteLock, "write-lock", true, topofile.WriteLockHelp)
	cmd.Flags().BoolVar(&f.rules.AllowMassDelete, "allow-mass-delete", false, topofile.MassDeleteHelp)
	cmd.Flags().StringSliceVar(&f.failOn, "fail-on", []string{planview.FailAny},
		"changes that end with exit code 1: "+strings.Join(planview.FailOns(), ", ")+"; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("fail-on", cobra.FixedCompletions(planview.FailOns(), cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	f.Flags.Add(cmd, false)
	return cmd
}

func runDiff(env *cli.Env, cmd *cobra.Command, args []string, f diffFlags) error {
	ctx := cmd.Context()
	t, err := topofile.Read(env, args)
	if err != nil {
		return err
	}
	defer env.Progress("comparing " + t.Path + " with " + f.base)()
	verify, err := baseline.Verifiers(f.signers, t.Path, f.BuildFlags)
	if err != nil {
		return err
	}
	have, err := baseline.Read(ctx, env, baseline.Options{
		File: t.Path, Address: f.repo, Branch: f.base, Flag: "--against", UserSet: cmd.Flags().Changed("against"), Compare: true,
		Verify: verify, Notice: true,
	})
	if err != nil {
		return err
	}
	in, err := topofile.BuildInput(env, t, have.Tree, f.BuildFlags)
	if err != nil {
		return err
	}
	in.Preview = in.Root == nil
	built, list := reconciler.Build(in)
	if list.HasErrors() {
		// Formats for CI print texts of the topology themselves, because they escape them.
		if !planview.ForReview(f.output) {
			env.Findings(list, t.Texts())
		} else if err := planview.PrintReport(env, f.output, plan.Report{Findings: list, File: t.Path}); err != nil {
			return err
		}
		i := slices.IndexFunc(list, cli.IsError)
		return cli.ExitError{Msg: fmt.Sprintf("error: %s has errors: nothing was compared", cmp.Or(list[i].Pos.File, t.Path))}
	}
	if !planview.ForReview(f.output) {
		env.Findings(built.Warnings, t.Texts())
	}
	warnings := built.Warnings
	for _, text := range have.Notes {
		if text, isWarning := strings.CutPrefix(text, "WARNING: "); isWarning {
			warnings = append(warnings, diag.Diagnostic{Severity: diag.Warning, Code: "skipped-commit", Pos: diag.Pos{File: t.Path}, Summary: text})
		}
	}
	refused := built.Check(have.Tree, f.rules, "", t.Texts())
	if err := checkSigners(env, t, built); refused == nil && err != nil {
		return err
	}
	return planview.Print(env, planview.Input{
		Want: built.Tree, Have: have.Tree, Source: built.Source, Output: f.output, FailOn: f.failOn,
		Baseline: &have.Baseline, Refused: refused, Warnings: warnings,
	})
}

// checkSigners returns an error for a file of spec.trust.commits that a reconciler would refuse.
func checkSigners(env *cli.Env, t topofile.File, built *reconciler.Built) error {
	if built.Set.Spec.Trust.Commits == "" || t.LockPath == "" {
		return nil
	}
	file := filepath.Join(filepath.Dir(t.Path), filepath.FromSlash(built.Set.Spec.Trust.Commits))
	raw, err := checkout.ReadFile(file)
	if err != nil {
		return fmt.Errorf("trust.commits: %s: %w", file, err)
	}
	list, err := reconciler.CheckOwners(built.Set, file, raw)
	if list = reconciler.WithPositions(list, built.Source); err == nil && list.HasErrors() {
		env.Findings(list, t.Texts())
		err = errors.New("it has errors")
	}
	if err != nil {
		return cli.ExitError{Msg: fmt.Sprintf("error: trust.commits: %s: %v", file, err)}
	}
	return nil
}
