package edit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
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
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/load"
)

type joinFlags struct {
	access    kubeclient.Kubeconfig
	keys      string
	recipient string
	secrets   bool
	dryRun    bool
}

func NewJoinCommand(env *cli.Env) *cobra.Command {
	var f joinFlags
	cmd := &cobra.Command{
		Use:   "join --context CONTEXT [FILE|DIR]",
		Short: "Add a cluster to the topology, with discovered values",
		Long: `Add a cluster to the topology behind the clusters that it has, with what hawser
discover finds there and the source of each value. Nothing else in the file changes.
An identity is made for the cluster (in the folder keys beside the topology unless
--with-keys names another), unless --recipient names the one of an identity that the
cluster has, and the lock is written. A cluster that joins again after hawser leave keeps
its identity with --recipient. What could not be found is marked TODO(hawser).
Nothing in the cluster changes, except with --secrets.

Exit codes: 0 done, 1 findings in the topology, or marked lines have to be completed,
or with --dry-run: this would change; 2 error.`,
		Example: `  hawser join --context sin --dry-run
  hawser join --context sin=admin@sin`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runJoin(cmd.Context(), env, args, f) },
	}
	clusterselect.AddContextFlags(cmd, &f.access)
	flags := cmd.Flags()
	flags.StringVar(&f.keys, "with-keys", "", "folder in which to make the cluster's identity (default: keys beside "+
		"the topology)")
	flags.StringVar(&f.recipient, "recipient", "", "recipient of an identity that the cluster has already (age1...)")
	flags.BoolVar(&f.secrets, "secrets", false, "create the Secret with the identity in the cluster, after asking")
	flags.BoolVar(&f.dryRun, "dry-run", false, "change nothing, print what would change in the files")
	cmd.MarkFlagsMutuallyExclusive("recipient", "with-keys")
	cmd.MarkFlagsMutuallyExclusive("recipient", "secrets")
	return cmd
}

// joining is a topology with one more cluster.
type joining struct {
	before, after topofile.File
	found         discover.Cluster
	identity      string // text of a new one; empty: the cluster has one
	recipient     string
	lock          []byte // nil: lines have to be completed first
}

