package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/reconciler/gitrepo"
)

type reconcileFlags struct {
	cfg         reconciler.Config
	publishRepo string
	listen      string
	once        bool
	dryRun      bool
	logFormat   string
	verbose     bool
}

func newReconcileCommand(a *app) *cobra.Command {
	f := &reconcileFlags{}
	cmd := &cobra.Command{
		Use:   "reconcile",
		Short: "Publish the topology in git, commit by commit",
		Long: `Watch the topology in a git repository and publish what each commit asks for:
one commit a change, on a branch of the same or another repository. A commit
that cannot be carried through changes nothing; the error names the place.

Addresses that the committed lock lacks are allocated and the lock is committed
to the source branch. Where that cannot be (a work tree is on the branch, or
the repository may not be written) the lock on the publish branch keeps them,
and hawser allocate takes them over from there. --write-lock=false refuses such
a commit instead.

A commit that removes more than half of the clusters is refused, as that is
nearly always a mistake and takes their tunnels down: set spec.decommission, or
pass --allow-mass-delete.

With --state the reconciler remembers what it published last, and refuses branches
that were put back (trust.commits). --accept-commit is the way out, and pins the
first commit of a start without a state.

Credentials: --git-token-file or HAWSER_GIT_TOKEN for HTTPS, --ssh-key for SSH.
They are sent to one host: HAWSER_GIT_HOST, or that of --repo.

Exit codes: with --once 0 in force, 1 the commit was refused, 2 it could not be
carried through; with --dry-run 0 no change, 1 changes, 2 error.`,
		Example: `  hawser reconcile --repo https://git.example.com/infra.git --root-key root.key --cache /var/cache/hawser
  hawser reconcile --repo git@git.example.com:infra.git --ssh-key deploy.key --root-key root.key --once
  hawser reconcile --root-key root.key --dry-run`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.reconcile(cmd.Context(), f) },
	}
	flags, c := cmd.Flags(), &f.cfg
	flags.StringVar(&c.Source.URL, "repo", ".", "path or URL of the repository with the topology")
	flags.StringVar(&c.SourceBranch, "ref", "main", "branch with the topology")
	flags.StringVar(&c.Path, "path", "", "folder of clusterset.yaml in the repository")
	flags.StringVar(&f.publishRepo, "publish-repo", "", "path or URL of the repository to publish to (default: the same)")
	flags.StringVar(&c.PublishBranch, "publish-branch", reconciler.DefaultPublishBranch, "branch to publish to")
	flags.StringVar(&c.RootKeyFile, "root-key", os.Getenv("HAWSER_ROOT_KEY"), rootKeyHelp)
	flags.StringVar(&c.RootIdentityFile, "root-identity", "", "age identity that opens an encrypted root key")
	flags.StringVar(&c.OpenPGPKeyFile, "sign-openpgp", "", "armored OpenPGP private key without passphrase that signs published commits, for Argo CD")
	flags.StringVar(&c.Image, "image", "", imageHelp)
	flags.BoolVar(&c.WriteLock, "write-lock", true, writeLockHelp)
	flags.BoolVar(&c.AllowMassDelete, "allow-mass-delete", false, massDeleteHelp)
	flags.StringVar(&c.StateFile, "state", "", "file that keeps the last published commit over restarts (default: in memory)")
	flags.StringVar(&c.AcceptCommit, "accept-commit", "", "accept this source commit (its whole hash) once, signed or not, and the current publish branch")
	flags.BoolVar(&c.AllowOtherRoot, "allow-other-root", false, allowOtherRoot)
	flags.StringVar(&c.Source.Cache, "cache", "", "folder for the mirror of a remote repository (default: in memory)")
	authFlags(cmd, &c.Source.Auth)
	flags.StringVar(&c.AuthorName, "author-name", authorName, "author of the commits")
	flags.StringVar(&c.AuthorEmail, "author-email", authorEmail, "author's address of the commits")
	flags.DurationVar(&c.Interval, "interval", 30*time.Second, "time between two looks at the repositories")
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8473", "address of /healthz, /readyz, /metrics, /status and /webhook")
	flags.StringVar(&c.WebhookSecretFile, "webhook-secret", "", "file of the secret of webhooks; without it they are off")
	flags.BoolVar(&f.once, "once", false, "make one pass and end")
	flags.BoolVar(&f.dryRun, "dry-run", false, "print the plan of the newest commit, change nothing and end")
	flags.StringVar(&f.logFormat, "log-format", "text", "text or json")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "log more")
	return cmd
}

