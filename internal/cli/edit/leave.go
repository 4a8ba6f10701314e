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
	Next    []string `json:"next"`    // commands in order; a comment states when a command is needed
}

func NewLeaveCommand(env *cli.Env) *cobra.Command {
	var f leaveFlags
	cmd := &cobra.Command{
		Use:   "leave CLUSTER",
		Short: "Remove a cluster from the topology",
		Long: `Remove a cluster from the topology: its entry, its links, its name in the clusters of
exports, and exports of this cluster alone, with their comments. The rest of the file does
not change. The lock keeps its addresses reserved, because other clusters may still send to
them; --gc releases them.

Nothing changes in any cluster. The command prints the next steps: other clusters stop
using the cluster first, then hawser uninstall removes Hawser from it.

Exit codes: 0 done; 1 the topology has or would have errors, or with --dry-run: the files
would change; 2 error.`,
		Example: `  hawser leave sin --dry-run
  hawser leave sin`,
		ValidArgsFunction: cli.FirstArgument(cli.Complete(clusterselect.CompletionNames)),
		Args:              cobra.ExactArgs(1),
		RunE:              func(cmd *cobra.Command, args []string) error { return runLeave(cmd.Context(), env, args[0], f) },
	}
	topofile.AddFileFlag(cmd, false, &env.File, "topology: a file or a directory")
	flags := cmd.Flags()
	flags.BoolVar(&f.dryRun, "dry-run", false, "change nothing, print what would change in the files")
	flags.BoolVar(&f.gc, "gc", false, "release its addresses in the lock")
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
		return fmt.Errorf("remove cluster %s from %s: other parts would change with it: edit the file by hand", cluster, t.Path)
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
	file, dir := "", ""
	if parent := filepath.Dir(t.Path); parent != "." {
		file, dir = " -f "+cli.ShellQuote(t.Path), " "+cli.ShellQuote(parent)
	}
	out.Next = []string{
		"hawser diff" + file,
		"git add -A && git commit -m " + cli.ShellQuote("cluster "+cluster+" leaves") + " && git push",
		"hawser bootstrap" + dir + "  # unless a reconciler runs: publish and deliver the commit",
		"hawser apply --repo URL  # if a reconciler runs without Flux and Argo CD",
		"hawser status --wait" + file,
		"hawser uninstall " + cluster + file,
	}
	if f.output != "text" {
		return env.Encode(f.output, out)
	}
	lockText := "the lock keeps its addresses reserved: hawser allocate --gc releases them"
	if f.gc {
		lockText = "the lock releases its addresses"
	}
	_, err = fmt.Fprintf(env.Out, "removed cluster %s from %s: %s\n%s\nNext steps:\n  %s\n",
		cluster, t.Path, strings.Join(out.Removed, ", "), lockText, strings.Join(out.Next, "\n  "))
	return err
}

// sameWithout reports whether after equals before without the cluster and everything that belongs
// to it.
func sameWithout(before, after *schema.ClusterSet, cluster string) bool {
	if before.Metadata != after.Metadata || len(after.Spec.Clusters) != len(before.Spec.Clusters)-1 {
		return false
	}
	for _, c := range after.Spec.Clusters {
		if previous := before.Cluster(c.Name); c.Name == cluster || previous == nil || !reflect.DeepEqual(*previous, c) {
			return false
		}
	}
	for _, e := range before.Spec.Exports {
		remains := !slices.Equal(e.Clusters, []string{cluster})
		if remains != slices.ContainsFunc(after.Spec.Exports, func(o schema.Export) bool { return o.ID() == e.ID() }) {
			return false
		}
	}
	return true
}
