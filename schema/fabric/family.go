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

// Hides reports whether the cluster's own addresses of a family are hidden behind
// its global block.
func (c *Cluster) Hides(family int) bool {
	return c.Globalnet && !slices.Contains(c.FlatFamilies, family)
}

// Has reports whether pods or services of the cluster have addresses of a family.
// Of a cluster that names no prefixes, such as one of plain hosts, nothing is
// known, so it may have both.
func (c *Cluster) Has(family int) bool {
	named := false
	for _, list := range [][]netip.Prefix{c.PodCIDRs, c.ServiceCIDRs} {
		for _, p := range list {
			if Family(p.Addr()) == family {
				return true
			}
			named = true
		}
	}
	return !named
}
