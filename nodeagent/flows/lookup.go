package flows

import (
	"maps"
	"net/netip"
	"slices"
)

// lookup finds the name that a prefix belongs to. Each length of prefix costs one
// look, however many prefixes there are.
type lookup struct {
	names   map[netip.Prefix]string
	lengths []int // of IPv4 prefixes; IPv6 from 1000 up; the longest first
}

const lengthIPv6 = 1000

func newLookup() *lookup { return &lookup{names: map[netip.Prefix]string{}} }

func (l *lookup) add(name string, prefixes []netip.Prefix) {
	for _, p := range prefixes {
		l.names[p.Masked()] = name
	}
	lengths := map[int]bool{}
	for p := range l.names {
		length := p.Bits()
		if p.Addr().Is6() {
			length += lengthIPv6
		}
		lengths[length] = true
	}
	l.lengths = slices.Sorted(maps.Keys(lengths))
	slices.Reverse(l.lengths)
}

// find gives the name of the longest prefix that holds the address.
func (l *lookup) find(a netip.Addr) (string, bool) {
	for _, length := range l.lengths {
		if a.Is6() != (length >= lengthIPv6) {
			continue
		}
		p, err := a.Prefix(length % lengthIPv6)
		if err != nil {
			continue
		}
		if name, ok := l.names[p]; ok {
			return name, true
		}
	}
	return "", false
}
