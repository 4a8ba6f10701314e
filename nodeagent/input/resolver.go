package input

import (
	"context"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/schema/fabric"
)

const (
	resolveEvery   = 30 * time.Second // how often names of endpoints are looked up again
	resolveTimeout = 5 * time.Second  // for one name
	resolveAtOnce  = 16
	hostsFile      = "/etc/hosts"
)

// resolver looks up the endpoints that are names. A name that no longer
// resolves keeps its last addresses: a DNS outage must not end a tunnel.
type resolver struct {
	lookup  func(ctx context.Context, network, host string) ([]netip.Addr, error)
	changed func()

	mu    sync.Mutex
	names []string // of endpoints
	more  []string // besides
	known map[string][]netip.Addr
	wake  trigger.Trigger
}

// setEndpointNames sets the names to look up; new ones are looked up at once.
func (r *resolver) setEndpointNames(f *fabric.Fabric, own string) {
	var names []string
	for _, c := range f.Clusters {
		if c.Name == own {
			continue
		}
		for _, g := range c.Gateways {
			for _, e := range g.Endpoints {
				if parsed, err := fabric.ParseEndpoint(e); err == nil && parsed.Name != "" {
					names = append(names, parsed.Name)
				}
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	r.mu.Lock()
	same := slices.Equal(names, r.names)
	r.names = names
	r.mu.Unlock()
	if !same {
		r.wake.Fire()
	}
}

// setExtraNames sets names to look up besides.
func (r *resolver) setExtraNames(names []string) {
	r.mu.Lock()
	same := slices.Equal(names, r.more)
	r.more = names
	r.mu.Unlock()
	if !same {
		r.wake.Fire()
	}
}

// snapshot gives what is known, by endpoint as the topology writes it.
func (r *resolver) snapshot() map[string][]netip.Addr {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.known)
}

// resolveNow looks all names up now, as a gateway is not where it was.
func (r *resolver) resolveNow() { r.wake.Fire() }

// run looks names up until ctx ends.
func (r *resolver) run(ctx context.Context) {
	ticker := time.NewTicker(resolveEvery)
	defer ticker.Stop()
	for {
		r.mu.Lock()
		names := slices.Concat(r.names, r.more)
		r.mu.Unlock()
		var group errgroup.Group
		group.SetLimit(resolveAtOnce)
		for _, name := range names {
			group.Go(func() error { r.resolveName(ctx, name); return nil })
		}
		_ = group.Wait() // every function gives nil
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		case <-ticker.C:
		}
	}
}

func (r *resolver) resolveName(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	// The library reads this file every 5 s only.
	found := hostsOf(hostsFile, name)
	if len(found) == 0 {
		var err error
		if found, err = r.lookup(ctx, "ip", name); err != nil || len(found) == 0 {
			return
		}
	}
	for i := range found {
		found[i] = found[i].Unmap()
	}
	slices.SortFunc(found, netip.Addr.Compare)
	r.mu.Lock()
	key := fabric.Endpoint{Name: name}.String()
	same := slices.Equal(r.known[key], found)
	r.known[key] = found
	r.mu.Unlock()
	if !same {
		r.changed()
	}
}

// hostsOf gives the addresses that a file of hosts (hosts(5)) has for a name.
func hostsOf(path, name string) []netip.Addr {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	var out []netip.Addr
	for line := range strings.Lines(string(raw)) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) < 2 || !slices.ContainsFunc(fields[1:], func(f string) bool { return strings.EqualFold(f, name) }) {
			continue
		}
		if addr, err := netip.ParseAddr(fields[0]); err == nil {
			out = append(out, addr)
		}
	}
	return out
}
