package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/checkout"
	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/reconciler/gitrepo"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/allocate"
	"hawser.dev/hawser/schema/lockfile"
)

type allocateFlags struct {
	check, gc    bool
	move         []string
	branch, repo string
}

func newAllocateCommand(a *app) *cobra.Command {
	var f allocateFlags
	cmd := &cobra.Command{
		Use:   "allocate [FILE|DIR]",
		Short: "Allocate missing addresses and update the lock",
		Long: `Give addresses to everything in the topology that has none, and write them to
clusterset.lock.yaml beside it. What is published never moves: the publish branch
of the repository that holds the file, or of --repo, goes before the lock, so that
this settles every merge of branches that both allocated. A clone without the branch,
or behind, gets it from where it was cloned; when that cannot be asked, nothing is
written. --publish-branch none goes without.

--move moves one thing on purpose: a line of the lock, such as clusters[g1].blocks
or exports[shop/web].vips. Its old addresses stay reserved for it until --gc.

Exit codes: 0 done, 1 errors in the topology or, with --check, a stale lock, 2 error.`,
		Example: `  hawser allocate
  hawser allocate --check
  hawser allocate --gc
  hawser allocate --move 'exports[shop/web].vips'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.allocate(cmd.Context(), args, f) },
	}
	a.topologyFlag(cmd)
	cmd.Flags().BoolVar(&f.check, "check", false, "only say whether the lock is current")
	cmd.Flags().BoolVar(&f.gc, "gc", false, "release the addresses of what left the topology")
	cmd.Flags().StringArrayVar(&f.move, "move", nil, "line of the lock whose addresses are to change; repeatable")
	cmd.Flags().StringVar(&f.branch, "publish-branch", reconciler.DefaultPublishBranch,
		"branch that holds what is published, or none")
	cmd.Flags().StringVar(&f.repo, "repo", "",
		"path or URL of the repository with that branch (default: the one that holds the file)")
	cmd.MarkFlagsMutuallyExclusive("check", "gc")
	cmd.MarkFlagsMutuallyExclusive("check", "move")
	return cmd
}

func (a *app) allocate(ctx context.Context, args []string, f allocateFlags) error {
	t, err := a.readTopology(args)
	if err != nil {
		return err
	}
	if t.lockFile == "" {
		return errors.New("the topology came from stdin, so there is no place for its lock: name a file")
	}
	set, _, err := a.load(t)
	if err != nil {
		return err
	}
	have, err := a.publishedLock(ctx, t, f)
	if err != nil {
		return err
	}
	if f.check {
		out, list := reconciler.Allocate(reconciler.LockInput{
			Set: set, File: t.lockFile, Committed: t.lock, Published: have.raw,
		})
		if !list.HasErrors() {
			list = out.Stale
		}
		for i := range list {
			if list[i].Pos == (diag.Pos{}) {
				list[i].Pos.File = t.lockFile
			}
		}
		if list.HasErrors() {
			return found{list: list, sources: t.files()}
		}
		return nil
	}
	raw, err := a.newLock(t, set, have, f)
	if err != nil {
		return err
	}
	if bytes.Equal(raw, t.lock) {
		a.warnUncommitted(ctx, filepath.Dir(t.file), "", "")
		_, err := fmt.Fprintf(a.err, "%s is current\n", t.lockFile)
		return err
	}
	if err := checkout.Replace(t.lockFile, raw, 0o644); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.err, "wrote %s: commit it beside %s\n", t.lockFile, filepath.Base(t.file))
	return err
}

// publishedLock is what a command knows of the lock in force.
type publishedLock struct {
	raw []byte
	// known: something published was read. Outside of git nothing is published from a file,
	// as far as anybody can tell; a repository without the branch may be published elsewhere.
	known, outside bool
}

// publishedLock reads the lock in force. Where it cannot be read nothing is to be allocated:
// addresses would be taken that others have.
func (a *app) publishedLock(ctx context.Context, t topology, f allocateFlags) (publishedLock, error) {
	verify, err := verifiers("", t.file, buildFlags{})
	if err != nil {
		return publishedLock{}, err
	}
	defer a.progress("reading branch " + f.branch)()
	p, err := a.readPublished(ctx, publishedInput{
		file: t.file, address: f.repo, branch: f.branch, flag: "--publish-branch", asked: f.branch != reconciler.DefaultPublishBranch, verify: verify,
	})
	// A remote that is gone is no repository, either.
	if f.repo == "" && errors.Is(err, gitrepo.ErrNoRepository) && !errors.Is(err, gitrepo.ErrNoBranch) {
		_, err = fmt.Fprintf(a.err, "what is published is not known: %s\n", err)
		return publishedLock{outside: true}, err
	}
	if err != nil {
		return publishedLock{}, fmt.Errorf("read what is published: %w", err)
	}
	if p.none != "" {
		_, _ = fmt.Fprintln(a.err, p.none)
	}
	return publishedLock{raw: p.tree[reconciler.LockFile], known: p.tree != nil}, nil
}

// newLock gives the content that the lock file should have.
func (a *app) newLock(t topology, set *schema.ClusterSet, have publishedLock, f allocateFlags) ([]byte, error) {
	out, list := reconciler.Allocate(reconciler.LockInput{
		Set: set, File: t.lockFile, Committed: t.lock, Published: have.raw, FixMoves: true,
	})
	if list.HasErrors() {
		return nil, found{list: list, sources: t.files()}
	}
	a.printFindings(out.Warnings, t.files())
	lock := out.Lock
	if f.gc {
		lock, list = allocate.Allocate(set, lock.GC(set))
		if list.HasErrors() {
			return nil, found{list: list, sources: t.files()}
		}
	}
	for _, item := range f.move {
		lock, list = allocate.Move(lock, set, item)
		if list.HasErrors() {
			return nil, found{list: list, sources: t.files()}
		}
		a.printFindings(list, t.files())
	}
	if have.known || have.outside {
		published, list := lockfile.Read("published "+reconciler.LockFile, have.raw)
		if list.HasErrors() {
			return nil, found{list: list, sources: t.files()}
		}
		lock = lock.PruneReleased(published)
	}
	return lock.Marshal()
}
