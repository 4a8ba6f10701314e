package main

import (
	"cmp"
	"context"
	"path"
	"path/filepath"
	"strings"

	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/reconciler/gitrepo"
)

// describeTopology returns what a page of a topology shows, for users: the file, its commit if it
// is in a work tree, and the head of a publish branch unless branch is empty. Repository is that
// of the branch; empty is the one with the file.
func describeTopology(ctx context.Context, file, repository, branch string) []string {
	text := file
	dir := filepath.Dir(file)
	store, err := openQuiet(ctx, dir)
	if err == nil {
		if w, here, err := store.WorkTree(); err == nil && here {
			text += " at commit " + shortHash(w.Head)
			if inside, err := relativeToTop(w.Top, dir); err == nil {
				changed, err := store.Uncommitted(w, w.Head, path.Join(inside, filepath.Base(file)), path.Join(inside, reconciler.LockFile))
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
		store, err = openRepo(ctx, repoOf(repository, file), branch)
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

// askedText names the agents that the flags select, for users.
func (f showFlags) askedText() string {
	switch {
	case len(f.sockets) > 0:
		return "agents at " + strings.Join(f.sockets, ", ")
	case len(f.access.Contexts) > 0:
		return "agents of the contexts " + strings.Join(f.access.Contexts, ", ")
	case f.ofClusters():
		return "agents of the clusters " + cmp.Or(strings.Join(f.clusters, ", "), "of the topology")
	}
	if sockets, err := agentSockets(nil, f.lab); err == nil && len(sockets) == 1 && sockets[0] == agentSocket {
		return "the agent of this host"
	}
	dir, err := labFolder(f.lab)
	if err != nil {
		return "agents of the lab"
	}
	return "agents of the lab in " + dir
}
