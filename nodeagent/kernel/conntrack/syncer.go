package conntrack

import (
	"context"
	"log/slog"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/internal/trigger"
)

// threadNice is the nice value of the thread that reads conntrack (sched(7)).
const threadNice = 10

// Config configures a Syncer.
type Config struct {
	// Device is the link between the cluster's nodes, over which refresh packets are sent.
	Device string
	Log    *slog.Logger
}

// Syncer preserves the flows of this node when paths move. It sends refresh packets for flows
// that began here. On a previous gateway it purges old entries. It is safe for
// concurrent use. Only Run blocks.
type Syncer struct {
	config    Config
	mu        sync.Mutex
	schedule  schedule
	localPods LocalPods
	stats     Stats
	trigger   trigger.Trigger
}

// Stats counts since the start.
type Stats struct {
	Rounds  uint64 // in which conntrack was read for refresh packets
	Sent    uint64 // refresh packets
	Failed  uint64 // refresh packets that the kernel refused, and failed rounds
	Skipped uint64 // flows beyond maxRefreshes in a round
	Purged  uint64 // entries deleted
	Rebuilt uint64 // flows of pods on this gateway whose entries were rebuilt
}

// New returns a Syncer. It works while Run runs.
func New(config Config) *Syncer {
	return &Syncer{config: config, schedule: newSchedule(), trigger: trigger.New()}
}

// PathMoved reports that the path of this node to a cluster moved to a gateway on another node.
// The routes must have changed already. Prefixes are all prefixes of the cluster that this node
// reaches. Moves in quick succession share one round. A flow whose route does not use the link
// between nodes gets no refresh packet.
func (s *Syncer) PathMoved(cluster string, prefixes []netip.Prefix) {
	s.change(func(now time.Time) { s.schedule.moved(now, cluster, prefixes) })
}

// LinkReleased reports that this node's own link is no longer used for a cluster's traffic. The
// routes must have changed already. Repeated calls change nothing. After its start, an agent
// reports the current state of each cluster.
func (s *Syncer) LinkReleased(cluster string, prefixes []netip.Prefix) {
	s.change(func(now time.Time) { s.schedule.released(now, cluster, prefixes) })
}

// LinkTakenOver reports that this node's own link is now used for a cluster's traffic instead of
// another gateway.
func (s *Syncer) LinkTakenOver(cluster string, prefixes []netip.Prefix) {
	s.change(func(now time.Time) { s.schedule.takenOver(now, cluster, prefixes) })
}

// ClusterAdded reports that this node's own link is used for the traffic of a cluster that had no
// path before. Only flows that began without a route can be stale, and no packet in flight uses
// another path, so one check is enough.
func (s *Syncer) ClusterAdded(cluster string, prefixes []netip.Prefix) {
	s.change(func(now time.Time) { s.schedule.added(now, cluster, prefixes) })
}

// LinkAvailable reports that this gateway has an own link to a cluster (again) for packets that
// other nodes hand over. Before, it handed these packets to a sibling with their original
// source. Without a new entry, conntrack would not translate them.
func (s *Syncer) LinkAvailable(cluster string, prefixes []netip.Prefix) {
	s.change(func(now time.Time) { s.schedule.linkAvailable(now, cluster, prefixes) })
}

// RoutesAdded reports that this node has new routes to prefixes of other clusters and to clusterset
// IPs. The routes and rules must have been written already. Earlier packets left by the default
// route.
func (s *Syncer) RoutesAdded(prefixes, clusterSetIPs []netip.Prefix) {
	s.change(func(time.Time) {
		s.schedule.routes.prefixes = append(s.schedule.routes.prefixes, prefixes...)
		s.schedule.routes.clusterSetIPs = append(s.schedule.routes.clusterSetIPs, clusterSetIPs...)
	})
}

// SetLocalPods sets the pods of this node. Only a gateway needs them.
func (s *Syncer) SetLocalPods(pods LocalPods) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.localPods = pods
}

// ClusterRemoved reports that a cluster left the clusterset.
func (s *Syncer) ClusterRemoved(cluster string) {
	s.change(func(time.Time) {
		delete(s.schedule.moves, cluster)
		delete(s.schedule.purges, cluster)
		delete(s.schedule.changes, cluster)
		delete(s.schedule.changes, cluster+" from nodes")
	})
}

func (s *Syncer) change(update func(now time.Time)) {
	s.mu.Lock()
	update(time.Now())
	s.mu.Unlock()
	s.trigger.Fire()
}

