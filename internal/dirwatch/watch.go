// Package dirwatch reports when the content of a directory may have changed: by an editor, an
// atomic rename, or the swap of a symbolic link, as the kubelet updates a ConfigMap. It does not
// report what changed; the caller reads the directory again.
package dirwatch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

const (
	// debounce is the time to collect the events of one edit, which always causes several.
	debounce = 10 * time.Millisecond
	// retryInterval is the interval between attempts to watch a missing directory. Directories that
	// the kernel does not watch are polled at the same interval.
	retryInterval = time.Second
)

// Dir is a directory with the function to call after a change. Changed must not block; one call may
// cover many events.
type Dir struct {
	Path    string
	Changed func()
	// Files are the watched names in the directory; all if empty. Names with two leading dots are
	// always watched: the kubelet replaces the files of a volume through such a link.
	Files []string
}

// Watch calls Changed of each directory after a change, until ctx ends. It also calls it once when
// the watch has started, because earlier changes cause no event. It follows a directory that
// appears, is replaced by a rename, or is a symbolic link to another target. All directories share
// one instance of inotify. The kernel refuses a watch if instances or watches are used up
// (inotify(7)). Watch then polls once a second, calls onPolling with the reason, and keeps trying.
// onPolling may be nil.
func Watch(ctx context.Context, onPolling func(error), dirs ...Dir) {
	w := &watcher{onPolling: onPolling, newWatcher: fsnotify.NewWatcher, ids: map[string]fileID{}}
	defer w.close()
	for _, d := range dirs {
		w.dirs = append(w.dirs, &watchedDir{dir: filepath.Clean(d.Path), files: d.Files, changed: d.Changed})
	}
	w.start()
	w.loop(ctx)
}

type watcher struct {
	dirs            []*watchedDir
	onPolling       func(error)
	newWatcher      func() (*fsnotify.Watcher, error)
	events          *fsnotify.Watcher // nil without inotify
	ids             map[string]fileID // watched directories, by path
	pollingReported bool              // onPolling was called
}

type watchedDir struct {
	dir         string
	files       []string // watched names; all if empty
	changed     func()
	attached    bool
	refused     bool   // the kernel refused the watch
	dirty       bool   // changed must be called
	fingerprint string // at the last poll; used while the directory is not attached
}

// fileID distinguishes directories at the same path.
type fileID struct{ device, inode uint64 }

func statID(path string) fileID {
	info, err := os.Stat(path)
	if err != nil {
		return fileID{}
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileID{}
	}
	return fileID{device: stat.Dev, inode: stat.Ino}
}

func (w *watcher) start() {
	for _, f := range w.dirs {
		w.attach(f)
		f.fingerprint, f.dirty = f.computeFingerprint(), true
	}
}

// attach watches a directory and its parent.
func (w *watcher) attach(f *watchedDir) {
	f.attached, f.refused = false, false
	if w.events == nil {
		events, err := w.newWatcher()
		if err != nil {
			w.fallBackToPolling(f, err)
			return
		}
		w.events = events
		clear(w.ids)
	}
	inner, outer := w.add(f.dir), error(nil)
	if parent := filepath.Dir(f.dir); parent != f.dir {
		outer = w.add(parent)
	}
	if err := errors.Join(inner, outer); errors.Is(err, unix.ENOSPC) {
		w.fallBackToPolling(f, err)
	}
	f.attached = inner == nil && outer == nil
}

// add watches a path. Adding it again moves the watch to the current target of the path: it removes
// an outdated watch first, and a current watch continues without a gap.
func (w *watcher) add(path string) error {
	current := statID(path)
	if w.ids[path] != current {
		_ = w.events.Remove(path)
	}
	w.ids[path] = current
	return w.events.Add(path)
}

// fallBackToPolling records that the kernel refused a watch, and calls onPolling once.
func (w *watcher) fallBackToPolling(f *watchedDir, err error) {
	f.refused = true
	if !w.pollingReported && w.onPolling != nil {
		w.onPolling(fmt.Errorf("watch directory %s: %w", f.dir, err))
	}
	w.pollingReported = true
}

