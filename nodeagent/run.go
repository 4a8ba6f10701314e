package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/kernel"
	"hawser.dev/hawser/nodeagent/tunnel"
)

// Run converges until ctx ends. The node keeps its state: traffic goes on while
// an agent is replaced.
func (a *Agent) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := os.MkdirAll(filepath.Dir(a.config.Socket), 0o755); err != nil {
		return fmt.Errorf("make socket folder: %w", err)
	}
	socket, err := a.listen()
	if err != nil {
		return err
	}
	a.choice.restore(a.saver.load(a.log))
	a.shifter.restore(a.shapes.load(a.log), time.Now())
	a.endpoints.restore()
	a.heard.restore(time.Now(), a.log)
	a.peers.client.RestoreAges(a.ages.load(a.log))
	defer time.AfterFunc(a.heard.stale, a.look).Stop()
	a.announcer.carries = tunnelsStand()
	a.peers.prober.SetReady(a.announcer.carries)
	a.announce()
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
	start("status", func(ctx context.Context) error { return serve(ctx, socket, a.control()) })
	for _, o := range a.outlets {
		start("metrics", func(ctx context.Context) error { o.run(ctx, a.public()); return nil })
	}
	start("inputs", a.inputs.run)
	start("HawserNode", a.tellCluster)
	start("peers", a.peers.run)
	start("kernel events", func(ctx context.Context) error { return kernel.Monitor(ctx, a.drift) })
	start("nftables events", a.ruleset.Monitor)
	start("dns", a.serveNames)
	start("tunnels", a.tunnels().Run)
	start("ipsec", a.secured.Run)
	start("links of the run before", func(ctx context.Context) error { settled(ctx, a.look); return nil })
	start("flows", a.keeper.Run)
	start("path mtu", a.finder.Run)
	start("cables", a.cabling.Run)
	start("endpoints", a.endpoints.run)
	start("endpoints kept", a.endpoints.keep)
	start("what was heard", func(ctx context.Context) error { a.heard.run(ctx, a.log); return nil })
	if a.published != nil {
		start("objects", func(ctx context.Context) error { a.published.run(ctx); return nil })
	}
	start("links in use", func(ctx context.Context) error { a.saver.run(ctx, a.choice.kept, a.log); return nil })
	start("ages of exports", func(ctx context.Context) error { a.ages.run(ctx, a.peers.client.Ages, a.log); return nil })
	start("shape", func(ctx context.Context) error { a.shapes.run(ctx, a.shifter.keep, a.log); return nil })
	a.engine.Run(ctx, a.source, a.trigger)
	wait.Wait()
	return errors.Join(append(errs, a.forget())...)
}

// tunnels looks after the processes of this node's tunnel devices.
func (a *Agent) tunnels() *tunnel.Watch {
	return &tunnel.Watch{
		Log: a.log,
		Devices: func() []string {
			var names []string
			if n := a.shown.Load().node; n != nil {
				for _, l := range n.Links {
					if l.Type == desired.LinkWireguard {
						names = append(names, l.Name)
					}
				}
			}
			return names
		},
		Replaced: func(name string) {
			a.metrics.replaced.WithLabelValues(name).Inc()
			a.look()
		},
	}
}
