package schema

import (
	"net/netip"

	"hawser.dev/hawser/internal/cidr"
)

// Exports that are made in the clusters have their addresses from ranges that the
// topology keeps free for them: the second quarter of each cluster's block and the
// upper half of each pool of clusterset IPs. The ranges follow from the block and
// the pool alone, so nothing moves when spec.dynamicExports comes or goes; what the
// lock holds inside of them already stays there, and agents go round it.

// MinDynamicBits is the size of the smallest block that has a part for them: four
// addresses.
const MinDynamicBits = 4

// DynamicVIPs gives the parts of the pools of clusterset IPs that are kept for
// exports made in the clusters, IPv4 first; none without spec.dynamicExports.
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

// UpperHalf is the upper half of a pool.
func UpperHalf(pool netip.Prefix) netip.Prefix {
	if cidr.HostBits(pool) < 2 {
		return netip.Prefix{}
	}
	return cidr.Subnet(pool.Masked(), 1, 1)
}
