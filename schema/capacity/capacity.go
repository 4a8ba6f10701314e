// Package capacity counts the addresses that a topology needs, and checks that its pools and blocks
// have enough.
package capacity

import (
	"fmt"
	"math"
	"net/netip"
	"slices"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/overlap"
)

// Requirement counts the addresses that a cluster needs in its global block, per family.
type Requirement struct {
	Egress  int // the cluster-wide egress addresses
	Rules   int // of its egress rules
	Exports int // one for each export of type ClusterSetIP
	Hosts   int // one for each fixed host of a headless export
}

// Total returns the sum.
func (d Requirement) Total() int { return d.Egress + d.Rules + d.Exports + d.Hosts }

// Requirements returns the requirement of each cluster, by name.
func Requirements(s *schema.ClusterSet) map[string]Requirement {
	out := make(map[string]Requirement, len(s.Spec.Clusters))
	for i := range s.Spec.Clusters {
		c := &s.Spec.Clusters[i]
		d := Requirement{Egress: s.Spec.Globalnet.EgressIPs}
		for _, r := range c.Egress {
			d.Rules += r.IPs
		}
		out[c.Name] = d
	}
	for i := range s.Spec.Exports {
		e := &s.Spec.Exports[i]
		for _, name := range e.Clusters {
			d, ok := out[name]
			if !ok {
				continue
			}
			if e.Headless() {
				d.Hosts += e.Hostnames.Len()
			} else {
				d.Exports++
			}
			out[name] = d
		}
	}
	return out
}

// usable returns the number of allocatable addresses of a prefix: all except the first and the last
// one; math.MaxInt if the number does not fit.
func usable(p netip.Prefix) int {
	bits := p.Addr().BitLen() - p.Bits()
	if bits >= 62 {
		return math.MaxInt
	}
	return max(1<<bits-2, 0)
}

// checker is the state of one call of Check.
type checker struct {
	*diag.Findings
	set          *schema.ClusterSet
	clusterPaths []string
}

// Check returns errors for pools and blocks that are too small.
func Check(found *diag.Findings, s *schema.ClusterSet, clusterPaths []string) {
	c := &checker{Findings: found, set: s, clusterPaths: clusterPaths}
	requirements := Requirements(s)
	for i, path := range c.clusterPaths {
		cluster := &c.set.Spec.Clusters[i]
		for _, pin := range overlap.Pins(cluster, path) {
			c.checkBlock(requirements[cluster.Name], pin.Path, pin.Prefix)
		}
		if c.set.Spec.Globalnet.ClusterPrefix > 0 && !cluster.GlobalCIDR.IsValid() {
			c.checkSizedBlock(requirements[cluster.Name], path)
		}
	}
	c.checkBlockCount()
	c.checkDynamicRoom(requirements)
	c.checkMappedBlocks()
	services, gateways := 0, 0
	for i := range c.set.Spec.Exports {
		if !c.set.Spec.Exports[i].Headless() {
			services++
		}
	}
	for i := range c.set.Spec.Clusters {
		gateways += len(c.set.Spec.Clusters[i].AllGateways())
	}
	spec := &c.set.Spec
	what := "exports"
	if spec.DynamicExports != nil {
		services, what = 2*services, "exports, and as many again that are dynamic,"
	}
	c.checkPool(overlap.Use{Path: "services.cidr", Prefix: spec.Services.CIDR}, services, what)
	c.checkPool(overlap.Use{Path: "services.ipv6Cidr", Prefix: spec.Services.IPv6CIDR}, services, what)
	c.checkPool(overlap.Use{Path: "tunnel.cidr", Prefix: spec.Tunnel.CIDR}, gateways, "gateways")
	c.checkPool(overlap.Use{Path: "tunnel.ipv6Cidr", Prefix: spec.Tunnel.IPv6CIDR},
		gateways, "gateways")
}

// checkBlock checks that a cluster's block has enough addresses.
func (c *checker) checkBlock(d Requirement, path string, p netip.Prefix) {
	if d.Total() <= declaredCapacity(c.set, p) {
		return
	}
	c.Fail("too-small", path,
		fmt.Sprintf("%s has %d addresses%s, %d are needed (egress %d, egress rules %d, exports %d, hostnames %d)",
			p, max(declaredCapacity(c.set, p), 0), reservedText(c.set), d.Total(), d.Egress, d.Rules, d.Exports, d.Hosts),
		fmt.Sprintf("a /%d is large enough", prefixLength(requiredUsable(c.set, d.Total()), p.Addr().BitLen())))
}

