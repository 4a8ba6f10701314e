package round

import (
	"net/netip"
	"slices"
	"time"

	"hawser.dev/hawser/nodeagent/peer/health"
	"hawser.dev/hawser/schema/fabric"
)

const (
	// removalMin is the time for which a retiring gateway stays after its last use. It covers
	// packets in flight, and nodes that learn of the change late.
	removalMin = 5 * time.Second
	// removalMax limits the time of a retiring gateway: a cluster that gets no new fabric must
	// not keep it forever.
	removalMax = 15 * time.Minute
	// recheck is the interval of checks while a gateway retires or a topology changes.
	recheck = time.Second
)

// withRetiringGateways returns the next fabric with the retiring gateways: gateways that only the
// previous fabric has and that are still used. A new gateway replaces a retiring gateway at once if
// it has its ordinal, node or an address, because these are unique. A removed cluster has no
// retiring gateways. withRetiringGateways modifies neither fabric.
func withRetiringGateways(previous, next *fabric.Fabric, used func(health.GatewayID) bool) (*fabric.Fabric, []health.GatewayID) {
	if previous == nil {
		return next, nil
	}
	merged := *next
	merged.Clusters = slices.Clone(next.Clusters)
	var retiring []health.GatewayID
	for i := range merged.Clusters {
		c := &merged.Clusters[i]
		before := previous.Cluster(c.Name)
		if before == nil {
			continue
		}
		for _, g := range before.Gateways {
			peer := health.GatewayID{Cluster: c.Name, Gateway: g.Name}
			if slices.ContainsFunc(c.Gateways, func(o fabric.Gateway) bool { return replaces(o, g) }) || !used(peer) {
				continue
			}
			c.Gateways = append(slices.Clip(c.Gateways), g)
			retiring = append(retiring, peer)
		}
	}
	if len(retiring) == 0 {
		return next, nil
	}
	return &merged, retiring
}

// replaces reports whether a gateway has the name of the gateway before, or one of its unique
// properties.
func replaces(g, before fabric.Gateway) bool {
	return g.Name == before.Name || g.Ordinal == before.Ordinal || g.Node != "" && g.Node == before.Node ||
		slices.ContainsFunc(g.Addresses, func(a netip.Addr) bool { return slices.Contains(before.Addresses, a) })
}

// retiringGateways has the gateways that left the fabric and are still in use.
type retiringGateways struct {
	// Gateways has the gateways of the current fabric and the retiring ones, by cluster.
	Gateways []members `json:"gateways,omitempty"`
	// IDs has the retiring gateways, and Retirements has their times.
	IDs         []health.GatewayID `json:"ids,omitempty"`
	Retirements []retirement       `json:"retirements,omitempty"`

	next   *fabric.Fabric // published
	merged *fabric.Fabric // with the retiring gateways
}

// members are the gateways of one cluster.
type members struct {
	Cluster  string           `json:"cluster"`
	Gateways []fabric.Gateway `json:"gateways"`
}

// retirement has the times when a gateway left and when it was last used.
type retirement struct {
	Peer health.GatewayID `json:"peer"`
	At   time.Time        `json:"at"`
	Used time.Time        `json:"used"`
}

// update merges the published fabric next with the retiring gateways. The pointer merged changes
// only if its content changes.
func (r retiringGateways) update(next *fabric.Fabric, used func(f *fabric.Fabric, p health.GatewayID) bool, now time.Time) retiringGateways {
	before := r.before()
	if before == nil || next == r.next && len(r.IDs) == 0 {
		if next != r.next {
			r.Gateways = membersOf(next)
		}
		r.next, r.merged, r.Retirements = next, next, nil
		return r
	}
	var left []retirement
	merged, retiring := withRetiringGateways(before, next, func(p health.GatewayID) bool {
		d := retirement{Peer: p, At: now, Used: now}
		if i := slices.IndexFunc(r.Retirements, func(d retirement) bool { return d.Peer == p }); i >= 0 {
			d = r.Retirements[i]
		}
		if used(before, p) {
			d.Used = now
		}
		left = append(left, d)
		return now.Sub(d.Used) < removalMin && now.Sub(d.At) < removalMax
	})
	if next != r.next || !slices.Equal(retiring, r.IDs) {
		r.next, r.merged, r.IDs, r.Gateways = next, merged, retiring, membersOf(merged)
	}
	r.Retirements = left
	return r
}

// before returns the previous merged fabric; nil = none. After a restart it has only the gateways.
func (r retiringGateways) before() *fabric.Fabric {
	if r.merged != nil || r.Gateways == nil {
		return r.merged
	}
	f := &fabric.Fabric{}
	for _, m := range r.Gateways {
		f.Clusters = append(f.Clusters, fabric.Cluster{Name: m.Cluster, Gateways: m.Gateways})
	}
	return f
}

func membersOf(f *fabric.Fabric) []members {
	out := make([]members, len(f.Clusters))
	for i := range f.Clusters {
		out[i] = members{Cluster: f.Clusters[i].Name, Gateways: f.Clusters[i].Gateways}
	}
	return out
}
