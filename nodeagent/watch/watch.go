// Package watch tells when the content of a folder may have changed: by
// editors, by an atomic rename, or by the swap of a symbolic link as the kubelet
// does it for a ConfigMap. It never says what changed; the reader looks again.
package watch

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// debounce gathers the events of one edit, which is never a single event.
	debounce = 20 * time.Millisecond
	// retry is how often a folder that does not exist is looked for.
	retry = 250 * time.Millisecond
)

// Folder calls changed after something in dir changed, until ctx ends. It also
// follows dir itself: when it appears, is replaced by a rename or is a symbolic
// link that now points elsewhere. changed must not block; one call may stand
// for many events. The error is nil when ctx ended.
func Folder(ctx context.Context, dir string, changed func()) error {
	events, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch folder %s: %w", dir, err)
	}
	defer func() { _ = events.Close() }()
	f := &folder{dir: filepath.Clean(dir), events: events, changed: changed}
	f.attach()
	return f.loop(ctx)
}

type folder struct {
	dir      string
	events   *fsnotify.Watcher
	changed  func()
	attached bool
}

// attach watches the folder and its parent. Adding a path again moves the watch
// to what the path means now, so old watches are taken off first.
func (f *folder) attach() {
	parent := filepath.Dir(f.dir)
	_ = f.events.Remove(f.dir)
	_ = f.events.Remove(parent)
	inner, outer := f.events.Add(f.dir), error(nil)
	if parent != f.dir {
		outer = f.events.Add(parent)
	}
	f.attached = inner == nil && outer == nil
}

func (f *folder) loop(ctx context.Context) error {
	settle, again := time.NewTimer(time.Hour), time.NewTicker(retry)
	settle.Stop()
	defer settle.Stop()
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, open := <-f.events.Events:
			if !open {
				return fmt.Errorf("watch folder %s: watcher closed", f.dir)
			}
			if f.concerns(event) {
				settle.Reset(debounce)
			}
		case err := <-f.events.Errors:
			// A queue that ran over lost events: look again.
			if err != nil && !errors.Is(err, fsnotify.ErrEventOverflow) {
				f.attached = false
			}
			settle.Reset(debounce)
		case <-settle.C:
			f.changed()
		case <-again.C:
			if !f.attached {
				if f.attach(); f.attached {
					settle.Reset(debounce)
				}
			}
		}
	}
}

// concerns reports whether an event may mean new content, and follows the
// folder when it was replaced.
func (f *folder) concerns(event fsnotify.Event) bool {
	if event.Name == f.dir {
		if event.Has(fsnotify.Create) || event.Has(fsnotify.Rename) || event.Has(fsnotify.Remove) {
			f.attach()
			return true
		}
		return false
	}
	return filepath.Dir(event.Name) == f.dir && event.Op != fsnotify.Chmod
}
