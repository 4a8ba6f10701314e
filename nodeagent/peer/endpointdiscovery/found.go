// Package endpointdiscovery knows the endpoints that nobody wrote: where the gateways of this cluster are
// reached by what its own API and other clusters say (Announce), and what other clusters
// announce of theirs (Book). An announcement comes over the feed, which the gateway's key
// authenticates; it counts for gateways of the cluster that speaks only, for the sources
// that the topology grants them, and within bounds, as each address is asked whether the
// gateway answers there. It is pure.
package endpointdiscovery

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

// What one cluster can make others do with what it announces.
const (
	// mostFound is how many endpoints of one gateway count.
	mostFound = 4
	// burst is how many changes of one gateway's endpoints count at once, and refill is how
	// long one more takes: each has the others ask at new addresses, quickly at first.
	burst  = 4
	refill = 30 * time.Second
	// leastPort is the least port that counts: below are services that answer anybody.
	leastPort = 1024
	lastPort  = 65535 - fabric.VXLANOffset
)

// Registry is what is known of the endpoints of other clusters' gateways. What was announced
// last stays while nothing else is, however long its cluster is not heard. A Book never changes.
type Registry struct {
	Gateways map[string]Entry `json:"gateways,omitempty"` // by cluster/gateway
	// Refused are the reasons for which something was passed over that a cluster announces
	// now, by cluster.
	Refused map[string][]string `json:"refused,omitempty"`
}

// Entry is what counts of one gateway.
type Entry struct {
	Endpoints []model.DiscoveredEndpoint `json:"found"`
	// RecentChanges are the changes that count against burst, as of At.
	RecentChanges int       `json:"spent,omitempty"`
	At            time.Time `json:"at,omitzero"`
}

const notThere = "a gateway that the topology does not have"

// Restore begins with what Kept gave.
func Restore(kept map[string][]model.DiscoveredEndpoint) Registry {
	b := Registry{Gateways: make(map[string]Entry, len(kept))}
	for name, all := range kept {
		b.Gateways[name] = Entry{Endpoints: all}
	}
	return b
}

// Saved gives what the next run has to know, by cluster/gateway.
func (b Registry) Saved() map[string][]model.DiscoveredEndpoint { return b.Endpoints() }

// Endpoints gives what counts now, in the order of the sources in the topology, by
// cluster/gateway.
func (b Registry) Endpoints() map[string][]model.DiscoveredEndpoint {
	out := make(map[string][]model.DiscoveredEndpoint, len(b.Gateways))
	for name, e := range b.Gateways {
		if len(e.Endpoints) > 0 {
			out[name] = e.Endpoints
		}
	}
	return out
}

// Update takes over what is heard now: live by cluster, nodes those of this cluster. It says
// when a change counts that came too soon; 0 = none did.
func (b Registry) Update(f *fabric.Fabric, own string, nodes []model.Node, live map[string]model.ClusterState, now time.Time) (next Registry, again time.Duration) {
	next = Registry{Gateways: map[string]Entry{}, Refused: map[string][]string{}}
	judge := sync.OnceValue(func() addressPolicy { return judgeOf(f, own, nodes) }) // mostly nobody finds anything
	for i := range f.Clusters {
		c := &f.Clusters[i]
		if c.Name == own {
			continue
		}
		var said map[string][]model.DiscoveredEndpoint
		if heard := live[c.Name]; heard.Endpoints != nil {
			said = heard.Endpoints.Discovered
		}
		var refused []string
		for _, name := range slices.Sorted(maps.Keys(said)) {
			switch g := c.Gateway(name); {
			case g == nil && !slices.Contains(refused, notThere):
				refused = append(refused, notThere)
			case g != nil && !g.HasDiscoveredEndpoint():
				refused = append(refused, "gateway "+name+": the topology lets it find none")
			}
		}
		for j := range c.Gateways {
			g := &c.Gateways[j]
			if !g.HasDiscoveredEndpoint() {
				continue
			}
			fit, wrong := judge().filter(g, said[g.Name])
			refused = append(refused, wrong...)
			entry, wait := b.Gateways[c.Name+"/"+g.Name].change(fit, now)
			if wait > 0 && (again == 0 || wait < again) {
				again = wait
			}
			if len(entry.Endpoints) > 0 {
				next.Gateways[c.Name+"/"+g.Name] = entry
			}
		}
		if len(refused) > 0 {
			next.Refused[c.Name] = refused
		}
	}
	if reflect.DeepEqual(b, next) {
		return b, again
	}
	return next, again
}

