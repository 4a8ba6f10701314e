package topofile

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"hawser.dev/hawser/internal/checkout"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/render"
)

// inventoryFile lists the files that render wrote into a directory, one path per line, so that
// render removes no foreign file.
const inventoryFile = ".hawser-inventory"

// RenderDir is a directory that render writes to.
type RenderDir struct {
	dir      string
	Tree     render.Tree     // content of the rendered directories
	previous map[string]bool // files of an earlier run
}

// written is the number of files that a run wrote and removed.
type written struct{ Written, Removed int }

// ReadRendered reads a directory that hawser render wrote. A missing directory is empty.
func ReadRendered(dir string) (RenderDir, error) {
	r := RenderDir{dir: dir, Tree: render.Tree{}, previous: map[string]bool{}}
	for _, top := range []string{"base", "clusters", "flux", "argocd"} {
		if err := readInto(r.Tree, filepath.Join(dir, top), top+"/", checkout.Rendered()); err != nil {
			return r, err
		}
	}
	for _, name := range []string{reconciler.LockFile, "README.md", render.FabricText, render.TopologyText, render.MapPicture, render.MapText, inventoryFile} {
		raw, err := checkout.ReadFile(filepath.Join(dir, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return r, fmt.Errorf("read directory: %w", err)
		case name == inventoryFile:
			for line := range strings.Lines(string(raw)) {
				r.previous[strings.TrimSpace(line)] = true
			}
		default:
			r.Tree[name] = raw
		}
	}
	return r, nil
}

// Write makes the directory contain the tree.
func (r RenderDir) Write(want render.Tree) (written, error) {
	var done written
	for _, name := range want.Paths() {
		have, exists := r.Tree[name]
		if exists && bytes.Equal(have, want[name]) {
			continue
		}
		if exists && !r.previous[name] {
			return done, fmt.Errorf("%s exists and was not written by hawser render: move it away, or choose another --out",
				filepath.Join(r.dir, name))
		}
	}
	for _, name := range want.Paths() {
		if have, exists := r.Tree[name]; exists && bytes.Equal(have, want[name]) {
			continue
		}
		path := filepath.Join(r.dir, filepath.FromSlash(name))
		if err := checkout.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return done, err
		}
		if err := checkout.Replace(path, want[name], 0o644); err != nil {
			return done, err
		}
		done.Written++
	}
	removed, err := r.removeStale(want)
	done.Removed = removed
	return done, errors.Join(err, r.writeInventory(want))
}

// removeStale removes files of an earlier run, and the directories that become empty.
func (r RenderDir) removeStale(want render.Tree) (int, error) {
	removed := 0
	for name := range r.previous {
		if _, wanted := want[name]; wanted || !filepath.IsLocal(name) {
			continue
		}
		path := filepath.Join(r.dir, filepath.FromSlash(name))
		if err := checkout.CheckWrite(path); err != nil {
			return removed, fmt.Errorf("remove stale file: %w", err)
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return removed, fmt.Errorf("remove stale file: %w", err)
		}
		removed++
		for dir := filepath.Dir(path); dir != filepath.Clean(r.dir) && os.Remove(dir) == nil; dir = filepath.Dir(dir) {
			continue // os.Remove fails on a directory that is not empty
		}
	}
	return removed, nil
}

// writeInventory lists the files of the tree, except files that existed before the first run.
func (r RenderDir) writeInventory(want render.Tree) error {
	var out strings.Builder
	for _, name := range want.Paths() {
		foreign := r.Tree[name] != nil && !r.previous[name] && bytes.Equal(r.Tree[name], want[name])
		if !foreign {
			out.WriteString(name + "\n")
		}
	}
	if err := checkout.MkdirAll(r.dir, 0o755); err != nil {
		return err
	}
	return checkout.Replace(filepath.Join(r.dir, inventoryFile), []byte(out.String()), 0o644)
}
