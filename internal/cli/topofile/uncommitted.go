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

// WarnUncommitted warns if topology or lock in the work tree differ from the branch, because only
// commits are published. Without a branch it compares with HEAD. dir is the directory of the
// topology in the repository; if empty, it follows from the address. It ignores read errors,
// because later steps report them.
func WarnUncommitted(ctx context.Context, env *cli.Env, address, branch, dir string) {
	store, err := gitrepo.Open(gitrepo.Config{URL: address, ExplicitURL: branch != ""})
	if err != nil || store.Remote() || store.Fetch(ctx) != nil {
		return
	}
	w, found, err := store.WorkTree()
	if err != nil || !found {
		return
	}
	commit, where := w.Head, "the last commit"
	if branch != "" {
		if branch, err = gitrepo.ParseBranch(branch); err != nil {
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
	reason := "the changes are not committed"
	switch {
	case w.Head == commit:
	case w.Branch == "":
		reason = "HEAD is detached at " + w.Head.String()[:7]
	default:
		reason = "the work tree is on branch " + w.Branch
	}
	_, _ = fmt.Fprintf(env.Err, "warning: %s in the work tree: not as on %s (%s), and only commits are published\n",
		strings.Join(changed, ", "), where, reason)
}

// RelativeToTop returns the path of a directory in its work tree, as git writes it.
func RelativeToTop(top, dir string) (string, error) {
	var resolved [2]string
	for i, p := range []string{top, dir} {
		full, err := filepath.Abs(p)
		if err == nil {
			resolved[i], err = filepath.EvalSymlinks(full)
		}
		if err != nil {
			return "", err
		}
	}
	rel, err := filepath.Rel(resolved[0], resolved[1])
	return filepath.ToSlash(rel), err
}
