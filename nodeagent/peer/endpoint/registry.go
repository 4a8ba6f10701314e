package endpoint

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/schema/fabric"
)

// Bounds on the addresses of one cluster that other clusters probe.
const (
	// maxDiscovered limits the accepted endpoints of one gateway.
	maxDiscovered = 4
	// changeBurst limits the changes of one gateway's endpoints in one burst. One more change
	// is accepted after each changeInterval. Every change makes other clusters probe new
	// addresses.
	changeBurst    = 4
	changeInterval = 30 * time.Second
	// Ports below minPort belong to well-known services.
	minPort = 1024
)

// Registry has the discovered endpoints of remote gateways, as their clusters announce them. The
// feed authenticates the cluster by the keys of its gateways. A cluster can announce endpoints only
// for its gateways, only from the sources that the topology allows, and only within bounds. An
// accepted announcement stays until the next one is accepted. A Registry is immutable.
type Registry struct {
	Gateways map[string]Entry `json:"gateways,omitempty"` // by cluster/gateway
	// Refused has the reasons for refused endpoints of current announcements, by cluster.
	Refused map[string][]string `json:"refused,omitempty"`
}

// Entry has the accepted endpoints of one gateway.
type Entry struct {
	Endpoints []model.DiscoveredEndpoint `json:"endpoints"`
	// RecentChanges are the changes that count against changeBurst, as of CountedAt.
	RecentChanges int       `json:"recentChanges,omitempty"`
	CountedAt     time.Time `json:"at,omitzero"`
}

const unknownGateway = "a gateway that is not in the topology"

// Restore returns a registry with the endpoints that Saved returned in the previous agent.
func Restore(saved map[string][]model.DiscoveredEndpoint) Registry {
	r := Registry{Gateways: make(map[string]Entry, len(saved))}
	for name, endpoints := range saved {
		r.Gateways[name] = Entry{Endpoints: endpoints}
	}
	return r
}

// Saved returns the input of Restore, by cluster/gateway.
func (r Registry) Saved() map[string][]model.DiscoveredEndpoint { return r.Endpoints() }

// Endpoints returns the accepted endpoints by cluster/gateway, in the order of the sources
// in the topology.
func (r Registry) Endpoints() map[string][]model.DiscoveredEndpoint {
	out := make(map[string][]model.DiscoveredEndpoint, len(r.Gateways))
	for name, e := range r.Gateways {
		if len(e.Endpoints) > 0 {
			out[name] = e.Endpoints
		}
	}
	return out
}

// Update returns the registry with the current announcements. live has the state of each remote
// cluster, and nodes has the nodes of the local cluster. requeue is the time after which a delayed
// change is accepted; 0 = no change is delayed.
func (r Registry) Update(f *fabric.Fabric, cluster string, nodes []model.Node, live map[string]model.ClusterState, now time.Time) (next Registry, requeue time.Duration) {
	next = Registry{Gateways: map[string]Entry{}, Refused: map[string][]string{}}
	policy := sync.OnceValue(func() addressPolicy { return newAddressPolicy(f, cluster, nodes) }) // most fabrics have no sources
	for i := range f.Clusters {
		c := &f.Clusters[i]
		if c.Name == cluster {
			continue
		}
		var announced map[string][]model.DiscoveredEndpoint
		if advert := live[c.Name].Endpoints; advert != nil {
			announced = advert.Discovered
		}
		var refused []string
		for _, name := range slices.Sorted(maps.Keys(announced)) {
			switch g := c.Gateway(name); {
			case g == nil && !slices.Contains(refused, unknownGateway):
				refused = append(refused, unknownGateway)
			case g != nil && !g.HasDiscoveredEndpoint():
				refused = append(refused, "gateway "+name+": the topology allows it no discovered endpoints")
			}
		}
		for j := range c.Gateways {
			g := &c.Gateways[j]
			if !g.HasDiscoveredEndpoint() {
				continue
			}
			accepted, reasons := policy().filter(g, announced[g.Name])
			refused = append(refused, reasons...)
			entry, wait := r.Gateways[c.Name+"/"+g.Name].withEndpoints(accepted, now)
			if wait > 0 && (requeue == 0 || wait < requeue) {
				requeue = wait
			}
			if len(entry.Endpoints) > 0 {
				next.Gateways[c.Name+"/"+g.Name] = entry
			}
		}
		if len(refused) > 0 {
			next.Refused[c.Name] = refused
		}
	}
	if reflect.DeepEqual(r, next) {
		return r, requeue
	}
	return next, requeue
}

