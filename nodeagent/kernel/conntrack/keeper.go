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

// keeperNice is the nice value of the thread that reads conntrack (sched(7)).
const keeperNice = 10

// Config is what a Keeper needs.
type Config struct {
	// Device is the link between the cluster's nodes, over which knocks go.
	Device string
	Log    *slog.Logger
}

// Syncer keeps the flows of this node over moves of paths: it knocks for those
// that began here, and forgets what this node holds as a gateway out of use. All
// methods may be called from any goroutine; none blocks but Run.
type Syncer struct {
	config Config
	mu     sync.Mutex
	plan   schedule
	own    LocalPods
	stats  Stats
	wake   trigger.Trigger
}

// Stats counts since the start.
type Stats struct {
	Rounds    uint64 // in which conntrack was read for knocks
	Sent      uint64 // knocks
	Failed    uint64 // knocks that the kernel refused, and rounds that did not end
	Left      uint64 // flows beyond the bound of a round
	Forgotten uint64 // entries deleted
	Renewed   uint64 // flows of pods on this gateway that were begun anew
}

// New makes a Keeper; Run makes it work.
func New(config Config) *Syncer {
	return &Syncer{config: config, plan: newPlan(), wake: trigger.New()}
}

// PathMoved says that the path of this node to a cluster leads over another node's
// gateway than before; the routes have been changed already. Prefixes are all by
// which this node reaches the cluster. Moves that come close together are one
// round. A flow whose route does not lead over the link between nodes gets none.
func (k *Syncer) PathMoved(cluster string, prefixes []netip.Prefix) {
	k.change(func(now time.Time) { k.plan.moved(now, cluster, prefixes) })
}

// LinkReleased says that this node's own link carried a cluster's traffic and no longer
// does; the routes have been changed already. To say it again changes nothing.
// An agent that starts says for each cluster what holds.
func (k *Syncer) LinkReleased(cluster string, prefixes []netip.Prefix) {
	k.change(func(now time.Time) { k.plan.gone(now, cluster, prefixes) })
}

// LinkTakenOver says that this node's own link carries a cluster's traffic now, and
// that another gateway's did before.
func (k *Syncer) LinkTakenOver(cluster string, prefixes []netip.Prefix) {
	k.change(func(now time.Time) { k.plan.come(now, cluster, prefixes) })
}

// LinkAvailable says that this gateway has an own link to a cluster (again), by which
// goes what other nodes hand to it. Before, it handed that on to another gateway
// with the source that it came with, and conntrack would go on so.
func (k *Syncer) LinkAvailable(cluster string, prefixes []netip.Prefix) {
	k.change(func(now time.Time) { k.plan.transits(now, cluster, prefixes) })
}

// SetOwn says which pods run on this node, when it is a gateway.
func (k *Syncer) SetOwn(own LocalPods) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.own = own
}

// ClusterRemoved says that a cluster left the clusterset.
func (k *Syncer) ClusterRemoved(cluster string) {
	k.change(func(time.Time) {
		delete(k.plan.moves, cluster)
		delete(k.plan.left, cluster)
		delete(k.plan.turns, cluster)
		delete(k.plan.turns, cluster+" transit")
	})
}

func (k *Syncer) change(do func(now time.Time)) {
	k.mu.Lock()
	do(time.Now())
	k.mu.Unlock()
	k.wake.Fire()
}

// Stats gives the counters.
func (k *Syncer) Stats() Stats {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.stats
}

// Run works until the context ends. It starts no goroutine, so it works in the
// network namespace of the thread that it was called on, which it keeps and gives a
// lower priority where processors are short: to read conntrack takes some 15 ms of
// one, without a pause, and those that carry packets and probe links go first.
func (k *Syncer) Run(ctx context.Context) error {
	runtime.LockOSThread() // for good: the thread ends with its priority
	if err := unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), keeperNice); err != nil {
		k.config.Log.Warn("priority of the keeper of flows not lowered", "err", err)
	}
	if _, err := RemoveStaleRules(); err != nil {
		k.config.Log.Warn("rules of an earlier run are left", "err", err)
	}
	k.wake.Run(ctx, func() time.Duration {
		k.work(ctx, time.Now())
		k.mu.Lock()
		defer k.mu.Unlock()
		if at, ok := k.plan.next(); ok {
			return max(time.Until(at), 0)
		}
		return time.Hour
	})
	return nil
}

func (k *Syncer) work(ctx context.Context, now time.Time) {
	k.mu.Lock()
	moves, left := k.plan.take(now)
	turns, own := k.plan.takeTurns(now), k.own
	k.mu.Unlock()
	if len(turns) > 0 {
		k.rebuild(ctx, turns, own)
	}
	if len(moves) > 0 {
		k.refresh(ctx, now, moves)
	}
	if len(left) > 0 {
		k.purge(ctx, now, left)
	}
}

func (k *Syncer) refresh(ctx context.Context, now time.Time, moves []*pathMove) {
	out, err := refresh(ctx, k.config.Device, now, moves)
	end := time.Now()
	k.mu.Lock()
	k.plan.finishMoves(end, moves, out.idleFlows, err)
	k.stats.Rounds++
	k.stats.Sent += uint64(out.sent)
	k.stats.Failed += uint64(out.failed)
	k.stats.Left += uint64(out.left)
	if err != nil {
		k.stats.Failed++
	}
	k.mu.Unlock()
	log := k.config.Log.With("clusters", len(moves), "sent", out.sent, "left", out.left, "took", end.Sub(now))
	switch {
	case err != nil && ctx.Err() == nil:
		log.Warn("knocks for flows of moved paths failed", "err", err)
	case out.sent > 0:
		log.Info("knocked for flows of moved paths")
	}
}

func (k *Syncer) purge(ctx context.Context, now time.Time, left []*purgeTask) {
	n, err := purgeStale(ctx, now, left)
	k.mu.Lock()
	k.stats.Forgotten += uint64(n)
	k.mu.Unlock()
	switch {
	case err != nil && ctx.Err() == nil:
		k.config.Log.Warn("forget flows that others carry now failed", "clusters", len(left), "err", err)
	case n > 0:
		k.config.Log.Info("forgot flows that others carry now", "clusters", len(left), "flows", n)
	}
}

func (k *Syncer) rebuild(ctx context.Context, turns []*linkChange, own LocalPods) {
	n, err := rebuildEntries(ctx, turns, own)
	k.mu.Lock()
	k.plan.turned(turns, n > 0)
	k.stats.Renewed += uint64(n)
	k.mu.Unlock()
	switch {
	case err != nil && ctx.Err() == nil:
		k.config.Log.Warn("renew flows of pods on this gateway failed", "clusters", len(turns), "err", err)
	case n > 0:
		k.config.Log.Info("renewed flows of pods on this gateway", "clusters", len(turns), "flows", n)
	}
}
