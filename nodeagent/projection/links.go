package projection

import (
	"iter"
	"net/netip"
	"slices"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// Bytes that an encapsulation adds to a packet.
const (
	vxlanOver4 = 50 // IPv4 20, UDP 8, VXLAN 8, inner Ethernet 14
	vxlanOver6 = 70 // IPv6 40 instead
	tcpOver4   = 40 // IPv4 20, TCP 20
	tcpOver6   = 60 // IPv6 40, TCP 20

	ethernetMTU = 1500 // assumed while the underlay's MTU is unknown
	minMTU6     = 1280 // minimum for IPv6 (RFC 8200, 5); below it the kernel removes IPv6 from the device
)

// addSysctls sets only sysctls that the data path requires.
func (v *builder) addSysctls() {
	add := func(name, value string) {
		v.state.Sysctls = append(v.state.Sysctls, desired.Sysctl{Name: name, Value: value, Origin: clusterPath(v.self.Name)})
	}
	add("net/netfilter/nf_conntrack_tcp_loose", "1")
	add("net/netfilter/nf_conntrack_tcp_be_liberal", "1")
	if v.v4 {
		add("net/ipv4/ip_forward", "1")
	}
	if v.v6 {
		add("net/ipv6/conf/all/forwarding", "1")
	}
	if v.node != nil {
		v.addLinkSysctls(desired.NodeDevice, clusterPath(v.self.Name))
	}
}

// addLinkSysctls sets the sysctls of one Hawser device, regardless of the host's defaults for
// new devices. The devices accept no router advertisements.
func (v *builder) addLinkSysctls(link, origin string) {
	add := func(name, value string) {
		v.state.Sysctls = append(v.state.Sysctls, desired.Sysctl{Name: name, Value: value, Origin: origin})
	}
	if v.v4 {
		add("net/ipv4/conf/"+link+"/rp_filter", "2")
	}
	if v.v6 {
		add("net/ipv6/conf/"+link+"/disable_ipv6", "0")
		add("net/ipv6/conf/"+link+"/accept_ra", "0")
	}
}

func (v *builder) underlayMTU() int {
	if v.in.Local.UnderlayMTU > 0 {
		return v.in.Local.UnderlayMTU
	}
	return ethernetMTU
}

// linkMTU returns mtu, raised to the minimum of IPv6 if this node uses IPv6. Packets larger than
// the underlay's MTU are then fragmented in the underlay, as RFC 8200, 5 requires.
func (v *builder) linkMTU(mtu int) int {
	if v.v6 {
		return max(mtu, minMTU6)
	}
	return mtu
}

// underlay returns the node's address for packets between nodes, in a family that all nodes
// have: IPv4 if possible.
func (v *builder) underlay(n *model.Node) (netip.Addr, bool) {
	return underlayAddr(n, commonFamily(slices.Values(v.nodes)))
}

// commonFamily returns the family, preferably 4, in which all nodes with addresses have an address;
// 0 if no family qualifies.
func commonFamily(nodes iter.Seq[*model.Node]) int {
	lacks := map[int]bool{}
	for n := range nodes {
		for _, fam := range []int{4, 6} {
			_, ok := ofFamily(n.Addrs, fam)
			lacks[fam] = lacks[fam] || !ok && len(n.Addrs) > 0
		}
	}
	switch {
	case !lacks[4]:
		return 4
	case !lacks[6]:
		return 6
	}
	return 0
}

func underlayAddr(n *model.Node, family int) (netip.Addr, bool) {
	if family != 0 {
		return ofFamily(n.Addrs, family)
	}
	if a, ok := ofFamily(n.Addrs, 4); ok {
		return a, true
	}
	return ofFamily(n.Addrs, 6)
}

// NodeEndpoints returns, by node name, the address at which each node receives VXLAN from other
// nodes.
func NodeEndpoints(nodes []model.Node) map[string]netip.Addr {
	family := commonFamily(func(yield func(*model.Node) bool) {
		for i := range nodes {
			if !yield(&nodes[i]) {
				return
			}
		}
	})
	out := make(map[string]netip.Addr, len(nodes))
	for i := range nodes {
		if a, ok := underlayAddr(&nodes[i], family); ok {
			out[nodes[i].Name] = a
		}
	}
	return out
}

func onlyIPv6(n *model.Node) bool {
	_, four := ofFamily(n.Addrs, 4)
	_, six := ofFamily(n.Addrs, 6)
	return six && !four
}

// addNodeDevice adds the VXLAN device for packets between the nodes of the cluster. It has the DNS
// server's address, and a neighbour entry for every other node.
func (v *builder) addNodeDevice() {
	if v.node == nil {
		return
	}
	local, ok := v.underlay(v.node)
	if !ok {
		v.problem(clusterPath(v.self.Name), status.NodeUnknown, "node "+v.node.Name+" has no address")
		v.node = nil
		return
	}
	over := vxlanOver4
	if local.Is6() {
		over = vxlanOver6
	}
	origin := clusterPath(v.self.Name)
	v.state.Devices = append(v.state.Devices, desired.Device{
		Name: desired.NodeDevice, Type: desired.DeviceVXLAN, MTU: v.linkMTU(min(v.underlayMTU()-over, v.largestMTU())), Up: true,
		MAC: hardwareAddr(v.node.Name), VNI: desired.NodeVNI, Port: desired.VXLANPort, Local: local, Origin: origin,
	})
	for _, dns := range v.in.Fabric.DNS.Addresses() {
		if !v.usesFamily(fabric.Family(dns)) {
			continue
		}
		v.state.Addresses = append(v.state.Addresses, desired.Address{
			Device: desired.NodeDevice, Prefix: cidr.Single(dns), Scope: "link", Origin: "dns",
		})
	}
	for _, n := range v.nodes {
		if n.Name == v.node.Name {
			continue
		}
		v.addNeighbors(desired.NodeDevice, n, origin)
	}
}

// addNeighbors adds the neighbour entries of a node on a device between nodes: its own
// addresses, and a link-local next hop for IPv6 (and for IPv4 if the node has no IPv4 address).
func (v *builder) addNeighbors(link string, n *model.Node, origin string) {
	addrs := slices.DeleteFunc(slices.Clone(n.Addrs), func(a netip.Addr) bool { return !v.usesFamily(fabric.Family(a)) })
	if v.v6 {
		addrs = append(addrs, linkLocal(n.Name))
	}
	for _, a := range addrs {
		v.state.Neighbors = append(v.state.Neighbors, desired.Neighbor{
			Device: link, Addr: a, MAC: hardwareAddr(n.Name), Origin: origin,
		})
	}
}

// nodeHop returns the device and the next hop that lead to a node: its own address if packets pass
// directly, otherwise an address on NodeDevice.
func (v *builder) nodeHop(n *model.Node, fam int) (device string, via netip.Addr, ok bool) {
	if d := v.directTo(n, fam); d != nil {
		return d.Device, d.Addr, true
	}
	via, ok = v.vxlanHop(n, fam)
	return desired.NodeDevice, via, ok
}

// vxlanHop returns the next hop on NodeDevice or SiblingDevice that leads to a node. For IPv6 it is
// link-local, so the node needs no other address of that family. A route for IPv4 may use a
// link-local IPv6 next hop, too (RFC 8950).
func (v *builder) vxlanHop(n *model.Node, fam int) (netip.Addr, bool) {
	if fam == 4 {
		if a, ok := ofFamily(n.Addrs, 4); ok {
			return a, true
		}
	}
	return linkLocal(n.Name), v.v6
}

// linkLocal returns a node's IPv6 address on the VXLAN, derived from its hardware address there.
func linkLocal(node string) netip.Addr { return desired.LinkLocal(hardwareAddr(node)) }

func hardwareAddr(node string) string { return desired.HardwareAddr("node/" + node) }

func (v *builder) addTable() {
	mtu := v.largestMTU()
	v.state.Tables = append(v.state.Tables, desired.Table{
		Name: desired.TableName, MSS4: mtu - tcpOver4, MSS6: mtu - tcpOver6, Connections: v.quota(), Origin: "tunnel",
	})
}

// quota returns the maximum number of connections of a pod through this node; 0 = unlimited.
func (v *builder) quota() int {
	connections := v.in.Fabric.Limits.Connections
	if v.gateway == nil || connections == 0 {
		return 0
	}
	if v.in.Local.NoConnLimit {
		v.problem("limits.connections", status.QuotaUnsupported, "the kernel of this gateway counts no connections in nftables (CONFIG_NFT_CONNLIMIT), "+
			"so a single pod can fill its connection table")
		return 0
	}
	return connections
}