// withEndpoints returns the entry with new endpoints. If the endpoints changed too often, it
// returns the previous entry and the time after which the change is accepted.
func (e Entry) withEndpoints(
	accepted []model.DiscoveredEndpoint, now time.Time,
) (Entry, time.Duration) {
	if len(accepted) == 0 || slices.Equal(accepted, e.Endpoints) {
		return e, 0
	}
	if elapsed := now.Sub(e.CountedAt); e.RecentChanges > 0 && elapsed >= changeInterval {
		expired := int(elapsed / changeInterval)
		e.RecentChanges, e.CountedAt = max(e.RecentChanges-expired, 0), e.CountedAt.Add(time.Duration(expired)*changeInterval)
	}
	if e.RecentChanges >= changeBurst {
		return e, max(e.CountedAt.Add(changeInterval).Sub(now), time.Second)
	}
	if e.RecentChanges == 0 {
		e.CountedAt = now
	}
	e.Endpoints, e.RecentChanges = accepted, e.RecentChanges+1
	return e, 0
}

// addressPolicy checks the announced addresses of gateways of other clusters.
type addressPolicy struct {
	nodes    []netip.Addr // of the local cluster
	reserved []reservedPrefix
}

// reservedPrefix has addresses that Hawser routes into a tunnel, or addresses of pods and Services
// of this cluster.
type reservedPrefix struct {
	prefix netip.Prefix
	owner  string
}

func newAddressPolicy(f *fabric.Fabric, cluster string, nodes []model.Node) addressPolicy {
	var p addressPolicy
	for _, n := range nodes {
		p.nodes = append(p.nodes, n.Addrs...)
	}
	addReserved := func(owner string, prefixes []netip.Prefix) {
		for _, prefix := range prefixes {
			p.reserved = append(p.reserved, reservedPrefix{prefix, owner})
		}
	}
	addReserved("the pools of the clusterset", slices.Concat(f.GlobalPools, f.ServicePools, f.TunnelPools))
	for i := range f.Clusters {
		c := &f.Clusters[i]
		cidrs := slices.Concat(c.PodCIDRs, c.ServiceCIDRs)
		if c.Name != cluster {
			cidrs = slices.DeleteFunc(cidrs, func(p netip.Prefix) bool { return c.IsGlobalnet(fabric.Family(p.Addr())) })
		}
		addReserved("the prefixes of cluster "+c.Name, cidrs)
	}
	return p
}

// filter returns the accepted endpoints of a gateway, in the order of its sources, and the reasons
// for the refused endpoints.
func (p addressPolicy) filter(g *fabric.Gateway, announced []model.DiscoveredEndpoint) (accepted []model.DiscoveredEndpoint, refused []string) {
	addRefused := func(reason string) {
		if text := "gateway " + g.Name + ": " + reason; !slices.Contains(refused, text) {
			refused = append(refused, text)
		}
	}
	for _, source := range g.Endpoints {
		for _, d := range announced {
			switch reason := p.rejectReason(g, d); {
			case d.Source != source || slices.Contains(accepted, d):
			case reason != "":
				addRefused(reason)
			case len(accepted) == maxDiscovered:
				addRefused(fmt.Sprintf("more than %d endpoints", maxDiscovered))
			default:
				accepted = append(accepted, d)
			}
		}
	}
	for _, d := range announced {
		if !fabric.IsEndpointSource(d.Source) || !slices.Contains(g.Endpoints, d.Source) {
			addRefused("the topology does not allow it this source of endpoints")
		}
	}
	return accepted, refused
}

// rejectReason returns why an endpoint is refused; empty if it is accepted. A reason contains no
// value that the announcing cluster can vary, so that each reason is logged once.
func (p addressPolicy) rejectReason(g *fabric.Gateway, d model.DiscoveredEndpoint) string {
	a := d.Addr
	if !a.IsValid() || !a.IsGlobalUnicast() || a.Zone() != "" || a.Is4In6() {
		return "an address that is not unicast, or link-local"
	}
	if d.Port != 0 && d.Port != g.Port && (d.Port < minPort || d.Port > fabric.MaxPort) {
		return fmt.Sprintf("a port outside %d to %d", minPort, fabric.MaxPort)
	}
	for _, r := range p.reserved {
		if r.prefix.Contains(a) {
			return "an address inside " + r.owner
		}
	}
	if slices.Contains(p.nodes, a) {
		return "an address of a node of this cluster"
	}
	return ""
}
