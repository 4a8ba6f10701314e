package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"hawser.dev/hawser/discover"
	"hawser.dev/hawser/internal/checkout"
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

func newJoinCommand(a *app) *cobra.Command {
	var f joinFlags
	cmd := &cobra.Command{
		Use:   "join --context CONTEXT [FILE|DIR]",
		Short: "Add a cluster to the topology, with what is discovered in it",
		Long: `Add a cluster to the topology behind the clusters that it has, with what hawser
discover finds there and the source of each value. Nothing else in the file changes.
An identity is made for the cluster (in the folder keys beside the topology unless
--with-keys names another), unless --recipient names the one of an identity that the
cluster has, and the lock is written. What could not be found is marked TODO(hawser).
Nothing in the cluster changes, except with --secrets.

Exit codes: 0 done, 1 findings in the topology, or marked lines have to be completed,
or with --dry-run: this would change; 2 error.`,
		Example: `  hawser join --context sin --dry-run
  hawser join --context sin=admin@sin`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.join(cmd.Context(), args, f) },
	}
	contextFlags(cmd, &f.access)
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
	before, after topology
	found         discover.Cluster
	identity      string // text of a new one; empty: the cluster has one
	recipient     string
	lock          []byte // nil: lines have to be completed first
}

func (a *app) join(ctx context.Context, args []string, f joinFlags) error {
	if len(f.access.Contexts) != 1 {
		return errors.New("name the one cluster that joins with --context")
	}
	t, err := a.readTopology(args)
	if err != nil {
		return err
	}
	if t.lockFile == "" {
		return errors.New("the topology came from stdin, and there is no file to change: name one")
	}
	set, _, wrong := load.Topology(t.file, t.raw) // warnings are printed for the result
	if wrong.HasErrors() {
		return found{list: wrong, sources: t.files()}
	}
	clusters, err := f.access.FromContexts()
	if err != nil {
		return err
	}
	name := clusters[0].Name
	for _, c := range set.Spec.Clusters {
		if c.Name == name {
			return fmt.Errorf("cluster %s is in %s already: name the new one with --context NAME=%s", name, t.file,
				clusters[0].Context)
		}
	}
	list, errs := a.discoverAll(ctx, clusters)
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
		if j.identity, j.recipient, err = newIdentity(false); err != nil {
			return err
		}
	}
	if err := a.insert(ctx, set, &j); err != nil {
		return err
	}
	if f.dryRun {
		a.printFindings(j.found.Findings, nil)
		text := diff.Diff(j.before.file, j.before.raw, j.after.file, j.after.raw)
		if j.identity != "" {
			text = bytes.ReplaceAll(text, []byte(j.recipient), []byte("(known later)"))
		}
		if j.lock != nil {
			text = append(text, diff.Diff(j.before.lockFile, j.before.lock, j.before.lockFile, j.lock)...)
		}
		if _, err := a.out.Write(text); err != nil {
			return err
		}
		return answer{}
	}
	if err := a.showFound(list); err != nil {
		return err
	}
	if f.keys == "" {
		f.keys = filepath.Join(filepath.Dir(t.file), "keys")
	}
	if err := a.writeJoin(&j, f.keys); err != nil {
		return err
	}
	if f.secrets {
		if err := a.createIdentitySecrets(ctx, clusters, f.keys); err != nil {
			return err
		}
	}
	if j.lock == nil {
		return a.firstLock(ctx, j.after) // it says what to complete
	}
	return nil
}

// insert puts the cluster into the topology's text. The result is loaded: all that was
// there has to be there still, and what is wrong has to be on lines that are marked.
func (a *app) insert(ctx context.Context, set *schema.ClusterSet, j *joining) error {
	j.after = j.before
	var err error
	if j.after.raw, err = discover.Insert(j.before.raw, j.found.ClusterYAML(j.recipient)); err != nil {
		return fmt.Errorf("add cluster %s to %s: %w", j.found.Name, j.before.file, err)
	}
	now, _, list := load.Topology(j.after.file, j.after.raw)
	lines := strings.Split(string(j.after.raw), "\n")
	for _, d := range list {
		marked := d.Pos.IsValid() && d.Pos.Line <= len(lines) && strings.Contains(lines[d.Pos.Line-1], discover.Todo)
		if d.Severity == diag.Error && !marked {
			a.printFindings(list, j.after.files())
			return answer{fmt.Sprintf("error: nothing was changed: with cluster %s the topology has errors (line numbers "+
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
			j.found.Name, j.before.file)
	}
	a.printFindings(list, j.after.files())
	f := allocateFlags{branch: reconciler.DefaultPublishBranch}
	have, err := a.publishedLock(ctx, j.after, f)
	if err != nil {
		return err
	}
	j.lock, err = a.newLock(j.after, now, have, f)
	return err
}

func (a *app) writeJoin(j *joining, keys string) error {
	if j.identity != "" {
		if err := checkout.MakeFolder(keys, 0o700); err != nil {
			return err
		}
		if err := writeNew(filepath.Join(keys, j.found.Name+".identity"), []byte(j.identity), 0o600); err != nil {
			return err
		}
		if err := ignoreKeys(filepath.Dir(j.before.file), keys); err != nil {
			return err
		}
	}
	if err := checkout.Rewrite(j.after.file, j.after.raw); err != nil {
		return err
	}
	if j.lock != nil {
		if err := checkout.Replace(j.after.lockFile, j.lock, 0o644); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(a.out, "added cluster %s to %s: hawser diff shows what that changes for all clusters; "+
		"committed and pushed, hawser bootstrap brings it there\n", j.found.Name, j.after.file)
	return err
}
