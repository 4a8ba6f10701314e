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

// trafficTimeout is how long a neighbour has traffic after the last packet.
const trafficTimeout = 10 * time.Second

// trafficMeter determines the neighbours to which this node sends packets. It reads the packet
// counters of the prefixes of other clusters. A gateway counts packets into its tunnels. Other
// nodes count direct packets to a gateway.
type trafficMeter struct {
	read     func(context.Context) (map[netip.Addr]uint64, error)
	onChange func(neighbors map[string]bool)
	log      *slog.Logger
	wake     trigger.Trigger

	mu         sync.Mutex
	interval   time.Duration           // between two reads; 0 = none
	neighbors  map[netip.Addr][]string // by the first address of a prefix
	packets    map[netip.Addr]uint64   // at the last read; nil before the first one
	lastPacket map[string]time.Time    // of the last packet, by neighbour
	reported   map[string]bool
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

// setPrefixes sets the neighbours over whose links packets are sent, by the first address of their
// destination prefix.
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
			m.onChange(busy)
		}
		return interval
	})
	return nil
}

// update returns the neighbours with traffic and reports whether they changed. packets is the
// result of a read.
func (m *trafficMeter) update(packets map[netip.Addr]uint64, now time.Time) (map[string]bool, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lastPacket == nil {
		m.lastPacket = map[string]time.Time{}
	}
	first := m.packets == nil // the counters include packets before the start of this agent
	for prefix, n := range packets {
		// A new element starts at zero.
		if first || n == 0 || n == m.packets[prefix] {
			continue
		}
		for _, neighbor := range m.neighbors[prefix] {
			m.lastPacket[neighbor] = now
		}
	}
	m.packets = packets
	busy := map[string]bool{}
	for neighbor, at := range m.lastPacket {
		if now.Sub(at) < trafficTimeout {
			busy[neighbor] = true
		} else {
			delete(m.lastPacket, neighbor)
		}
	}
	changed := !maps.Equal(busy, m.reported)
	m.reported = busy
	return busy, changed
}

// prefixNeighbors returns the neighbours over whose links packets to other clusters are sent, by
// the first address of the clusters' prefixes. A gateway forwards packets of other nodes over its
// best path, which may differ from the path for packets of its node.
func prefixNeighbors(in projection.Input) map[netip.Addr][]string {
	local := in.Fabric.Cluster(in.Cluster)
	if local == nil {
		return nil
	}
	out := map[netip.Addr][]string{}
	for i := range in.Fabric.Clusters {
		c := &in.Fabric.Clusters[i]
		if c.Name == in.Cluster {
			continue
		}
		neighbors := slices.Compact([]string{in.Paths[c.Name].Next(c.Name), in.GatewayPaths[c.Name].Next(c.Name)})
		for _, p := range c.SeenFrom(local) {
			out[p.Masked().Addr()] = neighbors
		}
	}
	return out
}
