package conntrack

import (
	"context"
	"errors"
	"net/netip"
	"time"
)

// A gateway that left off carrying the traffic to a cluster forgets at these
// times, and then each hour. At the first, what was on its way when the path
// moved has arrived; at the second, flows count as ended that a node which was
// late with the move still sent this way for a while.
var forgets = [...]time.Duration{15 * time.Second, 6 * time.Minute}

const (
	forgetLater = time.Hour       // between the rounds that follow
	ended       = 5 * time.Minute // without a packet, at a gateway that is not in use
)

// purgeTask is a cluster whose traffic another gateway carries now.
type purgeTask struct {
	cluster  string
	prefixes []netip.Prefix
	at       time.Time
	round    int
}

func (d *purgeTask) due() time.Time { return nextRound(d.at, d.round, forgets[:], forgetLater) }

// quiet is how long a flow must have been without a packet.
func (d *purgeTask) quiet(now time.Time) time.Duration { return min(now.Sub(d.at)-settle, ended) }

// purgeStale deletes the entries by which this gateway translated the source of
// flows to clusters that others carry now, and that had no packet since. It
// gives their number.
//
// They are dangerous: a shared egress address and port that an ended flow holds
// here (TCP: for five days) may meanwhile belong to a flow of another pod at the
// gateway that carries now. When the path comes back, that flow would find its
// address taken, get another port, and break. Nobody needs them: the translation
// is a function of the packet, and a flow that still lives is made anew, with the
// same address and port, by its next packet or knock.
//
// All others stay. Flows that a node still sends this way had a packet. Flows
// that came from the cluster hold the choice of a backend, which a deletion could
// only change for the worse. Flows with their own source cannot take another's.
func purgeStale(ctx context.Context, now time.Time, left []*purgeTask) (int, error) {
	times, err := readTimeouts()
	if err != nil {
		return 0, err
	}
	byName, clusters := map[string]*purgeTask{}, newLookup()
	for _, d := range left {
		byName[d.cluster] = d
		clusters.add(d.cluster, d.prefixes)
	}
	var found []Flow
	err = list(ctx, func(f *Flow) {
		name, ok := clusters.find(f.Reply.From.Addr())
		if ok && stale(f, times, byName[name].quiet(now)) {
			found = append(found, *f)
		}
	})
	if err != nil {
		return 0, err
	}
	return removeAll(ctx, found)
}

// stale reports whether forget deletes a flow to a cluster.
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
