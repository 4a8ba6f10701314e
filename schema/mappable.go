package schema

import (
	"net/netip"
	"slices"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/schema/fabric"
)

// Mappable gives the pod prefixes of a cluster in the families that have a
// global pool, without repetition. An IPv6 prefix that is as large as the pool is
// left out where nobody asks for it, as it would keep the others from being mapped.
func (s *ClusterSet) Mappable(c *Cluster) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range c.PodCIDRs {
		p = p.Masked()
		has := func(pool netip.Prefix) bool {
			fits := pool.Addr().Is4() || s.Spec.Globalnet.Egress == fabric.EgressMapped || cidr.HostBits(p) < cidr.HostBits(pool)
			return pool.Addr().Is4() == p.Addr().Is4() && fits
		}
		if slices.ContainsFunc(s.GlobalPools(), has) && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}
