package input

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/schema/fabric"
)

const (
	resolveInterval = 30 * time.Second
	resolveTimeout  = 5 * time.Second // for one name
	maxLookups      = 16              // at once
)

// resolver looks up the names among endpoints. A name that no longer resolves keeps its last
// addresses: a DNS outage must not end a tunnel.
type resolver struct {
	lookup  func(ctx context.Context, network, host string) ([]netip.Addr, error)
	changed func()
	trigger trigger.Trigger

	mu    sync.Mutex
	names []string
	addrs map[string][]netip.Addr // by endpoint, as in model.HostState
}

func newResolver(lookup func(ctx context.Context, network, host string) ([]netip.Addr, error), changed func()) *resolver {
	return &resolver{lookup: lookup, changed: changed, trigger: trigger.New(), addrs: map[string][]netip.Addr{}}
}

// setNames sets the names to look up. If they changed, a lookup starts at once.
func (r *resolver) setNames(names []string) {
	r.mu.Lock()
	same := slices.Equal(names, r.names)
	r.names = names
	r.mu.Unlock()
	if !same {
		r.trigger.Fire()
	}
}

// snapshot returns the addresses of all names that resolved, by endpoint.
func (r *resolver) snapshot() map[string][]netip.Addr {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.addrs)
}

// resolveNow looks up all names without waiting for resolveInterval.
func (r *resolver) resolveNow() { r.trigger.Fire() }

// run looks up names until ctx is done.
func (r *resolver) run(ctx context.Context) {
	ticker := time.NewTicker(resolveInterval)
	defer ticker.Stop()
	for {
		r.mu.Lock()
		names := r.names
		r.mu.Unlock()
		var group errgroup.Group
		group.SetLimit(maxLookups)
		for _, name := range names {
			group.Go(func() error { r.resolveName(ctx, name); return nil })
		}
		_ = group.Wait() // no function returns an error
		select {
		case <-ctx.Done():
			return
		case <-r.trigger:
		case <-ticker.C:
		}
	}
}

func (r *resolver) resolveName(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	addrs, err := r.lookup(ctx, "ip", name)
	if err != nil || len(addrs) == 0 {
		return
	}
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	key := fabric.Endpoint{Name: name}.String()
	r.mu.Lock()
	same := slices.Equal(r.addrs[key], addrs)
	r.addrs[key] = addrs
	r.mu.Unlock()
	if !same {
		r.changed()
	}
}
