package round

import (
	"net/netip"
	"slices"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/peer/feed"
	"hawser.dev/hawser/schema/fabric"
)

// FeedSpec is whom this node hears and who may hear it. It follows from fabric,
// keys, facts and paths alone.
type FeedSpec struct {
	Identity feed.Identity `json:"Identity"`
	Follow   []feed.Peer   `json:"Follow"` // whom to subscribe to
	Allow    []feed.Peer   `json:"Allow"`  // who may subscribe
	Nodes    []netip.Addr  `json:"Nodes"`  // of this cluster, who may subscribe without a key
	Listen   []feed.Listen `json:"Listen"`
}

// feedsOf decides: a gateway hears each cluster whose chosen link it holds, from
// the gateway at the other end; one behind others from all its gateways, as nothing
// is known of them, and those that pass on cannot speak for it. Every node hears the
// other gateways of its own cluster, which relay. So the connections grow with the
// clusters, not with the pairs of gateways.
func feedsOf(in Observed, f *fabric.Fabric, paths map[string]model.Path) (FeedSpec, error) {
	out := FeedSpec{Identity: feed.Identity{Cluster: in.Cluster, Node: in.Node}}
	own := f.Cluster(in.Cluster)
	if own == nil {
		return out, nil
	}
	self := NodeAddrs(in.Facts.Nodes, in.Node)
	if gateway := own.GatewayOn(in.Node); gateway != nil {
		if err := out.gateway(in, f, gateway, paths); err != nil {
			return out, err
		}
		for _, n := range in.Facts.Nodes {
			out.Nodes = append(out.Nodes, n.Addrs...)
		}
		for _, a := range self {
			out.Listen = append(out.Listen, feed.Listen{Addr: netip.AddrPortFrom(a, desired.FeedPort), Device: desired.NodeDevice})
		}
	}
	for _, g := range own.Gateways {
		source, addr, ok := SameFamily(self, NodeAddrs(in.Facts.Nodes, g.Node))
		if g.Node == in.Node || !ok {
			continue
		}
		keys, err := feed.PublicKeys(g.Keys)
		if err != nil {
			return out, err
		}
		out.Follow = append(out.Follow, feed.Peer{
			Cluster: own.Name, Gateway: g.Name, Keys: keys, Source: source,
			Addr: netip.AddrPortFrom(addr, desired.FeedPort), Device: desired.NodeDevice,
		})
	}
	return out, nil
}

func (o *FeedSpec) gateway(in Observed, f *fabric.Fabric, gateway *fabric.Gateway, paths map[string]model.Path) error {
	o.Identity.Gateway = gateway.Name
	o.Identity.Keys = privateKeys(in.Keys, gateway.Name)
	for _, a := range gateway.Addresses {
		o.Listen = append(o.Listen, feed.Listen{Addr: netip.AddrPortFrom(a, desired.FeedPort)})
	}
	for i := range f.Clusters {
		c := &f.Clusters[i]
		if c.Name == o.Identity.Cluster {
			continue
		}
		for _, g := range c.Gateways {
			source, addr, ok := SameFamily(gateway.Addresses, g.Addresses)
			if !ok {
				continue
			}
			keys, err := feed.PublicKeys(g.Keys)
			if err != nil {
				return err
			}
			peer := feed.Peer{
				Cluster: c.Name, Gateway: g.Name, Keys: keys, Source: source,
				Addr: netip.AddrPortFrom(addr, desired.FeedPort), Addrs: g.Addresses, AllowedPrefixes: visible(c),
			}
			o.Allow = append(o.Allow, peer)
			if path := paths[c.Name]; path.Local == gateway.Name && (path.Via != "" || path.Remote == g.Name) {
				o.Follow = append(o.Follow, peer)
			}
		}
	}
	return nil
}

// visible gives the prefixes at which others reach a cluster's pods.
func visible(c *fabric.Cluster) []netip.Prefix {
	return slices.Concat(c.GlobalCIDRs, Visible(c, c.PodCIDRs))
}

func privateKeys(keys *fabric.Keys, gateway string) map[int]fabric.Secret {
	out := map[int]fabric.Secret{}
	if keys == nil {
		return out
	}
	for _, e := range keys.Epochs {
		if key, ok := e.Gateways[gateway]; ok {
			out[e.Epoch] = key
		}
	}
	return out
}

// Visible gives those of a cluster's own prefixes that others know.
func Visible(c *fabric.Cluster, prefixes []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(prefixes), func(p netip.Prefix) bool { return c.IsGlobalnet(fabric.Family(p.Addr())) })
}
