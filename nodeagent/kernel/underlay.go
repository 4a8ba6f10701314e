package kernel

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"hawser.dev/hawser/nodeagent/desired"
)

// Underlay gives the MTU of the interface that holds one of the addresses, in
// the current network namespace; the first address that is found decides.
func Underlay(addrs []netip.Addr) (mtu int, err error) {
	held, err := heldAddresses()
	if err != nil {
		return 0, err
	}
	for _, a := range addrs {
		if link, ok := held[a]; ok {
			return link.Attrs().MTU, nil
		}
	}
	return 0, fmt.Errorf("no interface holds any of %v", addrs)
}

// AddressesIn gives the addresses of this host, in the current network
// namespace, that are inside one of the prefixes, lowest first. Those of our
// own links are left out.
func AddressesIn(prefixes []netip.Prefix) ([]netip.Addr, error) {
	held, err := heldAddresses()
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
	for a := range held {
		if slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) }) {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out, nil
}

// heldAddresses maps the addresses of this host to their links, without ours.
func heldAddresses() (map[netip.Addr]netlink.Link, error) {
	links, err := dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	byIndex := map[int]netlink.Link{}
	for _, l := range links {
		if !strings.HasPrefix(l.Attrs().Name, desired.LinkPrefix) {
			byIndex[l.Attrs().Index] = l
		}
	}
	addrs, err := dump(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	held := map[netip.Addr]netlink.Link{}
	for _, a := range addrs {
		if l, ok := byIndex[a.LinkIndex]; ok {
			held[fromNet(a.IPNet).Addr()] = l
		}
	}
	return held, nil
}
