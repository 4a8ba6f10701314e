package publish

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/baseline"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/reconciler"
)

type historyFlags struct {
	repo, branch, output string
	signers              string
	number               int
}

func NewHistoryCommand(env *cli.Env) *cobra.Command {
	var f historyFlags
	cmd := &cobra.Command{
		Use:   "history [FILE|DIR]",
		Short: "List publications",
		Long: `List the commits of the publish branch, newest first: when each was published, from which
source commit and author, and how many objects it changed. By default the command
reads the repository of the topology. If a remote of the clone has a newer publish branch,
that branch is read; the clone does not change.

SIGNED reports whether a signer of the clusterset (--signers FILE, or
` + baseline.SignersFile + ` next to the topology) signed the commit. A warning names each
commit that does not count. Without signers a warning says that nothing was verified.

Exit codes: 0 done; 2 error.`,
		Example: `  hawser history
  hawser history -n 3 --repo https://git.example.com/infra.git -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runHistory(cmd.Context(), env, args, f) },
	}
	topofile.AddFlag(env, cmd)
	cmd.Flags().StringVar(&f.repo, "repo", "", "path or URL of the repository with the publish branch (default: the topology's)")
	cmd.Flags().StringVar(&f.branch, "branch", reconciler.DefaultPublishBranch, "publish branch")
	cmd.Flags().StringVar(&f.signers, "signers", "", baseline.SignersHelp)
	cmd.Flags().IntVarP(&f.number, "number", "n", 10, "how many commits to show; 0 = all")
	cli.OutputFlag(cmd, false, &f.output, "text", "json", "yaml")
	return cmd
}

func runHistory(ctx context.Context, env *cli.Env, args []string, f historyFlags) error {
	if f.number < 0 {
		return fmt.Errorf("-n %d: it is a number of commits, or 0 for all", f.number)
	}
	file := ""
	if f.repo == "" {
		t, err := topofile.Read(env, args)
		if err != nil {
			return err
		}
		file = t.Path
	}
	verify, err := baseline.Verifiers(f.signers, file, topofile.BuildFlags{})
	if err != nil {
		return err
	}
	done := env.Progress("reading branch " + f.branch)
	published, err := baseline.Read(ctx, env, baseline.Options{File: file, Address: f.repo, Branch: f.branch, Flag: "--branch", UserSet: true, History: true, Rendered: true})
	done()
	if err != nil {
		return err
	}
	// The clone may have the commits of the topology even if it lacks the publish branch.
	clone, err := baseline.OpenRepo(ctx, baseline.RepoOf(f.repo, file))
	if err != nil {
		return err
	}
	list, err := baseline.History(ctx, published.Store, published.Head, f.number, verify, clone)
	if err != nil {
		return err
	}
	if len(verify) == 0 {
		_, _ = fmt.Fprintln(env.Err, baseline.NotVerifiedNote)
	}
	for _, p := range list {
		if p.Refused != "" {
			_, _ = fmt.Fprintf(env.Err, "WARNING: commit %.12s of %s does not count: %s\n", p.Commit, f.branch, p.Refused)
		}
	}
	if f.output != "text" {
		return env.Encode(f.output, map[string]any{"branch": f.branch, "publications": list})
	}
	t := cli.Table{Title: "Published on " + f.branch, Head: []string{"TIME", "COMMIT", "SOURCE", "AUTHOR", "SIGNED", "CHANGES", "SUBJECT"}}
	for _, p := range list {
		t.Rows = append(t.Rows, []string{p.Time, fmt.Sprintf("%.12s", p.Commit), fmt.Sprintf("%.12s", p.Source), p.Author, p.Signed(), p.Changes, p.Subject})
	}
	_, err = env.Out.Write([]byte(t.String()))
	return err
}
