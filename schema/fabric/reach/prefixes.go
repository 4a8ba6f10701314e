package reach

import (
	"iter"
	"net/netip"
	"slices"

	"hawser.dev/hawser/internal/cidr"
)

// prefixIndex finds the owners of an address in time independent of the number of prefixes.
type prefixIndex struct {
	owners map[netip.Prefix][]string
	bits   [129]bool // prefix lengths in owners
	sorted []netip.Prefix
}

func newPrefixIndex() *prefixIndex { return &prefixIndex{owners: map[netip.Prefix][]string{}} }

func (x *prefixIndex) add(owner string, list []netip.Prefix) {
	for _, p := range list {
		p = p.Masked()
		if have := x.owners[p]; len(have) == 0 || have[len(have)-1] != owner {
			x.owners[p] = append(have, owner)
		}
		x.bits[p.Bits()] = true
	}
}

// sort fills sorted. It must be called once, after the last add.
func (x *prefixIndex) sort() {
	x.sorted = make([]netip.Prefix, 0, len(x.owners))
	for p := range x.owners {
		x.sorted = append(x.sorted, p)
	}
	slices.SortFunc(x.sorted, netip.Prefix.Compare)
}

// containing yields the prefixes that contain p, with their owners.
func (x *prefixIndex) containing(p netip.Prefix) iter.Seq2[netip.Prefix, []string] {
	return func(yield func(netip.Prefix, []string) bool) {
		for bits := p.Bits(); bits >= 0; bits-- {
			if !x.bits[bits] {
				continue
			}
			prefix, err := p.Addr().Prefix(bits)
			if err != nil {
				continue
			}
			if owners := x.owners[prefix]; len(owners) > 0 && !yield(prefix, owners) {
				return
			}
		}
	}
}

// overlapping yields the prefixes that overlap p.
func (x *prefixIndex) overlapping(p netip.Prefix) iter.Seq2[netip.Prefix, []string] {
	return func(yield func(netip.Prefix, []string) bool) {
		p = p.Masked()
		for wide, owners := range x.containing(p) {
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

// ownersOf yields the prefixes that contain an address and their owners, except one owner.
func (x *prefixIndex) ownersOf(a netip.Addr, except string) iter.Seq2[netip.Prefix, string] {
	return func(yield func(netip.Prefix, string) bool) {
		for p, owners := range x.containing(cidr.Single(a)) {
			for _, owner := range owners {
				if owner != except && !yield(p, owner) {
					return
				}
			}
		}
	}
}
