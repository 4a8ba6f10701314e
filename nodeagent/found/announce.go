package found

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/schema/fabric"
)

// mostSeen is how many of the places count where others see one gateway.
const mostSeen = 2

// Seen is from where this node receives what gateways of other clusters send, by
// cluster/gateway.
type Seen map[string]netip.AddrPort

// Announce gives what a cluster tells others of places: where its own gateways are reached,
// as far as that is found, and from where this node receives what those of others send, if
// they want to know; nil = nothing. live is what others say, by cluster.
func Announce(f *fabric.Fabric, own string, facts model.Facts, live map[string]model.Live, seen Seen) *model.Places {
	c := f.Cluster(own)
	if c == nil {
		return nil
	}
	out := &model.Places{}
	for i := range c.Gateways {
		g := &c.Gateways[i]
		var all []model.Found
		for _, source := range g.Endpoints {
			for _, a := range placesOf(c, g, source, facts, live) {
				if len(all) < mostFound {
					all = append(all, model.Found{Source: source, Addr: a.Addr(), Port: int(a.Port())})
				}
			}
		}
		if len(all) > 0 {
			if out.Found == nil {
				out.Found = map[string][]model.Found{}
			}
			out.Found[g.Name] = all
		}
	}
	for i := range f.Clusters {
		other := &f.Clusters[i]
		for j := range other.Gateways {
			name := other.Name + "/" + other.Gateways[j].Name
			if at, is := seen[name]; is && other.Name != own && slices.Contains(other.Gateways[j].Endpoints, fabric.SourceSeen) {
				if out.Seen == nil {
					out.Seen = map[string]netip.AddrPort{}
				}
				out.Seen[name] = at
			}
		}
	}
	if out.Found == nil && out.Seen == nil {
		return nil
	}
	return out
}

// placesOf gives where a gateway of this cluster is by a source. Port 0 is its own.
func placesOf(c *fabric.Cluster, g *fabric.Gateway, source string, facts model.Facts, live map[string]model.Live) []netip.AddrPort {
	if source == fabric.SourceSeen {
		return seenAt(c.Name+"/"+g.Name, live)
	}
	i := slices.IndexFunc(facts.Nodes, func(n model.Node) bool { return n.Name == g.Node })
	if i < 0 {
		return nil // nobody holds it now
	}
	switch source {
	case fabric.SourceExternalIP:
		return at(facts.Nodes[i].External, 0)
	case fabric.SourceInternalIP:
		return at(facts.Nodes[i].Addrs, 0)
	}
	return nil
}

func at(addrs []netip.Addr, port int) []netip.AddrPort {
	out := make([]netip.AddrPort, len(addrs))
	for i, a := range addrs {
		out[i] = netip.AddrPortFrom(a, uint16(port))
	}
	return out
}

// seenAt gives where other clusters see a gateway, those that most of them do first.
func seenAt(name string, live map[string]model.Live) []netip.AddrPort {
	count := map[netip.AddrPort]int{}
	for _, l := range live {
		if l.Places != nil && l.Places.Seen[name].IsValid() {
			count[l.Places.Seen[name]]++
		}
	}
	out := slices.SortedFunc(maps.Keys(count), func(a, b netip.AddrPort) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), a.Compare(b))
	})
	return out[:min(len(out), mostSeen)]
}
