package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
)

// Routes is the kind of the routes of protocol 73 in tables 7300 to 7307 and 7401 to 11495.
type Routes struct{ ns *Namespace }

// NewRoutes returns the kind.
func NewRoutes(ns *Namespace) *Routes { return &Routes{ns: ns} }

// Name returns "route".
func (*Routes) Name() string { return "route" }

// Version changes with every event of routes, devices or addresses, and every few seconds without
// an event.
func (k *Routes) Version(context.Context) (string, error) { return k.ns.events.stamp(time.Now()) }

// Observe returns our routes of both families.
func (k *Routes) Observe(ctx context.Context) ([]desired.Route, error) {
	if err := checkContext(ctx, "list routes"); err != nil {
		return nil, err
	}
	all, err := dump(k.ns.route.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	names := linkNames(all)
	var out []desired.Route
	type routeKey struct {
		table int
		dst   netip.Prefix
		rank  int
	}
	indexByKey := map[routeKey]int{}
	// Table 0 in the filter means all tables: without it only main is listed.
	filter := &netlink.Route{Protocol: desired.RouteProtocol}
	const mask = netlink.RT_FILTER_TABLE | netlink.RT_FILTER_PROTOCOL
	for _, family := range k.ns.families() {
		list, err := dump(func() ([]netlink.Route, error) { return k.ns.route.RouteListFiltered(family, filter, mask) })
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		for _, r := range list {
			if !isOurTable(r.Table) {
				continue
			}
			route := readRoute(r, names)
			key := routeKey{route.Table, route.Dst, route.Metric}
			if i, duplicate := indexByKey[key]; duplicate {
				out[i].Type = foreignAttributes
				continue
			}
			indexByKey[key] = len(out)
			out = append(out, route)
		}
	}
	return out, nil
}

func isOurTable(n int) bool {
	return n >= desired.TableOut && n <= desired.TableFeed || n > desired.TableReturnBase && n <= desired.TableReturnBase+desired.MaxReturnNodes
}

// Default metrics of the kernel.
const (
	metricIPv4 = 0
	metricIPv6 = 1024
)

func readRoute(r netlink.Route, names map[int]string) desired.Route {
	route := desired.Route{Table: r.Table, Dst: fromNet(r.Dst), MTU: r.MTU, Src: fromIP(r.Src)}
	if !route.Dst.IsValid() {
		route.Dst = anyPrefix(r.Family)
	}
	metric := metricIPv4
	if r.Family == netlink.FAMILY_V6 {
		metric = metricIPv6
	}
	if r.Priority != metric {
		route.Metric = r.Priority
	}
	switch {
	case r.MTU > 0 && r.MTULock != needsMTULock(r.Family):
		route.Type = foreignAttributes
	case len(r.MultiPath) > 0 || r.Encap != nil || r.Tos != 0:
		route.Type = foreignAttributes
	case r.Type == unix.RTN_UNICAST:
		route.Type, route.Device, route.Via = desired.RouteUnicast, names[r.LinkIndex], nextHop(r)
	case r.Type == unix.RTN_BLACKHOLE:
		route.Type = desired.RouteBlackhole // IPv6 reports lo here, which has no meaning
	case r.Type == unix.RTN_THROW:
		route.Type = desired.RouteThrow
	default:
		route.Type = "type " + strconv.Itoa(r.Type)
	}
	return route
}

// needsMTULock reports whether the MTU of a route must be locked to apply to forwarded packets.
// For IPv4 it applies anyway, and a lock would disable path MTU discovery
// (ip_dst_mtu_maybe_forward, ip6_dst_mtu_maybe_forward).
func needsMTULock(family int) bool { return family == netlink.FAMILY_V6 }

// nextHop returns a route's next hop, which may be IPv6 for an IPv4 route (RFC 8950).
func nextHop(r netlink.Route) netip.Addr {
	if via, ok := r.Via.(*netlink.Via); ok {
		return fromIP(via.Addr)
	}
	return fromIP(r.Gw)
}

// Apply writes and removes routes.
func (k *Routes) Apply(ctx context.Context, changes []diff.Change[desired.Route]) error {
	indices := map[string]int{}
	return converge.Each(ctx, changes, func(c diff.Change[desired.Route]) error {
		if c.Op == diff.Delete {
			return k.remove(c.Have)
		}
		route, err := k.route(c.Want, indices)
		if err != nil {
			return err
		}
		if c.Op == diff.Create {
			return routeError(c.Want, k.ns.route.RouteAdd(route))
		}
		if !isOurType(c.Have.Type) {
			// A replacement would change one of several routes, or none.
			if err := k.remove(c.Have); err != nil {
				return err
			}
		}
		return routeError(c.Want, k.ns.route.RouteReplace(route))
	})
}

// isOurType reports whether an observed route has one of our types and is the only one with its
// key.
func isOurType(typ string) bool {
	return typ == desired.RouteUnicast || typ == desired.RouteBlackhole || typ == desired.RouteThrow
}

// routeError returns the error of writing a route. A route that waits for its device to be up
// or to get an address is blocked, not failed.
func routeError(want desired.Route, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENETDOWN), errors.Is(err, unix.ENODEV):
		return converge.ErrBlocked{On: "link " + want.Device + " to be up"}
	}
	return fmt.Errorf("write route %s dev %q via %s: %w", want.Key(), want.Device, want.Via, asConflict(err))
}

