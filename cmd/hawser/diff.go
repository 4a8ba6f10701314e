package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/install/apply"
	"hawser.dev/hawser/internal/checkout"
	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/render/plan"
	"hawser.dev/hawser/schema/document"
)

type diffFlags struct {
	buildFlags
	base    string
	repo    string
	signers string
	output  string
	live    bool
	tree    string
	rules   reconciler.Rules
	failOn  []string
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

The baseline is the newest commit of the branch with a signature of a signer: of
--signers FILE, of the root key, or of ` + publishedSigners + ` next to the topology. Newer
commits are skipped with a warning. Without signers the baseline is not verified, and
a warning says so. If no commit has such a signature, the exit code is 2.

What is published is the branch "rendered" of the repository that holds the file.
--against names another branch, a tag, a commit or a folder that hawser render
wrote; --repo another repository. A clone without the branch gets it from where
it was cloned, for this comparison alone. What cannot be found is an error; only
a repository that nothing was ever published to is compared with nothing, and
--against none does so anyway.

What a reconciler would refuse (a lock that does not hold, more than half of the
clusters removed) is refused here, after the plan and in the same words. Who
signed a commit is not asked: there may be no commit yet.

With --live it asks the clusters instead (a server-side dry run, as hawser apply
--dry-run) and names who holds what differs from the topology, or from the folder
of --tree.

No root key is needed. Without it keys that are not published yet show as
"` + render.KnownAfterPublish + `", and a change of a recipient does not show.

At its end the plan lists the access between clusters that it adds and removes.

Exit codes: 0 no change, 1 changes, 2 error (errors in the topology, and what a
reconciler would refuse, included). --fail-on selects the changes that count: any,
disruptive, or those that add access between clusters (access).`,
		Example: `  hawser diff
  hawser diff --against origin/rendered
  hawser diff -o markdown
  hawser diff --live --cluster fra`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, v := range f.failOn {
				if !slices.Contains(failOns(), v) {
					return fmt.Errorf("--fail-on %q: it is %s", v, strings.Join(failOns(), ", "))
				}
			}
			if f.live {
				for _, flag := range []string{"against", "repo", "fail-on", "signers"} {
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
			return a.diff(cmd, args, f)
		},
	}
	a.topologyFlag(cmd)
	f.buildFlags.add(cmd)
	cmd.Flags().StringVar(&f.base, "against", reconciler.DefaultPublishBranch, "branch, tag, commit or folder to compare with, or none")
	cmd.Flags().StringVar(&f.repo, "repo", "", "path or URL of the repository with the branch (default: the one that holds the file)")
	cmd.Flags().StringVar(&f.signers, "signers", "", signersHelp)
	outputFlag(cmd, false, &f.output, "text", "json", "yaml", "manifests\tthe files that change",
		outMarkdown+"\ta comment of a pull request", outGitHub+"\tannotations of its lines")
	cmd.Flags().BoolVar(&f.live, "live", false, "compare with the clusters")
	cmd.Flags().StringVar(&f.tree, "tree", "", "with --live: a folder that hawser render wrote, instead of a topology")
	cmd.Flags().BoolVar(&f.rules.WriteLock, "write-lock", true, writeLockHelp)
	cmd.Flags().BoolVar(&f.rules.AllowMassDelete, "allow-mass-delete", false, massDeleteHelp)
	cmd.Flags().StringSliceVar(&f.failOn, "fail-on", []string{failAny},
		"changes that end with exit code 1: "+strings.Join(failOns(), ", ")+"; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("fail-on", cobra.FixedCompletions(failOns(), cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	f.clusterFlags.add(cmd, false)
	return cmd
}

func (a *app) diff(cmd *cobra.Command, args []string, f diffFlags) error {
	ctx := cmd.Context()
	t, err := a.readTopology(args)
	if err != nil {
		return err
	}
	defer a.progress("comparing " + t.file + " with " + f.base)()
	verify, err := verifiers(f.signers, t.file, f.buildFlags)
	if err != nil {
		return err
	}
	have, err := a.readPublished(ctx, publishedInput{
		file: t.file, address: f.repo, branch: f.base, flag: "--against", asked: cmd.Flags().Changed("against"), compare: true,
		verify: verify, notice: true,
	})
	if err != nil {
		return err
	}
	in, err := buildInput(t, have.tree, f.buildFlags)
	if err != nil {
		return err
	}
	in.Preview = in.Root == nil
	built, list := reconciler.Build(in)
	if list.HasErrors() {
		// Where a CI reads what is printed, the form alone prints texts of the topology, and escapes them.
		if !forReview(f.output) {
			a.printFindings(list, t.files())
		} else if err := a.report(f.output, plan.Report{Findings: list, File: t.file}); err != nil {
			return err
		}
		i := slices.IndexFunc(list, isError)
		return fmt.Errorf("%s has errors: nothing was compared", firstOf(list[i].Pos.File, t.file))
	}
	if !forReview(f.output) {
		a.printFindings(built.Warnings, t.files())
	}
	warnings := built.Warnings
	for _, text := range have.says {
		if text, loud := strings.CutPrefix(text, "WARNING: "); loud {
			warnings = append(warnings, diag.Diagnostic{Severity: diag.Warning, Code: "skipped-commit", Pos: diag.Pos{File: t.file}, Summary: text})
		}
	}
	refused := built.Check(have.tree, f.rules, "", t.files())
	if err := a.checkSigners(t, built); refused == nil && err != nil {
		return err
	}
	return a.printPlan(planInput{
		want: built.Tree, have: have.tree, source: built.Source, output: f.output, failOn: f.failOn,
		baseline: &have.Baseline, refused: refused, warnings: warnings,
	})
}

// checkSigners refuses a file of spec.trust.commits that a reconciler would refuse.
func (a *app) checkSigners(t topology, built *reconciler.Built) error {
	if built.Set.Spec.Trust.Commits == "" || t.lockFile == "" {
		return nil
	}
	file := filepath.Join(filepath.Dir(t.file), filepath.FromSlash(built.Set.Spec.Trust.Commits))
	raw, err := checkout.ReadFile(file)
	var list diag.List
	if err == nil {
		list, err = reconciler.CheckOwners(built.Set, file, raw)
	}
	if list = reconciler.WithPositions(list, built.Source); err == nil && list.HasErrors() {
		a.printFindings(list, t.files())
		err = errors.New("it has errors")
	}
	if err != nil {
		return fmt.Errorf("trust.commits: %s: %w", file, err)
	}
	return nil
}

// planInput is two trees to be compared.
type planInput struct {
	want, have render.Tree
	source     *document.Source
	output     string
	failOn     []string
	baseline   *plan.Baseline      // nil: the reader knows
	refused    *reconciler.Failure // why it would not be published; nil: it would
	warnings   diag.List           // of the topology, for outputs that report them
}

// printPlan prints what turns have into want; answer when there is something that counts.
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
	p.Baseline = in.baseline
	if in.refused != nil {
		p.Rejected = in.refused.Message
	}
	switch in.output {
	case "text":
		err = p.Print(a.out, a.colored(a.out))
	case "manifests":
		err = a.printManifests(in.want, in.have)
	case outMarkdown, outGitHub:
		err = a.report(in.output, plan.Report{Plan: p, Want: in.want, Have: in.have, Findings: in.warnings, File: in.source.File})
	default:
		err = a.encode(in.output, p)
	}
	if err == nil && in.refused != nil {
		if len(in.refused.Diagnostics) == 0 {
			return in.refused
		}
		a.printFindings(in.refused.Diagnostics, in.refused.Files())
		return errors.New("a reconciler would refuse this")
	}
	counts := slices.Contains(in.failOn, failAny) && !p.Empty() ||
		slices.Contains(in.failOn, failDisruptive) && p.Summary.Disruptive > 0 ||
		slices.Contains(in.failOn, failAccess) && len(p.Access.Added) > 0
	if err != nil || !counts {
		return err
	}
	return answer{}
}

// printManifests prints the files that change, as they will be, without those that repeat
// for people what others hold.
func (a *app) printManifests(want, have render.Tree) error {
	for _, name := range want.Paths() {
		before, exists := have[name]
		if exists && string(before) == string(want[name]) ||
			slices.Contains([]string{render.FabricText, render.TopologyText, render.MapPicture, render.MapText}, name) {
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

// What `hawser diff --fail-on` takes.
const (
	failAny        = "any"
	failDisruptive = "disruptive"
	failAccess     = "access"
)

func failOns() []string { return []string{failAny, failDisruptive, failAccess} }
