package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/schema"
)

type allocateFlags struct {
	check, gc bool
	branch    string
}

func newAllocateCommand(a *app) *cobra.Command {
	var f allocateFlags
	cmd := &cobra.Command{
		Use:   "allocate [FILE|DIR]",
		Short: "Write the lock: give addresses to what has none",
		Long: `Give addresses to everything in the topology that has none, and write them to
clusterset.lock.yaml beside it. What was allocated never moves. Addresses that
the reconciler has put in force without committing them are taken over from the
publish branch of the repository that holds the file.

Exit codes: 0 done, 1 errors in the topology or, with --check, a stale lock, 2 error.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.allocate(cmd.Context(), args, f) },
	}
	a.topologyFlag(cmd)
	cmd.Flags().BoolVar(&f.check, "check", false, "only say whether the lock is current")
	cmd.Flags().BoolVar(&f.gc, "gc", false, "release the addresses of what left the topology")
	cmd.Flags().StringVar(&f.branch, "publish-branch", reconciler.DefaultPublishBranch, "branch whose addresses to take over")
	cmd.MarkFlagsMutuallyExclusive("check", "gc")
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
	if f.check {
		return a.checkLock(t, set)
	}
	raw, err := a.newLock(ctx, t, set, f)
	if err != nil {
		return err
	}
	if bytes.Equal(raw, t.lock) {
		a.tellUncommitted(ctx, filepath.Dir(t.file), "", "")
		_, err := fmt.Fprintf(a.err, "%s is current\n", t.lockFile)
		return err
	}
	if err := replaceFile(t.lockFile, raw); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.err, "wrote %s: commit it beside %s\n", t.lockFile, filepath.Base(t.file))
	return err
}

// newLock gives the content that the lock file should have.
func (a *app) newLock(ctx context.Context, t topology, set *schema.ClusterSet, f allocateFlags) ([]byte, error) {
	in := reconciler.LockInput{Set: set, File: t.lockFile, Committed: t.lock}
	if p, err := readPublished(ctx, "", t.file, f.branch); err == nil {
		in.Published = p.tree[reconciler.LockFile]
	} // outside of git nothing is published from this file
	out, list := reconciler.Allocate(in)
	if list.HasErrors() {
		return nil, found{list: list, sources: t.files()}
	}
	a.printFindings(out.Warnings, t.files())
	lock := out.Lock
	if f.gc {
		lock, list = schema.Allocate(set, lock.GC(set))
		if list.HasErrors() {
			return nil, found{list: list, sources: t.files()}
		}
	}
	return lock.Marshal()
}

func (a *app) checkLock(t topology, set *schema.ClusterSet) error {
	lock, list := schema.ReadLock(t.lockFile, t.lock)
	if !list.HasErrors() {
		list = schema.CheckLock(set, lock)
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

// replaceFile writes a file in one step.
func replaceFile(path string, raw []byte) error {
	temp, err := os.CreateTemp(filepath.Dir(path), ".hawser-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = temp.Write(raw)
	err = errors.Join(err, temp.Chmod(0o644), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(temp.Name())
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
