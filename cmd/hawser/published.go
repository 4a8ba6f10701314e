package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"hawser.dev/hawser/reconciler/repo"
)

// published is what a branch holds; without the branch it is empty.
type published struct {
	store  *repo.Store
	commit string // empty: nothing is published yet
	tree   map[string][]byte
}

// readPublished reads the publish branch of the repository at address, or of
// the one that holds file when address is empty.
func readPublished(ctx context.Context, address, file, branch string) (published, error) {
	if address == "" {
		address = filepath.Dir(file)
	}
	store, err := repo.Open(repo.Config{URL: address})
	if err != nil {
		return published{}, err
	}
	if err := store.Sync(ctx, branch); err != nil {
		return published{}, err
	}
	p := published{store: store}
	commit, err := store.Find(branch)
	if errors.Is(err, repo.ErrNoBranch) {
		return p, nil
	}
	if err != nil {
		return p, fmt.Errorf("read published branch: %w", err)
	}
	p.commit = commit.String()
	p.tree, err = store.Tree(commit)
	return p, err
}
