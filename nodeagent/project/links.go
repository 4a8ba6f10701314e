package project

import (
	"net/netip"

	"hawser.dev/hawser/nodeagent/desired"
)

// Bytes that an encapsulation adds to a packet.
const (
	vxlanOver4 = 50 // IPv4 20, UDP 8, VXLAN 8, inner Ethernet 14
	vxlanOver6 = 70 // IPv6 40 instead
	tcpOver4   = 40 // IPv4 20, TCP 20
	tcpOver6   = 60 // IPv6 40, TCP 20

	ethernetMTU = 1500 // assumed while the underlay's is not known
)

// addSysctls asks only for what the data path cannot do without.
func (v *view) addSysctls() {
	add := func(name, value string) {
		v.state.Sysctls = append(v.state.Sysctls, desired.Sysctl{Name: name, Value: value, Origin: clusterPath(v.own.Name)})
	}
	add("net/netfilter/nf_conntrack_tcp_loose", "1")
	add("net/netfilter/nf_conntrack_tcp_be_liberal", "1")
	if v.v4 {
		add("net/ipv4/ip_forward", "1")
		if v.node != nil {
			add("net/ipv4/conf/"+desired.NodeLink+"/rp_filter", "2")
		}
	}
	if v.v6 {
		add("net/ipv6/conf/all/forwarding", "1")
	}
}

func (v *view) underlayMTU() int {
	if v.in.Local.UnderlayMTU > 0 {
		return v.in.Local.UnderlayMTU
	}
	return ethernetMTU
}

// underlay is the node's address that carries the packets between nodes.
func underlay(n *Node) (netip.Addr, bool) {
	if a, ok := ofFamily(n.Addrs, 4); ok {
		return a, true
	}
	return ofFamily(n.Addrs, 6)
}

// addNodeLink makes the VXLAN between the nodes of the cluster, the name
// server's address on it, and a neighbour for every other node.
func (v *view) addNodeLink() {
	if v.node == nil {
		return
	}
	local, ok := underlay(v.node)
	if !ok {
		v.problem(clusterPath(v.own.Name), NodeUnknown, "node "+v.node.Name+" has no address")
		v.node = nil
		return
	}
	over := vxlanOver4
	if local.Is6() {
		over = vxlanOver6
	}
	origin := clusterPath(v.own.Name)
	v.state.Links = append(v.state.Links, desired.Link{
		Name: desired.NodeLink, Type: desired.LinkVXLAN, MTU: min(v.underlayMTU()-over, v.largestMTU()), Up: true,
		MAC: hardwareAddr(v.node.Name), VNI: desired.VXLANID, Port: desired.VXLANPort, Local: local, Origin: origin,
	})
	if dns := v.in.Fabric.DNS.Address; dns.IsValid() {
		v.state.Addresses = append(v.state.Addresses, desired.Address{
			Link: desired.NodeLink, Prefix: single(dns), Scope: "link", Origin: "dns",
		})
	}
	for _, n := range v.nodes {
		if n.Name == v.node.Name {
			continue
		}
		for _, a := range n.Addrs {
			v.state.Neighbours = append(v.state.Neighbours, desired.Neighbour{
				Link: desired.NodeLink, Addr: a, MAC: hardwareAddr(n.Name), Origin: origin,
			})
		}
	}
}

func hardwareAddr(node string) string { return desired.HardwareAddr("node/" + node) }

func (v *view) addTable() {
	mtu := v.largestMTU()
	v.state.Tables = append(v.state.Tables, desired.Table{
		Name: desired.TableName, MSS4: mtu - tcpOver4, MSS6: mtu - tcpOver6, Origin: "tunnel",
	})
}
