package nodeagent

import (
	"net/netip"
	"slices"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/feed"
	"hawser.dev/hawser/nodeagent/project"
	"hawser.dev/hawser/schema/fabric"
)

// feeding is whom this node hears and who may hear it. It follows from fabric,
// keys, facts and paths alone.
type feeding struct {
	identity feed.Identity
	follow   []feed.Peer  // whom to subscribe to
	allow    []feed.Peer  // who may subscribe
	nodes    []netip.Addr // of this cluster, who may subscribe without a key
	listen   []feed.Listen
}

// feedsOf decides: a gateway hears each cluster whose chosen link it holds, from
// the gateway at the other end; one behind others from all its gateways, as nothing
// is known of them, and those that pass on cannot speak for it. Every node hears the other gateways of its own
// cluster, which relay. So the connections grow with the clusters, not with the
// pairs of gateways.
func feedsOf(in current, cluster, node string, paths map[string]project.Path) (feeding, error) {
	f := feeding{identity: feed.Identity{Cluster: cluster, Node: node}}
	own := in.fabric.Cluster(cluster)
	if own == nil {
		return f, nil
	}
	self := nodeAddrs(in.facts.Facts.Nodes, node)
	if gateway := own.GatewayOn(node); gateway != nil {
		if err := f.gateway(in, gateway, paths); err != nil {
			return f, err
		}
		for _, n := range in.facts.Facts.Nodes {
			f.nodes = append(f.nodes, n.Addrs...)
		}
		for _, a := range self {
			f.listen = append(f.listen, feed.Listen{Addr: netip.AddrPortFrom(a, desired.FeedPort), Device: desired.NodeLink})
		}
	}
	for _, g := range own.Gateways {
		source, addr, ok := sameFamily(self, nodeAddrs(in.facts.Facts.Nodes, g.Node))
		if g.Node == node || !ok {
			continue
		}
		keys, err := feed.PublicKeys(g.Keys)
		if err != nil {
			return f, err
		}
		f.follow = append(f.follow, feed.Peer{
			Cluster: own.Name, Gateway: g.Name, Keys: keys, Source: source,
			Addr: netip.AddrPortFrom(addr, desired.FeedPort), Device: desired.NodeLink,
		})
	}
	return f, nil
}

func (f *feeding) gateway(in current, gateway *fabric.Gateway, paths map[string]project.Path) error {
	f.identity.Gateway = gateway.Name
	f.identity.Keys = privateKeys(in.keys, gateway.Name)
	for _, a := range gateway.Addresses {
		f.listen = append(f.listen, feed.Listen{Addr: netip.AddrPortFrom(a, desired.FeedPort)})
	}
	for i := range in.fabric.Clusters {
		c := &in.fabric.Clusters[i]
		if c.Name == f.identity.Cluster {
			continue
		}
		for _, g := range c.Gateways {
			source, addr, ok := sameFamily(gateway.Addresses, g.Addresses)
			if !ok {
				continue
			}
			keys, err := feed.PublicKeys(g.Keys)
			if err != nil {
				return err
			}
			peer := feed.Peer{
				Cluster: c.Name, Gateway: g.Name, Keys: keys, Source: source,
				Addr: netip.AddrPortFrom(addr, desired.FeedPort), Addrs: g.Addresses, Blocks: visible(c),
			}
			f.allow = append(f.allow, peer)
			if path := paths[c.Name]; path.Local == gateway.Name && (path.Via != "" || path.Remote == g.Name) {
				f.follow = append(f.follow, peer)
			}
		}
	}
	return nil
}

// visible gives the prefixes at which others reach a cluster's pods.
func visible(c *fabric.Cluster) []netip.Prefix {
	return slices.Concat(c.GlobalCIDRs, unhidden(c, c.PodCIDRs))
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
