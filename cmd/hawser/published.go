package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"hawser.dev/hawser/reconciler/repo"
	"hawser.dev/hawser/render"
)

// published is what a branch holds; without the branch it is empty.
type published struct {
	commit string // empty: nothing is published yet
	tree   render.Tree
}

// readPublished reads the publish branch of the repository at address, or of
// the one that holds file when address is empty.
func readPublished(ctx context.Context, address, file, branch string) (published, error) {
	if address == "" {
		address = filepath.Dir(file)
	}
	store, err := repo.Open(repo.Config{URL: address, Auth: gitAuth()})
	if err != nil {
		return published{}, err
	}
	if err := store.Sync(ctx, branch); err != nil {
		return published{}, err
	}
	var p published
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

// gitAuth is the login that the environment holds.
func gitAuth() repo.Auth {
	return repo.Auth{
		Username: os.Getenv("HAWSER_GIT_USERNAME"), Password: os.Getenv("HAWSER_GIT_TOKEN"),
		SSHKeyPassword: os.Getenv("HAWSER_SSH_KEY_PASSWORD"),
	}
}
