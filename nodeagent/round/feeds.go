package round

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/peer/feed"
	"hawser.dev/hawser/schema/fabric"
)

// FeedSpec has the feeds that this node subscribes to and the subscribers that it accepts. It
// depends only on fabric, keys, facts and paths.
type FeedSpec struct {
	Identity  feed.Identity
	Subscribe []feed.Peer  // to subscribe to
	Clusters  []string     // all clusters of the fabric
	Allow     []feed.Peer  // accepted subscribers
	Nodes     []netip.Addr // of this cluster's nodes, which subscribe without a key
	Listen    []feed.Listen
}

// feedInput is the input of feedsOf.
type feedInput struct {
	cluster, node string
	fabric        *fabric.Fabric
	keys          *fabric.Keys
	nodes         []model.Node
	paths         map[string]model.Path
}

func (a *feedInput) equal(b *feedInput) bool {
	return a.cluster == b.cluster && a.node == b.node && a.fabric == b.fabric && a.keys == b.keys &&
		maps.Equal(a.paths, b.paths) && reflect.DeepEqual(a.nodes, b.nodes)
}

// feedsOf returns the feeds of a node. It returns the same slices while their input is unchanged.
func (c *cache) feedsOf(in Observed, f *fabric.Fabric, paths map[string]model.Path) (FeedSpec, error) {
	next := feedInput{cluster: in.Cluster, node: in.Node, fabric: f, keys: in.Keys, nodes: in.Facts.Nodes, paths: paths}
	if next.equal(&c.feeds) {
		return c.feedSpec, nil
	}
	spec, err := feedsOf(in, f, paths)
	if err != nil {
		return spec, err
	}
	c.feeds, c.feedSpec = next, spec
	return spec, nil
}

// feedsOf returns the feeds of a node. If a gateway has the active link to a cluster, it subscribes
// at the remote gateway of that link. If the path leads through a transit cluster, it subscribes to
// all gateways of the remote cluster: this node does not know their health, and transit clusters do
// not vouch for them. Every node subscribes to the other gateways of its own cluster, which relay
// feeds. So the number of connections grows with the clusters, not with pairs of gateways.
func feedsOf(in Observed, f *fabric.Fabric, paths map[string]model.Path) (FeedSpec, error) {
	out := FeedSpec{Identity: feed.Identity{Cluster: in.Cluster, Node: in.Node}}
	own := f.Cluster(in.Cluster)
	if own == nil {
		return out, nil
	}
	out.Clusters = f.ClusterNames()
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
		source, addr, ok := FirstCommonFamily(self, NodeAddrs(in.Facts.Nodes, g.Node))
		if g.Node == in.Node || !ok {
			continue
		}
		keys, err := feed.PublicKeys(g.Keys)
		if err != nil {
			return out, err
		}
		out.Subscribe = append(out.Subscribe, feed.Peer{
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
			source, addr, ok := FirstCommonFamily(gateway.Addresses, g.Addresses)
			if !ok {
				continue
			}
			keys, err := feed.PublicKeys(g.Keys)
			if err != nil {
				return err
			}
			peer := feed.Peer{
				Cluster: c.Name, Gateway: g.Name, Keys: keys, Source: source,
				Addr: netip.AddrPortFrom(addr, desired.FeedPort), Addrs: g.Addresses, AllowedPrefixes: reachablePrefixes(c),
			}
			o.Allow = append(o.Allow, peer)
			if path := paths[c.Name]; path.Local == gateway.Name && (path.Via != "" || path.Remote == g.Name) {
				o.Subscribe = append(o.Subscribe, peer)
			}
		}
	}
	return nil
}

// reachablePrefixes returns the prefixes by which other clusters reach a cluster's pods.
func reachablePrefixes(c *fabric.Cluster) []netip.Prefix {
	return slices.Concat(c.GlobalCIDRs, FlatPrefixes(c, c.PodCIDRs))
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

// FlatPrefixes returns the prefixes whose family is flat in a cluster: other clusters use these
// without translation.
func FlatPrefixes(c *fabric.Cluster, prefixes []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(prefixes), func(p netip.Prefix) bool { return c.IsGlobalnet(fabric.Family(p.Addr())) })
}
