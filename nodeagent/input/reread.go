package input

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	"hawser.dev/hawser/nodeagent/watch"
)

// Run watches all folders, and the API, until ctx ends.
func (in *Inputs) Run(ctx context.Context) error {
	reread := func() {
		in.Refresh()
		in.changed()
	}
	reread()
	var dirs []watch.Dir
	for _, folder := range []string{in.config.FabricDir, in.config.KeysDir} {
		if folder != "" {
			dirs = append(dirs, watch.Dir{Path: folder, Changed: reread})
		}
	}
	for _, file := range []string{in.config.Trust, in.config.Identity} {
		if file != "" { // other files of their folders may be logs, which grow all the time
			dirs = append(dirs, watch.Dir{Path: filepath.Dir(file), Files: []string{filepath.Base(file)}, Changed: reread})
		}
	}
	if in.folder != nil {
		dirs = append(dirs, in.folder.Watched(reread))
	}
	var wait sync.WaitGroup
	wait.Go(func() { watch.Folders(ctx, in.polls, dirs...) })
	wait.Go(func() { in.resolver.run(ctx) })
	wait.Go(func() { in.keepSaving(ctx, reread) })
	if in.api != nil {
		wait.Go(func() { in.api.Run(ctx) })
		wait.Go(func() { in.keepFacts(ctx) })
	}
	wait.Wait()
	return nil
}

// polls says that folders are read again and again, as they cannot be watched.
func (in *Inputs) polls(err error) {
	in.log.Warn("folders are polled", "err", err)
}

// keepSaving writes the copies again that could not be written, until ctx ends.
func (in *Inputs) keepSaving(ctx context.Context, reread func()) {
	tick := time.NewTicker(saveRetry)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if in.troubled() {
				reread()
			}
		}
	}
}

func (in *Inputs) troubled() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.trouble != nil
}

// keepFacts saves what the API says: at once, and then again after a pause.
func (in *Inputs) keepFacts(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-in.unsaved:
		}
		if state := in.api.Current(); state.Loaded {
			if err := in.copy.Save(&state.Facts); err != nil {
				in.log.Warn("facts not saved", "err", err)
				in.Refresh() // so that status says so
				in.unsaved.Ring()
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(saveRetry):
		}
	}
}
