package projection

import (
	"net/netip"
	"slices"

	"hawser.dev/hawser/schema/fabric"
)

// ofFamily returns the first address of a family.
func ofFamily(addrs []netip.Addr, fam int) (netip.Addr, bool) {
	for _, a := range addrs {
		if fabric.Family(a) == fam {
			return a, true
		}
	}
	return netip.Addr{}, false
}

func overlapsAny(p netip.Prefix, list []netip.Prefix) bool {
	return slices.ContainsFunc(list, p.Overlaps)
}

// disjoint sorts prefixes and drops prefixes inside other prefixes: the kernel refuses overlapping
// intervals in a set.
func disjoint(list []netip.Prefix) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(list))
	for _, p := range list {
		out = append(out, p.Masked())
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	kept := out[:0]
	for _, p := range out {
		// A prefix precedes all prefixes inside it.
		if len(kept) == 0 || !kept[len(kept)-1].Overlaps(p) {
			kept = append(kept, p)
		}
	}
	return kept
}

// translate moves an address from one prefix to another of the same length,
// keeping the host part.
func translate(addr netip.Addr, from, to netip.Prefix) netip.Addr {
	a, t := addr.AsSlice(), to.Masked().Addr().AsSlice()
	if len(a) != len(t) {
		return netip.Addr{}
	}
	for i := range a {
		hostBits := min(max((i+1)*8-from.Bits(), 0), 8)
		mask := byte(1<<hostBits - 1)
		a[i] = t[i]&^mask | a[i]&mask
	}
	out, _ := netip.AddrFromSlice(a)
	return out
}
