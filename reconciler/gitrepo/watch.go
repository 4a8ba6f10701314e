package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watchAgain is the interval of checks for a missing repository, and of reads of a
// repository that the kernel does not watch.
const watchAgain = time.Second

// watch reports every write to HEAD, packed-refs and the branches. The receiver reads the refs
// itself. If inotify has no instances or watches left (inotify(7)), watch polls the files and
// retries inotify.
func (l *local) watch(ctx context.Context, changed func(), polls func(error)) {
	w := &watcher{path: l.path, named: l.named, polls: polls}
	defer w.close()
	tick := time.NewTicker(watchAgain)
	defer tick.Stop()
	w.renew()
	changed() // covers changes before the watch began
	for {
		events, errs := w.channels()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if w.renew() {
				changed()
			}
		case event := <-events:
			if event.Has(fsnotify.Create) && w.renew() || concerns(event.Name) {
				changed()
			}
		case <-errs: // an overflow, for one: events were lost
			changed()
		}
	}
}

// watcher watches the refs of the repository that is at a path.
type watcher struct {
	path  string
	named bool
	polls func(error)

	events  *fsnotify.Watcher // nil = inotify is not available
	watched int               // folders
	refused bool              // polls was called
	seen    string            // of the refs, while they are not watched
}

// renew adds missing watches, and reports whether the refs may have changed unnoticed.
func (w *watcher) renew() bool {
	var err error
	if w.events == nil {
		w.events, err = fsnotify.NewWatcher()
	}
	known := w.watched
	if err == nil {
		w.watched, err = watchDirs(w.events, w.path, w.named)
	}
	if err == nil {
		w.refused = false
		return w.watched != known
	}
	if !w.refused {
		w.refused = true
		w.polls(fmt.Errorf("watch %s: %w", w.path, err))
	}
	before := w.seen
	w.seen = refsFingerprint(w.path, w.named)
	return w.seen != before || w.watched != known
}

func (w *watcher) channels() (<-chan fsnotify.Event, <-chan error) {
	if w.events == nil {
		return nil, nil
	}
	return w.events.Events, w.events.Errors
}

func (w *watcher) close() {
	if w.events != nil {
		_ = w.events.Close()
	}
}

// refsFingerprint returns a text that differs if any ref differs.
func refsFingerprint(path string, named bool) string {
	dirs, err := locate(path, named)
	if err != nil {
		return ""
	}
	var out strings.Builder
	note := func(name string, info fs.FileInfo) {
		var inode uint64 // git writes a ref as a new file, maybe within one tick of the clock
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			inode = stat.Ino
		}
		fmt.Fprintln(&out, name, info.Size(), info.ModTime().UnixNano(), inode)
	}
	for _, file := range []string{filepath.Join(dirs.git, "HEAD"), filepath.Join(dirs.common, "packed-refs")} {
		if info, err := os.Stat(file); err == nil {
			note(file, info)
		}
	}
	_ = filepath.WalkDir(filepath.Join(dirs.common, "refs", "heads"), func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil // gone meanwhile
		}
		if info, err := entry.Info(); err == nil && concerns(name) {
			note(name, info)
		}
		return nil
	})
	return out.String()
}

// watchDirs watches the git folder and the folders of its branches, and returns their
// number. Watching a folder twice has no effect. An error means that the kernel has
// reached its limit of watches.
func watchDirs(w *fsnotify.Watcher, path string, named bool) (watched int, full error) {
	dirs, err := locate(path, named)
	if err != nil {
		return 0, nil
	}
	add := func(dir string) {
		switch err := w.Add(dir); {
		case err == nil:
			watched++
		case errors.Is(err, syscall.ENOSPC):
			full = err
		}
	}
	for _, dir := range []string{dirs.git, dirs.common, filepath.Join(dirs.common, "refs")} {
		add(dir)
	}
	heads := filepath.Join(dirs.common, "refs", "heads")
	_ = filepath.WalkDir(heads, func(name string, entry fs.DirEntry, err error) error {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err == nil && entry.IsDir() {
			add(name)
		}
		return nil
	})
	return watched, full
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
