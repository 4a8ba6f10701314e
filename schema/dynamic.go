package schema

import (
	"net/netip"

	"hawser.dev/hawser/internal/cidr"
)

// Dynamic exports get their addresses from reserved ranges: the second quarter of each
// cluster's block and the upper half of each pool of clusterset IPs. The ranges depend
// only on the block and the pool, so no address changes when spec.dynamicExports is added
// or removed. Addresses of the lock that are already inside a range stay there, and
// agents skip them.

// MinDynamicBits is the number of host bits of the smallest block with a range for
// dynamic exports. That range has four addresses.
const MinDynamicBits = 4

// DynamicVIPs returns the ranges of clusterset IPs that are reserved for dynamic
// exports, IPv4 first; nil without spec.dynamicExports.
func (s *ClusterSet) DynamicVIPs() []netip.Prefix {
	if s.Spec.DynamicExports == nil {
		return nil
	}
	var out []netip.Prefix
	for _, p := range s.ServicePools() {
		if half := UpperHalf(p); half.IsValid() {
			out = append(out, half)
		}
	}
	return out
}

// UpperHalf returns the upper half of a pool, or the zero prefix if the pool has fewer than
// two host bits.
func UpperHalf(pool netip.Prefix) netip.Prefix {
	if cidr.HostBits(pool) < 2 {
		return netip.Prefix{}
	}
	return cidr.Subnet(pool.Masked(), 1, 1)
}
