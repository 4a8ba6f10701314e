package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"hawser.dev/hawser/nodeagent/cluster/election"
	"hawser.dev/hawser/nodeagent/input"
	"hawser.dev/hawser/nodeagent/kernel/host"
	"hawser.dev/hawser/nodeagent/observe/control"
	"hawser.dev/hawser/nodeagent/peer"
)

// leaseReleaseTimeout bounds the release of a gateway when the agent stops.
const leaseReleaseTimeout = 5 * time.Second

// Run converges until the context is done. The node keeps its tunnels and routes, so that traffic
// continues while an agent is replaced. Only leases of gateways that labels select are released.
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
		return fmt.Errorf("make socket directory: %w", err)
	}
	socket, err := a.control.Listen()
	if err != nil {
		return err
	}
	l := a.loop
	state := l.restore(time.Now())
	l.state.Store(&state)
	l.peers.SetReady(state.Announcement.Active)
	l.onDrainChange()
	var parts errgroup.Group
	start := func(name string, run func(context.Context) error) {
		parts.Go(func() error {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				cancel()
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	start("status", func(ctx context.Context) error { return control.Serve(ctx, socket, a.control.SocketHandler()) })
	start("metrics", func(ctx context.Context) error { a.listeners.Run(ctx, a.control.TCPHandler()); return nil })
	start("inputs", l.inputs.Run)
	start("gateway election", l.elector.Run)
	start("HawserNode", a.report.Run)
	start("peers", l.peers.Run)
	start("host", l.host.Run)
	start("dns", a.dns.run)
	start("objects", func(ctx context.Context) error { l.publication.Run(ctx); return nil })
	start("state files", func(ctx context.Context) error { l.files.run(ctx, l.State, l.log); return nil })
	a.engine.Run(ctx, l.desiredState, l.trigger)
	return errors.Join(parts.Wait(), a.wipeStateDir())
}

// wipeStateDir removes the state files if the fabric asked for a decommission and all objects are
// gone. Sealed keys must not stay on the node. Files of other programs stay.
func (a *Agent) wipeStateDir() error {
	v := a.loop.Outcome()
	if v.Node == nil || !v.Node.Decommission || !v.Report.Clean() || v.Input.Fabric.Cluster(v.Input.Cluster) != nil {
		return nil
	}
	var errs []error
	for _, patterns := range [][]string{input.StateFiles(), host.StateFiles(), peer.StateFiles(), {control.DrainedFile, election.HoldersFile, pathsFile, shapeFile, remoteExportsFile, discoveredEndpointsFile}} {
		for _, pattern := range patterns {
			found, err := filepath.Glob(filepath.Join(a.config.StateDir, pattern))
			errs = append(errs, err)
			for _, path := range found {
				errs = append(errs, os.RemoveAll(path))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("empty the state directory: %w", err)
	}
	return nil
}
