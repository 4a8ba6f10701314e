// Package cidr provides arithmetic of IP prefixes: last addresses, subnets, containment, and the
// host bits that several prefixes need together.
package cidr

import (
	"math/bits"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Contains reports whether inner lies within outer.
func Contains(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

// Last returns the highest address of a prefix.
func Last(p netip.Prefix) netip.Addr {
	raw := p.Masked().Addr().AsSlice()
	for i := range raw {
		host := min(max(8*(i+1)-p.Bits(), 0), 8)
		raw[i] |= byte(1<<host - 1)
	}
	last, _ := netip.AddrFromSlice(raw)
	return last
}

// HostBits returns the number of bits that a prefix leaves for hosts.
func HostBits(p netip.Prefix) int { return p.Addr().BitLen() - p.Bits() }

// Log2Ceil returns the smallest n with 2^n >= count.
func Log2Ceil(count int) int {
	if count <= 1 {
		return 0
	}
	return bits.Len(uint(count - 1))
}

// SumBits returns the smallest n such that 2^n addresses have room for all prefixes.
func SumBits(prefixes []netip.Prefix) int {
	sizes := make([]int, len(prefixes))
	for i, p := range prefixes {
		sizes[i] = HostBits(p)
	}
	slices.Sort(sizes)
	// Start with the smallest prefix. Counting slots of the current size, rounded up when the
	// size grows, avoids 128-bit numbers.
	size, count := 0, 0
	for _, s := range sizes {
		for ; size < s; size++ {
			count = (count + 1) / 2
		}
		count++
	}
	return size + Log2Ceil(count)
}

// Subnet returns number nth, from 0, of the 1<<bits equal subnets of a prefix.
func Subnet(p netip.Prefix, bits int, nth uint64) netip.Prefix {
	raw := p.Masked().Addr().AsSlice()
	for i := range bits {
		if nth>>(bits-1-i)&1 == 1 {
			raw[(p.Bits()+i)/8] |= 0x80 >> ((p.Bits() + i) % 8)
		}
	}
	addr, _ := netip.AddrFromSlice(raw)
	return netip.PrefixFrom(addr, p.Bits()+bits)
}

// Single returns the prefix that contains only addr.
func Single(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) }

// Format returns a prefix as nftables prints it: a single address has no prefix length.
func Format(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// Label returns an address as a DNS label, such as 242-2-0-5. It writes all eight groups of IPv6,
// because "::" could result in a hyphen at the beginning or end.
func Label(addr netip.Addr) string {
	addr = addr.Unmap()
	if addr.Is4() {
		return strings.ReplaceAll(addr.String(), ".", "-")
	}
	return strings.ReplaceAll(addr.WithZone("").StringExpanded(), ":", "-")
}

// IPNet converts a prefix to the type that netlink uses.
func IPNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
