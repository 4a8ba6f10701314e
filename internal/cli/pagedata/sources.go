// Package pagedata returns data of the page in addition to the fabric: the sources of the topology,
// and its findings.
package pagedata

import (
	"context"
	"path"
	"path/filepath"

	"hawser.dev/hawser/internal/cli/baseline"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/reconciler/gitrepo"
)

// Describe returns the sources of a topology's page, for users: the file, its commit if it is in a
// work tree, and the head of branch. If branch is empty, the head is omitted. repository has the
// branch; empty = the repository of the file.
func Describe(ctx context.Context, file, repository, branch string) []string {
	text := file
	dir := filepath.Dir(file)
	store, err := openQuiet(ctx, dir)
	if err == nil {
		if w, found, err := store.WorkTree(); err == nil && found {
			text += " at commit " + shortHash(w.Head)
			if rel, err := topofile.RelativeToTop(w.Top, dir); err == nil {
				changed, err := store.Uncommitted(w, w.Head, path.Join(rel, filepath.Base(file)), path.Join(rel, reconciler.LockFile))
				if err == nil && len(changed) > 0 {
					text += " with uncommitted changes"
				}
			}
		}
	}
	out := []string{text}
	if branch == "" {
		return out
	}
	if repository != "" {
		store, err = baseline.OpenRepo(ctx, baseline.RepoOf(repository, file), branch)
	}
	if err != nil {
		return out
	}
	published := "publish branch " + branch
	if head, err := store.Resolve(branch); err == nil {
		published += " at commit " + shortHash(head.Commit)
	} else {
		published += " (nothing published)"
	}
	return append(out, published)
}

func openQuiet(ctx context.Context, dir string) (*gitrepo.Store, error) {
	store, err := gitrepo.Open(gitrepo.Config{URL: dir})
	if err == nil {
		err = store.Fetch(ctx)
	}
	return store, err
}

func shortHash(h gitrepo.Hash) string { return h.String()[:min(7, len(h.String()))] }
