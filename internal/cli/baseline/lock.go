package baseline

import (
	"context"
	"errors"
	"fmt"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/reconciler/gitrepo"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/allocate"
	"hawser.dev/hawser/schema/lockfile"
)

// LockOptions are the flags of hawser allocate.
type LockOptions struct {
	Check, Gc    bool
	Move         []string
	Branch, Repo string
	Flag         string // flag that names Branch; empty = the command has none
}

// PublishedLock is the published lock, or why it is unknown.
type PublishedLock struct {
	Raw     []byte
	Known   bool // a published lock was read
	Outside bool // the topology is not in a git repository, so the published lock is unknown
}

// ReadLock reads the published lock. If it cannot be read, the caller must not allocate, because it
// could use addresses of other clusters.
func ReadLock(ctx context.Context, env *cli.Env, t topofile.File, f LockOptions) (PublishedLock, error) {
	verify, err := Verifiers("", t.Path, topofile.BuildFlags{})
	if err != nil {
		return PublishedLock{}, err
	}
	defer env.Progress("reading branch " + f.Branch)()
	p, err := Read(ctx, env, Options{
		File: t.Path, Address: f.Repo, Branch: f.Branch, Flag: f.Flag, UserSet: f.Branch != reconciler.DefaultPublishBranch, Verify: verify,
	})
	// A remote that no longer exists counts as no repository.
	if f.Repo == "" && errors.Is(err, gitrepo.ErrNoRepository) && !errors.Is(err, gitrepo.ErrNoBranch) {
		_, err = fmt.Fprintf(env.Err, "the published lock is unknown, so all allocations stay: %s\n", err)
		return PublishedLock{Outside: true}, err
	}
	if err != nil {
		return PublishedLock{}, fmt.Errorf("read published lock: %w", err)
	}
	if p.Missing != "" {
		_, _ = fmt.Fprintln(env.Err, p.Missing)
	}
	return PublishedLock{Raw: p.Tree[reconciler.LockFile], Known: p.Tree != nil}, nil
}

// NewLock returns the new content of the lock file.
func NewLock(env *cli.Env, t topofile.File, set *schema.ClusterSet, have PublishedLock, f LockOptions) ([]byte, error) {
	out, list := reconciler.Allocate(reconciler.AllocateInput{
		Set: set, File: t.LockPath, Committed: t.Lock, Published: have.Raw, PublishedUnknown: have.Outside, FixMoves: true,
	})
	if list.HasErrors() {
		return nil, cli.FindingsError{List: list, Files: t.Texts()}
	}
	env.Findings(out.Warnings, t.Texts())
	lock := out.Lock
	if f.Gc {
		lock, list = allocate.Allocate(set, lock.GC(set))
		if list.HasErrors() {
			return nil, cli.FindingsError{List: list, Files: t.Texts()}
		}
	}
	for _, item := range f.Move {
		lock, list = allocate.Move(lock, set, item)
		if list.HasErrors() {
			return nil, cli.FindingsError{List: list, Files: t.Texts()}
		}
		env.Findings(list, t.Texts())
	}
	if have.Known || have.Outside {
		published, list := lockfile.Read("published "+reconciler.LockFile, have.Raw)
		if list.HasErrors() {
			return nil, cli.FindingsError{List: list, Files: t.Texts()}
		}
		lock = lock.PruneReleased(published)
	}
	return lock.Marshal()
}