// change takes over other endpoints, unless that was done too often; then it says how long
// they wait.
func (e Entry) change(fit []model.DiscoveredEndpoint, now time.Time) (Entry, time.Duration) {
	if len(fit) == 0 || slices.Equal(fit, e.Endpoints) {
		return e, 0
	}
	if passed := now.Sub(e.At); e.RecentChanges > 0 && passed >= refill {
		steps := int(passed / refill)
		e.RecentChanges, e.At = max(e.RecentChanges-steps, 0), e.At.Add(time.Duration(steps)*refill)
	}
	if e.RecentChanges >= burst {
		return e, max(e.At.Add(refill).Sub(now), time.Second)
	}
	if e.RecentChanges == 0 {
		e.At = now
	}
	e.Endpoints, e.RecentChanges = fit, e.RecentChanges+1
	return e, 0
}

// addressPolicy says which addresses a gateway of another cluster can have.
type addressPolicy struct {
	nodes  []netip.Addr
	inside []reservedPrefix
}

// reservedPrefix are addresses that a route of ours leads into a tunnel, or to our own pods.
type reservedPrefix struct {
	prefix netip.Prefix
	whose  string
}

func judgeOf(f *fabric.Fabric, own string, nodes []model.Node) addressPolicy {
	var j addressPolicy
	for _, n := range nodes {
		j.nodes = append(j.nodes, n.Addrs...)
	}
	add := func(whose string, prefixes []netip.Prefix) {
		for _, p := range prefixes {
			j.inside = append(j.inside, reservedPrefix{p, whose})
		}
	}
	add("the pools of the clusterset", slices.Concat(f.GlobalPools, f.ServicePools, f.TunnelPools))
	for i := range f.Clusters {
		c := &f.Clusters[i]
		all := slices.Concat(c.PodCIDRs, c.ServiceCIDRs)
		if c.Name != own {
			all = slices.DeleteFunc(all, func(p netip.Prefix) bool { return c.IsGlobalnet(fabric.Family(p.Addr())) })
		}
		add("the prefixes of cluster "+c.Name, all)
	}
	return j
}

// filter gives those of the endpoints that a gateway may have, in the order of its sources, and
// why others do not count.
func (j addressPolicy) filter(g *fabric.Gateway, said []model.DiscoveredEndpoint) (fit []model.DiscoveredEndpoint, refused []string) {
	refuse := func(format string, args ...any) {
		text := "gateway " + g.Name + ": " + fmt.Sprintf(format, args...)
		if !slices.Contains(refused, text) {
			refused = append(refused, text)
		}
	}
	for _, source := range g.Endpoints {
		for _, f := range said {
			switch why := j.rejectReason(g, f); {
			case f.Source != source || slices.Contains(fit, f):
			case why != "":
				refuse("%s", why)
			case len(fit) == mostFound:
				refuse("more than %d endpoints", mostFound)
			default:
				fit = append(fit, f)
			}
		}
	}
	for _, f := range said {
		if !fabric.IsEndpointSource(f.Source) || !slices.Contains(g.Endpoints, f.Source) {
			refuse("the topology grants it no such source of endpoints")
		}
	}
	return fit, refused
}

// rejectReason says why an endpoint is none that another gateway can have; empty = it can. No reason
// holds anything that who announces can vary at will: each is reported once.
func (j addressPolicy) rejectReason(g *fabric.Gateway, f model.DiscoveredEndpoint) string {
	a := f.Addr
	if !a.IsValid() || !a.IsGlobalUnicast() || a.Zone() != "" || a.Is4In6() {
		return "an address that is not unicast, or of one link only"
	}
	if f.Port != 0 && f.Port != g.Port && (f.Port < leastPort || f.Port > lastPort) {
		return fmt.Sprintf("a port that is not in the range %d to %d", leastPort, lastPort)
	}
	for _, in := range j.inside {
		if in.prefix.Contains(a) {
			return "an address inside " + in.whose
		}
	}
	if slices.Contains(j.nodes, a) {
		return "an address of a node of this cluster"
	}
	return ""
}