func runJoin(ctx context.Context, env *cli.Env, args []string, f joinFlags) error {
	if len(f.access.Contexts) != 1 {
		return errors.New("name the one cluster that joins with --context")
	}
	t, err := topofile.Read(env, args)
	if err != nil {
		return err
	}
	if t.LockPath == "" {
		return errors.New("the topology came from stdin, and there is no file to change: name one")
	}
	set, _, wrong := load.Topology(t.Path, t.Raw) // warnings are printed for the result
	if wrong.HasErrors() {
		return cli.FindingsError{List: wrong, Files: t.Texts()}
	}
	clusters, err := f.access.FromContexts()
	if err != nil {
		return err
	}
	name := clusters[0].Name
	for _, c := range set.Spec.Clusters {
		if c.Name == name {
			return fmt.Errorf("cluster %s is in %s already: name the new one with --context NAME=%s", name, t.Path,
				clusters[0].Context)
		}
	}
	if f.keys == "" {
		f.keys = filepath.Join(filepath.Dir(t.Path), "keys")
	}
	if f.recipient == "" {
		if err := f.checkNewIdentity(clusters[0]); err != nil {
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
	j := joining{before: t, found: list[0], recipient: f.recipient}
	if j.recipient == "" {
		if j.identity, j.recipient, err = keyfile.NewIdentity(false); err != nil {
			return err
		}
	}
	if err := insert(ctx, env, set, &j); err != nil {
		return err
	}
	if f.dryRun {
		env.Findings(j.found.Findings, nil)
		text := diff.Diff(j.before.Path, j.before.Raw, j.after.Path, j.after.Raw)
		if j.identity != "" {
			text = bytes.ReplaceAll(text, []byte(j.recipient), []byte("(known later)"))
		}
		if j.lock != nil {
			text = append(text, diff.Diff(j.before.LockPath, j.before.Lock, j.before.LockPath, j.lock)...)
		}
		if _, err := env.Out.Write(text); err != nil {
			return err
		}
		return cli.ExitError{}
	}
	if err := showFound(env, list); err != nil {
		return err
	}
	if err := writeJoin(env, &j, f.keys); err != nil {
		return err
	}
	if f.secrets {
		if err := createIdentitySecrets(ctx, env, clusters, f.keys); err != nil {
			return err
		}
	}
	if j.lock == nil {
		return firstLock(ctx, env, j.after) // it says what to complete
	}
	return nil
}

// checkNewIdentity returns an error with the command that reuses the cluster's identity if its file
// exists, as it does after hawser leave.
func (f joinFlags) checkNewIdentity(c *kubeclient.Client) error {
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
	where := c.Name
	if c.Context != c.Name {
		where += "=" + c.Context
	}
	return fmt.Errorf("%s exists already: join with this identity by hawser join --context %s --recipient %s, or move it away for a new one",
		file, cli.ShellQuote(where), recipients[0])
}

// insert puts the cluster into the topology's text. The result is loaded: all that was
// there has to be there still, and what is wrong has to be on lines that are marked.
func insert(ctx context.Context, env *cli.Env, set *schema.ClusterSet, j *joining) error {
	j.after = j.before
	var err error
	if j.after.Raw, err = discover.Insert(j.before.Raw, j.found.ClusterYAML(j.recipient)); err != nil {
		return fmt.Errorf("add cluster %s to %s: %w", j.found.Name, j.before.Path, err)
	}
	now, _, list := load.Topology(j.after.Path, j.after.Raw)
	lines := strings.Split(string(j.after.Raw), "\n")
	for _, d := range list {
		marked := d.Pos.IsValid() && d.Pos.Line <= len(lines) && strings.Contains(lines[d.Pos.Line-1], discover.Todo)
		if d.Severity == diag.Error && !marked {
			env.Findings(list, j.after.Texts())
			return cli.ExitError{Msg: fmt.Sprintf("error: nothing was changed: with cluster %s the topology has errors (line numbers "+
				"are those that it would have)", j.found.Name)}
		}
	}
	if list.HasErrors() {
		return nil
	}
	n := len(set.Spec.Clusters)
	if len(now.Spec.Clusters) != n+1 || !reflect.DeepEqual(now.Spec.Clusters[:n], set.Spec.Clusters) ||
		now.Spec.Clusters[n].Name != j.found.Name ||
		!reflect.DeepEqual(now.Spec.Exports, set.Spec.Exports) || now.Metadata != set.Metadata {
		return fmt.Errorf("add cluster %s to %s: the way in which its clusters are written leaves no room for another: "+
			"write them as a list of lines",
			j.found.Name, j.before.Path)
	}
	env.Findings(list, j.after.Texts())
	f := baseline.LockOptions{Branch: reconciler.DefaultPublishBranch}
	have, err := baseline.ReadLock(ctx, env, j.after, f)
	if err != nil {
		return err
	}
	j.lock, err = baseline.NewLock(env, j.after, now, have, f)
	return err
}

func writeJoin(env *cli.Env, j *joining, keys string) error {
	if j.identity != "" {
		if err := checkout.MakeFolder(keys, 0o700); err != nil {
			return err
		}
		if err := cli.WriteNew(filepath.Join(keys, j.found.Name+".identity"), []byte(j.identity), 0o600); err != nil {
			return err
		}
		if err := ignoreKeys(filepath.Dir(j.before.Path), keys); err != nil {
			return err
		}
	}
	if err := checkout.Rewrite(j.after.Path, j.after.Raw); err != nil {
		return err
	}
	if j.lock != nil {
		if err := checkout.Replace(j.after.LockPath, j.lock, 0o644); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(env.Out, "added cluster %s to %s: hawser diff shows what that changes for all clusters; "+
		"committed and pushed, hawser bootstrap brings it there\n", j.found.Name, j.after.Path)
	return err
}
