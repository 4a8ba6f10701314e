package schema

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema/fabric"
)

// Exports that are made in the clusters have their addresses from ranges that the
// topology keeps free for them: the second quarter of each cluster's block and the
// upper half of each pool of clusterset IPs. The ranges follow from the block and
// the pool alone, so nothing moves when spec.dynamicExports comes or goes; what the
// lock holds inside of them already stays there, and agents go round it.

// minDynamicBits is the size of the smallest block that has a part for them: four
// addresses.
const minDynamicBits = 4

// DynamicRanges gives the parts of a cluster's blocks that are kept for exports made
// in it, IPv4 first; none without spec.dynamicExports.
func (l *Lock) DynamicRanges(top *ClusterSet, cluster string) []netip.Prefix {
	c := l.clusters[cluster]
	if c == nil || top.Spec.DynamicExports == nil {
		return nil
	}
	var out []netip.Prefix
	for _, b := range c.blocks {
		if p := c.dynamic(b.prefix); p.IsValid() && slices.ContainsFunc(top.GlobalPools(), p.Overlaps) {
			out = append(out, p)
		}
	}
	return out
}

// DynamicVIPs gives the parts of the pools of clusterset IPs that are kept for
// exports made in the clusters, IPv4 first; none without spec.dynamicExports.
func (s *ClusterSet) DynamicVIPs() []netip.Prefix {
	if s.Spec.DynamicExports == nil {
		return nil
	}
	var out []netip.Prefix
	for _, p := range s.ServicePools() {
		if half := dynamicVIPs(p); half.IsValid() {
			out = append(out, half)
		}
	}
	return out
}

// dynamicVIPs is the upper half of a pool.
func dynamicVIPs(pool netip.Prefix) netip.Prefix {
	if hostBits(pool) < 2 {
		return netip.Prefix{}
	}
	return part(pool.Masked(), 1, 1)
}

// dynamic is the second quarter of a block. Pods are mapped to its upper half; in a
// block that grew, a mapping of before may stand in the second quarter, and then
// the first one serves. It is invalid where there is no room.
func (c *lockedCluster) dynamic(block netip.Prefix) netip.Prefix {
	if hostBits(block) < minDynamicBits {
		return netip.Prefix{}
	}
	for _, nth := range []int{1, 0} {
		p := part(block, 2, nth)
		free := true
		for _, m := range c.mappings {
			free = free && !m.prefix.Overlaps(p)
		}
		if free {
			return p
		}
	}
	return netip.Prefix{}
}

// part gives the nth of the 1<<bits equal parts of a prefix.
func part(p netip.Prefix, bits, nth int) netip.Prefix {
	out := netip.PrefixFrom(p.Addr(), p.Bits()+bits)
	for range nth {
		out = netip.PrefixFrom(lastOf(out).Next(), out.Bits())
	}
	return out
}

// forDeclared gives how many of a block's addresses are left for what the topology
// declares when a quarter of it is kept.
func (s *ClusterSet) forDeclared(block netip.Prefix) int {
	if s.Spec.DynamicExports == nil {
		return usable(block)
	}
	return usable(block) - usable(block)/4 - 1
}

// asUsable gives how many usable addresses a block must have, so that so many are
// left for what the topology declares; the inverse of forDeclared.
func (s *ClusterSet) asUsable(declared int) int {
	if s.Spec.DynamicExports == nil {
		return declared
	}
	return max((4*(declared+2)+2)/3, 1<<minDynamicBits) - 2
}

// besides says in a finding what a block is for beside what is declared.
func (s *ClusterSet) besides() string {
	if s.Spec.DynamicExports == nil {
		return ""
	}
	return " beside the quarter for dynamic exports"
}

