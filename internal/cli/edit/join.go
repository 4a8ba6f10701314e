package edit

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"hawser.dev/hawser/discover"
	"hawser.dev/hawser/install/apply"
	"hawser.dev/hawser/internal/checkout"
	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/baseline"
	"hawser.dev/hawser/internal/cli/clusterselect"
	"hawser.dev/hawser/internal/cli/keyfile"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/load"
)

type joinFlags struct {
	access     kubeclient.Kubeconfig
	keys       string
	recipient  string
	secrets    bool
	dryRun     bool
	request    bool
	clusterset string
	out        string
	from       string
}

func NewJoinCommand(env *cli.Env) *cobra.Command {
	var f joinFlags
	cmd := &cobra.Command{
		Use:   "join {--context CONTEXT|--from REQUEST} [FILE|DIR]",
		Short: "Add a cluster to the topology",
		Long: `Add a cluster behind the other clusters of the topology. The rest of the file does
not change. The command writes the lock too, and prints the plan. Nothing changes in
any cluster before the commit is published.

With --context the values are those that hawser discover finds, each with its source.
The command creates an identity for the cluster, in the directory keys next to the topology
or in the directory of --with-keys. A cluster that joins again after hawser leave keeps its
identity with --recipient. Missing values are marked TODO(hawser). Nothing in the
cluster changes, except with --secrets.

If you have no access to the cluster, its owner runs hawser join --request, which
needs no topology. It discovers the same values, creates the identity, and prints a
request without any secret. With --secrets the identity goes to the Secret of the
cluster, otherwise to a file. --from adds the cluster of a request, or - for stdin.
The text of a request is not trusted: it has at most 64 KiB and only the fields that
discovery finds, and join writes a new entry from their values.

Exit codes: 0 done; 1 the topology or the request has errors, marked lines need a
value, or with --dry-run: the files would change; 2 error, or the cluster could not
be read.`,
		Example: `  hawser join --context sin --dry-run
  hawser join --context sin=admin@sin
  hawser join --request --clusterset demo --context sin --secrets --out sin.yaml
  hawser join --from sin.yaml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case f.request:
				return runRequest(cmd.Context(), env, args, f)
			case f.clusterset != "":
				return errors.New("--clusterset needs --request: the topology has its own name")
			case f.out != "":
				return errors.New("--out needs --request")
			case f.from != "":
				return runJoinFrom(cmd.Context(), env, args, f)
			}
			return runJoin(cmd.Context(), env, args, f)
		},
	}
	clusterselect.AddContextFlags(cmd, &f.access)
	flags := cmd.Flags()
	flags.StringVar(&f.keys, "with-keys", "", "directory for the cluster's identity (default: keys next to the topology, or here)")
	flags.StringVar(&f.recipient, "recipient", "", "recipient of the identity that the cluster already has (age1...)")
	flags.BoolVar(&f.secrets, "secrets", false, "create the Secret with the identity in the cluster, after asking")
	flags.BoolVar(&f.dryRun, "dry-run", false, "change nothing, print what would change in the files")
	flags.BoolVar(&f.request, "request", false, "print a request to add the cluster of --context, for the owners of the topology")
	flags.StringVar(&f.clusterset, "clusterset", "", "with --request: name of the clusterset")
	flags.StringVar(&f.out, "out", "", "with --request: new file for the request (default: stdout)")
	flags.StringVar(&f.from, "from", "", "add the cluster of this request: a file, or - for stdin")
	cmd.MarkFlagsMutuallyExclusive("recipient", "with-keys")
	cmd.MarkFlagsMutuallyExclusive("recipient", "secrets")
	for _, other := range []string{"context", "kubeconfig", "with-keys", "recipient", "secrets", "request"} {
		cmd.MarkFlagsMutuallyExclusive("from", other)
	}
	cmd.MarkFlagsMutuallyExclusive("request", "dry-run")
	return cmd
}

// joining is a topology with one additional cluster.
type joining struct {
	before, after topofile.File
	name          string // name of the cluster
	entry         string // entry of the cluster in the topology
	identity      string // text of a new identity; empty = the cluster has one
	recipient     string
	lock          []byte // nil = marked lines need a value first
	published     bool   // whether a published tree exists to compare with
}

func runJoin(ctx context.Context, env *cli.Env, args []string, f joinFlags) error {
	if len(f.access.Contexts) != 1 {
		return errors.New("name the cluster that joins with --context, or its request with --from")
	}
	t, set, err := readForEdit(env, args)
	if err != nil {
		return err
	}
	clusters, err := f.access.FromContexts()
	if err != nil {
		return err
	}
	name := clusters[0].Name
	if set.Cluster(name) != nil {
		return fmt.Errorf("cluster %s is in %s already: name the new one with --context NAME=%s", name, t.Path,
			clusters[0].Context)
	}
	if f.keys == "" {
		f.keys = filepath.Join(filepath.Dir(t.Path), "keys")
	}
	if f.recipient == "" {
		if err := f.checkNewIdentity(clusters[0], ""); err != nil {
			return err
		}
	}
	list, errs := discoverAll(ctx, env, clusters)
	if errs[0] != nil {
		return fmt.Errorf("nothing was changed: %w", errs[0])
	}
	if f.secrets && !f.dryRun {
		if err := withoutIdentity(ctx, clusters); err != nil {
			return err
		}
	}
	j := joining{before: t, name: name, recipient: f.recipient}
	if j.recipient == "" {
		if j.identity, j.recipient, err = keyfile.NewIdentity(false); err != nil {
			return err
		}
	}
	j.entry = list[0].ClusterYAML(j.recipient)
	if err := insert(ctx, env, set, &j); err != nil {
		return err
	}
	if f.dryRun {
		env.Findings(list[0].Findings, nil)
		return j.printDiff(env)
	}
	if err := showFound(env, list); err != nil {
		return err
	}
	if j.identity != "" {
		if err := writeIdentity(f.keys, filepath.Dir(t.Path), name, j.identity); err != nil {
			return err
		}
	}
	if err := writeJoin(&j); err != nil {
		return err
	}
	if f.secrets {
		if err := createIdentitySecrets(ctx, env, clusters, f.keys); err != nil {
			return err
		}
	}
	if j.lock == nil {
		return firstLock(ctx, env, j.after) // prints what to complete
	}
	bootstrap := "hawser bootstrap" + clusterselect.ContextFlagsText(clusters, f.access)
	if dir := filepath.Dir(t.Path); dir != "." {
		bootstrap += " " + cli.ShellQuote(dir)
	}
	return finishJoin(ctx, env, &j, bootstrap)
}

// runJoinFrom adds the cluster of a join request to the topology.
func runJoinFrom(ctx context.Context, env *cli.Env, args []string, f joinFlags) error {
	t, set, err := readForEdit(env, args)
	if err != nil {
		return err
	}
	name, raw := f.from, []byte(nil)
	if f.from == "-" {
		name = "<stdin>"
		raw, err = io.ReadAll(io.LimitReader(env.In, discover.MaxRequest+1))
	} else {
		raw, err = checkout.ReadNamed(f.from)
	}
	if err != nil {
		return fmt.Errorf("read join request: %w", err)
	}
	c, list := discover.ReadRequest(name, raw, set)
	if list.HasErrors() {
		env.Findings(list, map[string][]byte{name: raw})
		return cli.ExitError{Msg: "error: nothing was changed: the join request has errors"}
	}
	j := joining{before: t, name: c.Name, entry: discover.EntryYAML(c)}
	if err := insert(ctx, env, set, &j); err != nil {
		return err
	}
	if f.dryRun {
		return j.printDiff(env)
	}
	if err := writeJoin(&j); err != nil {
		return err
	}
	signers := "hawser keys signers"
	if dir := filepath.Dir(t.Path); dir != "." {
		signers += " " + cli.ShellQuote(dir)
	}
	if os.Getenv("HAWSER_ROOT_KEY") == "" {
		signers += " --root-key FILE"
	}
	return finishJoin(ctx, env, &j, fmt.Sprintf("%[2]s --cluster %[1]s -o secret >%[1]s-signers.yaml\n"+
		"then the owner of %[1]s: kubectl --context %[1]s apply -f %[1]s-signers.yaml && hawser apply --repo URL --context %[1]s", c.Name, signers))
}

// runRequest prints a join request for a cluster, and creates its identity.
func runRequest(ctx context.Context, env *cli.Env, args []string, f joinFlags) error {
	switch {
	case len(args) > 0 || env.File != "":
		return errors.New("--request reads no topology: leave the file out")
	case len(f.access.Contexts) != 1:
		return errors.New("name the cluster that joins with --context")
	case !fabric.IsLabel(f.clusterset):
		return fmt.Errorf("--clusterset %q: write the name of the clusterset, which is metadata.name of its topology", f.clusterset)
	case f.out != "" && !cli.IsMissing(f.out):
		return fmt.Errorf("%s exists already and is not overwritten: move it away first", f.out)
	}
	clusters, err := f.access.FromContexts()
	if err != nil {
		return err
	}
	c := clusters[0]
	f.keys = cmp.Or(f.keys, "keys")
	if f.recipient == "" && !f.secrets {
		if err := f.checkNewIdentity(c, " --request --clusterset "+f.clusterset); err != nil {
			return err
		}
	}
	list, errs := discoverAll(ctx, env, clusters)
	if errs[0] != nil {
		return fmt.Errorf("nothing was written: %w", errs[0])
	}
	env.Findings(list[0].Findings, nil)
	recipient := f.recipient
	if recipient == "" {
		if recipient, err = requestIdentity(ctx, env, c, f); err != nil {
			return err
		}
	}
	text := []byte(list[0].RequestYAML(f.clusterset, recipient))
	destination := "the request"
	if f.out == "" {
		_, err = env.Out.Write(text)
	} else {
		destination = f.out
		err = cli.WriteNew(f.out, text, 0o644)
	}
	if err != nil {
		return err
	}
	if list[0].Incomplete() {
		return cli.ExitError{Msg: fmt.Sprintf("complete the lines of %s that are marked %s before you send it", destination, discover.Todo)}
	}
	_, err = fmt.Fprintf(env.Err, "next: send %s to an owner of the topology, who runs hawser join --from FILE\n", destination)
	return err
}

// requestIdentity creates the identity of a joining cluster, in its Secret or in a file, and
// returns the recipient.
func requestIdentity(ctx context.Context, env *cli.Env, c *kubeclient.Client, f joinFlags) (string, error) {
	identity, recipient, err := keyfile.NewIdentity(false)
	if err != nil {
		return "", err
	}
	if !f.secrets {
		if err := writeIdentity(f.keys, ".", c.Name, identity); err != nil {
			return "", err
		}
		file, kubectl := filepath.Join(f.keys, c.Name+".identity"), "kubectl --context "+cli.ShellQuote(c.Context)
		_, err = fmt.Fprintf(env.Err, "wrote %[1]s: create its Secret in the cluster:\n  %[2]s create namespace %[3]s\n"+
			"  %[2]s -n %[3]s create secret generic %[4]s --from-file=identity.txt=%[5]s\n",
			file, kubectl, render.Namespace, kubeclient.IdentitySecret, cli.ShellQuote(file))
		return recipient, err
	}
	if err := withoutIdentity(ctx, []*kubeclient.Client{c}); err != nil {
		return "", err
	}
	if !env.Confirm(ctx, fmt.Sprintf("create Secret %s/%s in cluster %s (context %s)?", render.Namespace, kubeclient.IdentitySecret, c.Name, c.Context)) {
		return "", cli.ExitError{Msg: "nothing was written: the Secret was not created"}
	}
	if err := c.PutIdentity(ctx, identity); err != nil {
		return "", fmt.Errorf("cluster %s: %w", c.Name, err)
	}
	_, err = fmt.Fprintf(env.Err, "created Secret %s/%s in cluster %s, recipient %s\n", render.Namespace, kubeclient.IdentitySecret, c.Name, recipient)
	return recipient, err
}

// printDiff prints the changes of the files and returns exit code 1.
func (j *joining) printDiff(env *cli.Env) error {
	text := diff.Diff(j.before.Path, j.before.Raw, j.after.Path, j.after.Raw)
	if j.identity != "" {
		text = bytes.ReplaceAll(text, []byte(j.recipient), []byte("(known after publish)"))
	}
	if j.lock != nil {
		text = append(text, diff.Diff(j.before.LockPath, j.before.Lock, j.before.LockPath, j.lock)...)
	}
	if _, err := env.Out.Write(text); err != nil {
		return err
	}
	return cli.ExitError{}
}

// checkNewIdentity returns an error if the file of the cluster's identity exists, as it does after
// hawser leave. The error has the command that reuses the identity. flags are further flags of the
// command.
func (f joinFlags) checkNewIdentity(c *kubeclient.Client, flags string) error {
	file := filepath.Join(f.keys, c.Name+".identity")
	raw, err := checkout.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var recipients []string
	if err == nil {
		recipients, err = apply.Recipients(string(raw))
	}
	if err == nil && len(recipients) != 1 {
		err = fmt.Errorf("%d identities instead of one", len(recipients))
	}
	if err != nil {
		return fmt.Errorf("%s exists already, and cannot be reused: %w: move it away first", file, err)
	}
	contextFlag := c.Name
	if c.Context != c.Name {
		contextFlag += "=" + c.Context
	}
	return fmt.Errorf("%s exists already: join with this identity by hawser join%s --context %s --recipient %s, or move it away for a new one",
		file, flags, cli.ShellQuote(contextFlag), recipients[0])
}

// insert adds the cluster to the topology's text. It loads the result and checks that nothing else
// changed, and that only marked lines have errors.
func insert(ctx context.Context, env *cli.Env, set *schema.ClusterSet, j *joining) error {
	j.after = j.before
	var err error
	if j.after.Raw, err = discover.Insert(j.before.Raw, j.entry); err != nil {
		return fmt.Errorf("add cluster %s to %s: %w", j.name, j.before.Path, err)
	}
	now, _, list := load.Topology(j.after.Path, j.after.Raw)
	lines := strings.Split(string(j.after.Raw), "\n")
	for _, d := range list {
		marked := d.Pos.IsValid() && d.Pos.Line <= len(lines) && strings.Contains(lines[d.Pos.Line-1], discover.Todo)
		if d.Severity == diag.Error && !marked {
			env.Findings(list, j.after.Texts())
			return cli.ExitError{Msg: fmt.Sprintf("error: nothing was changed: with cluster %s the topology has errors (line numbers "+
				"are those that it would have)", j.name)}
		}
	}
	if list.HasErrors() {
		return nil
	}
	n := len(set.Spec.Clusters)
	if len(now.Spec.Clusters) != n+1 || !reflect.DeepEqual(now.Spec.Clusters[:n], set.Spec.Clusters) ||
		now.Spec.Clusters[n].Name != j.name ||
		!reflect.DeepEqual(now.Spec.Exports, set.Spec.Exports) || now.Metadata != set.Metadata {
		return fmt.Errorf("add cluster %s to %s: the way in which its clusters are written leaves no room for another: "+
			"write them as a list of lines",
			j.name, j.before.Path)
	}
	env.Findings(list, j.after.Texts())
	f := baseline.LockOptions{Branch: reconciler.DefaultPublishBranch}
	have, err := baseline.ReadLock(ctx, env, j.after, f)
	if err != nil {
		return err
	}
	j.published = have.Known
	j.lock, err = baseline.NewLock(env, j.after, now, have, f)
	return err
}

// writeIdentity writes a new identity into the directory keys, and adds the directory to
// .gitignore.
func writeIdentity(keys, dir, cluster, identity string) error {
	if err := checkout.MkdirAll(keys, 0o700); err != nil {
		return err
	}
	if err := cli.WriteNew(filepath.Join(keys, cluster+".identity"), []byte(identity), 0o600); err != nil {
		return err
	}
	return ignoreKeys(dir, keys)
}

// writeJoin writes the topology, and the lock if no line needs a value.
func writeJoin(j *joining) error {
	if err := checkout.Rewrite(j.after.Path, j.after.Raw); err != nil {
		return err
	}
	if j.lock == nil {
		return nil
	}
	return checkout.Replace(j.after.LockPath, j.lock, 0o644)
}

// finishJoin prints the plan if a published tree exists, and then the next commands.
func finishJoin(ctx context.Context, env *cli.Env, j *joining, nextStep string) error {
	j.after.Lock = j.lock
	if j.published {
		if err := printPlan(ctx, env, j.after); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(env.Err, "added cluster %[1]s to %[2]s and its lock\nnext: check the entry of %[1]s, then\n      git add -A && git commit -m %[3]s && git push\n      %[4]s\n",
		j.name, j.after.Path, cli.ShellQuote("cluster "+j.name+" joins"), nextStep)
	return err
}
