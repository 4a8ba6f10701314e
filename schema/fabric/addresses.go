package fabric

import (
	"net/netip"
	"slices"
)

// Family is 4 or 6.
func Family(a netip.Addr) int {
	if a.Is4() {
		return 4
	}
	return 6
}

// IsGlobalnet reports whether other clusters see global addresses instead of the cluster's own
// addresses of a family.
func (c *Cluster) IsGlobalnet(family int) bool {
	return c.Globalnet && !slices.Contains(c.FlatFamilies, family)
}

// SeenFrom returns the prefixes by which another cluster reaches c: its global prefixes, and
// its pod and service prefixes unless they are hidden or overlap the other cluster's own.
func (c *Cluster) SeenFrom(other *Cluster) []netip.Prefix {
	out := slices.Clone(c.GlobalCIDRs)
	otherPrefixes := slices.Concat(other.PodCIDRs, other.ServiceCIDRs)
	for _, p := range slices.Concat(c.PodCIDRs, c.ServiceCIDRs) {
		if !c.IsGlobalnet(Family(p.Addr())) && !slices.ContainsFunc(otherPrefixes, p.Overlaps) {
			out = append(out, p)
		}
	}
	return out
}

// Has reports whether pods or services of the cluster have addresses of a family.
// A cluster without prefixes, such as one of plain hosts, may have both.
func (c *Cluster) Has(family int) bool {
	hasPrefix := false
	for _, list := range [][]netip.Prefix{c.PodCIDRs, c.ServiceCIDRs} {
		for _, p := range list {
			if Family(p.Addr()) == family {
				return true
			}
			hasPrefix = true
		}
	}
	return !hasPrefix
}

// Ranges formats addresses in their order. Consecutive addresses become one
// text, as first-last.
func Ranges(addrs []netip.Addr) []string {
	var out []string
	for i := 0; i < len(addrs); {
		j := i
		for j+1 < len(addrs) && addrs[j].Next() == addrs[j+1] {
			j++
		}
		text := addrs[i].String()
		if j > i {
			text += "-" + addrs[j].String()
		}
		out = append(out, text)
		i = j + 1
	}
	return out
}

// AlternateAddr returns the gateway's second tunnel address: as far from the end of its
// pool as a is from the beginning. IPsec connections of even key epochs use these
// addresses, so that connections of neighbouring epochs can exist together. If no pool
// contains a, it returns a.
func AlternateAddr(pools []netip.Prefix, a netip.Addr) netip.Addr {
	for _, pool := range pools {
		if !pool.Contains(a) {
			continue
		}
		raw := a.AsSlice()
		for i := range raw {
			host := min(max(8*(i+1)-pool.Bits(), 0), 8)
			raw[i] ^= byte(1<<host - 1)
		}
		alternate, _ := netip.AddrFromSlice(raw)
		return alternate
	}
	return a
}
