package conntrack

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// LocalPods says what a gateway must know of the pods on its own node.
type LocalPods struct {
	// Pods are the prefixes (or single addresses) of the pods on this node, and where that
	// is not known of all pods of the cluster: flows that another node handed over say so.
	// Flows of pods that are not named are still known when a service address was
	// translated here.
	Pods []netip.Prefix
	// KeepSource are sources that enter a tunnel as they are (flat clusters).
	KeepSource []netip.Prefix
}

// linkChange is a cluster for which this gateway's own link began to carry, or ended.
type linkChange struct {
	cluster  string
	prefixes []netip.Prefix
	nowOwn   bool
	// handedOverOnly is true when only what other nodes hand to this gateway turned.
	handedOverOnly bool
	at             time.Time
	look           int // how often its flows were looked at
	passes         int // of this look
}

// due is when its flows are looked at next.
func (t *linkChange) due() time.Time { return t.at.Add(looks[t.look]) }

// isFirst reports whether nothing was begun anew for it yet.
func (t *linkChange) isFirst() bool { return t.look == 0 && t.passes == 0 }

// mostPasses bounds how often one look reads conntrack: until a pass finds nothing.
const mostPasses = 3

// rebuildEntries is for the pods on a gateway's own node. Their flows have one entry for
// what every node translates and for what a gateway translates, and the kernel
// decides both with the first packet. When the path changes between this
// gateway's own link and another gateway, the entry still says the old thing.
//
// For a flow that a pod began, the pod's own address would go into the tunnel, or
// an egress address to the other gateway. Such entries are deleted, and a knock
// through this host's own stack makes each anew, as its next packet would.
//
// Answers that come by the way that is not the entry's make an entry of their own,
// an echo: the far end moves a moment before or after this one. It holds the port
// that the flow needs, so the kernel would give the flow another one. Echoes go
// before the knocks, and a flow whose port one took is begun anew as well.
//
// For a flow to a backend here, one entry knows it by the export's address and
// the other one would by the pod's: the same answer for both, so the newer one
// would get another port. Such entries are deleted too; the next packet of either
// end makes them anew.
//
// In between, a packet of the server would reach the pod untranslated and be
// answered with a reset: for those milliseconds nothing that comes from the
// cluster is let through to the pods of this node.
//
// Entries of connections that are only half open go as well. The repeated SYN has
// made the connection by another gateway; should the path come back to this one
// while the half is kept (two minutes), the kernel takes all packets of the
// connection for invalid.
//
// It makes one pass, and gives the number of flows that were begun anew. Turns that
// others followed meanwhile are not carried on with (plan.turned).
func rebuildEntries(ctx context.Context, turns []*linkChange, own LocalPods) (int, error) {
	found, err := findStale(ctx, turns, own)
	if err != nil {
		return 0, err
	}
	if _, err = removeAll(ctx, found.halfOpen); err != nil || len(found.stale) == 0 {
		return 0, err // an echo alone takes nothing from a flow that has what it needs
	}
	v4, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return 0, fmt.Errorf("open raw socket: %w", err)
	}
	v6, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		v6 = -1 // a host without IPv6
	}
	out := raw{v4, v6}
	defer out.close()
	free, err := blockIngress(turns, own.Pods)
	defer free()
	if err != nil {
		return 0, err
	}
	if _, err = removeAll(ctx, found.crossed); err != nil {
		return 0, err
	}
	n := 0
	for i := range found.stale {
		if ctx.Err() != nil {
			return n, ctx.Err()
		}
		w := &found.stale[i]
		failed := remove(&w.Flow)
		if failed == nil && w.local && w.mayPush() {
			failed = out.send(&w.Flow, w.ttl)
		}
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		n++
	}
	return n, err
}

// raw sends through this host's own stack, with any source: the output hooks
// translate as for a packet that a pod sends.
type raw struct{ v4, v6 int }

func (r *raw) close() {
	_ = unix.Close(r.v4)
	if r.v6 >= 0 {
		_ = unix.Close(r.v6)
	}
}

func (r *raw) send(f *Flow, ttl uint8) error {
	fd, to := r.v4, unix.Sockaddr(&unix.SockaddrInet4{Addr: addr4(f.Orig.To.Addr())})
	if f.Orig.To.Addr().Is6() {
		fd, to = r.v6, &unix.SockaddrInet6{Addr: f.Orig.To.Addr().As16()}
	}
	if err := unix.Sendto(fd, buildRefresh(f.Protocol, f.Orig, ttl), 0, to); err != nil {
		return fmt.Errorf("knock for %s -> %s: %w", f.Orig.From, f.Orig.To, err)
	}
	return nil
}

func addr4(a netip.Addr) (out [4]byte) {
	if a.Is4() {
		out = a.As4()
	}
	return out
}
