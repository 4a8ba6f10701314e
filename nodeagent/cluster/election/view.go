package election

import (
	"slices"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/schema/fabric"
)

// Gateway is a gateway whose node is selected by labels.
type Gateway struct {
	Name     string
	Selector map[string]string // required labels and values
}

// ClusterView is one node's view of the gateways and nodes of its cluster.
type ClusterView struct {
	Node         string // this node
	Gateways     []Gateway
	Nodes        []model.Node     // all nodes of the cluster
	NamedNodes   []string         // nodes of the gateways that the topology assigns by node name
	Leases       map[string]Lease // by gateway; a gateway without Lease cannot be acquired
	Stopping     bool             // the agent of this node stops
	Drained      bool             // this node acquires no gateway
	Decommission bool             // the agent removes Hawser from the node
	Ports        [][2]int         // UDP port ranges of the tunnels, first and last port
}

// ViewOf returns the ClusterView of a fabric and nodes, without Leases, Stopping and Drained.
// Gateways is empty if the cluster selects no gateway by labels.
func ViewOf(f *fabric.Fabric, cluster, node string, nodes []model.Node) ClusterView {
	v := ClusterView{Node: node, Nodes: nodes}
	own := f.Cluster(cluster)
	if own == nil || f.Decommission {
		v.Decommission = true
		return v
	}
	for i := range own.Gateways {
		if g := &own.Gateways[i]; g.HasNodeSelector() {
			v.Gateways = append(v.Gateways, Gateway{Name: g.Name, Selector: g.NodeSelector})
			v.addPorts(g.Port)
		} else {
			v.NamedNodes = append(v.NamedNodes, g.Node)
		}
	}
	if len(v.Gateways) == 0 {
		return v
	}
	for _, l := range f.Links {
		if l.Port != 0 && slices.Contains(l.Between[:], cluster) {
			v.addPorts(l.Port)
		}
	}
	if slices.Contains(f.Drivers(cluster), fabric.DriverIPsec) {
		for _, port := range []int{f.Tunnel.IPsec.IKEPort, f.Tunnel.IPsec.NATPort} {
			v.Ports = append(v.Ports, [2]int{port, port})
		}
	}
	return v
}

// addPorts adds the range from a base port: the port of WireGuard and the two ports of VXLAN.
func (v *ClusterView) addPorts(base int) {
	if r := [2]int{base, fabric.VXLANPort(base, true)}; !slices.Contains(v.Ports, r) {
		v.Ports = append(v.Ports, r)
	}
}

// matches reports whether a node is available and has the labels of a gateway's selector.
func (v ClusterView) matches(node string, g Gateway) bool {
	i := slices.IndexFunc(v.Nodes, func(n model.Node) bool { return n.Name == node })
	if i < 0 || v.Nodes[i].UnavailableReason != "" {
		return false
	}
	for key, value := range g.Selector {
		if have, ok := v.Nodes[i].Labels[key]; !ok || have != value {
			return false
		}
	}
	return true
}

// WithHolders returns a copy of a fabric with the holders of one cluster: they are the nodes of its
// gateways that are selected by labels. It returns f itself if the cluster has no such gateway.
func WithHolders(f *fabric.Fabric, cluster string, holders map[string]string) *fabric.Fabric {
	own := f.Cluster(cluster)
	if own == nil || !slices.ContainsFunc(own.Gateways, func(g fabric.Gateway) bool { return g.HasNodeSelector() }) {
		return f
	}
	out := *f
	out.Clusters = slices.Clone(f.Clusters)
	c := out.Cluster(cluster)
	c.Gateways = slices.Clone(c.Gateways)
	for i := range c.Gateways {
		if g := &c.Gateways[i]; g.HasNodeSelector() {
			g.Node = holders[g.Name]
		}
	}
	return &out
}
