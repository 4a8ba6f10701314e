package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"

	"hawser.dev/hawser/reconciler"
)

// publishBranch is the publish branch of the lab's reconciler.
const publishBranch = reconciler.DefaultPublishBranch

// syncLoop acts like Flux. It reads the publish branch after each change of a ref, and also
// periodically, because a notification may be lost.
func (d *daemon) syncLoop(ctx context.Context) {
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		defer watcher.Close()
		_ = watcher.Add(filepath.Join(d.layout.Repo(), ".git")) // packed-refs
		_ = watcher.Add(filepath.Join(d.layout.Repo(), ".git", "refs", "heads"))
	} else {
		watcher = &fsnotify.Watcher{} // nil channels: only the ticker remains
	}
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	var failed string
	var r reader
	for {
		if err := d.syncOnce(&r); err != nil && err.Error() != failed {
			failed = err.Error()
			d.log.Error("published tree cannot be used", "err", err)
			d.events.add("the published tree cannot be used: %v", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-watcher.Events:
		case <-watcher.Errors:
		case <-tick.C:
		}
	}
}

// syncOnce reads the publish branch. If the branch changed, it delivers it to the nodes.
func (d *daemon) syncOnce(r *reader) error {
	repo, err := git.PlainOpen(d.layout.Repo())
	if err != nil {
		return fmt.Errorf("open repository of the lab: %w", err)
	}
	ref, err := repo.Reference(plumbing.NewBranchReferenceName(publishBranch), true)
	if errors.Is(err, plumbing.ErrReferenceNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read branch %s: %w", publishBranch, err)
	}
	d.mu.Lock()
	have := d.published.commit
	d.mu.Unlock()
	if have == ref.Hash().String() {
		return nil
	}
	next, t, err := r.read(repo, ref.Hash())
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events.add("published %.7s (fabric %s) for commit %.7s", next.commit, next.digest, next.source)
	d.published, d.topology = next, t
	d.converge()
	return nil
}

func trailer(message, name string) string {
	for line := range strings.Lines(message) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func topologyAt(repo *git.Repository, source string) (topology, error) {
	commit, err := repo.CommitObject(plumbing.NewHash(source))
	if err != nil {
		return topology{}, fmt.Errorf("find source commit %q: %w", source, err)
	}
	file, err := commit.File(topologyFile)
	if err != nil {
		return topology{}, fmt.Errorf("read %s of source commit %.7s: %w", topologyFile, source, err)
	}
	raw, err := file.Contents()
	if err != nil {
		return topology{}, fmt.Errorf("read %s of source commit %.7s: %w", topologyFile, source, err)
	}
	return parseTopology([]byte(raw))
}

// deliver writes the published tree to the nodes of all clusters whose sync is not stopped. Only
// gateways get keys.
func (d *daemon) deliver(w *desiredLab) error {
	var errs []error
	for i := range w.nodes {
		n := &w.nodes[i]
		content := d.published.clusters[n.cluster]
		if content == nil || d.state.SyncStopped[n.cluster] {
			continue
		}
		errs = append(errs, syncDir(filepath.Join(d.nodeDir(n), "fabric"), content.fabric, 0o644))
		keys := content.keys
		if !n.gateway {
			keys = nil
		}
		errs = append(errs, syncDir(filepath.Join(d.nodeDir(n), "keys"), keys, 0o600))
	}
	return errors.Join(errs...)
}

// syncDir makes a directory contain exactly the given files, in addition to the node's own keys
// (*.key).
func syncDir(dir string, files map[string][]byte, mode os.FileMode) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(files)) {
		_, err := writeFile(filepath.Join(dir, name), files[name], mode)
		errs = append(errs, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, fmt.Errorf("list %s: %w", dir, err))
	}
	for _, entry := range entries {
		if _, wanted := files[entry.Name()]; !wanted && filepath.Ext(entry.Name()) != ".key" {
			errs = append(errs, os.RemoveAll(filepath.Join(dir, entry.Name())))
		}
	}
	return errors.Join(errs...)
}
