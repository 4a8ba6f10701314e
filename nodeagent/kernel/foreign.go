package kernel

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/desired"
)

// OnLink returns the destinations inside some prefixes that the main table of the current
// network namespace routes to a foreign device without a next hop, sorted.
func OnLink(prefixes []netip.Prefix) ([]netip.Prefix, error) {
	links, err := dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	ours := map[int]bool{}
	for _, l := range links {
		ours[l.Attrs().Index] = strings.HasPrefix(l.Attrs().Name, desired.DevicePrefix)
	}
	routes, err := routesIn(netlink.FAMILY_ALL, unix.RT_TABLE_MAIN)
	if err != nil {
		return nil, err
	}
	var out []netip.Prefix
	for _, r := range routes {
		to, ok := prefixOf(r.Dst)
		if !ok || ours[r.LinkIndex] || r.Type != unix.RTN_UNICAST || r.Gw != nil || r.Via != nil || len(r.MultiPath) > 0 {
			continue
		}
		if slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Bits() <= to.Bits() && p.Contains(to.Addr()) }) {
			out = append(out, to)
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out), nil
}

// ForeignRules describes, as ip(8) does, the routing rules of other programs in the current
// network namespace that match packets from pods to remote prefixes before Hawser's rule 7300.
// It leaves out rules for which the match is uncertain, such as those for a mark or a protocol.
func ForeignRules(remote, pods []netip.Prefix) ([]string, error) {
	var out []string
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		same := func(p netip.Prefix) bool { return p.Addr().Is4() == (family == netlink.FAMILY_V4) }
		if !slices.ContainsFunc(remote, same) {
			continue
		}
		rules, err := dump(func() ([]netlink.Rule, error) { return netlink.RuleList(family) })
		if err != nil {
			return nil, fmt.Errorf("list rules: %w", err)
		}
		for _, r := range rules {
			// The local table has the node's own addresses.
			if r.Protocol == desired.RouteProtocol || r.Priority >= desired.RuleOut || r.Table == unix.RT_TABLE_LOCAL ||
				!mustMatch(r, remote, pods) {
				continue
			}
			text := fmt.Sprintf("ip rule %d (%s)", r.Priority, inventoryRule(family, r).Selector())
			if r.Table <= 0 { // blackhole, unreachable or prohibit
				out = append(out, text)
				continue
			}
			routes, err := routesIn(family, r.Table)
			if err != nil {
				return nil, err
			}
			if slices.ContainsFunc(routes, func(route netlink.Route) bool { return routesRemote(route, r, remote) }) {
				out = append(out, fmt.Sprintf("%s to table %d", text, r.Table))
			}
		}
	}
	return out, nil
}

// mustMatch reports whether a rule certainly matches unmarked packets from a pod to a remote
// prefix, of any protocol.
func mustMatch(r netlink.Rule, remote, pods []netip.Prefix) bool {
	if r.OifName != "" || r.IifName == "lo" || strings.HasPrefix(r.IifName, desired.DevicePrefix) || r.Tos != 0 || r.IPProto != 0 ||
		r.Sport != nil || r.Dport != nil || r.UIDRange != nil || r.TunID != 0 || r.Goto >= 0 {
		return false
	}
	from, hasFrom := prefixOf(r.Src)
	to, hasTo := prefixOf(r.Dst)
	if r.Invert {
		// A VPN rule for all packets except its own: not fwmark 0xca6c.
		return r.Mark != 0 && !hasFrom && !hasTo && r.IifName == ""
	}
	if r.Mark != 0 {
		return false
	}
	overlapsAny := func(p netip.Prefix, list []netip.Prefix) bool { return slices.ContainsFunc(list, p.Overlaps) }
	return (!hasFrom || overlapsAny(from, pods)) && (!hasTo || overlapsAny(to, remote))
}

// routesRemote reports whether a route in the table of a rule matches packets to a remote
// prefix.
func routesRemote(route netlink.Route, r netlink.Rule, remote []netip.Prefix) bool {
	if route.Type == unix.RTN_THROW || route.Protocol == desired.RouteProtocol {
		return false
	}
	to, ok := prefixOf(route.Dst)
	if !ok { // the default route
		return r.SuppressPrefixlen < 0
	}
	return to.Bits() > r.SuppressPrefixlen && slices.ContainsFunc(remote, to.Overlaps)
}

func routesIn(family, table int) ([]netlink.Route, error) {
	routes, err := dump(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(family, &netlink.Route{Table: table}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("list routes of table %d: %w", table, err)
	}
	return routes, nil
}

// prefixOf converts a prefix. It reports false for nil and for the default route.
func prefixOf(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	ones, _ := n.Mask.Size()
	p := netip.PrefixFrom(fromIP(n.IP), ones)
	return p, p.IsValid() && ones > 0
}
