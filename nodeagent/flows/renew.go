package flows

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// Own says what a gateway must know of the pods on its own node.
type Own struct {
	// Pods are the prefixes (or single addresses) of the pods on this node. Flows
	// of pods that are not named are still known when a service address was
	// translated here.
	Pods []netip.Prefix
	// Kept are sources that enter a tunnel as they are (flat clusters).
	Kept []netip.Prefix
}

// turn is a cluster for which this gateway's own link began to carry, or ended.
type turn struct {
	cluster  string
	prefixes []netip.Prefix
	own      bool
	// others is true when only what other nodes hand to this gateway turned.
	others bool
}

// renew is for the pods on a gateway's own node. Their flows have one entry for
// what every node translates and for what a gateway translates, and the kernel
// decides both with the first packet. When the path changes between this
// gateway's own link and another gateway, the entry still says the old thing.
//
// For a flow that a pod began, the pod's own address would go into the tunnel, or
// an egress address to the other gateway. Such entries are deleted, and a knock
// through this host's own stack makes each anew, as its next packet would.
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
// It gives the number of flows that were begun anew.
func renew(ctx context.Context, turns []*turn, own Own) (int, error) {
	if len(turns) == 0 {
		return 0, nil
	}
	wrong, halves, err := findWrong(ctx, turns, own)
	if err != nil {
		return 0, err
	}
	if _, err = removeAll(ctx, halves); err != nil || len(wrong) == 0 {
		return 0, err
	}
	raw, err := openRaw()
	if err != nil {
		return 0, err
	}
	defer raw.close()
	free, err := hold(turns, own.Pods)
	defer free()
	if err != nil {
		return 0, err
	}
	n := 0
	for i := range wrong {
		if ctx.Err() != nil {
			return n, ctx.Err()
		}
		w := &wrong[i]
		failed := remove(&w.Flow)
		if failed == nil && w.local && w.mayPush() {
			failed = raw.send(&w.Flow, w.ttl)
		}
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		n++
	}
	return n, err
}

// wrongFlow has an entry from before the turn.
type wrongFlow struct {
	Flow
	local bool  // begun by a pod on this node; others knock from theirs
	ttl   uint8 // ends behind the gateway that carries
}

func findWrong(ctx context.Context, turns []*turn, own Own) (out []wrongFlow, halves []Flow, err error) {
	byName, clusters := map[string][]*turn{}, newLookup()
	for _, t := range turns {
		byName[t.cluster] = append(byName[t.cluster], t)
		clusters.add(t.cluster, t.prefixes)
	}
	pods, kept := newLookup(), newLookup()
	pods.add("", own.Pods)
	kept.add("", own.Kept)
	err = list(ctx, func(f *Flow) {
		w, is := wrongFlow{Flow: *f}, false
		from, came := clusters.find(f.Orig.From.Addr())
		to, goes := clusters.find(f.Reply.From.Addr())
		switch {
		case came:
			_, local := pods.find(f.Reply.From.Addr())
			is = local && slices.ContainsFunc(byName[from], func(t *turn) bool { return t.wrongBackend(f) })
		case goes:
			_, local := pods.find(f.Orig.From.Addr())
			_, keeps := kept.find(f.Orig.From.Addr())
			for i := 0; i < len(byName[to]) && !is; i++ {
				w, is = byName[to][i].wrong(f, local || f.Orig.To != f.Reply.From, keeps)
			}
		}
		if is {
			out = append(out, w)
		} else if (came || goes) && f.halfOpen() {
			halves = append(halves, *f)
		}
	})
	return out, halves, err
}

// wrongBackend reports whether the entry of a flow to a pod here was made by the
// other way: what comes over another gateway has the pod's address already. A flow
// straight to a pod (flat clusters) looks the same and is made anew as well.
func (t *turn) wrongBackend(f *Flow) bool {
	return !t.others && t.own == (f.Orig.To == f.Reply.From)
}

// wrong reports whether a flow's entry holds the source of the other way.
func (t *turn) wrong(f *Flow, local, keeps bool) (w wrongFlow, is bool) {
	w = wrongFlow{Flow: *f, local: local, ttl: hops}
	if t.others && local {
		return w, false
	}
	if t.own {
		w.ttl = hops - 1 // this host does not forward its own packets
		return w, f.kept() && !keeps
	}
	// A translated flow of another node is that node's business: it goes to the
	// other gateway itself, or still comes here and leaves by this gateway's link.
	return w, local && !f.kept()
}

// raw sends through this host's own stack, with any source: the output hooks
// translate as for a packet that a pod sends.
type raw struct{ v4, v6 int }

func openRaw() (*raw, error) {
	v4, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return nil, fmt.Errorf("open raw socket: %w", err)
	}
	v6, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		v6 = -1 // a host without IPv6
	}
	return &raw{v4, v6}, nil
}

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
	if err := unix.Sendto(fd, build(f.Protocol, f.Orig, ttl), 0, to); err != nil {
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
