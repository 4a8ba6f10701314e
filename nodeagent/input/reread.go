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
	dirs := watchedDirs(in.config, reread)
	if in.dirSource != nil {
		dirs = append(dirs, in.dirSource.WatchDir(reread)...)
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

// watchedDirs returns the directories with the files of a config; changed is called after each
// change. Other files next to Trust and Identity are ignored: they may be logs, which change all
// the time.
func watchedDirs(config Config, changed func()) (dirs []dirwatch.Dir) {
	add := func(dir string, files ...string) {
		dir = filepath.Clean(dir)
		at := slices.IndexFunc(dirs, func(d dirwatch.Dir) bool { return d.Path == dir })
		switch {
		case at < 0:
			dirs = append(dirs, dirwatch.Dir{Path: dir, Files: files, Changed: changed})
		case len(dirs[at].Files) > 0: // otherwise all files count
			dirs[at].Files = append(dirs[at].Files, files...)
		}
	}
	for _, dir := range []string{config.FabricDir, config.KeysDir} {
		if dir != "" {
			add(dir)
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
