package capacity

import (
	"fmt"
	"net/netip"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/overlap"
)

// declaredCapacity returns the number of a block's addresses for declared items, without
// the quarter for dynamic exports.
func declaredCapacity(s *schema.ClusterSet, block netip.Prefix) int {
	if s.Spec.DynamicExports == nil {
		return usable(block)
	}
	return usable(block) - usable(block)/4 - 1
}

// requiredUsable returns the usable addresses that a block needs for a number of declared items. It
// is the inverse of declaredCapacity: a block of N addresses has N-2 usable ones, of which N-2 -
// (N-2)/4 - 1 are for declared items.
func requiredUsable(s *schema.ClusterSet, declared int) int {
	if s.Spec.DynamicExports == nil {
		return declared
	}
	return max((4*(declared+2)+2)/3, 1<<schema.MinDynamicBits) - 2
}

// reservedText returns the part of a finding that names the reserved quarter of a block.
func reservedText(s *schema.ClusterSet) string {
	if s.Spec.DynamicExports == nil {
		return ""
	}
	return " outside the quarter for dynamic exports"
}

// checkDynamicRoom checks that pinned and sized blocks, and the pools of clusterset IPs, have room
// for dynamic exports in addition to declared items.
func (c *checker) checkDynamicRoom(requirements map[string]Requirement) {
	if c.set.Spec.DynamicExports == nil {
		return
	}
	fail := func(path string, p netip.Prefix, host int) {
		c.Fail("too-small", path, fmt.Sprintf("%s has no room for dynamic exports", p),
			fmt.Sprintf("use a /%d or larger", p.Addr().BitLen()-host), "dynamicExports")
	}
	for i, path := range c.clusterPaths {
		cluster := &c.set.Spec.Clusters[i]
		for _, pin := range overlap.Pins(cluster, path) {
			if fits := requirements[cluster.Name].Total() <= declaredCapacity(c.set, pin.Prefix); fits && cidr.HostBits(pin.Prefix) < schema.MinDynamicBits {
				fail(pin.Path, pin.Prefix, schema.MinDynamicBits)
			}
		}
	}
	if bits := c.set.Spec.Globalnet.ClusterPrefix; bits > 32-schema.MinDynamicBits && bits <= 32 {
		c.Fail("too-small", "globalnet.clusterPrefix",
			fmt.Sprintf("a block of /%d has no room for dynamic exports", bits),
			fmt.Sprintf("use a /%d or larger", 32-schema.MinDynamicBits), "dynamicExports")
	}
	for _, u := range []overlap.Use{{Path: "services.cidr", Prefix: c.set.Spec.Services.CIDR}, {Path: "services.ipv6Cidr", Prefix: c.set.Spec.Services.IPv6CIDR}} {
		if u.Prefix.IsValid() && cidr.HostBits(u.Prefix) < 2 {
			fail(u.Path, u.Prefix, 2)
		}
	}
}
