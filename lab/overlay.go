package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"hawser.dev/hawser/internal/cidr"
)

// overlay is the pod network of a cluster with UpOptions.Overlay: a switch with a link to each pod
// and each node. Packets from a node to any pod use the switch. Packets from a pod to other
// addresses go to its node.
type overlay struct {
	underlay *underlay
	bridge   string
}

// podLink is the name of a node's link to the overlay.
const podLink = "pods0"

func podBridge(clusterNumber int) string { return fmt.Sprintf("pods%d", clusterNumber) }

// podPort returns the name of the switch's end of a node's link.
func podPort(n *node) string { return fmt.Sprintf("p%d", n.number) }

// attachNode adds a node's link. Its address is the first one of the node's part of the pod
// prefixes.
func (o *overlay) attachNode(m *runningNode) error {
	if err := vethPairWith(o.underlay.netNS, podPort(&m.spec), m.ns, podLink, hardwareAddress(m.spec.id()+"/"+podLink)); err != nil {
		return err
	}
	if err := o.underlay.enslave(podPort(&m.spec), o.bridge); err != nil {
		return err
	}
	for _, share := range m.spec.podCIDRs {
		gateway, err := nth(share, 1)
		if err != nil {
			return err
		}
		if err := m.ns.addAddress(podLink, netip.PrefixFrom(gateway, m.spec.clusterCIDROf(gateway).Bits())); err != nil {
			return err
		}
	}
	return nil
}

// attachPod adds a pod's link. Like in overlay CNIs, its hardware address is derived from its first
// IP address. Neighbours cache the hardware address for ten seconds or more: with a different
// hardware address, the next pod with the IP address would be unreachable.
func (o *overlay) attachPod(m *runningNode, c *runningPod) error {
	name := vethName(c.spec.id())
	mac := hardwareAddress(fmt.Sprint(o.bridge, "/", c.spec.addrs[0]))
	if err := vethPairWith(o.underlay.netNS, name, c.ns, "eth0", mac); err != nil {
		return err
	}
	if err := o.underlay.enslave(name, o.bridge); err != nil {
		return err
	}
	for _, addr := range c.spec.addrs {
		gateway, err := m.spec.podGateway(addr)
		if err != nil {
			return err
		}
		err = errors.Join(
			c.ns.addAddress("eth0", netip.PrefixFrom(addr, m.spec.clusterCIDROf(addr).Bits())),
			c.ns.apply(route{dst: defaultPrefix(addr), dev: "eth0", via: gateway, onnet: true}, false),
		)
		if err != nil {
			return err
		}
	}
	return nil
}

// clusterCIDROf returns the cluster's pod prefix that contains an address.
func (n *node) clusterCIDROf(addr netip.Addr) netip.Prefix {
	i := slices.IndexFunc(n.clusterPodCIDRs, func(p netip.Prefix) bool { return p.Contains(addr) })
	if i < 0 {
		return cidr.Single(addr)
	}
	return n.clusterPodCIDRs[i]
}