// Stats returns the counters.
func (s *Syncer) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Run works until the context is done. It starts no goroutine and works in the network
// namespace of the calling thread. It locks that thread and lowers its priority: reading
// conntrack uses a CPU for about 15 ms without a pause. Threads that forward packets and probe
// links must run first.
func (s *Syncer) Run(ctx context.Context) error {
	runtime.LockOSThread() // never unlocked: the thread ends with its priority
	if err := unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), threadNice); err != nil {
		s.config.Log.Warn("cannot lower thread priority for conntrack work", "err", err)
	}
	if _, err := RemoveStaleRules(); err != nil {
		s.config.Log.Warn("cannot remove rules left by the previous agent", "err", err)
	}
	s.trigger.Run(ctx, func() time.Duration {
		s.runDue(ctx, time.Now())
		s.mu.Lock()
		defer s.mu.Unlock()
		if due, ok := s.schedule.next(); ok {
			return max(time.Until(due), 0)
		}
		return time.Hour
	})
	return nil
}

func (s *Syncer) runDue(ctx context.Context, now time.Time) {
	s.mu.Lock()
	moves, purges := s.schedule.due(now)
	changes, localPods := s.schedule.dueChanges(now), s.localPods
	added := s.schedule.routes
	s.schedule.routes = newRoutes{}
	s.mu.Unlock()
	if !added.empty() {
		s.deleteDefaultRouted(ctx, added)
	}
	if len(changes) > 0 {
		s.rebuild(ctx, changes, localPods)
	}
	if len(moves) > 0 {
		s.refresh(ctx, now, moves)
	}
	if len(purges) > 0 {
		s.purge(ctx, now, purges)
	}
}

func (s *Syncer) deleteDefaultRouted(ctx context.Context, added newRoutes) {
	deleted, err := deleteDefaultRouted(ctx, added)
	s.mu.Lock()
	s.stats.Purged += uint64(deleted)
	s.mu.Unlock()
	switch {
	case err != nil && ctx.Err() == nil:
		s.config.Log.Warn("cannot delete conntrack entries of flows that left by the default route", "err", err)
	case deleted > 0:
		s.config.Log.Info("deleted conntrack entries of flows that left by the default route", "flows", deleted)
	}
}

func (s *Syncer) refresh(ctx context.Context, now time.Time, moves []*pathMove) {
	result, err := refresh(ctx, s.config.Device, now, moves)
	finished := time.Now()
	s.mu.Lock()
	s.schedule.finishMoves(finished, moves, result.idleFlows, err)
	s.stats.Rounds++
	s.stats.Sent += uint64(result.sent)
	s.stats.Failed += uint64(result.failed)
	s.stats.Skipped += uint64(result.skipped)
	if err != nil {
		s.stats.Failed++
	}
	s.mu.Unlock()
	log := s.config.Log.With("clusters", len(moves), "sent", result.sent, "skipped", result.skipped, "took", finished.Sub(now))
	switch {
	case err != nil && ctx.Err() == nil:
		log.Warn("cannot refresh conntrack entries after a path change", "err", err)
	case result.sent > 0:
		log.Info("refreshed conntrack entries after a path change")
	}
}

func (s *Syncer) purge(ctx context.Context, now time.Time, purges []*purgeTask) {
	purged, err := purgeStale(ctx, now, purges)
	s.mu.Lock()
	s.stats.Purged += uint64(purged)
	s.mu.Unlock()
	switch {
	case err != nil && ctx.Err() == nil:
		s.config.Log.Warn("cannot purge conntrack entries of clusters that other gateways serve now", "clusters", len(purges), "err", err)
	case purged > 0:
		s.config.Log.Info("purged conntrack entries of clusters that other gateways serve now", "clusters", len(purges), "flows", purged)
	}
}

func (s *Syncer) rebuild(ctx context.Context, changes []*linkChange, localPods LocalPods) {
	rebuilt, err := rebuildEntries(ctx, changes, localPods)
	s.mu.Lock()
	s.schedule.finishCheck(changes, rebuilt > 0)
	s.stats.Rebuilt += uint64(rebuilt)
	s.mu.Unlock()
	switch {
	case err != nil && ctx.Err() == nil:
		s.config.Log.Warn("cannot rebuild conntrack entries of local pods", "clusters", len(changes), "err", err)
	case rebuilt > 0:
		s.config.Log.Info("rebuilt conntrack entries of local pods", "clusters", len(changes), "flows", rebuilt)
	}
}
