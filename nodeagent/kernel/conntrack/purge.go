package conntrack

import (
	"context"
	"errors"
	"net/netip"
	"time"
)

// purgeTimes are the delays of the first purges at a gateway after a cluster's traffic moved to
// another gateway. Later purges are hourly. At the first time, packets in flight during the move
// have arrived. At the second, flows that a late node briefly sent this way count as ended.
var purgeTimes = [...]time.Duration{15 * time.Second, 6 * time.Minute}

const (
	purgeInterval = time.Hour       // between later purges
	maxIdle       = 5 * time.Minute // without a packet, at a gateway that is not in use
)

// purgeTask is a cluster whose traffic moved to another gateway.
type purgeTask struct {
	cluster    string
	prefixes   []netip.Prefix
	releasedAt time.Time
	round      int
}

func (p *purgeTask) due() time.Time {
	return nextRound(p.releasedAt, p.round, purgeTimes[:], purgeInterval)
}

// minIdle returns the minimum time without a packet of a purged flow.
func (p *purgeTask) minIdle(now time.Time) time.Duration {
	return min(now.Sub(p.releasedAt)-idleTolerance, maxIdle)
}

// purgeStale deletes the entries by which this gateway translated the source of flows to
// clusters that other gateways now serve. It deletes only entries without a packet since the
// move. It returns the number of deleted entries.
//
// These entries are dangerous. An ended flow occupies a shared egress address and port here
// (TCP: for five days). At the current gateway, a flow of another pod may use the same port.
// When the path returns, the kernel would assign that flow a different port, and the flow would
// break. The entries are not needed: the translation is a function of the packet. A live flow
// gets a new entry with the same address and port from its next packet or refresh packet.
//
// All other entries stay. Flows that a node still sends this way had a packet. Flows from the
// cluster store the choice of a backend, which a deletion could only make worse. Flows with
// their own source cannot conflict with the port of another flow.
func purgeStale(ctx context.Context, now time.Time, purges []*purgeTask) (int, error) {
	times, err := readTimeouts()
	if err != nil {
		return 0, err
	}
	byName, clusters := map[string]*purgeTask{}, newPrefixTable()
	for _, task := range purges {
		byName[task.cluster] = task
		clusters.add(task.cluster, task.prefixes)
	}
	var stale []Flow
	err = listFlows(ctx, func(f *Flow) {
		name, ok := clusters.find(f.Reply.From.Addr())
		if ok && isPurgeable(f, times, byName[name].minIdle(now)) {
			stale = append(stale, *f)
		}
	})
	if err != nil {
		return 0, err
	}
	return deleteEntries(ctx, stale)
}

// isPurgeable reports whether purgeStale deletes the entry of a flow to a cluster.
func isPurgeable(f *Flow, times timeouts, minIdle time.Duration) bool {
	idle, known := times.idle(f)
	return !f.keepsSource() && known && idle >= minIdle
}

func deleteEntries(ctx context.Context, flows []Flow) (deleted int, err error) {
	for i := range flows {
		if ctx.Err() != nil {
			return deleted, ctx.Err()
		}
		if deleteErr := deleteEntry(&flows[i]); deleteErr != nil {
			err = errors.Join(err, deleteErr)
			continue
		}
		deleted++
	}
	return deleted, err
}