func (w *watcher) close() {
	if w.events != nil {
		_ = w.events.Close()
	}
}

func (w *watcher) loop(ctx context.Context) {
	debounceTimer, retryTicker := time.NewTimer(debounce), time.NewTicker(retryInterval)
	defer debounceTimer.Stop()
	defer retryTicker.Stop()
	for {
		events, errs := w.channels()
		var retries <-chan time.Time // nil if all directories are watched: an idle process must not wake up
		if slices.ContainsFunc(w.dirs, func(f *watchedDir) bool { return !f.attached }) {
			retries = retryTicker.C
		}
		select {
		case <-ctx.Done():
			return
		case event, open := <-events:
			if !open {
				w.events = nil
				w.markAllDirty(false)
			} else if !w.handleEvent(event) {
				continue
			}
			debounceTimer.Reset(debounce)
		case err := <-errs:
			// The event queue overflowed, and events may be lost.
			w.markAllDirty(err == nil || errors.Is(err, fsnotify.ErrEventOverflow))
			debounceTimer.Reset(debounce)
		case <-debounceTimer.C:
			w.notify()
		case <-retries:
			if w.reattach() {
				debounceTimer.Reset(debounce)
			}
		}
	}
}

func (w *watcher) channels() (<-chan fsnotify.Event, <-chan error) {
	if w.events == nil {
		return nil, nil
	}
	return w.events.Events, w.events.Errors
}

// markAllDirty records that any directory may have changed. If attached is false, it also records
// that the watches are lost.
func (w *watcher) markAllDirty(attached bool) {
	for _, f := range w.dirs {
		f.dirty, f.attached = true, f.attached && attached
	}
}

func (w *watcher) notify() {
	for _, f := range w.dirs {
		if f.dirty {
			f.dirty = false
			f.changed()
		}
	}
}

// reattach attaches missing watches again, and reports whether anything may have changed
// since the previous call.
func (w *watcher) reattach() bool {
	changed, refused := false, false
	for _, f := range w.dirs {
		if f.attached {
			continue
		}
		w.attach(f)
		f.dirty = f.dirty || f.attached || f.pollChanged()
		changed, refused = changed || f.dirty, refused || f.refused
	}
	w.pollingReported = w.pollingReported && refused
	return changed
}

// pollChanged reads the directory, and reports whether it changed since the last poll.
func (f *watchedDir) pollChanged() bool {
	current := f.computeFingerprint()
	changed := current != f.fingerprint
	f.fingerprint = current
	return changed
}

// computeFingerprint returns a text that differs after any change in the directory.
func (f *watchedDir) computeFingerprint() string {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return "" // missing or unreadable
	}
	var out strings.Builder
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !f.watches(e.Name()) {
			continue
		}
		target, _ := os.Readlink(filepath.Join(f.dir, e.Name())) // empty if it is not a link
		var inode uint64
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			inode = stat.Ino
		}
		fmt.Fprintln(&out, e.Name(), info.Size(), info.ModTime().UnixNano(), info.Mode(), inode, target)
	}
	return out.String()
}

func (f *watchedDir) watches(name string) bool {
	return len(f.files) == 0 || slices.Contains(f.files, name) || strings.HasPrefix(name, "..")
}

// handleEvent reports whether an event may indicate new content. It watches a replaced directory
// again.
func (w *watcher) handleEvent(event fsnotify.Event) bool {
	relevant := false
	for _, f := range w.dirs {
		replaced := event.Name == f.dir && event.Op&(fsnotify.Create|fsnotify.Rename|fsnotify.Remove) != 0
		if replaced {
			delete(w.ids, f.dir) // the new directory may reuse the inode number
			w.attach(f)
		}
		if replaced || filepath.Dir(event.Name) == f.dir && event.Op != fsnotify.Chmod && f.watches(filepath.Base(event.Name)) {
			f.dirty, relevant = true, true
		}
	}
	return relevant
}
