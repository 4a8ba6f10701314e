package edit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/checkout"
	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/baseline"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/reconciler"
)

func NewAllocateCommand(env *cli.Env) *cobra.Command {
	f := baseline.LockOptions{Flag: "--publish-branch"}
	cmd := &cobra.Command{
		Use:   "allocate [FILE|DIR]",
		Short: "Allocate missing addresses and update the lock",
		Long: `Allocate addresses for everything in the topology that has none, and write them to
clusterset.lock.yaml in the same directory. Published addresses never move: the publish
branch of the repository of the file, or of --repo, overrides the lock. So the command
repairs the lock after a merge of branches that both allocated. If the clone lacks the
newest publish branch, it is fetched from the remote; if that fails, nothing is written.
--publish-branch none ignores the branch.

--move moves the addresses of one line of the lock, such as clusters[g1].blocks or
exports[shop/web].vips. The old addresses stay reserved until --gc.

Exit codes: 0 done, 1 errors in the topology or, with --check, a stale lock, 2 error.`,
		Example: `  hawser allocate
  hawser allocate --check
  hawser allocate --gc
  hawser allocate --move 'exports[shop/web].vips'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runAllocate(cmd.Context(), env, args, f) },
	}
	topofile.AddFlag(env, cmd)
	cmd.Flags().BoolVar(&f.Check, "check", false, "only report whether the lock is current")
	cmd.Flags().BoolVar(&f.Gc, "gc", false, "release the addresses of removed clusters and exports")
	cmd.Flags().StringArrayVar(&f.Move, "move", nil, "line of the lock whose addresses are to change; repeatable")
	cmd.Flags().StringVar(&f.Branch, "publish-branch", reconciler.DefaultPublishBranch,
		"branch that the reconciler writes, or none")
	cmd.Flags().StringVar(&f.Repo, "repo", "",
		"path or URL of the repository with that branch (default: the repository of the file)")
	cmd.MarkFlagsMutuallyExclusive("check", "gc")
	cmd.MarkFlagsMutuallyExclusive("check", "move")
	return cmd
}

func runAllocate(ctx context.Context, env *cli.Env, args []string, f baseline.LockOptions) error {
	t, err := topofile.Read(env, args)
	if err != nil {
		return err
	}
	if t.LockPath == "" {
		return errors.New("the topology came from stdin, so there is no place for its lock: name a file")
	}
	set, _, err := topofile.Load(env, t)
	if err != nil {
		return err
	}
	have, err := baseline.ReadLock(ctx, env, t, f)
	if err != nil {
		return err
	}
	if f.Check {
		out, list := reconciler.Allocate(reconciler.AllocateInput{
			Set: set, File: t.LockPath, Committed: t.Lock, Published: have.Raw, PublishedUnknown: have.Outside,
		})
		if !list.HasErrors() {
			list = out.Stale
		}
		for i := range list {
			if list[i].Pos == (diag.Pos{}) {
				list[i].Pos.File = t.LockPath
			}
		}
		if list.HasErrors() {
			return cli.FindingsError{List: list, Files: t.Texts()}
		}
		return nil
	}
	raw, err := baseline.NewLock(env, t, set, have, f)
	if err != nil {
		return err
	}
	if bytes.Equal(raw, t.Lock) {
		topofile.WarnUncommitted(ctx, env, filepath.Dir(t.Path), "", "")
		_, err := fmt.Fprintf(env.Err, "%s is current\n", t.LockPath)
		return err
	}
	if err := checkout.Replace(t.LockPath, raw, 0o644); err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.Err, "wrote %s: commit it with %s\n", t.LockPath, filepath.Base(t.Path))
	return err
}
