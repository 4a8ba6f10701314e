package topofile

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/reconciler/gitrepo"
)

// WarnUncommitted warns of a topology and lock that somebody edits in the work tree of a
// repository and that the branch does not have: only commits are ever published. Without
// a branch it is what HEAD is at. dir is the folder of the topology in the repository,
// empty to take it from the address. What cannot be read is told by what needs it.
func WarnUncommitted(ctx context.Context, env *cli.Env, address, branch, dir string) {
	store, err := gitrepo.Open(gitrepo.Config{URL: address, Named: branch != ""})
	if err != nil || store.Remote() || store.Fetch(ctx) != nil {
		return
	}
	w, here, err := store.WorkTree()
	if err != nil || !here {
		return
	}
	commit, where := w.Head, "the last commit"
	if branch != "" {
		if branch, err = gitrepo.Branch(branch); err != nil {
			return
		}
		if commit, err = store.Head(branch); err != nil {
			return
		}
		where = "branch " + branch
	} else if dir, err = RelativeToTop(w.Top, address); err != nil {
		return
	}
	changed, err := store.Uncommitted(w, commit, path.Join(dir, reconciler.TopologyFile), path.Join(dir, reconciler.LockFile))
	if err != nil || len(changed) == 0 {
		return
	}
	why := "the changes are not committed"
	switch {
	case w.Head == commit:
	case w.Branch == "":
		why = "HEAD is detached at " + w.Head.String()[:7]
	default:
		why = "the work tree is on branch " + w.Branch
	}
	_, _ = fmt.Fprintf(env.Err, "warning: %s in the work tree: not as on %s (%s), and only commits are published\n",
		strings.Join(changed, ", "), where, why)
}

// RelativeToTop gives a folder's path in the work tree that it is in, as git writes it.
func RelativeToTop(top, dir string) (string, error) {
	var real [2]string
	for i, p := range []string{top, dir} {
		full, err := filepath.Abs(p)
		if err == nil {
			real[i], err = filepath.EvalSymlinks(full)
		}
		if err != nil {
			return "", err
		}
	}
	rel, err := filepath.Rel(real[0], real[1])
	return filepath.ToSlash(rel), err
}
