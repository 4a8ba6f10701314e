package input

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"hawser.dev/hawser/internal/dirwatch"
)

// Run watches all folders, and the API, until ctx ends.
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
		// Copies that could not be written are written again.
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
	})
	if in.api != nil {
		wait.Go(func() { in.api.Run(ctx) })
		wait.Go(func() { in.keepFacts(ctx) })
	}
	wait.Wait()
	return nil
}

// folders gives the folders whose files a config names; changed follows each change of them. Other
// files beside Trust and Identity do not count: they may be logs, which grow all the time.
func folders(config Config, changed func()) (dirs []dirwatch.Dir) {
	add := func(folder string, files ...string) {
		folder = filepath.Clean(folder)
		at := slices.IndexFunc(dirs, func(d dirwatch.Dir) bool { return d.Path == folder })
		switch {
		case at < 0:
			dirs = append(dirs, dirwatch.Dir{Path: folder, Files: files, Changed: changed})
		case len(dirs[at].Files) > 0: // otherwise all of them count
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

// logPolling says that folders are read again and again, as they cannot be watched.
func (in *Inputs) logPolling(err error) {
	in.log.Warn("folders are polled", "err", err)
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
				in.unsaved.Fire()
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(saveRetry):
		}
	}
}
