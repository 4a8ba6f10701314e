package kernel

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/model"
)

// minNetworkBits is the minimum prefix length of a network. A VPN for all addresses splits the
// default route into shorter prefixes.
const minNetworkBits = 7

// Networks returns the networks that the current network namespace is connected to and that
// overlap some prefixes, sorted. They are the routes of the main table to a device without a
// next hop, such as a second card, a bridge or a VPN. It leaves out Hawser's devices, parts of
// default routes, and routes that another host can add with a router advertisement or a DHCP
// option.
func Networks(prefixes []netip.Prefix) ([]model.Network, error) {
	if len(prefixes) == 0 {
		return nil, nil
	}
	routes, err := routesIn(netlink.FAMILY_ALL, unix.RT_TABLE_MAIN)
	if err != nil {
		return nil, err
	}
	overlapping := slices.DeleteFunc(routes, func(r netlink.Route) bool {
		to, ok := prefixOf(r.Dst)
		return !ok || !slices.ContainsFunc(prefixes, to.Overlaps)
	})
	if len(overlapping) == 0 {
		return nil, nil
	}
	links, err := dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	addrs, err := dump(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	return connectedNetworks(overlapping, linkNames(links), addrs), nil
}

// connectedNetworks returns the networks of some routes, with the devices' names by their index and
// the addresses on all devices.
func connectedNetworks(
	routes []netlink.Route, names map[int]string, addrs []netlink.Addr,
) []model.Network {
	var out []model.Network
	for _, r := range routes {
		to, ok := prefixOf(r.Dst)
		if !ok || to.Bits() < minNetworkBits || r.Type != unix.RTN_UNICAST || r.Flags&unix.RTNH_F_DEAD != 0 ||
			to.Addr().IsLinkLocalUnicast() || to.Addr().IsMulticast() || to.Addr().IsLoopback() {
			continue
		}
		hops := r.MultiPath
		if len(hops) == 0 {
			hops = []*netlink.NexthopInfo{{LinkIndex: r.LinkIndex, Gw: r.Gw, Via: r.Via}}
		}
		for _, hop := range hops {
			name := names[hop.LinkIndex]
			if name != "" && !strings.HasPrefix(name, desired.DevicePrefix) && hop.Gw == nil && hop.Via == nil && isHostConfigured(r, to, hop.LinkIndex, addrs) {
				out = append(out, model.Network{Prefix: to.Masked(), Link: name})
			}
		}
	}
	slices.SortFunc(out, func(a, b model.Network) int {
		return cmp.Or(a.Prefix.Compare(b.Prefix), cmp.Compare(a.Link, b.Link))
	})
	return slices.Compact(out)
}

// isHostConfigured reports whether a route comes from the configuration of this host, and not from
// another host's packet. For an IPv6 prefix that a router advertises, the kernel adds the same
// route as for an address of the host. An address from an advertisement is not permanent.
func isHostConfigured(r netlink.Route, to netip.Prefix, link int, addrs []netlink.Addr) bool {
	switch r.Protocol {
	case unix.RTPROT_RA, unix.RTPROT_REDIRECT:
		return false
	case unix.RTPROT_KERNEL, unix.RTPROT_DHCP:
		return slices.ContainsFunc(addrs, func(a netlink.Addr) bool {
			contains := to.Contains(fromNet(a.IPNet).Addr()) || a.Peer != nil && to.Contains(fromNet(a.Peer).Addr())
			return a.LinkIndex == link && contains && (to.Addr().Is4() || a.Flags&unix.IFA_F_PERMANENT != 0)
		})
	}
	return true
}
