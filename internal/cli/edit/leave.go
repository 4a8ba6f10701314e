package edit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"hawser.dev/hawser/discover"
	"hawser.dev/hawser/internal/checkout"
	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/baseline"
	"hawser.dev/hawser/internal/cli/clusterselect"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/load"
)

type leaveFlags struct {
	dryRun bool
	gc     bool
	output string
}

// leaveResult is the JSON form of `hawser leave`.
type leaveResult struct {
	Cluster string   `json:"cluster"`
	File    string   `json:"file"`
	Removed []string `json:"removed"` // paths in the topology
	Next    []string `json:"next"`    // commands, in order
}

func NewLeaveCommand(env *cli.Env) *cobra.Command {
	var f leaveFlags
	cmd := &cobra.Command{
		Use:   "leave CLUSTER",
		Short: "Remove a cluster from the topology",
		Long: `Take a cluster out of the topology: its entry, the links that it is an end of, its
name in the clusters of exports, and exports that it alone offers. Comments of what goes go
with it; nothing else in the file changes. Its addresses stay reserved in the lock, so that
nobody gets them while others may still send there; --gc frees them.

Nothing is done in any cluster. What is left to do is printed in its order: the others let
go of the cluster first, then hawser uninstall takes Hawser out of it.

Exit codes: 0 done, 1 findings in the topology as it is or would be, or with --dry-run: this
would change; 2 error.`,
		Example: `  hawser leave sin --dry-run
  hawser leave sin`,
		ValidArgsFunction: cli.FirstArgument(cli.Complete(clusterselect.CompletionNames)),
		Args:              cobra.ExactArgs(1),
		RunE:              func(cmd *cobra.Command, args []string) error { return runLeave(cmd.Context(), env, args[0], f) },
	}
	topofile.AddFileFlag(cmd, false, &env.File, "topology: a file or a folder")
	flags := cmd.Flags()
	flags.BoolVar(&f.dryRun, "dry-run", false, "change nothing, print what would change in the files")
	flags.BoolVar(&f.gc, "gc", false, "free its addresses in the lock")
	cli.OutputFlag(cmd, false, &f.output, "text", "json", "yaml")
	return cmd
}

func runLeave(ctx context.Context, env *cli.Env, cluster string, f leaveFlags) error {
	t, err := topofile.Read(env, nil)
	if err != nil {
		return err
	}
	if t.LockPath == "" {
		return errors.New("the topology came from stdin, and there is no file to change: name one")
	}
	set, _, list := load.Topology(t.Path, t.Raw) // warnings are printed for the result
	if list.HasErrors() {
		return cli.FindingsError{List: list, Files: t.Texts()}
	}
	var others []string
	for _, c := range set.Spec.Clusters {
		if c.Name != cluster {
			others = append(others, c.Name)
		}
	}
	if set.Cluster(cluster) == nil {
		return fmt.Errorf("there is no cluster %s in %s, only %s", cluster, t.Path, strings.Join(others, ", "))
	}
	after := t
	out := leaveResult{Cluster: cluster, File: t.Path}
	if after.Raw, out.Removed, err = discover.Remove(t.Raw, cluster); err != nil {
		return fmt.Errorf("take cluster %s out of %s: %w", cluster, t.Path, err)
	}
	now, _, list := load.Topology(after.Path, after.Raw)
	if list.HasErrors() {
		env.Findings(list, after.Texts())
		return cli.ExitError{Msg: fmt.Sprintf("error: nothing was changed: without cluster %s the topology has errors (line numbers are those that it would have)", cluster)}
	}
	if !sameWithout(set, now, cluster) {
		return fmt.Errorf("take cluster %s out of %s: something else would change with it: take it out by hand", cluster, t.Path)
	}
	env.Findings(list, after.Texts())
	lockFlags := baseline.LockOptions{Branch: reconciler.DefaultPublishBranch, Gc: f.gc}
	have, err := baseline.ReadLock(ctx, env, after, lockFlags)
	if err != nil {
		return err
	}
	lock, err := baseline.NewLock(env, after, now, have, lockFlags)
	if err != nil {
		return err
	}
	if f.dryRun {
		text := append(diff.Diff(t.Path, t.Raw, t.Path, after.Raw), diff.Diff(t.LockPath, t.Lock, t.LockPath, lock)...)
		if _, err := env.Out.Write(text); err != nil {
			return err
		}
		return cli.ExitError{}
	}
	if err := checkout.Rewrite(after.Path, after.Raw); err != nil {
		return err
	}
	if !bytes.Equal(lock, t.Lock) {
		if err := checkout.Replace(after.LockPath, lock, 0o644); err != nil {
			return err
		}
	}
	file := ""
	if dir := filepath.Dir(t.Path); dir != "." {
		file = " -f " + cli.ShellQuote(t.Path)
	}
	out.Next = []string{
		"hawser diff" + file,
		"git add -A && git commit -m " + cli.ShellQuote("cluster "+cluster+" leaves") + " && git push",
		"hawser status --wait" + file,
		"hawser uninstall " + cluster + file,
	}
	if f.output != "text" {
		return env.Encode(f.output, out)
	}
	kept := "its addresses stay reserved in the lock: hawser allocate --gc frees them"
	if f.gc {
		kept = "its addresses are free for others"
	}
	_, err = fmt.Fprintf(env.Out, "took cluster %s out of %s: %s\n%s\nwhat is left to do, in this order (without Flux or Argo CD hawser apply comes before hawser status):\n  %s\n",
		cluster, t.Path, strings.Join(out.Removed, ", "), kept, strings.Join(out.Next, "\n  "))
	return err
}

// sameWithout reports whether a topology is another one without a cluster, and without
// what stood there for it.
func sameWithout(before, after *schema.ClusterSet, cluster string) bool {
	if before.Metadata != after.Metadata || len(after.Spec.Clusters) != len(before.Spec.Clusters)-1 {
		return false
	}
	for _, c := range after.Spec.Clusters {
		if was := before.Cluster(c.Name); c.Name == cluster || was == nil || !reflect.DeepEqual(*was, c) {
			return false
		}
	}
	for _, e := range before.Spec.Exports {
		stays := !slices.Equal(e.Clusters, []string{cluster})
		if stays != slices.ContainsFunc(after.Spec.Exports, func(o schema.Export) bool { return o.ID() == e.ID() }) {
			return false
		}
	}
	return true
}
