// Package install has the commands that change or check clusters: bootstrap, apply, uninstall,
// preflight and benchmark.
package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/install/apply"
	"hawser.dev/hawser/install/delivery"
	"hawser.dev/hawser/internal/checkout"
	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/applytree"
	"hawser.dev/hawser/internal/cli/baseline"
	"hawser.dev/hawser/internal/cli/clusterselect"
	"hawser.dev/hawser/internal/cli/reconcilerflags"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/reconciler/gitrepo"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/render/plan"
	"hawser.dev/hawser/schema"
)

type bootstrapFlags struct {
	topofile.BuildFlags
	clusterselect.Flags
	auth                      gitrepo.Auth
	repo, branch, deliveryURL string
	delivery, keys            string
	ignoreFindings            []string
	rules                     apply.Rules
	keepCRDs, dryRun, yes     bool
	output                    string
}

// bootstrapResult is the JSON form of `hawser bootstrap`.
type bootstrapResult struct {
	Repository string            `json:"repository"`
	Branch     string            `json:"branch"`              // branch of the topology
	Commit     string            `json:"commit"`              // commit of the topology
	Publish    bool              `json:"publish"`             // whether the commit needs to be published
	Published  string            `json:"published,omitempty"` // commit of the publish branch
	Preflight  []preflighted     `json:"preflight"`
	Delivery   map[string]string `json:"delivery"` // by cluster: flux, argocd or apply
	Clusters   []apply.Result    `json:"clusters"`
	Next       []string          `json:"next,omitempty"` // commands
}

