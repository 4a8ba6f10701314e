// Package watch tells when the content of a folder may have changed: by
// editors, by an atomic rename, or by the swap of a symbolic link as the kubelet
// does it for a ConfigMap. It never says what changed; the reader looks again.
package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

const (
	// debounce gathers the events of one edit, which is never a single event.
	debounce = 20 * time.Millisecond
	// retry is how often a folder that does not exist is looked for.
	retry = 250 * time.Millisecond
	// pollInterval is how often a folder is read that the kernel does not watch.
	pollInterval = time.Second
)

// Folder calls changed after something in dir changed, until ctx ends, and once
// when it has begun to watch: what changed between the caller's own look and that
// moment shows in no event. It also
// follows dir itself: when it appears, is replaced by a rename or is a symbolic
// link that now points elsewhere. changed must not block; one call may stand
// for many events. Where the kernel grants no watch, as instances or watches of
// inotify are used up (inotify(7)), it looks once a second instead, calls polls
// with the reason, and goes on trying; polls may be nil.
func Folder(ctx context.Context, dir string, changed func(), polls func(error)) {
	f := &folder{dir: filepath.Clean(dir), changed: changed, polls: polls, open: fsnotify.NewWatcher}
	defer f.close()
	f.attach()
	f.seen = f.look()
	f.loop(ctx)
}

type folder struct {
	dir      string
	changed  func()
	polls    func(error)
	open     func() (*fsnotify.Watcher, error)
	events   *fsnotify.Watcher // nil = there is none
	attached bool
	told     bool   // of polling
	seen     string // what look saw when nothing was attached
	looked   time.Time
}

// attach watches the folder and its parent. Adding a path again moves the watch
// to what the path means now, so old watches are taken off first.
func (f *folder) attach() {
	f.attached = false
	if f.events == nil {
		events, err := f.open()
		if err != nil {
			f.tell(err)
			return
		}
		f.events = events
	}
	parent := filepath.Dir(f.dir)
	_ = f.events.Remove(f.dir)
	_ = f.events.Remove(parent)
	inner, outer := f.events.Add(f.dir), error(nil)
	if parent != f.dir {
		outer = f.events.Add(parent)
	}
	if err := errors.Join(inner, outer); errors.Is(err, unix.ENOSPC) {
		f.tell(err)
	}
	f.attached = inner == nil && outer == nil
}

// tell says once why there is polling.
func (f *folder) tell(err error) {
	if !f.told && f.polls != nil {
		f.polls(fmt.Errorf("watch folder %s: %w", f.dir, err))
	}
	f.told = true
}

func (f *folder) close() {
	if f.events != nil {
		_ = f.events.Close()
	}
}

func (f *folder) loop(ctx context.Context) {
	settle, again := time.NewTimer(debounce), time.NewTicker(retry)
	defer settle.Stop()
	defer again.Stop()
	for {
		events, errs := f.channels()
		select {
		case <-ctx.Done():
			return
		case event, open := <-events:
			if !open {
				f.events, f.attached = nil, false
			} else if !f.concerns(event) {
				continue
			}
			settle.Reset(debounce)
		case err := <-errs:
			// A queue that ran over lost events: look again.
			if err != nil && !errors.Is(err, fsnotify.ErrEventOverflow) {
				f.attached = false
			}
			settle.Reset(debounce)
		case <-settle.C:
			f.changed()
		case <-again.C:
			if !f.attached && f.retry() {
				settle.Reset(debounce)
			}
		}
	}
}

func (f *folder) channels() (<-chan fsnotify.Event, <-chan error) {
	if f.events == nil {
		return nil, nil
	}
	return f.events.Events, f.events.Errors
}

// retry tries to attach again, and reports whether anything may have changed
// since it looked last.
func (f *folder) retry() bool {
	if f.attach(); f.attached {
		f.told = false
		return true
	}
	if time.Since(f.looked) < pollInterval {
		return false
	}
	seen := f.look()
	changed := seen != f.seen
	f.seen = seen
	return changed
}

// look gives a text that differs when anything in the folder does.
func (f *folder) look() string {
	f.looked = time.Now()
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return "" // not there, or not yet
	}
	var out strings.Builder
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue
		}
		target, _ := os.Readlink(filepath.Join(f.dir, e.Name())) // empty for what is no link
		var inode uint64
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			inode = stat.Ino
		}
		fmt.Fprintln(&out, e.Name(), info.Size(), info.ModTime().UnixNano(), info.Mode(), inode, target)
	}
	return out.String()
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
