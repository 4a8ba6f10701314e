package fabric

import (
	"net/netip"
	"strconv"
	"strings"
)

// ForwardedZones returns the zones that the DNS of each cluster forwards to the agents:
// the domains of the clusterset, then the reverse zones of the clusterset IPs.
func (f *Fabric) ForwardedZones() []string {
	out := append([]string{f.Domain}, f.ExtraDomains...)
	for _, pool := range f.ServicePools {
		out = append(out, ReverseZones(pool)...)
	}
	return out
}

// NameServers returns where the DNS of a cluster forwards these zones: the agent on the
// same node, at an address of a family that the cluster's pods have. It is empty if the
// fabric has no address of name servers.
func (f *Fabric) NameServers(cluster *Cluster) []netip.Addr {
	switch {
	case f.DNS.Address.IsValid() && cluster.Has(4):
		return []netip.Addr{f.DNS.Address}
	case f.DNS.IPv6Address.IsValid() && cluster.Has(6):
		return []netip.Addr{f.DNS.IPv6Address}
	}
	return f.DNS.Addresses()[:min(1, len(f.DNS.Addresses()))]
}

// ReverseZones returns the reverse zones of a prefix: several if its length does not end
// with a label (RFC 1035, 3.5; RFC 3596, 2.5).
func ReverseZones(prefix netip.Prefix) []string {
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
