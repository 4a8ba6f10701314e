package conntrack

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// LocalPods describes the pods on a gateway's own node.
type LocalPods struct {
	// Pods lists the prefixes (or single addresses) of the pods on this node. If they are
	// unknown, it lists the pods of the whole cluster; a mark then identifies the flows that
	// another node handed over. Flows of unlisted pods are still found if this node translated
	// a Service address.
	Pods []netip.Prefix
	// KeepSource lists the sources whose packets enter a tunnel untranslated (flat clusters).
	KeepSource []netip.Prefix
}

// linkChange is a cluster whose traffic started or stopped using this gateway's own link.
type linkChange struct {
	cluster     string
	prefixes    []netip.Prefix
	usesOwnLink bool // the cluster's traffic now uses the link
	// fromNodesOnly is true if only traffic from other nodes changed its path.
	fromNodesOnly bool
	once          bool // one check is enough
	changedAt     time.Time
	checksDone    int // completed checks of its flows
	passes        int // passes of the current check
}

// due returns the time of the next check of its flows.
func (c *linkChange) due() time.Time { return c.changedAt.Add(checkTimes[c.checksDone]) }

// isFirst reports whether none of its flows was checked yet.
func (c *linkChange) isFirst() bool { return c.checksDone == 0 && c.passes == 0 }

// maxPasses limits the passes of one check. A check ends with a pass that finds no stale entry.
const maxPasses = 3

// rebuildEntries rebuilds the stale entries of flows of pods on a gateway's own node. It makes one
// pass, and returns the number of rebuilt flows. A change that a newer one replaced gets no more
// passes (schedule.checked).
//
// On a gateway, one entry stores both the translation that every node makes and the gateway's
// translation. The kernel selects both for the flow's first packet. When the path moves between
// this gateway's own link and another gateway, the entry becomes stale.
//
// With a stale entry, the packets of a flow from a local pod have the wrong source. The pod's own
// address would enter the tunnel, or an egress address would go to the other gateway. Such
// entries are deleted. A refresh packet through this host's own stack creates each one again, as
// the flow's next packet would.
//
// The remote end moves its path a moment before or after this end. Meanwhile, replies by the
// other path create a separate entry: a crossed entry. It occupies the port that the flow needs,
// so the kernel would assign the flow a different port. Crossed entries are deleted before the
// refresh packets are sent. A flow that lost its port to a crossed entry is also rebuilt.
//
// For a flow to a local backend, the two paths create different entries: one with the export's
// address, one with the pod's address. Both expect the same reply, so the newer entry would get
// a different port. Such entries are also deleted. The next packet of either end creates them
// again.
//
// Between the deletion and the refresh packet, a packet from the server would reach the pod
// untranslated. The pod would reply with a reset. So packets from the cluster to the pods of
// this node are blocked for these milliseconds.
//
// Entries of half-open connections are also deleted. The client has repeated the SYN and
// established the connection through another gateway. A half-open entry exists for two minutes.
// If the path returned earlier, the kernel would treat all packets of the connection as invalid.
func rebuildEntries(ctx context.Context, changes []*linkChange, local LocalPods) (int, error) {
	entries, err := findStale(ctx, changes, local)
	if err != nil {
		return 0, err
	}
	if _, err = deleteEntries(ctx, entries.halfOpen); err != nil || len(entries.stale) == 0 {
		return 0, err // crossed entries alone do not affect a flow with a correct entry
	}
	v4, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return 0, fmt.Errorf("open raw socket: %w", err)
	}
	v6, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		v6 = -1 // a host without IPv6
	}
	socket := rawSender{v4, v6}
	defer socket.close()
	unblock, err := blockIngress(changes, local.Pods)
	defer unblock()
	if err != nil {
		return 0, err
	}
	if _, err = deleteEntries(ctx, entries.crossed); err != nil {
		return 0, err
	}
	rebuilt := 0
	for i := range entries.stale {
		if ctx.Err() != nil {
			return rebuilt, ctx.Err()
		}
		flow := &entries.stale[i]
		flowErr := deleteEntry(&flow.Flow)
		if flowErr == nil && flow.local && flow.serverMaySend() {
			flowErr = socket.send(&flow.Flow, flow.ttl)
		}
		if flowErr != nil {
			err = errors.Join(err, flowErr)
			continue
		}
		rebuilt++
	}
	return rebuilt, err
}

// rawSender sends packets with any source address through this host's own stack. The output hooks
// of netfilter translate them like packets from a pod.
type rawSender struct{ v4, v6 int }

func (r *rawSender) close() {
	_ = unix.Close(r.v4)
	if r.v6 >= 0 {
		_ = unix.Close(r.v6)
	}
}

func (r *rawSender) send(f *Flow, ttl uint8) error {
	fd, to := r.v4, unix.Sockaddr(&unix.SockaddrInet4{Addr: addr4(f.Orig.To.Addr())})
	if f.Orig.To.Addr().Is6() {
		fd, to = r.v6, &unix.SockaddrInet6{Addr: f.Orig.To.Addr().As16()}
	}
	if err := unix.Sendto(fd, buildRefresh(f.Protocol, f.Orig, ttl), 0, to); err != nil {
		return fmt.Errorf("send refresh packet for %s -> %s: %w", f.Orig.From, f.Orig.To, err)
	}
	return nil
}

func addr4(a netip.Addr) (out [4]byte) {
	if a.Is4() {
		out = a.As4()
	}
	return out
}
