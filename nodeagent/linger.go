package nodeagent

import (
	"net/netip"
	"slices"
	"time"

	"hawser.dev/hawser/nodeagent/health"
	"hawser.dev/hawser/schema/fabric"
)

const (
	// lingerLeast is how long a gateway that left the fabric stays after nobody
	// used it any more: for packets under way, and for nodes that learn of it late.
	lingerLeast = 5 * time.Second
	// lingerMost bounds it: a cluster that hears of no new fabric must not keep a
	// gateway for ever.
	lingerMost = 15 * time.Minute
	// lingerLook is how often a gateway that lingers is looked at.
	lingerLook = time.Second
)

// linger gives the next fabric with the gateways of the previous one that it
// lacks and that are still used, and names those. A gateway that takes over the
// lane, the node or an address of one that left wins at once: two cannot have it.
// A cluster that left takes its gateways along. Neither fabric is changed.
func linger(previous, next *fabric.Fabric, used func(health.Peer) bool) (*fabric.Fabric, []health.Peer) {
	if previous == nil {
		return next, nil
	}
	merged := *next
	merged.Clusters = slices.Clone(next.Clusters)
	var leaving []health.Peer
	for i := range merged.Clusters {
		c := &merged.Clusters[i]
		before := previous.Cluster(c.Name)
		if before == nil {
			continue
		}
		for _, g := range before.Gateways {
			peer := health.Peer{Cluster: c.Name, Gateway: g.Name}
			if slices.ContainsFunc(c.Gateways, func(o fabric.Gateway) bool { return replaces(o, g) }) || !used(peer) {
				continue
			}
			c.Gateways = append(slices.Clip(c.Gateways), g)
			leaving = append(leaving, peer)
		}
	}
	if len(leaving) == 0 {
		return next, nil
	}
	return &merged, leaving
}

// replaces reports whether a gateway is the one before, or holds what only one
// of the cluster can have.
func replaces(g, before fabric.Gateway) bool {
	return g.Name == before.Name || g.Lane == before.Lane || g.Node == before.Node ||
		slices.ContainsFunc(g.Addresses, func(a netip.Addr) bool { return slices.Contains(before.Addresses, a) })
}

// lingerer keeps gateways that left the fabric until nobody uses them. Only the
// engine's goroutine uses it.
type lingerer struct {
	next    *fabric.Fabric // as it was published
	merged  *fabric.Fabric // with those that linger
	leaving []health.Peer
	left    map[health.Peer]departure
}

// departure is when a gateway left, and when it was used last.
type departure struct{ at, used time.Time }

// follow takes over what was published. What it gives stays the same as long as
// nothing changes.
func (l *lingerer) follow(next *fabric.Fabric, used func(health.Peer) bool, now time.Time) (*fabric.Fabric, []health.Peer) {
	if l.merged == nil || next == l.next && len(l.leaving) == 0 {
		l.next, l.merged = next, next
		return next, nil
	}
	left := map[health.Peer]departure{}
	merged, leaving := linger(l.merged, next, func(p health.Peer) bool {
		d, known := l.left[p]
		if !known {
			d = departure{at: now, used: now}
		}
		if used(p) {
			d.used = now
		}
		left[p] = d
		return now.Sub(d.used) < lingerLeast && now.Sub(d.at) < lingerMost
	})
	if next != l.next || !slices.Equal(leaving, l.leaving) {
		l.next, l.merged, l.leaving = next, merged, leaving
	}
	l.left = left
	return l.merged, l.leaving
}
