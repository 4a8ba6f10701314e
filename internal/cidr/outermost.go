package cidr

import (
	"net/netip"
	"slices"
)

// Outermost returns the prefixes that no other prefix contains, the largest first.
func Outermost(all []netip.Prefix) []netip.Prefix {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b netip.Prefix) int {
		if a.Bits() != b.Bits() {
			return a.Bits() - b.Bits()
		}
		return a.Addr().Compare(b.Addr())
	})
	var out []netip.Prefix
	for _, p := range all {
		if !slices.ContainsFunc(out, func(o netip.Prefix) bool { return o.Bits() <= p.Bits() && o.Contains(p.Addr()) }) {
			out = append(out, p)
		}
	}
	return out
}
