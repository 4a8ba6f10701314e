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
// that began here, and purges entries of this node as a former gateway. It is safe for
// concurrent use. Only Run blocks.
type Syncer struct {
	config   Config
	mu       sync.Mutex
	schedule schedule
	own      LocalPods
	stats    Stats
	trigger  trigger.Trigger
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
func (k *Syncer) PathMoved(cluster string, prefixes []netip.Prefix) {
	k.change(func(now time.Time) { k.schedule.moved(now, cluster, prefixes) })
}

// LinkReleased reports that this node's own link is no longer used for a cluster's traffic. The
// routes must have changed already. Repeated calls change nothing. After its start, an agent
// reports the current state of each cluster.
func (k *Syncer) LinkReleased(cluster string, prefixes []netip.Prefix) {
	k.change(func(now time.Time) { k.schedule.released(now, cluster, prefixes) })
}

// LinkTakenOver reports that this node's own link is now used for a cluster's traffic instead of
// another gateway.
func (k *Syncer) LinkTakenOver(cluster string, prefixes []netip.Prefix) {
	k.change(func(now time.Time) { k.schedule.takenOver(now, cluster, prefixes) })
}

// ClusterAdded reports that this node's own link carries the traffic of a cluster that had no path
// before. Only flows that began without a route can be stale, and no packet in flight uses another
// path, so one check is enough.
func (k *Syncer) ClusterAdded(cluster string, prefixes []netip.Prefix) {
	k.change(func(now time.Time) { k.schedule.added(now, cluster, prefixes) })
}

// LinkAvailable reports that this gateway has an own link to a cluster (again) for packets that
// other nodes hand over. Before, it handed these packets to a sibling with their original
// source. Without a new entry, conntrack would not translate them.
func (k *Syncer) LinkAvailable(cluster string, prefixes []netip.Prefix) {
	k.change(func(now time.Time) { k.schedule.linkAvailable(now, cluster, prefixes) })
}

// SetOwn sets the pods of this node if it is a gateway.
func (k *Syncer) SetOwn(own LocalPods) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.own = own
}

// ClusterRemoved reports that a cluster left the clusterset.
func (k *Syncer) ClusterRemoved(cluster string) {
	k.change(func(time.Time) {
		delete(k.schedule.moves, cluster)
		delete(k.schedule.purges, cluster)
		delete(k.schedule.changes, cluster)
		delete(k.schedule.changes, cluster+" from nodes")
	})
}

func (k *Syncer) change(do func(now time.Time)) {
	k.mu.Lock()
	do(time.Now())
	k.mu.Unlock()
	k.trigger.Fire()
}

// Stats returns the counters.
func (k *Syncer) Stats() Stats {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.stats
}

// Run works until the context is done. It starts no goroutine and works in the network
// namespace of the calling thread. It locks that thread and lowers its priority: reading
// conntrack uses a CPU for about 15 ms without a pause. Threads that forward packets and probe
// links must run first.
func (k *Syncer) Run(ctx context.Context) error {
	runtime.LockOSThread() // never unlocked: the thread ends with its priority
	if err := unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), threadNice); err != nil {
		k.config.Log.Warn("cannot lower thread priority for conntrack work", "err", err)
	}
	if _, err := RemoveStaleRules(); err != nil {
		k.config.Log.Warn("cannot remove rules left by the previous agent", "err", err)
	}
	k.trigger.Run(ctx, func() time.Duration {
		k.work(ctx, time.Now())
		k.mu.Lock()
		defer k.mu.Unlock()
		if at, ok := k.schedule.next(); ok {
			return max(time.Until(at), 0)
		}
		return time.Hour
	})
	return nil
}

func (k *Syncer) work(ctx context.Context, now time.Time) {
	k.mu.Lock()
	moves, purges := k.schedule.due(now)
	changes, own := k.schedule.dueChanges(now), k.own
	k.mu.Unlock()
	if len(changes) > 0 {
		k.rebuild(ctx, changes, own)
	}
	if len(moves) > 0 {
		k.refresh(ctx, now, moves)
	}
	if len(purges) > 0 {
		k.purge(ctx, now, purges)
	}
}

func (k *Syncer) refresh(ctx context.Context, now time.Time, moves []*pathMove) {
	out, err := refresh(ctx, k.config.Device, now, moves)
	end := time.Now()
	k.mu.Lock()
	k.schedule.finishMoves(end, moves, out.idleFlows, err)
	k.stats.Rounds++
	k.stats.Sent += uint64(out.sent)
	k.stats.Failed += uint64(out.failed)
	k.stats.Skipped += uint64(out.left)
	if err != nil {
		k.stats.Failed++
	}
	k.mu.Unlock()
	log := k.config.Log.With("clusters", len(moves), "sent", out.sent, "skipped", out.left, "took", end.Sub(now))
	switch {
	case err != nil && ctx.Err() == nil:
		log.Warn("cannot refresh conntrack entries after a path change", "err", err)
	case out.sent > 0:
		log.Info("refreshed conntrack entries after a path change")
	}
}

func (k *Syncer) purge(ctx context.Context, now time.Time, purges []*purgeTask) {
	n, err := purgeStale(ctx, now, purges)
	k.mu.Lock()
	k.stats.Purged += uint64(n)
	k.mu.Unlock()
	switch {
	case err != nil && ctx.Err() == nil:
		k.config.Log.Warn("cannot purge conntrack entries of clusters that other gateways serve now", "clusters", len(purges), "err", err)
	case n > 0:
		k.config.Log.Info("purged conntrack entries of clusters that other gateways serve now", "clusters", len(purges), "flows", n)
	}
}

func (k *Syncer) rebuild(ctx context.Context, changes []*linkChange, own LocalPods) {
	n, err := rebuildEntries(ctx, changes, own)
	k.mu.Lock()
	k.schedule.checked(changes, n > 0)
	k.stats.Rebuilt += uint64(n)
	k.mu.Unlock()
	switch {
	case err != nil && ctx.Err() == nil:
		k.config.Log.Warn("cannot rebuild conntrack entries of local pods", "clusters", len(changes), "err", err)
	case n > 0:
		k.config.Log.Info("rebuilt conntrack entries of local pods", "clusters", len(changes), "flows", n)
	}
}
