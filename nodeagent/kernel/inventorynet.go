package kernel

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/inventory"
)

// takeLinks reads all interfaces with their addresses.
func (ns *Namespace) takeLinks(_ context.Context, k *inventory.Kernel) error {
	list, err := dump(ns.route.LinkList)
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	addrs, err := dump(func() ([]netlink.Addr, error) { return ns.route.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	held, names := map[int][]string{}, linkNames(list)
	for _, a := range addrs {
		held[a.LinkIndex] = append(held[a.LinkIndex], fromNet(a.IPNet).String())
	}
	for _, l := range list {
		told := linkOf(l)
		told.Addresses, told.Master = held[l.Attrs().Index], names[l.Attrs().MasterIndex]
		k.Links = append(k.Links, told)
	}
	return nil
}

func linkOf(l netlink.Link) inventory.Link {
	a := l.Attrs()
	out := inventory.Link{
		Name: a.Name, Type: l.Type(), MTU: a.MTU, Up: a.Flags&net.FlagUp != 0, State: a.OperState.String(), Alias: a.Alias, MAC: a.HardwareAddr.String(),
	}
	if s := a.Statistics; s != nil {
		out.Received = inventory.Traffic{Packets: s.RxPackets, Bytes: s.RxBytes, Errors: s.RxErrors, Dropped: s.RxDropped}
		out.Sent = inventory.Traffic{Packets: s.TxPackets, Bytes: s.TxBytes, Errors: s.TxErrors, Dropped: s.TxDropped}
	}
	if v, ok := l.(*netlink.Vxlan); ok {
		out.VXLAN = &inventory.VXLAN{VNI: v.VxlanId, Port: v.Port}
		if local := fromIP(v.SrcAddr); local.IsValid() {
			out.VXLAN.Local = local.String()
		}
	}
	return out
}

// takeRules reads the routing policy of all owners.
func (ns *Namespace) takeRules(_ context.Context, k *inventory.Kernel) error {
	for _, family := range ns.families() {
		list, err := dump(func() ([]netlink.Rule, error) { return ns.route.RuleList(family) })
		if err != nil {
			return fmt.Errorf("list rules: %w", err)
		}
		digit := map[int]int{netlink.FAMILY_V4: 4, netlink.FAMILY_V6: 6}[family]
		for _, r := range list {
			k.Rules = append(k.Rules, inventory.Rule{
				Family: digit, Priority: r.Priority, Protocol: int(r.Protocol), Select: selectorOf(r), Table: max(r.Table, 0),
			})
		}
	}
	slices.SortStableFunc(k.Rules, func(a, b inventory.Rule) int {
		return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(a.Priority, b.Priority))
	})
	return nil
}

// selectorOf says which packets a rule is for, in the words of ip(8).
func selectorOf(r netlink.Rule) string {
	var words []string
	say := func(there bool, format string, args ...any) {
		if there {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	say(r.Invert, "not")
	say(r.Src != nil, "from %s", r.Src)
	say(r.Dst != nil, "to %s", r.Dst)
	say(r.IifName != "", "iif %s", r.IifName)
	say(r.OifName != "", "oif %s", r.OifName)
	if r.Mask != nil {
		say(true, "fwmark %#x/%#x", r.Mark, *r.Mask)
	} else {
		say(r.Mark != 0, "fwmark %#x", r.Mark)
	}
	say(r.IPProto != 0, "ipproto %d", r.IPProto)
	if r.Sport != nil {
		say(true, "sport %d-%d", r.Sport.Start, r.Sport.End)
	}
	if r.Dport != nil {
		say(true, "dport %d-%d", r.Dport.Start, r.Dport.End)
	}
	say(r.SuppressPrefixlen >= 0, "suppress_prefixlength %d", r.SuppressPrefixlen)
	say(r.Goto >= 0, "goto %d", r.Goto)
	return strings.Join(words, " ")
}

// mostOthers bounds the routes of others, of a family: a node may hold those of the
// whole Internet.
const mostOthers = 5000

// takeRoutes reads the routes of all tables but the one that the kernel keeps for
// addresses of its own.
func (ns *Namespace) takeRoutes(_ context.Context, k *inventory.Kernel) error {
	list, err := dump(ns.route.LinkList)
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	names := linkNames(list)
	for _, family := range ns.families() {
		left := 0
		routes, err := dump(func() (out []inventory.Route, err error) {
			left = 0
			others := 0
			err = ns.route.RouteListFilteredIter(family, &netlink.Route{}, netlink.RT_FILTER_TABLE, func(r netlink.Route) bool {
				switch ours := r.Protocol == desired.RouteProtocol; {
				case r.Table == unix.RT_TABLE_LOCAL:
				case !ours && others == mostOthers:
					left++
				default:
					out = append(out, routeOf(r, names))
					if !ours {
						others++
					}
				}
				return true
			})
			return out, err
		})
		if err != nil {
			return fmt.Errorf("list routes: %w", err)
		}
		k.Routes, k.Left = append(k.Routes, routes...), k.Left+left
	}
	slices.SortStableFunc(k.Routes, func(a, b inventory.Route) int { return cmp.Compare(a.Table, b.Table) })
	return nil
}

func routeOf(r netlink.Route, names map[int]string) inventory.Route {
	types := []string{"unspecified", "unicast", "local", "broadcast", "anycast", "multicast", "blackhole", "unreachable", "prohibit", "throw"}
	out := inventory.Route{
		Table: r.Table, Dst: fromNet(r.Dst).String(), Type: strconv.Itoa(r.Type), Link: names[r.LinkIndex], Protocol: int(r.Protocol), Metric: r.Priority, MTU: r.MTU,
	}
	if r.Dst == nil {
		out.Dst = anyPrefix(r.Family).String()
	}
	if r.Type < len(types) {
		out.Type = types[r.Type]
	}
	if via := nextHop(r); via.IsValid() {
		out.Via = via.String()
	}
	if src := fromIP(r.Src); src.IsValid() {
		out.Src = src.String()
	}
	var hops []string
	for _, hop := range r.MultiPath {
		hops = append(hops, fmt.Sprintf("%s dev %s", fromIP(hop.Gw), names[hop.LinkIndex]))
	}
	if len(hops) > 0 {
		out.Via = strings.Join(hops, ", ")
	}
	return out
}

// takeNeighbours reads the neighbours and forwarding entries of our links, those too
// that nobody asked for.
func (ns *Namespace) takeNeighbours(_ context.Context, k *inventory.Kernel) error {
	links, err := ns.links()
	if err != nil {
		return err
	}
	for _, l := range links {
		for _, family := range append(ns.families(), unix.AF_BRIDGE) {
			list, err := dump(func() ([]netlink.Neigh, error) { return ns.route.NeighList(l.Attrs().Index, family) })
			if err != nil {
				return fmt.Errorf("list neighbours of %s: %w", l.Attrs().Name, err)
			}
			for _, n := range list {
				if n.State == netlink.NUD_NOARP {
					continue // multicast, which the kernel makes itself
				}
				told := inventory.Neighbour{Link: l.Attrs().Name, MAC: n.HardwareAddr.String(), State: stateOf(n.State), Forward: family == unix.AF_BRIDGE}
				if addr := fromIP(n.IP); addr.IsValid() {
					told.Addr = addr.String()
				}
				k.Neighbours = append(k.Neighbours, told)
			}
		}
	}
	return nil
}

// stateOf is in the words of ip-neighbour(8).
func stateOf(state int) string {
	for _, s := range []struct {
		bit  int
		name string
	}{
		{netlink.NUD_PERMANENT, "permanent"}, {netlink.NUD_REACHABLE, "reachable"}, {netlink.NUD_STALE, "stale"}, {netlink.NUD_FAILED, "failed"},
		{netlink.NUD_INCOMPLETE, "incomplete"}, {netlink.NUD_DELAY, "delay"}, {netlink.NUD_PROBE, "probe"}, {netlink.NUD_NOARP, "noarp"},
	} {
		if state&s.bit != 0 {
			return s.name
		}
	}
	return "none"
}