func NewBootstrapCommand(env *cli.Env) *cobra.Command {
	var f bootstrapFlags
	cmd := &cobra.Command{
		Use:   "bootstrap [FILE|DIR]",
		Short: "Install a committed topology in its clusters",
		Long: `Install a committed topology in its clusters. The command changes only missing or different
parts, so you can run it again. It

- checks the clusters, as hawser preflight does, and stops at errors;
- publishes the commit to the branch rendered, as hawser reconcile does;
- creates the namespace in each cluster, the Secret with the cluster's identity (from the
  directory keys next to the topology), and the Secret with the pinned signers;
- has Flux or Argo CD follow the branch where they run, and applies the manifests as
  hawser apply does elsewhere.

The topology must be committed, and pushed if its branch has a remote. The command prints
a plan first. On a terminal it asks; elsewhere --yes is required. The root key comes from
--root-key, HAWSER_ROOT_KEY, or keys/root.key next to the topology. At the end the command
prints the hawser reconcile command for the machine that keeps the root key.

Exit codes: 0 done, or there is nothing to do; 1 refused, errors of preflight, or a
cluster failed; 2 a cluster cannot be reached, or error. With --dry-run 1 also means:
there are changes.`,
		Example: `  hawser bootstrap --dry-run
  hawser bootstrap --context fra --context ams=admin@ams
  hawser bootstrap --with flux --follow https://git.example.org/net/clusterset.git`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runBootstrap(cmd.Context(), env, args, f) },
	}
	topofile.AddFlag(env, cmd)
	f.BuildFlags.Add(cmd)
	f.Flags.Add(cmd, false)
	reconcilerflags.AddAuthFlags(cmd, &f.auth)
	flags := cmd.Flags()
	flags.StringVar(&f.repo, "repo", "", "path or URL of the repository with the topology (default: the remote origin, else the work tree)")
	flags.StringVar(&f.branch, "branch", reconciler.DefaultPublishBranch, "branch to publish to")
	flags.StringVar(&f.deliveryURL, "follow", "", "URL of the repository for Flux and Argo CD (default: --repo)")
	flags.StringVar(&f.delivery, "with", withAuto, "delivery to the clusters: auto (the installed one), flux, argocd or apply")
	flags.StringVar(&f.keys, "with-keys", "", "directory with the clusters' identities (default: keys next to the topology)")
	flags.StringSliceVar(&f.ignoreFindings, "ignore", nil, "codes of preflight errors to ignore")
	flags.BoolVar(&f.dryRun, "dry-run", false, "print the plan, change nothing")
	flags.BoolVar(&f.yes, "yes", false, "skip the confirmation prompt")
	flags.BoolVar(&f.keepCRDs, "keep-crds", false, "do not change the definitions of ServiceExport and ServiceImport, as clusters[].crds: keep")
	flags.BoolVar(&f.rules.AllowOtherCluster, "allow-other-cluster", false, "allow the first apply to a cluster that differs from the topology")
	_ = cmd.RegisterFlagCompletionFunc("with", cobra.FixedCompletions(withValues(), cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	cli.OutputFlag(cmd, false, &f.output, "text", "json", "yaml")
	return cmd
}

// withAuto selects the delivery tool that runs in each cluster.
const withAuto = "auto"

func withValues() []string {
	return []string{withAuto, delivery.Flux, delivery.ArgoCD, delivery.Direct}
}

func runBootstrap(ctx context.Context, env *cli.Env, args []string, f bootstrapFlags) error {
	if !slices.Contains(withValues(), f.delivery) {
		return fmt.Errorf("--with %q: it is %s", f.delivery, strings.Join(withValues(), ", "))
	}
	t, set, src, clusters, err := clusterselect.LoadWithClusters(env, args, &f.Flags)
	if err != nil {
		return err
	}
	at, err := locateCommit(ctx, env, t, f)
	if err != nil {
		return err
	}
	dir := filepath.Dir(t.Path) // where hawser init writes keys
	f.keys = cmp.Or(f.keys, filepath.Join(dir, "keys"))
	if file := filepath.Join(dir, "keys", "root.key"); f.Root == "" && !cli.IsMissing(file) {
		f.Root = file
	}
	r, err := reconcilerflags.New(env, &reconcilerflags.Flags{Once: true, LogFormat: "text", Cfg: reconciler.Config{
		Source: gitrepo.Config{URL: at.url, Auth: reconcilerflags.WithEnvironment(f.auth, f.repo)}, SourceBranch: at.branch, Path: at.path, PublishBranch: f.branch,
		RootKeyFile: f.Root, RootIdentityFile: f.Identity, Image: f.Image, AllowOtherRoot: f.AllowRootKeyChange, Interval: time.Minute,
		AuthorName: reconcilerflags.AuthorName, AuthorEmail: reconcilerflags.AuthorEmail,
	}})
	if err != nil {
		return err
	}
	b := bootstrapResult{Repository: gitrepo.Redact(at.url), Branch: at.branch}
	if b.Preflight, err = preflightClusters(ctx, env, clusters, set, src); err != nil {
		return err
	}
	for i := range b.Preflight {
		r := &b.Preflight[i]
		file := filepath.Join(f.keys, r.Cluster+".identity")
		r.Findings = slices.DeleteFunc(r.Findings, func(d diag.Diagnostic) bool { return d.Code == "identity-missing" && !cli.IsMissing(file) })
	}
	if err := showPreflight(env, env.Err, b.Preflight, nil, t); err != nil {
		return err
	}
	if err := preflightError(b.Preflight, f.ignoreFindings); err != nil {
		if f.output != "text" {
			if err := env.Encode(f.output, b); err != nil {
				return err
			}
		}
		if !errors.As(err, new(cli.ExitError)) {
			return fmt.Errorf("nothing was done: %w", err)
		}
		return cli.ExitError{Msg: "nothing was done: fix the errors, or pass their codes to --ignore (hawser preflight -o json lists them)"}
	}
	stop := env.Progress("building the tree and planning the changes")
	p, failure := r.Preview(ctx)
	if failure != nil {
		stop()
		return reconcilerflags.FailureError(env, failure)
	}
	env.Findings(p.Built.Warnings, p.Files)
	b.Commit, b.Publish = p.Commit, p.Changed
	o := apply.Options{Rules: f.rules, KeepCRDs: f.keepCRDs, Log: env.LogCluster, DryRun: true}
	if o.Signers, err = topofile.Signers(set, f.BuildFlags); err == nil {
		o.Setups, b.Delivery, err = f.setups(ctx, clusters, set, at, p.Built.Tree, o.Signers)
	}
	if err != nil {
		stop()
		return err
	}
	b.Clusters = apply.All(ctx, p.Built.Tree, clusters, o)
	stop()
	switch {
	case applytree.ResultError(b.Clusters, false) != nil:
		if err := showBootstrap(env, b, f, true); err != nil {
			return err
		}
		err := applytree.ResultError(b.Clusters, false)
		if refused, ok := errors.AsType[cli.ExitError](err); ok {
			return cli.ExitError{Msg: "nothing was done: " + strings.TrimPrefix(refused.Msg, "error: ")}
		}
		return fmt.Errorf("nothing was done: %w", err)
	case f.dryRun:
		if err := showBootstrap(env, b, f, true); err != nil || b.empty() {
			return err
		}
		return cli.ExitError{}
	case b.empty():
		b.Next = f.next(b, at, clusters)
		return showBootstrap(env, b, f, false)
	}
	if !f.yes {
		if !cli.IsTerminal(env.In) {
			return errors.New("there is no terminal to ask on: --yes does what --dry-run shows")
		}
		if err := b.print(env.Err, true); err != nil {
			return err
		}
		if !env.Confirm(ctx, "Do this?") {
			return cli.ExitError{Msg: "nothing was done"}
		}
	}
	return publishAndApply(ctx, env, b, f, at, r, clusters, set, o)
}

// publishAndApply publishes the commit and applies or delivers the tree to the clusters.
func publishAndApply(ctx context.Context, env *cli.Env, b bootstrapResult, f bootstrapFlags, at gitLocation, r *reconciler.Reconciler,
	clusters []*kubeclient.Client, set *schema.ClusterSet, o apply.Options) error {
	defer env.Progress("publishing and applying")()
	out, failure := r.Once(ctx)
	if failure != nil {
		return reconcilerflags.FailureError(env, failure)
	}
	b.Published = out.Published
	store, err := baseline.OpenRepo(ctx, gitrepo.Config{URL: at.url, ExplicitURL: true, Auth: reconcilerflags.WithEnvironment(f.auth, f.repo)}, f.branch)
	if err != nil {
		return err
	}
	head, err := store.Head(f.branch)
	if err != nil {
		return err
	}
	if head.String() != out.Published { // another process published meanwhile
		return fmt.Errorf("branch %s moved from %.12s to %.12s meanwhile: run hawser bootstrap again", f.branch, out.Published, head)
	}
	tree, err := store.Tree(head)
	if err != nil {
		return err
	}
	o.Verify = (&baseline.Published{Store: store, Baseline: plan.Baseline{Commit: out.Published}}).Verify
	if o.Setups, b.Delivery, err = f.setups(ctx, clusters, set, at, tree, o.Signers); err != nil {
		return err
	}
	o.DryRun = false
	b.Clusters = apply.All(ctx, tree, clusters, o)
	b.Next = f.next(b, at, clusters)
	if err := showBootstrap(env, b, f, false); err != nil {
		return err
	}
	return applytree.ResultError(b.Clusters, false)
}

// gitLocation is the location of a committed topology.
type gitLocation struct {
	url    string // of the repository
	branch string
	path   string // directory of the topology
}

// locateCommit returns the repository and branch of the topology. It fails if the committed
// topology differs from the file.
func locateCommit(ctx context.Context, env *cli.Env, t topofile.File, f bootstrapFlags) (gitLocation, error) {
	var location gitLocation
	dir := filepath.Dir(t.Path)
	if filepath.Base(t.Path) != reconciler.TopologyFile {
		return location, fmt.Errorf("%s: rename it to %s: the reconciler publishes no other file", t.Path, reconciler.TopologyFile)
	}
	store, err := gitrepo.Open(gitrepo.Config{URL: dir})
	if err != nil {
		return location, err
	}
	err = store.Fetch(ctx)
	if errors.Is(err, gitrepo.ErrNoRepository) {
		return location, fmt.Errorf("%s is in no git repository, and only commits are published: git init && git add -A && git commit -m 'the clusterset'", t.Path)
	}
	if err != nil {
		return location, err
	}
	w, found, err := store.WorkTree()
	if err != nil {
		return location, err
	}
	if !found || w.Branch == "" {
		return location, fmt.Errorf("%s is on no branch, and only branches are published: git switch BRANCH", t.Path)
	}
	if location.path, err = topofile.RelativeToTop(w.Top, dir); err != nil {
		return location, err
	}
	changed, err := store.Uncommitted(w, w.Head, path.Join(location.path, reconciler.TopologyFile), path.Join(location.path, reconciler.LockFile))
	if err != nil {
		return location, err
	}
	if len(changed) > 0 {
		return location, cli.ExitError{Msg: fmt.Sprintf("error: %s has uncommitted changes, and only commits are published: git add -A && git commit && git push",
			strings.Join(changed, " and "))}
	}
	location.branch = w.Branch
	location.url = f.repo
	if location.url == "" {
		remotes, err := store.Remotes()
		if err != nil {
			return location, err
		}
		i := slices.IndexFunc(remotes, func(r gitrepo.Remote) bool { return r.Name == "origin" })
		switch {
		case len(remotes) == 0:
			location.url = w.Top
			return location, nil
		case i < 0 && len(remotes) > 1:
			return location, errors.New("several remotes and no remote origin: pass --repo URL")
		}
		location.url = remotes[max(i, 0)].URL
	}
	remote, err := gitrepo.Open(gitrepo.Config{URL: location.url, ExplicitURL: true, Auth: reconcilerflags.WithEnvironment(f.auth, f.repo)})
	if err != nil {
		return location, err
	}
	head, err := remote.RemoteHead(ctx, location.branch)
	if err != nil {
		return location, err
	}
	if head != w.Head {
		return location, cli.ExitError{Msg: fmt.Sprintf("error: branch %s of %s is not at the commit that is checked out here, %.12s: git push (or git pull, if it is ahead)",
			location.branch, gitrepo.Redact(location.url), w.Head)}
	}
	return location, nil
}

// setups returns the delivery of each cluster, and its objects in addition to the tree.
func (f *bootstrapFlags) setups(ctx context.Context, clusters []*kubeclient.Client, set *schema.ClusterSet, at gitLocation, tree render.Tree,
	signers []string) (map[string]apply.Setup, map[string]string, error) {
	found, errs := make([][]string, len(clusters)), make([]error, len(clusters))
	kubeclient.ForEach(clusters, func(i int, c *kubeclient.Client) { found[i], errs[i] = delivery.Detect(ctx, c) })
	if err := errors.Join(errs...); err != nil {
		return nil, nil, err
	}
	has := func(by string) bool {
		return slices.ContainsFunc(found, func(f []string) bool { return slices.Contains(f, by) })
	}
	from := delivery.Source{URL: cmp.Or(f.deliveryURL, at.url), Branch: f.branch, UserSet: f.deliveryURL != ""}
	setups, methods := map[string]apply.Setup{}, map[string]string{}
	for i, c := range clusters {
		s := apply.Setup{Recipient: set.Cluster(c.Name).Recipient}
		var err error
		if s.Identity, err = identityOf(filepath.Join(f.keys, c.Name+".identity"), s.Recipient); err != nil {
			return nil, nil, err
		}
		by := f.delivery
		switch {
		case by != withAuto:
		case slices.Contains(found[i], delivery.Flux):
			by = delivery.Flux
		case has(delivery.ArgoCD): // one Argo CD serves all clusters, whichever cluster it runs in
			by = delivery.ArgoCD
		default:
			by = delivery.Direct
		}
		switch {
		case by == delivery.Flux && !slices.Contains(found[i], by):
			return nil, nil, fmt.Errorf("--with flux: cluster %s has no GitRepositories and Kustomizations of Flux: install Flux there, or pass --with apply", c.Name)
		case by == delivery.ArgoCD && !has(by):
			return nil, nil, errors.New("--with argocd: no cluster has Applications and ApplicationSets of Argo CD: install it in one of them, or pass --with apply")
		case by == delivery.Flux:
			s.Delivery, err = delivery.FluxObjects(ctx, c, tree, from, signers)
		case by == delivery.ArgoCD && slices.Contains(found[i], by):
			s.Delivery, err = delivery.ArgoObjects(ctx, c, tree, from)
		case by == delivery.ArgoCD:
			s.Delivery = []*unstructured.Unstructured{}
		}
		if err != nil {
			return nil, nil, fmt.Errorf("cluster %s: %w", c.Name, err)
		}
		setups[c.Name], methods[c.Name] = s, by
	}
	return setups, methods, nil
}

// identityOf returns the identity of a recipient from a file. It is empty without a file: then only
// the cluster has the identity.
func identityOf(file, recipient string) (string, error) {
	raw, err := checkout.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read identity: %w", err)
	}
	recipients, err := apply.Recipients(string(raw))
	if err == nil && !slices.Contains(recipients, recipient) {
		err = errors.New("not the identity of the cluster's recipient in the topology")
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	return string(raw), nil
}

// empty reports whether nothing needs to be done.
func (b *bootstrapResult) empty() bool {
	return !b.Publish && !slices.ContainsFunc(b.Clusters, func(r apply.Result) bool { return r.Plan != nil && !r.Empty() })
}

// next returns the commands to run after a bootstrap.
func (f *bootstrapFlags) next(b bootstrapResult, at gitLocation, clusters []*kubeclient.Client) []string {
	where := " --repo " + cli.ShellQuote(b.Repository)
	access := clusterselect.ContextFlagsText(clusters, f.Access)
	if at.branch != "main" {
		where += " --ref " + cli.ShellQuote(at.branch)
	}
	reconcile := "hawser reconcile" + where
	if at.path != "" && at.path != "." {
		reconcile += " --path " + cli.ShellQuote(at.path)
	}
	out := []string{reconcile + " --root-key " + cli.ShellQuote(f.Root)}
	if slices.ContainsFunc(clusters, func(c *kubeclient.Client) bool { return b.Delivery[c.Name] == delivery.Direct }) {
		out = append(out, "hawser apply"+where+access)
	}
	return append(out, "hawser status --wait"+access)
}

func showBootstrap(env *cli.Env, b bootstrapResult, f bootstrapFlags, plan bool) error {
	if f.output != "text" {
		return env.Encode(f.output, b)
	}
	return b.print(env.Out, plan)
}

// print writes the result; with plan it writes the plan.
func (b *bootstrapResult) print(w io.Writer, plan bool) error {
	state := "is published"
	switch {
	case b.Publish && plan:
		state = "to be published"
	case b.Publish:
		state = fmt.Sprintf("published as %.12s", b.Published)
	}
	_, err := fmt.Fprintf(w, "commit %.12s of branch %s of %s: %s\n", b.Commit, b.Branch, b.Repository, state)
	methods := map[string]string{delivery.Flux: "Flux", delivery.ArgoCD: "Argo CD", delivery.Direct: "hawser apply"}
	for _, r := range b.Clusters {
		if err == nil {
			_, err = fmt.Fprintf(w, "cluster %s gets it by %s\n", r.Cluster, methods[b.Delivery[r.Cluster]])
		}
	}
	if err == nil {
		err = apply.Print(w, b.Clusters, plan)
	}
	if err == nil && len(b.Next) > 0 {
		_, err = fmt.Fprintf(w, "Next steps (run the first one on the machine that keeps the root key):\n  %s\n", strings.Join(b.Next, "\n  "))
	}
	return err
}
