package conntrack

import (
	"context"
	"errors"
	"net/netip"
	"time"
)

// purgeTimes are the first times of a purge by a gateway that no longer carries the traffic to
// a cluster; later purges are hourly. At the first time, packets in flight during the move have
// arrived. At the second, flows that a late node briefly sent this way count as ended.
var purgeTimes = [...]time.Duration{15 * time.Second, 6 * time.Minute}

const (
	purgeInterval = time.Hour       // between later purges
	ended         = 5 * time.Minute // without a packet, at a gateway that is not in use
)

// purgeTask is a cluster whose traffic moved to another gateway.
type purgeTask struct {
	cluster  string
	prefixes []netip.Prefix
	at       time.Time
	round    int
}

func (d *purgeTask) due() time.Time { return nextRound(d.at, d.round, purgeTimes[:], purgeInterval) }

// minIdle returns the minimum time without a packet of a purged flow.
func (d *purgeTask) minIdle(now time.Time) time.Duration {
	return min(now.Sub(d.at)-idleTolerance, ended)
}

// purgeStale deletes the entries by which this gateway translated the source of flows to
// clusters that other gateways carry now. It deletes only entries without a packet since. It
// returns their number.
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
	byName, clusters := map[string]*purgeTask{}, newLookup()
	for _, d := range purges {
		byName[d.cluster] = d
		clusters.add(d.cluster, d.prefixes)
	}
	var found []Flow
	err = list(ctx, func(f *Flow) {
		name, ok := clusters.find(f.Reply.From.Addr())
		if ok && stale(f, times, byName[name].minIdle(now)) {
			found = append(found, *f)
		}
	})
	if err != nil {
		return 0, err
	}
	return removeAll(ctx, found)
}

// stale reports whether purgeStale deletes the entry of a flow to a cluster.
func stale(f *Flow, times timeouts, quiet time.Duration) bool {
	idle, told := times.idle(f)
	return !f.keepsSource() && told && idle >= quiet
}

func removeAll(ctx context.Context, flows []Flow) (n int, err error) {
	for i := range flows {
		if ctx.Err() != nil {
			return n, ctx.Err()
		}
		if failed := remove(&flows[i]); failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		n++
	}
	return n, err
}
