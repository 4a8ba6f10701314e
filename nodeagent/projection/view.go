package projection

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// builder has the input, indexed and in canonical order, and the state that it builds.
type builder struct {
	in           Input
	self         *fabric.Cluster
	gateway      *fabric.Gateway // of this node; nil on a worker
	node         *model.Node     // this node; nil if the facts lack it
	nodes        []*model.Node   // sorted by name
	sharedAddrs  []netip.Addr    // claimed by several nodes
	vxlanDropped map[string]bool // names of other nodes whose VXLAN this node drops
	exports      []*fabric.Export
	remotes      []*remoteCluster
	byName       map[string]*remoteCluster
	services     map[string]*model.Service
	// externalNames has the Services of type ExternalName, which have no endpoints.
	externalNames  map[string]bool
	activeDirect   map[netip.Addr]*model.DirectNode // by the other node's address
	unsupported    map[string][]string              // by Service: its unsupported parts
	nodeAddrs      map[netip.Addr]bool              // reported by nodes
	v4, v6         bool                             // families that this node uses
	graph          Graph
	transitTunnels []desired.Tunnel // for transit traffic to gateways of neighbours
	overIPv6       bool             // a gateway of this cluster may have an IPv6 endpoint
	maxLinkMTU     int              // largest MTU of a link to another cluster, bytes

	state        desired.State
	elements     elements
	entries      []entry
	replySources []replySource
	problems     []Problem
}

// remoteCluster is another cluster from the point of view of this cluster.
type remoteCluster struct {
	*fabric.Cluster
	linked       bool // the two clusters have a link
	path         model.Path
	reachable    bool                          // both gateways of path exist
	ownPath      model.Path                    // this gateway's own link
	hasLink      bool                          // both gateways of transit exist
	destinations []netip.Prefix                // prefixes by which this cluster reaches it
	sources      []netip.Prefix                // source prefixes of its packets
	connected    []model.Network               // parts of visible on networks of this node
	link         fabric.LinkSettings           // settings of its tunnels
	overIPv6     bool                          // the tunnels may use IPv6
	live         map[string]*model.ExportState // by namespace/name
	hasState     bool                          // live is current; false = saved by the previous agent
}