func (k *Routes) route(want desired.Route, indices map[string]int) (*netlink.Route, error) {
	r := &netlink.Route{
		Table: want.Table, Protocol: desired.RouteProtocol, Dst: cidr.IPNet(want.Dst), Family: familyOf(want.Dst.Addr()),
		Src: toIP(want.Src), MTU: want.MTU, Priority: want.Metric,
	}
	r.MTULock = want.MTU > 0 && needsMTULock(r.Family)
	switch want.Type {
	case desired.RouteBlackhole:
		r.Type = unix.RTN_BLACKHOLE
		return r, nil
	case desired.RouteThrow:
		r.Type = unix.RTN_THROW
		return r, nil
	}
	if want.Type != desired.RouteUnicast {
		return nil, fmt.Errorf("route %s: unknown type %q", want.Key(), want.Type)
	}
	index, known := indices[want.Device]
	if !known {
		l, err := k.ns.routeDevice(want.Device)
		if err != nil {
			return nil, err
		}
		index = l.Attrs().Index
		indices[want.Device] = index
	}
	r.Type, r.LinkIndex = unix.RTN_UNICAST, index
	if want.Via.IsValid() && want.Via.Is6() && want.Dst.Addr().Is4() {
		r.Via, r.Flags = &netlink.Via{AddrFamily: netlink.FAMILY_V6, Addr: toIP(want.Via)}, int(netlink.FLAG_ONLINK)
	} else if want.Via.IsValid() {
		r.Gw, r.Flags = toIP(want.Via), int(netlink.FLAG_ONLINK)
	} else if want.Dst.Addr().Is4() {
		r.Scope = netlink.SCOPE_LINK
	}
	return r, nil
}

// remove deletes a route of ours, with all its duplicates.
func (k *Routes) remove(have desired.Route) error {
	match := &netlink.Route{
		Table: have.Table, Protocol: desired.RouteProtocol, Dst: cidr.IPNet(have.Dst), Family: familyOf(have.Dst.Addr()),
		Scope: netlink.SCOPE_NOWHERE, Priority: have.Metric,
	}
	// Without a metric, the kernel deletes the route with the least metric. For IPv4, metric 0
	// cannot be requested.
	if have.Metric == 0 && have.Dst.Addr().Is6() {
		match.Priority = metricIPv6
	}
	for {
		err := k.ns.route.RouteDel(match)
		if isGone(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("delete route %s: %w", have.Key(), err)
		}
		if isOurType(have.Type) {
			return nil
		}
	}
}
