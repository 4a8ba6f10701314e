// Package publish has the commands that work on the publish branch: reconcile, history and
// rollback.
package publish

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/planview"
	"hawser.dev/hawser/internal/cli/reconcilerflags"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/reconciler/gitrepo"
)

func NewReconcileCommand(env *cli.Env) *cobra.Command {
	f := &reconcilerflags.Flags{}
	cmd := &cobra.Command{
		Use:   "reconcile",
		Short: "Publish the topology, commit by commit",
		Long: `Watch the topology in a git repository and publish each commit: one commit per change, on
a branch of the same or another repository. If a commit is invalid, the publish branch
does not change, and the error names file and line.

The reconciler allocates addresses that the committed lock lacks, and commits the lock to
the source branch. If it cannot (a work tree is on the branch, or the repository is read
only), the lock on the publish branch keeps the addresses, and hawser allocate reads them
there. --write-lock=false refuses such a commit instead.

A commit that removes more than half of the clusters is refused, because it is probably a
mistake and takes their tunnels down. Set spec.decommission, or pass --allow-mass-delete.

With --state, the reconciler remembers the last published commit and refuses branches that
were reset to an earlier one (trust.commits). --accept-commit overrides this, and pins the
first commit if there is no state yet.

Credentials: --git-token-file or HAWSER_GIT_TOKEN for HTTPS, --ssh-key for SSH.
They are sent to one host: HAWSER_GIT_HOST, or the host of --repo.

Exit codes of --once: 0 the commit is published; 1 it was refused; 2 error. Of --dry-run:
0 no change; 1 changes; 2 error.`,
		Example: `  hawser reconcile --repo https://git.example.com/infra.git --root-key root.key --cache /var/cache/hawser
  hawser reconcile --repo git@git.example.com:infra.git --ssh-key deploy.key --root-key root.key --once
  hawser reconcile --root-key root.key --dry-run`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runReconcile(cmd.Context(), env, f) },
	}
	flags, c := cmd.Flags(), &f.Cfg
	flags.StringVar(&c.Source.URL, "repo", ".", "path or URL of the repository with the topology")
	flags.StringVar(&c.SourceBranch, "ref", "main", "branch with the topology")
	flags.StringVar(&c.Path, "path", "", "directory of clusterset.yaml in the repository")
	flags.StringVar(&f.PublishRepo, "publish-repo", "", "path or URL of the repository to publish to (default: --repo)")
	flags.StringVar(&c.PublishBranch, "publish-branch", reconciler.DefaultPublishBranch, "branch to publish to")
	flags.StringVar(&c.RootKeyFile, "root-key", os.Getenv("HAWSER_ROOT_KEY"), topofile.RootKeyHelp)
	flags.StringVar(&c.RootIdentityFile, "root-identity", "", "age identity that opens an encrypted root key")
	flags.StringVar(&c.OpenPGPKeyFile, "sign-openpgp", "", "armored OpenPGP private key without passphrase that signs published commits, for Argo CD")
	flags.StringVar(&c.Image, "image", "", topofile.ImageHelp)
	flags.BoolVar(&c.WriteLock, "write-lock", true, topofile.WriteLockHelp)
	flags.BoolVar(&c.AllowMassDelete, "allow-mass-delete", false, topofile.MassDeleteHelp)
	flags.StringVar(&c.StateFile, "state", "", "file that keeps the last published commit over restarts (default: in memory)")
	flags.StringVar(&c.AcceptCommit, "accept-commit", "", "accept this source commit (full hash) once, signed or not, and the current publish branch")
	flags.BoolVar(&c.AllowOtherRoot, "allow-other-root", false, topofile.AllowOtherRootHelp)
	flags.StringVar(&c.Source.Cache, "cache", "", "directory for the mirror of a remote repository (default: in memory)")
	reconcilerflags.AddAuthFlags(cmd, &c.Source.Auth)
	flags.StringVar(&c.AuthorName, "author-name", reconcilerflags.AuthorName, "author of the commits")
	flags.StringVar(&c.AuthorEmail, "author-email", reconcilerflags.AuthorEmail, "email of the author of the commits")
	flags.DurationVar(&c.Interval, "interval", 30*time.Second, "time between two checks of the repositories")
	flags.StringVar(&f.Listen, "listen", "127.0.0.1:8473", "address of /healthz, /readyz, /metrics, /status and /webhook")
	flags.StringVar(&c.WebhookSecretFile, "webhook-secret", "", "file of the webhook secret (default: no webhooks)")
	flags.BoolVar(&f.Once, "once", false, "reconcile once and exit")
	flags.BoolVar(&f.DryRun, "dry-run", false, "print the plan of the newest commit and exit, change nothing")
	flags.StringVar(&f.LogFormat, "log-format", "text", "text or json")
	flags.BoolVarP(&f.Verbose, "verbose", "v", false, "log more")
	return cmd
}

func runReconcile(ctx context.Context, env *cli.Env, f *reconcilerflags.Flags) error {
	f.Cfg.Source.Auth = reconcilerflags.WithEnvironment(f.Cfg.Source.Auth, f.Cfg.Source.URL, f.PublishRepo)
	if f.Once || f.DryRun {
		defer env.Progress("reading repository " + gitrepo.Redact(f.Cfg.Source.URL))()
	}
	r, err := reconcilerflags.New(env, f)
	if err != nil {
		return err
	}
	switch {
	case f.DryRun:
		topofile.WarnUncommitted(ctx, env, f.Cfg.Source.URL, f.Cfg.SourceBranch, f.Cfg.Path)
		p, failure := r.Preview(ctx)
		if failure != nil {
			env.Findings(failure.Diagnostics, failure.Files())
			return failure
		}
		env.Findings(p.Built.Warnings, p.Files)
		return planview.Print(env, planview.Input{Want: p.Built.Tree, Have: p.Published, Source: p.Built.Source, Output: "text", FailOn: []string{planview.FailAny}})
	case f.Once:
		out, failure := r.Once(ctx)
		if failure != nil {
			return reconcilerflags.FailureError(env, failure)
		}
		topofile.WarnUncommitted(ctx, env, f.Cfg.Source.URL, f.Cfg.SourceBranch, f.Cfg.Path)
		return printOutcome(env, out)
	}
	listener, err := net.Listen("tcp", f.Listen)
	if err != nil {
		return fmt.Errorf("%w (pass another address with --listen)", err)
	}
	return r.Run(ctx, listener)
}

func printOutcome(env *cli.Env, out *reconciler.Outcome) error {
	text := "nothing to publish: the publish branch is at " + cmp.Or(out.Published, "no commit")
	if out.Changed {
		text = "published " + out.Published
	}
	if out.LockNotCommitted {
		_, _ = fmt.Fprintln(env.Err, "the lock is only on the publish branch, because a work tree is on the source branch or the branch is read-only: "+
			"hawser allocate writes it, then commit it")
	}
	if out.LockedCommit != "" {
		_, _ = fmt.Fprintf(env.Err, "committed the lock to the source branch as %.12s: git pull --rebase before the next push\n", out.Source.Commit)
	}
	_, err := fmt.Fprintf(env.Out, "%s (source %s, fabric %s)\n", text, out.Source.Commit, out.Digest)
	return err
}
