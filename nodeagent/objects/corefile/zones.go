package corefile

import (
	"net/netip"
	"strconv"
	"strings"

	"hawser.dev/hawser/schema/fabric"
)

// ForwardOf gives what a cluster's DNS forwards: the clusterset's domains and the
// reverse zones of the clusterset IPs, to the agent on its own node. The address
// is of a family that the cluster's pods have.
func ForwardOf(f *fabric.Fabric, cluster *fabric.Cluster) Forward {
	out := Forward{Zones: append([]string{f.Domain}, f.ExtraDomains...)}
	for _, pool := range f.ServicePools {
		out.Zones = append(out.Zones, Reverse(pool)...)
	}
	switch {
	case f.DNS.Address.IsValid() && cluster.Has(4):
		out.Servers = []netip.Addr{f.DNS.Address}
	case f.DNS.IPv6Address.IsValid() && cluster.Has(6):
		out.Servers = []netip.Addr{f.DNS.IPv6Address}
	default:
		out.Servers = f.DNS.Addresses()[:min(1, len(f.DNS.Addresses()))]
	}
	return out
}

// Reverse gives the reverse zones of a prefix, several where it does not end with
// a label (RFC 1035, 3.5; RFC 3596, 2.5).
func Reverse(prefix netip.Prefix) []string {
	prefix = prefix.Masked()
	width := 8
	if !prefix.Addr().Is4() {
		width = 4
	}
	labels := (prefix.Bits() + width - 1) / width
	raw := prefix.Addr().AsSlice()
	var out []string
	for range 1 << (labels*width - prefix.Bits()) {
		var parts []string
		for i := labels - 1; i >= 0; i-- {
			if width == 8 {
				parts = append(parts, strconv.Itoa(int(raw[i])))
			} else {
				parts = append(parts, strconv.FormatUint(uint64(raw[i/2]>>(4*(1-i%2))&15), 16))
			}
		}
		out = append(out, strings.Join(append(parts, map[int]string{8: "in-addr.arpa", 4: "ip6.arpa"}[width]), "."))
		switch {
		case labels == 0:
		case width == 8:
			raw[labels-1]++
		default:
			raw[(labels-1)/2] += 1 << (4 * (labels % 2))
		}
	}
	return out
}
