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

// watchRetryInterval is the interval of checks for a missing repository. It is also the interval of
// polls if the kernel does not watch the repository.
const watchRetryInterval = time.Second

// watch calls changed once, and after every write to HEAD, packed-refs and the branches. If inotify
// has no instances or watches left (inotify(7)), watch polls the files and retries inotify.
func (l *local) watch(ctx context.Context, changed func(), onPolling func(error)) {
	w := &watcher{path: l.path, allowBare: l.allowBare, onPolling: onPolling}
	defer w.close()
	tick := time.NewTicker(watchRetryInterval)
	defer tick.Stop()
	w.addWatches()
	changed() // covers changes before the watch began
	for {
		events, errs := w.channels()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if w.addWatches() {
				changed()
			}
		case event := <-events:
			if event.Has(fsnotify.Create) && w.addWatches() || isRefPath(event.Name) {
				changed()
			}
		case <-errs: // such as an overflow, which loses events
			changed()
		}
	}
}

// watcher watches the refs of the repository at a path.
type watcher struct {
	path      string
	allowBare bool
	onPolling func(error)

	events          *fsnotify.Watcher // nil = inotify is not available
	watchedDirs     int               // directories
	pollingReported bool              // onPolling was called for the current error
	fingerprint     string            // of the refs, while inotify does not watch them
}

// addWatches adds missing watches. It reports whether the refs may have changed without an event.
func (w *watcher) addWatches() bool {
	var err error
	if w.events == nil {
		w.events, err = fsnotify.NewWatcher()
	}
	previousDirs := w.watchedDirs
	if err == nil {
		w.watchedDirs, err = watchDirs(w.events, w.path, w.allowBare)
	}
	if err == nil {
		w.pollingReported = false
		return w.watchedDirs != previousDirs
	}
	if !w.pollingReported {
		w.pollingReported = true
		w.onPolling(fmt.Errorf("watch %s: %w", w.path, err))
	}
	previousFingerprint := w.fingerprint
	w.fingerprint = refsFingerprint(w.path, w.allowBare)
	return w.fingerprint != previousFingerprint || w.watchedDirs != previousDirs
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

// refsFingerprint returns a text that changes if a ref changes.
func refsFingerprint(path string, allowBare bool) string {
	dirs, err := locate(path, allowBare)
	if err != nil {
		return ""
	}
	var out strings.Builder
	writeFileInfo := func(name string, info fs.FileInfo) {
		var inode uint64 // git writes a ref as a new file, perhaps within one clock tick
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			inode = stat.Ino
		}
		fmt.Fprintln(&out, name, info.Size(), info.ModTime().UnixNano(), inode)
	}
	for _, file := range []string{filepath.Join(dirs.git, "HEAD"), filepath.Join(dirs.common, "packed-refs")} {
		if info, err := os.Stat(file); err == nil {
			writeFileInfo(file, info)
		}
	}
	_ = filepath.WalkDir(filepath.Join(dirs.common, "refs", "heads"), func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil // removed meanwhile
		}
		if info, err := entry.Info(); err == nil && isRefPath(name) {
			writeFileInfo(name, info)
		}
		return nil
	})
	return out.String()
}

// watchDirs watches the git directory and the directories of its branches. It returns the number of
// watched directories. A second watch of a directory has no effect. limitErr means that the
// kernel's limit of watches is reached.
func watchDirs(w *fsnotify.Watcher, path string, allowBare bool) (watched int, limitErr error) {
	dirs, err := locate(path, allowBare)
	if err != nil {
		return 0, nil
	}
	add := func(dir string) {
		switch err := w.Add(dir); {
		case err == nil:
			watched++
		case errors.Is(err, syscall.ENOSPC):
			limitErr = err
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
	return watched, limitErr
}

func isRefPath(path string) bool {
	if strings.HasSuffix(path, ".lock") {
		return false
	}
	switch filepath.Base(path) {
	case "HEAD", "packed-refs", "refs":
		return true
	}
	return strings.Contains(filepath.ToSlash(path), "/refs/heads")
}