// Who makes the commits that nobody else is said to make.
const (
	authorName  = "hawser"
	authorEmail = "reconciler@hawser.dev"
)

// withEnvironment returns the login of the flags, with the passwords and the host of the
// environment.
func withEnvironment(flags gitrepo.Auth, addresses ...string) gitrepo.Auth {
	env := gitAuthFor(addresses...)
	flags.Host, flags.Password, flags.SSHKeyPassword = env.Host, env.Password, env.SSHKeyPassword
	return flags
}

// authFlags are for commands that write to repositories.
func authFlags(cmd *cobra.Command, into *gitrepo.Auth) {
	flags := cmd.Flags()
	flags.StringVar(&into.Username, "git-username", gitAuth().Username, "user name for HTTP")
	flags.StringVar(&into.PasswordFile, "git-token-file", "", "file of the password or token for HTTP")
	flags.StringVar(&into.SSHKeyFile, "ssh-key", "", "private key file for SSH (default: the SSH agent)")
	flags.StringVar(&into.SSHKnownHosts, "ssh-known-hosts", "", "known_hosts file (default: the user's and the system's)")
}

func (a *app) reconcile(ctx context.Context, f *reconcileFlags) error {
	f.cfg.Source.Auth = withEnvironment(f.cfg.Source.Auth, f.cfg.Source.URL, f.publishRepo)
	if f.once || f.dryRun {
		defer a.progress("reading repository " + gitrepo.Redact(f.cfg.Source.URL))()
	}
	r, err := a.newReconciler(f)
	if err != nil {
		return err
	}
	switch {
	case f.dryRun:
		a.warnUncommitted(ctx, f.cfg.Source.URL, f.cfg.SourceBranch, f.cfg.Path)
		p, failure := r.Preview(ctx)
		if failure != nil {
			a.printFindings(failure.Diagnostics, failure.Files())
			return failure
		}
		a.printFindings(p.Built.Warnings, p.Files)
		return a.printPlan(planInput{want: p.Built.Tree, have: p.Published, source: p.Built.Source, output: "text", failOn: []string{failAny}})
	case f.once:
		out, failure := r.Once(ctx)
		if failure != nil {
			return a.failureError(failure)
		}
		a.warnUncommitted(ctx, f.cfg.Source.URL, f.cfg.SourceBranch, f.cfg.Path)
		return a.printOutcome(out)
	}
	listener, err := net.Listen("tcp", f.listen)
	if err != nil {
		return fmt.Errorf("%w (choose another address with --listen)", err)
	}
	return r.Run(ctx, listener)
}

func (a *app) newReconciler(f *reconcileFlags) (*reconciler.Reconciler, error) {
	c := f.cfg
	if c.RootKeyFile == "" {
		return nil, errNoRootKey()
	}
	if c.Interval <= 0 {
		return nil, fmt.Errorf("--interval %s: it must be more than 0", c.Interval)
	}
	level := slog.LevelInfo
	if f.verbose {
		level = slog.LevelDebug
	}
	var handler slog.Handler = slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: level})
	switch f.logFormat {
	case "json":
		handler = slog.NewJSONHandler(a.err, &slog.HandlerOptions{Level: level})
	case "text":
	default:
		return nil, fmt.Errorf("--log-format %q: it is text or json", f.logFormat)
	}
	c.Publish = gitrepo.Config{URL: f.publishRepo, Auth: c.Source.Auth}
	if c.Source.Cache != "" {
		c.Publish.Cache = c.Source.Cache + "-publish"
	}
	c.Version, c.Log, c.Now = version, slog.New(handler), time.Now
	if f.once || f.dryRun {
		c.Log = slog.New(slog.DiscardHandler) // the command says it itself
	}
	return reconciler.New(c)
}

// failureError turns a failed pass into exit code 1 or 2.
func (a *app) failureError(f *reconciler.Failure) error {
	if len(f.Diagnostics) > 0 {
		return found{list: f.Diagnostics, sources: f.Files()}
	}
	if f.Refused() {
		return answer{"error: " + f.Message}
	}
	return f
}

func (a *app) printOutcome(out *reconciler.Outcome) error {
	text := "nothing to publish: " + cmp.Or(out.Published, "no commit") + " is in force"
	if out.Changed {
		text = "published " + out.Published
	}
	if out.LockNotCommitted {
		_, _ = fmt.Fprintln(a.err, "the lock stays on the publish branch: a work tree is on the source branch, or it may not be written; "+
			"hawser allocate takes it over")
	}
	_, err := fmt.Fprintf(a.out, "%s (source %s, fabric %s)\n", text, out.Source.Commit, out.Digest)
	return err
}
