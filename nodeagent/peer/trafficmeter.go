package peer

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/nodeagent/projection"
)

// trafficTimeout is the time after its last packet during which a neighbour has traffic.
const trafficTimeout = 10 * time.Second

// trafficMeter finds the neighbours to which this node sends packets, from the packet counters of other
// clusters' prefixes. A gateway counts packets into its tunnels, other nodes count direct packets to a
// gateway. One read covers all of them.
type trafficMeter struct {
	read    func(context.Context) (map[netip.Addr]uint64, error)
	changed func(neighbors map[string]bool)
	log     *slog.Logger
	wake    trigger.Trigger

	mu        sync.Mutex
	interval  time.Duration           // between two reads; 0 = none
	neighbors map[netip.Addr][]string // by the first address of a prefix
	packets   map[netip.Addr]uint64   // at the last read; nil before the first one
	last      map[string]time.Time    // of the last packet, by neighbour
	reported  map[string]bool
}

// setInterval sets the time between two reads; 0 stops them.
func (m *trafficMeter) setInterval(d time.Duration) {
	m.mu.Lock()
	same := m.interval == d
	m.interval = d
	m.mu.Unlock()
	if !same {
		m.wake.Fire()
	}
}

// setPrefixes sets the neighbours whose links the packets to a prefix use, by its first address.
func (m *trafficMeter) setPrefixes(neighbors map[netip.Addr][]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.neighbors = neighbors
}

// run reads the counters until ctx is done.
func (m *trafficMeter) run(ctx context.Context) error {
	m.wake.Run(ctx, func() time.Duration {
		m.mu.Lock()
		interval := m.interval
		m.mu.Unlock()
		if interval == 0 {
			return time.Hour // until setInterval
		}
		packets, err := m.read(ctx)
		if err != nil {
			m.log.Debug("cannot read packet counters", "err", err)
			return interval
		}
		if busy, changed := m.update(packets, time.Now()); changed {
			m.changed(busy)
		}
		return interval
	})
	return nil
}

// update returns the neighbours with traffic after a read, and reports whether they changed.
func (m *trafficMeter) update(packets map[netip.Addr]uint64, now time.Time) (map[string]bool, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last == nil {
		m.last = map[string]time.Time{}
	}
	first := m.packets == nil // the counters include packets before the start of this agent
	for prefix, n := range packets {
		// A new element starts at zero.
		if first || n == 0 || n == m.packets[prefix] {
			continue
		}
		for _, neighbor := range m.neighbors[prefix] {
			m.last[neighbor] = now
		}
	}
	m.packets = packets
	busy := map[string]bool{}
	for neighbor, at := range m.last {
		if now.Sub(at) < trafficTimeout {
			busy[neighbor] = true
		} else {
			delete(m.last, neighbor)
		}
	}
	changed := !maps.Equal(busy, m.reported)
	m.reported = busy
	return busy, changed
}

// prefixNeighbors returns the neighbours whose links the packets to other clusters use, by the first
// address of the clusters' prefixes. A gateway forwards the packets of other nodes over its own best path,
// which may differ from the node's.
func prefixNeighbors(in projection.Input) map[netip.Addr][]string {
	own := in.Fabric.Cluster(in.Cluster)
	if own == nil {
		return nil
	}
	out := map[netip.Addr][]string{}
	for i := range in.Fabric.Clusters {
		c := &in.Fabric.Clusters[i]
		if c.Name == in.Cluster {
			continue
		}
		next := slices.Compact([]string{in.Paths[c.Name].Next(c.Name), in.GatewayPaths[c.Name].Next(c.Name)})
		for _, p := range c.SeenFrom(own) {
			out[p.Masked().Addr()] = next
		}
	}
	return out
}