// newBuilder indexes the input. It returns nil if the fabric lacks the cluster.
func newBuilder(in Input) *builder {
	self := in.Fabric.Cluster(in.Cluster)
	if self == nil {
		return nil
	}
	v := &builder{
		in: in, self: self, gateway: self.GatewayOn(in.Node), byName: map[string]*remoteCluster{}, services: map[string]*model.Service{},
		externalNames: map[string]bool{}, unsupported: map[string][]string{}, vxlanDropped: map[string]bool{},
	}
	for i := range in.Facts.Nodes {
		v.nodes = append(v.nodes, &in.Facts.Nodes[i])
		if n := &in.Facts.Nodes[i]; n.Unprotected && n.Name != in.Node {
			v.vxlanDropped[n.Name] = true
		}
	}
	slices.SortFunc(v.nodes, func(a, b *model.Node) int { return cmp.Compare(a.Name, b.Name) })
	v.node = v.nodeNamed(in.Node)
	v.dropSharedAddrs()
	for i := range in.Fabric.Exports {
		v.exports = append(v.exports, &in.Fabric.Exports[i])
	}
	slices.SortFunc(v.exports, func(a, b *fabric.Export) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	v.families()
	for _, p := range slices.Concat(in.Fabric.GlobalPools, in.Fabric.ServicePools, in.Fabric.TunnelPools) {
		v.dropNodeAddrs(p, func(*model.Node) bool { return true }, "which belongs to the clusterset")
	}
	v.graph = NewGraph(in.Fabric, in.FormerShape)
	v.overIPv6 = reachedOverIPv6(self)
	v.addRemotes()
	v.nodeAddrs = map[netip.Addr]bool{}
	for _, n := range in.Facts.Nodes { // including addresses that several nodes claim
		for _, a := range slices.Concat(n.Addrs, n.External) {
			v.nodeAddrs[a] = true
		}
	}
	v.indexDirect()
	v.addServices()
	return v
}

// dropNodeAddrs removes and reports the addresses inside a prefix, of the nodes for which applies
// returns true.
func (v *builder) dropNodeAddrs(p netip.Prefix, applies func(*model.Node) bool, whose string) {
	for i, n := range v.nodes {
		if !applies(n) || !slices.ContainsFunc(n.Addrs, p.Contains) {
			continue
		}
		filtered := *n
		filtered.Addrs = slices.DeleteFunc(slices.Clone(n.Addrs), p.Contains)
		v.nodes[i] = &filtered
		if n.Name == v.in.Node {
			v.node = &filtered
		}
		v.problem(clusterPath(v.self.Name), status.NodeAddressConflict, "node "+n.Name+" reports an address in "+p.String()+", "+whose+", so the address is ignored")
	}
}

// dropSharedAddrs removes the addresses that several nodes claim: a kubelet can report another
// node's address in addition to its own. This node keeps its addresses.
func (v *builder) dropSharedAddrs() {
	claims := map[netip.Addr][]string{}
	for _, n := range v.nodes {
		for _, a := range n.Addrs {
			claims[a] = append(claims[a], n.Name)
		}
	}
	for i, n := range v.nodes {
		shared := func(a netip.Addr) bool { return len(claims[a]) > 1 }
		if n.Name == v.in.Node || !slices.ContainsFunc(n.Addrs, shared) {
			continue
		}
		filtered := *n
		filtered.Addrs = slices.DeleteFunc(slices.Clone(n.Addrs), shared)
		v.nodes[i] = &filtered
	}
	for a, names := range claims {
		if len(names) > 1 {
			v.sharedAddrs = append(v.sharedAddrs, a)
			v.problem(clusterPath(v.self.Name), status.NodeAddressConflict, "nodes "+strings.Join(names, " and ")+" both claim address "+a.String()+
				", so it is ignored for both: delete the Node that does not exist, or correct its --node-ip")
		}
	}
}

func (v *builder) nodeNamed(name string) *model.Node {
	i, found := slices.BinarySearchFunc(v.nodes, name, func(n *model.Node, name string) int { return cmp.Compare(n.Name, name) })
	if !found {
		return nil
	}
	return v.nodes[i]
}

// families sets the address families that this node uses. It uses IPv4 if the clusterset has IPv4:
// probes may use it, and every host supports it. It uses IPv6 if the clusterset has IPv6, and this
// cluster has IPv6 or forwards transit traffic. Without IPv4 in the clusterset or on this node, it
// always uses IPv6. Otherwise the node's IPv6 settings do not change.
func (v *builder) families() {
	// First the families of the whole clusterset.
	use := func(lists ...[]netip.Prefix) {
		for _, list := range lists {
			for _, p := range list {
				v.v4 = v.v4 || p.Addr().Is4()
				v.v6 = v.v6 || p.Addr().Is6()
			}
		}
	}
	f := v.in.Fabric
	use(f.GlobalPools, f.ServicePools, f.TunnelPools)
	for i := range f.Clusters {
		c := &f.Clusters[i]
		use(c.PodCIDRs, c.ServiceCIDRs, c.GlobalCIDRs)
	}
	switch {
	case v.node != nil && onlyIPv6(v.node):
		v.v6 = true
	case v.v4:
		v.v6 = v.v6 && (v.self.Has(6) || v.in.Fabric.Graph().ForwardsTransit(v.self.Name))
	}
	if v.v6 && v.in.Local.NoIPv6 {
		v.problem(clusterPath(v.self.Name), status.IPv6Disabled, "the cluster has IPv6, which is disabled on node "+v.in.Node)
		v.v6 = false
	}
}

// usesFamily reports whether this node uses a family.
func (v *builder) usesFamily(fam int) bool { return fam == 4 && v.v4 || fam == 6 && v.v6 }

func (v *builder) addRemotes() {
	for i := range v.in.Fabric.Clusters {
		c := &v.in.Fabric.Clusters[i]
		if c.Name == v.self.Name {
			continue
		}
		r := &remoteCluster{Cluster: c, linked: v.graph.Linked(v.self.Name, c.Name)}
		v.findLink(r)
		v.findPath(r)
		path, exists := v.in.GatewayPaths[r.Name]
		if exists && v.gateway != nil && path.Local == v.gateway.Name && v.gatewayExists(r, path) {
			r.ownPath, r.hasLink = path, true
		}
		v.findPrefixes(r)
		v.findConnected(r)
		live, exists := v.in.ClusterStates[c.Name]
		if !exists {
			live = v.in.RestoredClusterStates[c.Name]
		}
		r.hasState, r.live = exists, exportsByID(live)
		v.remotes = append(v.remotes, r)
		v.byName[c.Name] = r
	}
	slices.SortFunc(v.remotes, func(a, b *remoteCluster) int { return cmp.Compare(a.Name, b.Name) })
}

// findPath sets the path to a cluster if the gateways at both ends exist. The fabric may be newer
// than the path.
func (v *builder) findPath(r *remoteCluster) {
	path, exists := v.in.Paths[r.Name]
	if !exists {
		v.problem(clusterPath(r.Name), status.NoPath, "no link leads to this cluster")
		return
	}
	if v.self.Gateway(path.Local) == nil || !v.gatewayExists(r, path) {
		v.problem(clusterPath(r.Name), status.NoPath, "the link "+path.Local+" to "+path.Remote+" names a gateway that does not exist")
		return
	}
	r.path, r.reachable = path, true
}

// gatewayExists reports whether the gateway at the end of a path exists and its cluster is linked
// to this one.
func (v *builder) gatewayExists(r *remoteCluster, p model.Path) bool {
	next := v.in.Fabric.Cluster(p.Next(r.Name))
	return next != nil && v.graph.Linked(v.self.Name, next.Name) && next.Gateway(p.Remote) != nil
}

// findPrefixes sets the prefixes by which this cluster reaches a cluster: its global block and, if
// it is flat, its own prefixes that do not overlap addresses of this cluster.
func (v *builder) findPrefixes(r *remoteCluster) {
	for _, p := range r.GlobalCIDRs {
		v.addDestination(r, p, true)
	}
	for i, list := range [][]netip.Prefix{r.PodCIDRs, r.ServiceCIDRs} {
		for _, p := range list {
			if !r.IsGlobalnet(fabric.Family(p.Addr())) && !overlapsAny(p, v.self.PodCIDRs) && !overlapsAny(p, v.self.ServiceCIDRs) {
				v.addDestination(r, p, i == 0)
			}
		}
	}
	r.destinations, r.sources = disjoint(r.destinations), disjoint(r.sources)
	if !(v.self.Has(4) && r.Has(4)) && !(v.self.Has(6) && r.Has(6)) {
		v.problem(clusterPath(r.Name), status.NoFamily, "it has no address family in common with this cluster")
	}
}

// addDestination adds a prefix unless it contains an address of this node: its route would match
// the packets between the nodes, including the outer packets of tunnels. An address of another node
// does not prevent the route, because a kubelet can report any address.
func (v *builder) addDestination(r *remoteCluster, p netip.Prefix, source bool) {
	if !v.usesFamily(fabric.Family(p.Addr())) {
		return
	}
	if v.node != nil && slices.ContainsFunc(v.node.Addrs, p.Contains) {
		v.problem(clusterPath(r.Name), status.CoversNode, p.String()+" contains an address of node "+v.node.Name+", so it is not routed")
		return
	}
	v.dropNodeAddrs(p, func(n *model.Node) bool { return n.Name != v.in.Node }, "which belongs to cluster "+r.Name)
	r.destinations = append(r.destinations, p)
	if source {
		r.sources = append(r.sources, p)
	}
}

func exportsByID(live model.ClusterState) map[string]*model.ExportState {
	out := make(map[string]*model.ExportState, len(live.Exports))
	for i := range live.Exports {
		e := &live.Exports[i]
		out[e.Namespace+"/"+e.Name] = e
	}
	return out
}

// isReady reports whether the cluster has backends of an export. Until its state arrives, the
// fabric decides.
func (r *remoteCluster) isReady(id string) bool {
	if !r.hasState {
		return true
	}
	e := r.live[id]
	return e != nil && e.Ready
}

// isTerminating reports whether the cluster announced that all its endpoints of an export
// terminate.
func (r *remoteCluster) isTerminating(id string) bool {
	e := r.live[id]
	return r.hasState && e != nil && e.Terminating
}

// supportsFamily reports whether a service of the cluster has a family, according to the announced
// state.
func (r *remoteCluster) supportsFamily(id string, fam int) bool {
	if !r.Has(fam) {
		return false
	}
	e := r.live[id]
	return e == nil || len(e.Families) == 0 || slices.Contains(e.Families, fam)
}

func (r *remoteCluster) isDestination(addr netip.Addr) bool {
	return slices.ContainsFunc(r.destinations, func(p netip.Prefix) bool { return p.Contains(addr) })
}

func clusterPath(name string) string { return "clusters[" + name + "]" }

func exportPath(id, cluster string) string { return "exports[" + id + "].clusters[" + cluster + "]" }

// Problem is a fault of the input or of this node for the user. It does not stop the projection
// of the rest of the node's state.
type Problem struct {
	Path string `json:"path"` // topology path, such as exports[sample/web].clusters[g2]
	Code string `json:"code"` // stable, kebab-case
	Text string `json:"text"` // the fault, lower case, no full stop
}

func (v *builder) problem(path, code, text string) {
	v.problems = append(v.problems, Problem{Path: path, Code: code, Text: text})
}

// sortedProblems returns the problems without duplicates, in an order that does not depend on when
// they were found.
func (v *builder) sortedProblems() []Problem {
	slices.SortFunc(v.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Text, b.Text))
	})
	return slices.Compact(v.problems)
}
