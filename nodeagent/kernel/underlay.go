package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"hawser.dev/hawser/nodeagent/desired"
)

// Underlay returns the MTU of the interface with one of the addresses in the current network
// namespace. The first address found decides.
func Underlay(addrs []netip.Addr) (mtu int, err error) {
	hostAddrs, err := hostAddresses()
	if err != nil {
		return 0, err
	}
	for _, a := range addrs {
		if link, ok := hostAddrs[a]; ok {
			return link.Attrs().MTU, nil
		}
	}
	return 0, fmt.Errorf("no interface holds any of %v", addrs)
}

// NoIPv6 reports whether IPv6 is disabled in the current network namespace: by the kernel's
// command line, or for all interfaces.
func NoIPv6() bool {
	raw, err := os.ReadFile("/proc/sys/net/ipv6/conf/all/disable_ipv6")
	return errors.Is(err, fs.ErrNotExist) || strings.TrimSpace(string(raw)) == "1"
}

// AddressesIn returns the addresses of this host, in the current network namespace, that are
// inside one of the prefixes, lowest first. It leaves out the addresses of our own devices.
func AddressesIn(prefixes []netip.Prefix) ([]netip.Addr, error) {
	hostAddrs, err := hostAddresses()
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
	for a := range hostAddrs {
		if slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) }) {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out, nil
}

// hostAddresses maps the addresses of this host to their devices, except our devices.
func hostAddresses() (map[netip.Addr]netlink.Link, error) {
	links, err := dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	byIndex := map[int]netlink.Link{}
	for _, l := range links {
		if !strings.HasPrefix(l.Attrs().Name, desired.DevicePrefix) {
			byIndex[l.Attrs().Index] = l
		}
	}
	addrs, err := dump(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	out := map[netip.Addr]netlink.Link{}
	for _, a := range addrs {
		if l, ok := byIndex[a.LinkIndex]; ok {
			out[fromNet(a.IPNet).Addr()] = l
		}
	}
	return out, nil
}
