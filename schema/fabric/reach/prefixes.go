package reach

import (
	"iter"
	"net/netip"
	"slices"

	"hawser.dev/hawser/internal/cidr"
)

// prefixes finds the owners of an address in time independent of the number of prefixes.
type prefixes struct {
	owners map[netip.Prefix][]string
	bits   [129]bool // lengths that there are
	sorted []netip.Prefix
}

func newPrefixes() *prefixes { return &prefixes{owners: map[netip.Prefix][]string{}} }

func (x *prefixes) add(owner string, list []netip.Prefix) {
	for _, p := range list {
		p = p.Masked()
		if have := x.owners[p]; len(have) == 0 || have[len(have)-1] != owner {
			x.owners[p] = append(have, owner)
		}
		x.bits[p.Bits()] = true
	}
}

// sort must be called once, after the last add.
func (x *prefixes) sort() {
	x.sorted = make([]netip.Prefix, 0, len(x.owners))
	for p := range x.owners {
		x.sorted = append(x.sorted, p)
	}
	slices.SortFunc(x.sorted, netip.Prefix.Compare)
}

// around yields the prefixes that contain p, with their owners.
func (x *prefixes) around(p netip.Prefix) iter.Seq2[netip.Prefix, []string] {
	return func(yield func(netip.Prefix, []string) bool) {
		for bits := p.Bits(); bits >= 0; bits-- {
			if !x.bits[bits] {
				continue
			}
			wide, err := p.Addr().Prefix(bits)
			if err != nil {
				continue
			}
			if owners := x.owners[wide]; len(owners) > 0 && !yield(wide, owners) {
				return
			}
		}
	}
}

// overlapping yields the prefixes that overlap p.
func (x *prefixes) overlapping(p netip.Prefix) iter.Seq2[netip.Prefix, []string] {
	return func(yield func(netip.Prefix, []string) bool) {
		p = p.Masked()
		for wide, owners := range x.around(p) {
			if !yield(wide, owners) {
				return
			}
		}
		i, _ := slices.BinarySearchFunc(x.sorted, p, netip.Prefix.Compare)
		for ; i < len(x.sorted) && p.Overlaps(x.sorted[i]); i++ {
			if x.sorted[i] != p && !yield(x.sorted[i], x.owners[x.sorted[i]]) {
				return
			}
		}
	}
}

// of yields the prefixes that contain an address and their owners, except one owner.
func (x *prefixes) of(a netip.Addr, but string) iter.Seq2[netip.Prefix, string] {
	return func(yield func(netip.Prefix, string) bool) {
		for p, owners := range x.around(cidr.Single(a)) {
			for _, owner := range owners {
				if owner != but && !yield(p, owner) {
					return
				}
			}
		}
	}
}
