package feed

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// publication is the state for one kind of subscriber: gateways of other clusters, or nodes of this
// cluster. It retains only the current version. A slow subscriber receives the difference between
// its version and the current one, so there are no queues.
type publication struct {
	publishing sync.Mutex // serializes publish

	mu       sync.Mutex
	current  *snapshot
	replaced chan struct{} // closed when current is replaced
}

func newPublication() *publication {
	return &publication{current: newSnapshot(1, nil, nil), replaced: make(chan struct{})}
}

// load returns the current version, and a channel that is closed when a newer one exists.
func (p *publication) load() (*snapshot, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current, p.replaced
}

// publish creates the next version if the states differ from the current version. It omits parts
// that cannot be sent; the error names them. The caller must not change the states and their lists
// of exports afterwards.
func (p *publication) publish(states map[string]RemoteState) error {
	p.publishing.Lock()
	defer p.publishing.Unlock()
	current, _ := p.load()
	clusters := make(map[string]*encodedCluster, len(states))
	var errs []error
	for _, cluster := range slices.Sorted(maps.Keys(states)) {
		var err error
		if clusters[cluster], err = encodeCluster(current.clusters[cluster], states[cluster]); err != nil {
			errs = append(errs, fmt.Errorf("publish state of %s: %w", cluster, err))
		}
	}
	if changes := changesBetween(current.clusters, clusters); len(changes) > 0 {
		p.mu.Lock()
		p.current = newSnapshot(current.version+1, clusters, changes)
		close(p.replaced)
		p.replaced = make(chan struct{})
		p.mu.Unlock()
	}
	return errors.Join(errs...)
}
