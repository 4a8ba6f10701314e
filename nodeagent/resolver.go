package nodeagent

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"hawser.dev/hawser/schema/fabric"
)

const (
	resolveEvery   = 30 * time.Second // how often names of endpoints are looked up again
	resolveTimeout = 5 * time.Second
	dnsEndpoint    = "dns:" // prefix of an endpoint that is a name
)

// resolver looks up the endpoints that are names. A name that no longer
// resolves keeps its last addresses: a DNS outage must not end a tunnel.
type resolver struct {
	lookup  func(ctx context.Context, network, host string) ([]netip.Addr, error)
	changed func()

	mu    sync.Mutex
	names []string
	known map[string][]netip.Addr
	wake  chan struct{}
}

func newResolver(changed func()) *resolver {
	return &resolver{
		lookup:  net.DefaultResolver.LookupNetIP,
		changed: changed,
		known:   map[string][]netip.Addr{},
		wake:    make(chan struct{}, 1),
	}
}

// want sets the names to look up; new ones are looked up at once.
func (r *resolver) want(f *fabric.Fabric, own string) {
	var names []string
	for _, c := range f.Clusters {
		if c.Name == own {
			continue
		}
		for _, g := range c.Gateways {
			for _, e := range g.Endpoints {
				if name, ok := strings.CutPrefix(e, dnsEndpoint); ok {
					names = append(names, name)
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
		token(r.wake)
	}
}

// snapshot gives what is known, by endpoint as the topology writes it.
func (r *resolver) snapshot() map[string][]netip.Addr {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.known)
}

// run looks names up until ctx ends.
func (r *resolver) run(ctx context.Context) {
	ticker := time.NewTicker(resolveEvery)
	defer ticker.Stop()
	for {
		r.mu.Lock()
		names := r.names
		r.mu.Unlock()
		for _, name := range names {
			r.one(ctx, name)
		}
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		case <-ticker.C:
		}
	}
}

func (r *resolver) one(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	found, err := r.lookup(ctx, "ip", name)
	if err != nil || len(found) == 0 {
		return
	}
	for i := range found {
		found[i] = found[i].Unmap()
	}
	slices.SortFunc(found, netip.Addr.Compare)
	r.mu.Lock()
	same := slices.Equal(r.known[dnsEndpoint+name], found)
	r.known[dnsEndpoint+name] = found
	r.mu.Unlock()
	if !same {
		r.changed()
	}
}

// token puts one token into a channel of size one; a token that is already
// there says the same.
func token(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