// prefixLength returns the longest prefix length with at least need usable addresses.
func prefixLength(addresses, bitLen int) int {
	bits := 2
	for 1<<bits-2 < addresses {
		bits++
	}
	return bitLen - bits
}

// checkSizedBlock checks a block of the size that globalnet.clusterPrefix fixes.
func (c *checker) checkSizedBlock(d Requirement, path string) {
	size := c.set.Spec.Globalnet.ClusterPrefix
	p, err := c.set.Spec.Globalnet.CIDR.Addr().Prefix(size)
	if err != nil || d.Total() <= declaredCapacity(c.set, p) {
		return
	}
	c.Fail("too-small", path,
		fmt.Sprintf("the cluster needs %d global addresses, a /%d has %d%s", d.Total(), size,
			max(declaredCapacity(c.set, p), 0), reservedText(c.set)),
		fmt.Sprintf("set globalnet.clusterPrefix to %d or less, or give the cluster a globalCIDR",
			prefixLength(requiredUsable(c.set, d.Total()), p.Addr().BitLen())), "globalnet.clusterPrefix")
}

// checkBlockCount checks that the pool of global blocks has a block for each cluster.
func (c *checker) checkBlockCount() {
	size, pool := c.set.Spec.Globalnet.ClusterPrefix, c.set.Spec.Globalnet.CIDR
	if size < 1 || size > 32 || !pool.IsValid() || !pool.Addr().Is4() {
		return // another check reports a size out of range
	}
	if size < pool.Bits() {
		c.Fail("too-small", "globalnet.clusterPrefix",
			fmt.Sprintf("a block of /%d is larger than the pool %s", size, pool), "", "globalnet.cidr")
		return
	}
	usedBlocks, need := map[netip.Prefix]bool{}, 0
	for i := range c.set.Spec.Clusters {
		pin := c.set.Spec.Clusters[i].GlobalCIDR
		if !pin.IsValid() {
			need++
		} else if p, err := pin.Addr().Prefix(size); err == nil && pool.Contains(pin.Addr()) {
			usedBlocks[p] = true
		}
	}
	if available := 1<<(size-pool.Bits()) - len(usedBlocks); need > available {
		c.Fail("too-small", "globalnet.cidr",
			fmt.Sprintf("%s has room for %d blocks of /%d, but clusters need %d", pool, max(available, 0), size, need),
			"use a larger pool, or a longer globalnet.clusterPrefix")
	}
}

// checkPool checks that a pool has need addresses.
func (c *checker) checkPool(u overlap.Use, need int, what string) {
	if u.Prefix.IsValid() && need > usable(u.Prefix) {
		c.Fail("too-small", u.Path,
			fmt.Sprintf("%s has %d addresses, but %s need %d", u.Prefix, usable(u.Prefix), what, need),
			fmt.Sprintf("a /%d is large enough", prefixLength(need, u.Prefix.Addr().BitLen())))
	}
}

// checkMappedBlocks checks a pinned block with mapped egress: every pod prefix needs a prefix of
// its size in the block, and half of the block is reserved for other addresses.
func (c *checker) checkMappedBlocks() {
	if c.set.Spec.Globalnet.Egress != fabric.EgressMapped {
		return
	}
	for i, path := range c.clusterPaths {
		cluster := &c.set.Spec.Clusters[i]
		for _, pin := range overlap.Pins(cluster, path) {
			pods := slices.DeleteFunc(slices.Clone(cluster.PodCIDRs), func(p netip.Prefix) bool {
				return !p.IsValid() || p.Addr().Is6() != pin.Six
			})
			if len(pods) == 0 || 1+cidr.SumBits(pods) <= cidr.HostBits(pin.Prefix) {
				continue
			}
			c.Fail("too-small", pin.Path,
				fmt.Sprintf("%s cannot map the cluster's pods and keep half for the rest", pin.Prefix),
				fmt.Sprintf("pin a /%d, or set globalnet.egress to auto", pin.Prefix.Addr().BitLen()-1-cidr.SumBits(pods)),
				path+".podCIDRs", "globalnet.egress")
		}
	}
}
