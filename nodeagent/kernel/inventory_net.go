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
	"hawser.dev/hawser/nodeagent/kernel/inventory"
)

// familyName is the name of an address family that ip(8) uses in JSON.
func familyName(family int) string {
	if family == netlink.FAMILY_V6 {
		return "inet6"
	}
	return "inet"
}

// readLinks reads all interfaces with their addresses.
func (ns *Namespace) readLinks(_ context.Context, k *inventory.Kernel) error {
	list, err := dump(ns.route.LinkList)
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	addrs, err := dump(func() ([]netlink.Addr, error) { return ns.route.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	byLink, names := map[int][]inventory.Addr{}, linkNames(list)
	for _, a := range addrs {
		byLink[a.LinkIndex] = append(byLink[a.LinkIndex], inventoryAddr(a))
	}
	for _, l := range list {
		link := inventoryLink(l)
		link.AddrInfo, link.Master = append(link.AddrInfo, byLink[l.Attrs().Index]...), names[l.Attrs().MasterIndex]
		k.Links = append(k.Links, link)
	}
	return nil
}

func inventoryAddr(a netlink.Addr) inventory.Addr {
	local := fromNet(a.IPNet)
	out := inventory.Addr{Family: "inet", Local: local.Addr().String(), PrefixLen: local.Bits()}
	if local.Addr().Is6() {
		out.Family = "inet6"
	}
	// On a point-to-point interface, the prefix belongs to the peer's address.
	if peer := fromNet(a.Peer); peer.IsValid() && peer.Addr() != local.Addr() {
		out.Address, out.PrefixLen = peer.Addr().String(), peer.Bits()
	}
	return out
}

func inventoryLink(l netlink.Link) inventory.Link {
	a := l.Attrs()
	out := inventory.Link{
		IfIndex: a.Index, IfName: a.Name, Flags: linkFlags(a.RawFlags), MTU: a.MTU, LinkType: a.EncapType, Address: a.HardwareAddr.String(),
		OperState: strings.ToUpper(strings.ReplaceAll(a.OperState.String(), "-", "")), IfAlias: a.Alias, AddrInfo: []inventory.Addr{},
	}
	if s := a.Statistics; s != nil {
		out.Stats.RX = inventory.Traffic{Packets: s.RxPackets, Bytes: s.RxBytes, Errors: s.RxErrors, Dropped: s.RxDropped}
		out.Stats.TX = inventory.Traffic{Packets: s.TxPackets, Bytes: s.TxBytes, Errors: s.TxErrors, Dropped: s.TxDropped}
	}
	switch kind := l.Type(); kind {
	case "device": // without a kind
	case "tuntap":
		out.LinkInfo = &inventory.LinkInfo{Kind: "tun"}
	default:
		out.LinkInfo = &inventory.LinkInfo{Kind: kind}
	}
	if v, ok := l.(*netlink.Vxlan); ok {
		data := &inventory.VXLAN{ID: v.VxlanId, Port: v.Port}
		switch local := fromIP(v.SrcAddr); {
		case local.Is4():
			data.Local = local.String()
		case local.Is6():
			data.Local6 = local.String()
		}
		out.LinkInfo.Data = data
	}
	return out
}

// linkFlags returns the flags of an interface (netdevice(7)) in the order of ip(8).
func linkFlags(flags uint32) []string {
	out := []string{}
	if flags&unix.IFF_UP != 0 && flags&unix.IFF_RUNNING == 0 {
		out = append(out, "NO-CARRIER")
	}
	for _, f := range []struct {
		bit  uint32
		name string
	}{
		{unix.IFF_LOOPBACK, "LOOPBACK"}, {unix.IFF_BROADCAST, "BROADCAST"}, {unix.IFF_POINTOPOINT, "POINTOPOINT"}, {unix.IFF_MULTICAST, "MULTICAST"},
		{unix.IFF_NOARP, "NOARP"}, {unix.IFF_ALLMULTI, "ALLMULTI"}, {unix.IFF_PROMISC, "PROMISC"}, {unix.IFF_MASTER, "MASTER"}, {unix.IFF_SLAVE, "SLAVE"},
		{unix.IFF_DEBUG, "DEBUG"}, {unix.IFF_DYNAMIC, "DYNAMIC"}, {unix.IFF_AUTOMEDIA, "AUTOMEDIA"}, {unix.IFF_PORTSEL, "PORTSEL"},
		{unix.IFF_NOTRAILERS, "NOTRAILERS"}, {unix.IFF_UP, "UP"}, {unix.IFF_LOWER_UP, "LOWER_UP"}, {unix.IFF_DORMANT, "DORMANT"}, {unix.IFF_ECHO, "ECHO"},
	} {
		if flags&f.bit != 0 {
			out = append(out, f.name)
		}
	}
	return out
}

// tableName returns the name of a routing table (rt_tables of iproute2).
func tableName(table int) string {
	switch table {
	case unix.RT_TABLE_LOCAL:
		return "local"
	case unix.RT_TABLE_MAIN:
		return "main"
	case unix.RT_TABLE_DEFAULT:
		return "default"
	}
	return strconv.Itoa(table)
}

// protocolName returns the name of the program that adds routes or rules (a subset of rt_protos
// of iproute2).
func protocolName(protocol int) string {
	switch protocol {
	case unix.RTPROT_UNSPEC:
		return "unspec"
	case unix.RTPROT_REDIRECT:
		return "redirect"
	case unix.RTPROT_KERNEL:
		return "kernel"
	case unix.RTPROT_BOOT:
		return "boot"
	case unix.RTPROT_STATIC:
		return "static"
	case unix.RTPROT_RA:
		return "ra"
	case unix.RTPROT_ZEBRA:
		return "zebra"
	case unix.RTPROT_BIRD:
		return "bird"
	case unix.RTPROT_DHCP:
		return "dhcp"
	case unix.RTPROT_BGP:
		return "bgp"
	case unix.RTPROT_OSPF:
		return "ospf"
	}
	return strconv.Itoa(protocol)
}

// routeTypeName returns the name of a type of routes.
func routeTypeName(typ int) string {
	types := []string{"unspecified", "unicast", "local", "broadcast", "anycast", "multicast", "blackhole", "unreachable", "prohibit", "throw", "nat"}
	if typ < len(types) {
		return types[typ]
	}
	return strconv.Itoa(typ)
}

// readRules reads the routing policy of all programs.
func (ns *Namespace) readRules(_ context.Context, k *inventory.Kernel) error {
	for _, family := range ns.families() {
		list, err := dump(func() ([]netlink.Rule, error) { return ns.route.RuleList(family) })
		if err != nil {
			return fmt.Errorf("list rules: %w", err)
		}
		slices.SortStableFunc(list, func(a, b netlink.Rule) int { return cmp.Compare(a.Priority, b.Priority) })
		for _, r := range list {
			k.Rules = append(k.Rules, inventoryRule(family, r))
		}
	}
	return nil
}

func inventoryRule(family int, r netlink.Rule) inventory.Rule {
	out := inventory.Rule{
		Family: familyName(family), Priority: r.Priority, Not: inventory.Null(r.Invert), Src: "all", IIF: r.IifName, OIF: r.OifName, Protocol: protocolName(int(r.Protocol)),
	}
	address := func(n *net.IPNet) (string, *int) {
		p := fromNet(n)
		if p.IsSingleIP() {
			return p.Addr().String(), nil
		}
		bits := p.Bits()
		return p.Addr().String(), &bits
	}
	if r.Src != nil {
		out.Src, out.SrcLen = address(r.Src)
	}
	if r.Dst != nil {
		out.Dst, out.DstLen = address(r.Dst)
	}
	const wholeMark = 0xffffffff
	if r.Mask != nil && *r.Mask != wholeMark {
		out.FwMark, out.FwMask = fmt.Sprintf("%#x", r.Mark), fmt.Sprintf("%#x", *r.Mask)
	} else if r.Mark != 0 {
		out.FwMark = fmt.Sprintf("%#x", r.Mark)
	}
	if r.IPProto != 0 {
		out.IPProto = strconv.Itoa(r.IPProto)
		for _, p := range nftProtocols {
			if int(p.number) == r.IPProto {
				out.IPProto = p.name
			}
		}
	}
	ports := func(r *netlink.RulePortRange, one, first, last *int) {
		switch {
		case r == nil:
		case r.Start == r.End:
			*one = int(r.Start)
		default:
			*first, *last = int(r.Start), int(r.End)
		}
	}
	ports(r.Sport, &out.SPort, &out.SPortStart, &out.SPortEnd)
	ports(r.Dport, &out.DPort, &out.DPortStart, &out.DPortEnd)
	if r.SuppressPrefixlen >= 0 {
		out.SuppressPrefixLen = &r.SuppressPrefixlen
	}
	switch {
	case r.Goto >= 0:
		out.Goto = &r.Goto
	case r.Table > 0:
		out.Table = tableName(r.Table)
	}
	return out
}

// maxForeignRoutes limits the routes of other programs per family: a node may hold the full
// Internet table.
const maxForeignRoutes = 5000

// readRoutes reads the routes of all tables except local, which the kernel fills itself.
func (ns *Namespace) readRoutes(_ context.Context, k *inventory.Kernel) error {
	list, err := dump(ns.route.LinkList)
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	names := linkNames(list)
	for _, family := range ns.families() {
		omitted := 0
		routes, err := dump(func() (out []netlink.Route, err error) {
			omitted = 0
			foreign := 0
			err = ns.route.RouteListFilteredIter(family, &netlink.Route{}, netlink.RT_FILTER_TABLE, func(r netlink.Route) bool {
				ours := r.Protocol == desired.RouteProtocol
				switch {
				case r.Table == unix.RT_TABLE_LOCAL:
				case !ours && foreign == maxForeignRoutes:
					omitted++
				default:
					out = append(out, r)
					if !ours {
						foreign++
					}
				}
				return true
			})
			return out, err
		})
		if err != nil {
			return fmt.Errorf("list routes: %w", err)
		}
		slices.SortStableFunc(routes, func(a, b netlink.Route) int { return cmp.Compare(a.Table, b.Table) })
		for _, r := range routes {
			k.Routes = append(k.Routes, inventoryRoute(family, r, names))
		}
		k.RoutesOmitted += omitted
	}
	return nil
}

func inventoryRoute(family int, r netlink.Route, names map[int]string) inventory.Route {
	out := inventory.Route{
		Family: familyName(family), Type: routeTypeName(r.Type), Dst: "default", Table: tableName(r.Table), Protocol: protocolName(int(r.Protocol)),
		Dev: names[r.LinkIndex], Metric: r.Priority,
	}
	if to, ok := prefixOf(r.Dst); ok {
		out.Dst = to.String()
		if to.IsSingleIP() {
			out.Dst = to.Addr().String()
		}
	}
	out.Gateway, out.Via = inventoryGateway(r.Gw, r.Via)
	if src := fromIP(r.Src); src.IsValid() {
		out.PrefSrc = src.String()
	}
	if r.MTU > 0 {
		out.Metrics = []inventory.RouteMetrics{{MTU: r.MTU}}
	}
	for _, hop := range r.MultiPath {
		next := inventory.Nexthop{Dev: names[hop.LinkIndex], Weight: hop.Hops + 1}
		next.Gateway, next.Via = inventoryGateway(hop.Gw, hop.Via)
		out.Nexthops = append(out.Nexthops, next)
	}
	return out
}

// inventoryGateway returns the gateway of a route, or via if it is of the other family.
func inventoryGateway(gateway net.IP, via netlink.Destination) (string, *inventory.Via) {
	if v, ok := via.(*netlink.Via); ok {
		return "", &inventory.Via{Family: familyName(v.AddrFamily), Host: fromIP(v.Addr).String()}
	}
	if addr := fromIP(gateway); addr.IsValid() {
		return addr.String(), nil
	}
	return "", nil
}

// readNeighbors reads the neighbours and forwarding entries of our devices, also those that
// the kernel learned.
func (ns *Namespace) readNeighbors(_ context.Context, k *inventory.Kernel) error {
	links, err := ns.links()
	if err != nil {
		return err
	}
	for _, l := range links {
		name := l.Attrs().Name
		for _, family := range append(ns.families(), unix.AF_BRIDGE) {
			list, err := dump(func() ([]netlink.Neigh, error) { return ns.route.NeighList(l.Attrs().Index, family) })
			if err != nil {
				return fmt.Errorf("list neighbours of %s: %w", name, err)
			}
			for _, n := range list {
				addr, text := fromIP(n.IP), ""
				if addr.IsValid() {
					text = addr.String()
				}
				switch {
				case n.State == netlink.NUD_NOARP: // multicast, which the kernel adds itself
				case family == unix.AF_BRIDGE:
					k.FDB = append(k.FDB, inventory.FDBEntry{MAC: n.HardwareAddr.String(), IfName: name, Dst: text, State: fdbState(n.State)})
				default:
					k.Neighbors = append(k.Neighbors, inventory.Neighbor{Dst: text, Dev: name, LLAddr: n.HardwareAddr.String(), State: neighborStates(n.State)})
				}
			}
		}
	}
	return nil
}

// neighborStates returns the state of a neighbour as ip(8) prints it.
func neighborStates(state int) []string {
	out := []string{}
	for _, s := range []struct {
		bit  int
		name string
	}{
		{netlink.NUD_INCOMPLETE, "INCOMPLETE"}, {netlink.NUD_REACHABLE, "REACHABLE"}, {netlink.NUD_STALE, "STALE"}, {netlink.NUD_DELAY, "DELAY"},
		{netlink.NUD_PROBE, "PROBE"}, {netlink.NUD_FAILED, "FAILED"}, {netlink.NUD_NOARP, "NOARP"}, {netlink.NUD_PERMANENT, "PERMANENT"},
	} {
		if state&s.bit != 0 {
			out = append(out, s.name)
		}
	}
	return out
}

// fdbState returns the state of a forwarding entry as bridge(8) prints it.
func fdbState(state int) string {
	switch {
	case state&netlink.NUD_PERMANENT != 0:
		return "permanent"
	case state&netlink.NUD_STALE != 0:
		return "stale"
	}
	return ""
}
