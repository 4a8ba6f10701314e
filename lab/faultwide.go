package lab

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

const blockValue = "udp, udp/PORT, udp/PORT-PORT, icmp or from/PREFIX"

// blockMatches returns the nftables matches, in a bridge, for the value of a block fault. It
// returns nil for an invalid value.
func blockMatches(text string) []string {
	proto, value, hasValue := strings.Cut(text, "/")
	switch {
	case proto == "icmp" && !hasValue:
		// Neighbour discovery must keep working.
		return []string{"ip protocol icmp", "icmpv6 type != { nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit, nd-router-advert }"}
	case proto == "from":
		source, err := netip.ParsePrefix(value)
		if err != nil {
			return nil
		}
		family := "ip"
		if source.Addr().Is6() {
			family = "ip6"
		}
		return []string{fmt.Sprintf("%s saddr %s", family, source.Masked())}
	case proto == "udp" && !hasValue:
		return []string{"meta l4proto udp"}
	case proto != "udp":
		return nil
	}
	low, high, isRange := strings.Cut(value, "-")
	first, err := strconv.ParseUint(low, 10, 16)
	if err != nil || first == 0 {
		return nil
	}
	if !isRange {
		return []string{fmt.Sprintf("udp dport %d", first)}
	}
	last, err := strconv.ParseUint(high, 10, 16)
	if err != nil || last < first {
		return nil
	}
	return []string{fmt.Sprintf("udp dport %d-%d", first, last)}
}

// blocked returns the blocked protocols after a block or unblock fault.
func blocked(have string, f Fault) string {
	list := strings.FieldsFunc(have, func(r rune) bool { return r == ',' })
	list = slices.DeleteFunc(list, func(s string) bool { return s == f.Value || f.Kind == "unblock" && f.Value == "" })
	if f.Kind == "block" {
		list = append(list, f.Value)
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}

// renumber changes the address at which other nodes reach a gateway: the gateway's address, or the
// address of its translating router.
func (d *daemon) renumber(n *node, f Fault) error {
	if !n.hasWAN {
		return fmt.Errorf("node %s is no gateway: it has no address in the wide area", n.id())
	}
	have := n.wan
	if router := d.world.site(n.site); router != nil && router.NAT != "" {
		have = router.Addresses
	}
	six := first(have, netip.Addr.Is4) == netip.Addr{}
	want, err := netip.ParseAddr(f.Value)
	switch {
	case f.Value == "":
		if want, err = d.state.wanAddr(fmt.Sprintf("renumbered %d", len(d.state.WAN)), six); err != nil {
			return err
		}
	case err != nil || !want.IsGlobalUnicast():
		return fmt.Errorf("renumber %q: it is an address, such as 198.51.100.9", f.Value)
	case d.world.hasAddress(want):
		return fmt.Errorf("renumber %s: the address is taken", want)
	}
	old, _ := source(have, want, d.world.file) // prefer an address in the same network
	if !old.IsValid() {
		return fmt.Errorf("renumber %s: node %s has no address of the family", want, n.id())
	}
	for from, to := range d.state.Renumbered {
		if to == old {
			old = from
		}
	}
	d.state.Renumbered[old] = want
	return d.convergeFaults()
}

// hasAddress reports whether an address is in use in the wide area.
func (w *desiredLab) hasAddress(a netip.Addr) bool {
	return slices.ContainsFunc(w.nodes, func(n node) bool { return slices.Contains(n.wan, a) }) ||
		slices.ContainsFunc(w.sites, func(s routerSpec) bool { return slices.Contains(s.Addresses, a) || slices.Contains(s.inner, a) })
}

func (d *daemon) remap(n *node, _ Fault) error {
	g := d.routers[n.site]
	if g == nil {
		return fmt.Errorf("node %s is behind no router that translates: see --underlay of hawser lab up", n.id())
	}
	return g.dropMappings()
}
