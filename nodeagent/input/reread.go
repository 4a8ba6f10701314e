package input

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"hawser.dev/hawser/internal/dirwatch"
)

// Run watches all directories, and the API, until ctx is done.
func (in *Inputs) Run(ctx context.Context) error {
	reread := func() {
		in.Refresh()
		in.changed()
	}
	reread()
	dirs := folders(in.config, reread)
	if in.folder != nil {
		dirs = append(dirs, in.folder.WatchDir(reread)...)
	}
	var wait sync.WaitGroup
	wait.Go(func() { dirwatch.Watch(ctx, in.logPolling, dirs...) })
	wait.Go(func() { in.resolver.run(ctx) })
	wait.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-in.signers.unread:
			}
			if in.readProofs(ctx) {
				reread()
				continue
			}
			select {
			case <-ctx.Done():
			case <-time.After(listRetry):
				in.signers.unread.Fire()
			}
		}
	})
	wait.Go(func() {
		// Retry failed writes of copies.
		tick := time.NewTicker(saveRetry)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if in.saveFailed() {
					reread()
				}
			}
		}
	})
	if in.api != nil {
		wait.Go(func() { in.api.Run(ctx) })
		wait.Go(func() { in.keepFacts(ctx) })
	}
	wait.Wait()
	return nil
}

// folders returns the directories with the files of a config; changed is called after each change.
// Other files next to Trust and Identity are ignored: they may be logs, which change all the time.
func folders(config Config, changed func()) (dirs []dirwatch.Dir) {
	add := func(folder string, files ...string) {
		folder = filepath.Clean(folder)
		at := slices.IndexFunc(dirs, func(d dirwatch.Dir) bool { return d.Path == folder })
		switch {
		case at < 0:
			dirs = append(dirs, dirwatch.Dir{Path: folder, Files: files, Changed: changed})
		case len(dirs[at].Files) > 0: // otherwise all files count
			dirs[at].Files = append(dirs[at].Files, files...)
		}
	}
	for _, folder := range []string{config.FabricDir, config.KeysDir} {
		if folder != "" {
			add(folder)
		}
	}
	for _, file := range []string{config.Trust, config.Identity} {
		if file != "" {
			add(filepath.Dir(file), filepath.Base(file))
		}
	}
	return dirs
}

// logPolling logs that directories are polled, because they cannot be watched.
func (in *Inputs) logPolling(err error) {
	in.log.Warn("directories are polled", "err", err)
}

func (in *Inputs) saveFailed() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.saveErr != nil
}

// keepFacts saves the facts of the API: at once, and then after each saveRetry.
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
				in.Refresh() // to show the error in the status
				in.unsaved.Fire()
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(saveRetry):
		}
	}
}
