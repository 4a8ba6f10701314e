// Package found knows the endpoints that nobody wrote: where the gateways of this cluster are
// reached by what its own API and other clusters say (Announce), and what other clusters
// announce of theirs (Book). An announcement comes over the feed, which the gateway's key
// authenticates; it counts for gateways of the cluster that speaks only, for the sources
// that the topology grants them, and within bounds, as each address is asked whether the
// gateway answers there. It is pure.
package found

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

// Book is what is known of the endpoints of other clusters' gateways. What was announced
// last stays while nothing else is, however long its cluster is not heard. A Book never changes.
type Book struct {
	Gateways map[string]Entry `json:"gateways,omitempty"` // by cluster/gateway
	// Refused are the reasons for which something was passed over that a cluster announces
	// now, by cluster.
	Refused map[string][]string `json:"refused,omitempty"`
}

// Entry is what counts of one gateway.
type Entry struct {
	Found []model.Found `json:"found"`
	// Spent are the changes that count against burst, as of At.
	Spent int       `json:"spent,omitempty"`
	At    time.Time `json:"at,omitzero"`
}

const notThere = "a gateway that the topology does not have"

// Restore begins with what Kept gave.
func Restore(kept map[string][]model.Found) Book {
	b := Book{Gateways: make(map[string]Entry, len(kept))}
	for name, all := range kept {
		b.Gateways[name] = Entry{Found: all}
	}
	return b
}

// Kept gives what the next run has to know, by cluster/gateway.
func (b Book) Kept() map[string][]model.Found { return b.Endpoints() }

// Endpoints gives what counts now, in the order of the sources in the topology, by
// cluster/gateway.
func (b Book) Endpoints() map[string][]model.Found {
	out := make(map[string][]model.Found, len(b.Gateways))
	for name, e := range b.Gateways {
		if len(e.Found) > 0 {
			out[name] = e.Found
		}
	}
	return out
}

// Follow takes over what is heard now: live by cluster, nodes those of this cluster. It says
// when a change counts that came too soon; 0 = none did.
func (b Book) Follow(f *fabric.Fabric, own string, nodes []model.Node, live map[string]model.Live, now time.Time) (next Book, again time.Duration) {
	next = Book{Gateways: map[string]Entry{}, Refused: map[string][]string{}}
	judge := sync.OnceValue(func() judge { return judgeOf(f, own, nodes) }) // mostly nobody finds anything
	for i := range f.Clusters {
		c := &f.Clusters[i]
		if c.Name == own {
			continue
		}
		var said map[string][]model.Found
		if heard := live[c.Name]; heard.Places != nil {
			said = heard.Places.Found
		}
		var refused []string
		for _, name := range slices.Sorted(maps.Keys(said)) {
			switch g := c.Gateway(name); {
			case g == nil && !slices.Contains(refused, notThere):
				refused = append(refused, notThere)
			case g != nil && !g.Finds():
				refused = append(refused, "gateway "+name+": the topology lets it find none")
			}
		}
		for j := range c.Gateways {
			g := &c.Gateways[j]
			if !g.Finds() {
				continue
			}
			fit, wrong := judge().fit(g, said[g.Name])
			refused = append(refused, wrong...)
			entry, wait := b.Gateways[c.Name+"/"+g.Name].change(fit, now)
			if wait > 0 && (again == 0 || wait < again) {
				again = wait
			}
			if len(entry.Found) > 0 {
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
func (e Entry) change(fit []model.Found, now time.Time) (Entry, time.Duration) {
	if len(fit) == 0 || slices.Equal(fit, e.Found) {
		return e, 0
	}
	if passed := now.Sub(e.At); e.Spent > 0 && passed >= refill {
		steps := int(passed / refill)
		e.Spent, e.At = max(e.Spent-steps, 0), e.At.Add(time.Duration(steps)*refill)
	}
	if e.Spent >= burst {
		return e, max(e.At.Add(refill).Sub(now), time.Second)
	}
	if e.Spent == 0 {
		e.At = now
	}
	e.Found, e.Spent = fit, e.Spent+1
	return e, 0
}

// judge says which addresses a gateway of another cluster can have.
type judge struct {
	nodes  []netip.Addr
	inside []inside
}

// inside are addresses that a route of ours leads into a tunnel, or to our own pods.
type inside struct {
	prefix netip.Prefix
	whose  string
}

func judgeOf(f *fabric.Fabric, own string, nodes []model.Node) judge {
	var j judge
	for _, n := range nodes {
		j.nodes = append(j.nodes, n.Addrs...)
	}
	add := func(whose string, prefixes []netip.Prefix) {
		for _, p := range prefixes {
			j.inside = append(j.inside, inside{p, whose})
		}
	}
	add("the pools of the clusterset", slices.Concat(f.GlobalPools, f.ServicePools, f.TunnelPools))
	for i := range f.Clusters {
		c := &f.Clusters[i]
		all := slices.Concat(c.PodCIDRs, c.ServiceCIDRs)
		if c.Name != own {
			all = slices.DeleteFunc(all, func(p netip.Prefix) bool { return c.Hides(fabric.Family(p.Addr())) })
		}
		add("the prefixes of cluster "+c.Name, all)
	}
	return j
}

// fit gives those of the endpoints that a gateway may have, in the order of its sources, and
// why others do not count.
func (j judge) fit(g *fabric.Gateway, said []model.Found) (fit []model.Found, refused []string) {
	refuse := func(format string, args ...any) {
		text := "gateway " + g.Name + ": " + fmt.Sprintf(format, args...)
		if !slices.Contains(refused, text) {
			refused = append(refused, text)
		}
	}
	for _, source := range g.Endpoints {
		for _, f := range said {
			switch why := j.wrong(g, f); {
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
		if !fabric.IsSource(f.Source) || !slices.Contains(g.Endpoints, f.Source) {
			refuse("the topology grants it no such source of endpoints")
		}
	}
	return fit, refused
}

// wrong says why an endpoint is none that another gateway can have; empty = it can. No reason
// holds anything that who announces can vary at will: each is reported once.
func (j judge) wrong(g *fabric.Gateway, f model.Found) string {
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