// dynamicExports checks the patterns.
func (c *checker) dynamicExports() {
	d := c.set.Spec.DynamicExports
	if d == nil {
		return
	}
	for i, rule := range d.Rules {
		path := "dynamicExports"
		if !d.Alone {
			path = nth(path, i)
		}
		c.patterns(path+".namespaces", rule.Namespaces)
		c.known(path+".clusters", rule.Clusters)
		if rule.Clusters != nil && len(rule.Clusters) == 0 {
			c.fail(diag.Diagnostic{Code: "required", Path: path + ".clusters", Summary: "is empty, so that nobody may export from there",
				Hint: "name the clusters that may, or remove the field: then any may"})
		}
	}
}

func (c *checker) patterns(path string, patterns []string) {
	seen := uniqueness{}
	for i, pattern := range patterns {
		item := nth(path, i)
		if c.pattern(item, pattern) {
			c.unique(seen, pattern, item, pattern+" is listed twice")
		}
	}
}

// pattern checks one pattern of namespaces and reports whether it is right.
func (c *checker) pattern(path, text string) bool {
	d := diag.Diagnostic{Code: "bad-pattern", Path: path, Summary: fmt.Sprintf("%q matches no namespace", text)}
	fixed := strings.ReplaceAll(text, "*", "")
	switch {
	case text == "":
		d.Code, d.Summary = "required", "is missing"
	case strings.IndexFunc(fixed, func(r rune) bool { return !fabric.IsLabelRune(r) }) >= 0:
		d.Summary = fmt.Sprintf("%q is not a pattern of namespaces", text)
		d.Hint = "use lower-case letters, digits, hyphens, and * for any characters"
		if lower := strings.ToLower(text); lower != text && c.plain(lower) {
			d.Hint = "write " + lower
		}
	case text[0] == '-' || text[len(text)-1] == '-':
		d.Hint = "no namespace begins or ends with a hyphen"
	case len(fixed) > fabric.MaxLabel:
		d.Summary = fmt.Sprintf("the pattern has %d characters beside *, a namespace at most %d", len(fixed), fabric.MaxLabel)
	default:
		return true
	}
	c.fail(d)
	return false
}

// plain reports whether text has only what a pattern may have.
func (c *checker) plain(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return !fabric.IsLabelRune(r) && r != '*' }) < 0
}

// dynamicRoom checks that pinned and sized blocks, and the pools of clusterset IPs,
// are large enough for a part of their own where what is declared fits.
func (c *checker) dynamicRoom(demands map[string]Demand) {
	if c.set.Spec.DynamicExports == nil {
		return
	}
	fail := func(path string, p netip.Prefix, host int) {
		c.fail(diag.Diagnostic{Code: "too-small", Path: path,
			Summary: fmt.Sprintf("%s has no room for dynamic exports", p),
			Hint:    fmt.Sprintf("a /%d is the smallest that has", p.Addr().BitLen()-host), Related: related("dynamicExports")})
	}
	for i, path := range c.clusterPaths {
		cluster := &c.set.Spec.Clusters[i]
		for _, pin := range cluster.pinned(path) {
			if fits := demands[cluster.Name].Total() <= c.set.forDeclared(pin.prefix); fits && hostBits(pin.prefix) < minDynamicBits {
				fail(pin.path, pin.prefix, minDynamicBits)
			}
		}
	}
	if size := c.set.Spec.Globalnet.ClusterPrefix; size > 32-minDynamicBits && size <= 32 {
		c.fail(diag.Diagnostic{Code: "too-small", Path: "globalnet.clusterPrefix",
			Summary: fmt.Sprintf("a block of /%d has no room for dynamic exports", size),
			Hint:    fmt.Sprintf("a /%d is the smallest that has", 32-minDynamicBits), Related: related("dynamicExports")})
	}
	for _, u := range []use{{path: "services.cidr", prefix: c.set.Spec.Services.CIDR}, {path: "services.ipv6Cidr", prefix: c.set.Spec.Services.IPv6CIDR}} {
		if u.prefix.IsValid() && hostBits(u.prefix) < 2 {
			fail(u.path, u.prefix, 2)
		}
	}
}
