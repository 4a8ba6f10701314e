package ui

import (
	"context"
	"strings"
	"sync"
	"time"
)

// publisher has the newest snapshot, and creates new snapshots while a client watches.
type publisher struct {
	config Config

	mu         sync.Mutex
	snapshot   *Snapshot
	changed    chan struct{} // closed when snapshot is replaced
	watchers   int
	joined     chan struct{} // a client connected
	refreshing sync.Mutex    // one refresh at a time
}

func newPublisher(config Config) *publisher {
	config.Interval = max(config.Interval, 100*time.Millisecond)
	return &publisher{config: config, changed: make(chan struct{}), joined: make(chan struct{}, 1)}
}

// run polls the source while a client watches, until ctx is done.
func (f *publisher) run(ctx context.Context) {
	for ctx.Err() == nil {
		f.mu.Lock()
		watched := f.watchers > 0
		f.mu.Unlock()
		if !watched {
			select {
			case <-ctx.Done():
				return
			case <-f.joined:
			}
			continue
		}
		f.refresh(ctx, true)
		select {
		case <-ctx.Done():
		case <-time.After(f.config.Interval):
		}
	}
}

// watch counts a client as watching until the returned function is called.
func (f *publisher) watch() func() {
	f.mu.Lock()
	f.watchers++
	f.mu.Unlock()
	select {
	case f.joined <- struct{}{}:
	default:
	}
	return func() {
		f.mu.Lock()
		f.watchers--
		f.mu.Unlock()
	}
}

// current returns the newest snapshot, and a channel that is closed when a newer snapshot exists.
// The first snapshot only has the data of files, because agents take longer.
func (f *publisher) current(ctx context.Context) (*Snapshot, <-chan struct{}) {
	f.mu.Lock()
	now, changed := f.snapshot, f.changed
	f.mu.Unlock()
	if now == nil {
		f.refresh(ctx, false)
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.snapshot, f.changed
	}
	return now, changed
}

// refresh creates a new snapshot and publishes it.
func (f *publisher) refresh(ctx context.Context, queryAgents bool) {
	f.refreshing.Lock()
	defer f.refreshing.Unlock()
	f.mu.Lock()
	before := f.snapshot
	f.mu.Unlock()
	if before != nil && !queryAgents {
		return // another goroutine just created one
	}
	var failures []string
	set, err := f.config.Source.Clusterset(ctx)
	if err != nil {
		failures = append(failures, err.Error())
	}
	if set == nil {
		if set = emptyClusterset(); before != nil {
			set = before.set // the last readable clusterset
		}
	}
	var reports Reports
	if queryAgents {
		if reports, err = f.config.Source.Agents(ctx); err != nil {
			failures = append(failures, err.Error())
		}
	}
	text := strings.Join(failures, "; ")
	if before != nil && before.set == set && before.head.Error == text && !reports.HasAgents {
		return // nothing can have changed
	}
	now := newSnapshot(Input{Clusterset: set, Reports: reports, LiveCluster: f.config.LiveCluster, HiddenViews: f.config.HiddenViews, Version: f.config.Version, At: time.Now()}, before)
	now.head.Error = text
	f.mu.Lock()
	defer f.mu.Unlock()
	f.snapshot = now
	close(f.changed)
	f.changed = make(chan struct{})
}
