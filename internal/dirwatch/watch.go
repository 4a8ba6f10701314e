// Package dirwatch reports when the content of a folder may have changed: by an editor, an atomic
// rename, or the swap of a symbolic link, as the kubelet updates a ConfigMap. It does not report
// what changed; the caller reads the folder again.
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
	// retry is the interval between attempts to watch a missing folder. Folders that the kernel
	// does not watch are polled at the same interval.
	retry = time.Second
)

// Dir is a folder with the function to call after a change. Changed must not block; one call may
// cover many events.
type Dir struct {
	Path    string
	Changed func()
	// Files are the watched names in the folder; all if empty. Names with two leading dots are
	// always watched: the kubelet replaces the files of a volume through such a link.
	Files []string
}

// Watch calls Changed of each folder after a change, until ctx ends. It also calls it once when the
// watch has started, because earlier changes cause no event. It follows a folder that appears, is
// replaced by a rename, or is a symbolic link to another target. All folders share one instance of
// inotify. The kernel refuses a watch if instances or watches are used up (inotify(7)). Watch then
// polls once a second, calls polls with the reason, and keeps trying. polls may be nil.
func Watch(ctx context.Context, polls func(error), dirs ...Dir) {
	w := &watcher{polls: polls, open: fsnotify.NewWatcher, ids: map[string]id{}}
	defer w.close()
	for _, d := range dirs {
		w.folders = append(w.folders, &folder{dir: filepath.Clean(d.Path), files: d.Files, changed: d.Changed})
	}
	w.start()
	w.loop(ctx)
}

type watcher struct {
	folders       []*folder
	polls         func(error)
	open          func() (*fsnotify.Watcher, error)
	events        *fsnotify.Watcher // nil without inotify
	ids           map[string]id     // watched folders, by path
	loggedPolling bool              // polls was called
}

type folder struct {
	dir         string
	files       []string // watched names; all if empty
	changed     func()
	attached    bool
	refused     bool   // the kernel refused the watch
	dirty       bool   // changed must be called
	fingerprint string // at the last poll; used while the folder is not attached
}

// id distinguishes folders at the same path.
type id struct{ device, inode uint64 }

func identity(path string) id {
	info, err := os.Stat(path)
	if err != nil {
		return id{}
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return id{}
	}
	return id{device: stat.Dev, inode: stat.Ino}
}

func (w *watcher) start() {
	for _, f := range w.folders {
		w.attach(f)
		f.fingerprint, f.dirty = f.computeFingerprint(), true
	}
}

// attach watches a folder and its parent.
func (w *watcher) attach(f *folder) {
	f.attached, f.refused = false, false
	if w.events == nil {
		events, err := w.open()
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
	now := identity(path)
	if w.ids[path] != now {
		_ = w.events.Remove(path)
	}
	w.ids[path] = now
	return w.events.Add(path)
}

// fallBackToPolling records that the kernel refused a watch, and calls polls once.
func (w *watcher) fallBackToPolling(f *folder, err error) {
	f.refused = true
	if !w.loggedPolling && w.polls != nil {
		w.polls(fmt.Errorf("watch folder %s: %w", f.dir, err))
	}
	w.loggedPolling = true
}

func (w *watcher) close() {
	if w.events != nil {
		_ = w.events.Close()
	}
}

func (w *watcher) loop(ctx context.Context) {
	settle, again := time.NewTimer(debounce), time.NewTicker(retry)
	defer settle.Stop()
	defer again.Stop()
	for {
		events, errs := w.channels()
		var retries <-chan time.Time // nil if all folders are watched: an idle process must not wake up
		if slices.ContainsFunc(w.folders, func(f *folder) bool { return !f.attached }) {
			retries = again.C
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
			settle.Reset(debounce)
		case err := <-errs:
			// The event queue overflowed, and events may be lost.
			w.markAllDirty(err == nil || errors.Is(err, fsnotify.ErrEventOverflow))
			settle.Reset(debounce)
		case <-settle.C:
			w.call()
		case <-retries:
			if w.retry() {
				settle.Reset(debounce)
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

// markAllDirty records that any folder may have changed. If attached is false, it also records
// that the watches are lost.
func (w *watcher) markAllDirty(attached bool) {
	for _, f := range w.folders {
		f.dirty, f.attached = true, f.attached && attached
	}
}

func (w *watcher) call() {
	for _, f := range w.folders {
		if f.dirty {
			f.dirty = false
			f.changed()
		}
	}
}

// retry attaches missing watches again, and reports whether anything may have changed
// since the previous call.
func (w *watcher) retry() bool {
	changed, refused := false, false
	for _, f := range w.folders {
		if f.attached {
			continue
		}
		w.attach(f)
		f.dirty = f.dirty || f.attached || f.pollChanged()
		changed, refused = changed || f.dirty, refused || f.refused
	}
	w.loggedPolling = w.loggedPolling && refused
	return changed
}

// pollChanged reads the folder, and reports whether it changed since the last poll.
func (f *folder) pollChanged() bool {
	seen := f.computeFingerprint()
	changed := seen != f.fingerprint
	f.fingerprint = seen
	return changed
}

// computeFingerprint returns a text that differs after any change in the folder.
func (f *folder) computeFingerprint() string {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return "" // missing or unreadable
	}
	var out strings.Builder
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !f.counts(e.Name()) {
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

func (f *folder) counts(name string) bool {
	return len(f.files) == 0 || slices.Contains(f.files, name) || strings.HasPrefix(name, "..")
}

// handleEvent reports whether an event may indicate new content. It watches a replaced folder
// again.
func (w *watcher) handleEvent(event fsnotify.Event) bool {
	any := false
	for _, f := range w.folders {
		replaced := event.Name == f.dir && event.Op&(fsnotify.Create|fsnotify.Rename|fsnotify.Remove) != 0
		if replaced {
			delete(w.ids, f.dir) // the new folder may reuse the inode number
			w.attach(f)
		}
		if replaced || filepath.Dir(event.Name) == f.dir && event.Op != fsnotify.Chmod && f.counts(filepath.Base(event.Name)) {
			f.dirty, any = true, true
		}
	}
	return any
}
