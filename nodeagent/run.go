package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"hawser.dev/hawser/nodeagent/control"
	"hawser.dev/hawser/nodeagent/election"
	"hawser.dev/hawser/nodeagent/host"
	"hawser.dev/hawser/nodeagent/input"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/peers"
	"hawser.dev/hawser/nodeagent/round"
)

// saveHeardEvery is how often at most what was heard is written to the state folder.
const saveHeardEvery = 5 * time.Second

// leaseReleaseTimeout bounds the release of a gateway when the agent stops.
const leaseReleaseTimeout = 5 * time.Second

// Run converges until ctx ends. The node keeps its state: traffic goes on while
// an agent is replaced. Only a gateway that labels put here, and that another node can
// have, is given back.
func (a *Agent) Run(until context.Context) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(until))
	defer cancel()
	defer context.AfterFunc(until, func() {
		release, done := context.WithTimeout(ctx, leaseReleaseTimeout)
		defer done()
		a.loop.elector.Release(release)
		cancel()
	})()
	if err := os.MkdirAll(filepath.Dir(a.config.Socket), 0o755); err != nil {
		return fmt.Errorf("make socket folder: %w", err)
	}
	socket, err := a.control.Listen()
	if err != nil {
		return err
	}
	l := a.loop
	begin := l.begin(time.Now())
	l.state.Store(&begin)
	defer time.AfterFunc(l.peers.Stale(), l.trigger.Ring).Stop()
	l.peers.SetReady(begin.Announcement.Carries)
	l.announce()
	var wait sync.WaitGroup
	var errs []error
	var mu sync.Mutex
	start := func(name string, work func(context.Context) error) {
		wait.Go(func() {
			err := work(ctx)
			if err == nil || ctx.Err() != nil {
				return
			}
			mu.Lock()
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
			mu.Unlock()
			cancel()
		})
	}
	start("status", func(ctx context.Context) error { return control.Serve(ctx, socket, a.control.Private()) })
	start("metrics", func(ctx context.Context) error { a.outlets.Run(ctx, a.control.Public()); return nil })
	start("inputs", l.inputs.Run)
	start("election of gateways", l.elector.Run)
	start("HawserNode", a.report.Run)
	start("peers", l.peers.Run)
	start("host", l.host.Run)
	start("dns", a.names.run)
	start("objects", func(ctx context.Context) error { l.publication.Run(ctx); return nil })
	start("links of the run before", func(ctx context.Context) error { settled(ctx, l.trigger.Ring); return nil })
	start("kept paths", func(ctx context.Context) error {
		l.files.paths.Run(ctx, 0, func() map[string]round.KeptPath { return l.State().KeptPaths() }, l.log)
		return nil
	})
	start("kept shape", func(ctx context.Context) error {
		l.files.shape.Run(ctx, 0, func() round.KeptShape { return l.State().KeptShape() }, l.log)
		return nil
	})
	start("kept exports of others", func(ctx context.Context) error {
		l.files.heard.Run(ctx, saveHeardEvery, func() round.KeptLive { return l.State().KeptLive() }, l.log)
		return nil
	})
	start("kept endpoints of others", func(ctx context.Context) error {
		l.files.found.Run(ctx, 0, func() map[string][]model.Found { return l.State().KeptFound() }, l.log)
		return nil
	})
	a.engine.Run(ctx, l.source, l.trigger)
	wait.Wait()
	return errors.Join(append(errs, a.forget())...)
}

// settled looks again when links of the run before need no longer be kept: perhaps
// nothing else happens then.
func settled(ctx context.Context, look func()) {
	timer := time.NewTimer(round.SettleTime)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
		look()
	}
}

// forget empties the state folder of an agent that ends after it took everything
// down because it was told to: nothing of Hawser's is left on the node then, sealed
// keys least of all. Files that an agent does not write stay.
func (a *Agent) forget() error {
	v := a.loop.Outcome()
	if v.Node == nil || !v.Node.Decommission || !v.Report.Clean() || v.Input.Fabric.Cluster(v.Input.Cluster) != nil {
		return nil
	}
	var errs []error
	for _, patterns := range [][]string{input.StateFiles(), host.StateFiles(), peers.StateFiles(), {control.DrainedFile, election.HoldersFile, "paths.json", "shape.json", "heard.json", "found.json"}} {
		for _, pattern := range patterns {
			found, err := filepath.Glob(filepath.Join(a.config.StateDir, pattern))
			errs = append(errs, err)
			for _, path := range found {
				errs = append(errs, os.RemoveAll(path))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("empty the state folder: %w", err)
	}
	return nil
}
