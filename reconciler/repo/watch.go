package repo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watchAgain is how often a repository that was moved away, or was not there
// yet, is looked for.
const watchAgain = time.Second

// watch reports every write to HEAD, packed-refs and the branches. Events are
// never interpreted beyond that: the receiver looks for itself.
func (l *local) watch(ctx context.Context, changed func()) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch %s: %w", l.path, err)
	}
	defer func() { _ = w.Close() }()
	tick := time.NewTicker(watchAgain)
	defer tick.Stop()
	known := watchDirs(w, l.path)
	changed() // what happened before the watch began
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if now := watchDirs(w, l.path); now != known {
				known = now
				changed()
			}
		case event := <-w.Events:
			if event.Has(fsnotify.Create) {
				known = watchDirs(w, l.path)
			}
			if concerns(event.Name) {
				changed()
			}
		case <-w.Errors: // an overflow, for one: events were lost
			changed()
		}
	}
}

// watchDirs watches the git folder and the folders of its branches, and gives
// their number. Watching a folder twice is the same as once.
func watchDirs(w *fsnotify.Watcher, path string) int {
	dirs, err := locate(path)
	if err != nil {
		return 0
	}
	watched := 0
	for _, dir := range []string{dirs.git, dirs.common, filepath.Join(dirs.common, "refs")} {
		if w.Add(dir) == nil {
			watched++
		}
	}
	heads := filepath.Join(dirs.common, "refs", "heads")
	_ = filepath.WalkDir(heads, func(name string, entry fs.DirEntry, err error) error {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err == nil && entry.IsDir() && w.Add(name) == nil {
			watched++
		}
		return nil
	})
	return watched
}

func concerns(path string) bool {
	if strings.HasSuffix(path, ".lock") {
		return false
	}
	switch filepath.Base(path) {
	case "HEAD", "packed-refs", "refs":
		return true
	}
	return strings.Contains(filepath.ToSlash(path), "/refs/heads")
}
