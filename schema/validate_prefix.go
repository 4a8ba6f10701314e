package schema

import (
	"fmt"
	"net/netip"
	"slices"

	"hawser.dev/hawser/internal/diag"
)

// use is one prefix of the file.
type use struct {
	path   string
	prefix netip.Prefix
	six    bool // the field is for IPv6
}

// pools gives the pools that are set.
func (s *ClusterSet) pools() []use {
	spec := &s.Spec
	pools := []use{
		{"globalnet.cidr", spec.Globalnet.CIDR, false}, {"globalnet.ipv6Cidr", spec.Globalnet.IPv6CIDR, true},
		{"services.cidr", spec.Services.CIDR, false}, {"services.ipv6Cidr", spec.Services.IPv6CIDR, true},
		{"tunnel.cidr", spec.Tunnel.CIDR, false}, {"tunnel.ipv6Cidr", spec.Tunnel.IPv6CIDR, true},
	}
	return slices.DeleteFunc(pools, func(u use) bool { return !u.prefix.IsValid() })
}

// prefixes checks every prefix by itself and against the pools.
func (c *checker) prefixes() {
	ranges, pools := reserved(), c.set.pools()
	for i, p := range pools {
		c.prefix(p.path, p.prefix, ranges)
		c.family(p)
		for _, earlier := range pools[:i] {
			if p.prefix.Overlaps(earlier.prefix) {
				c.overlap(p, earlier, "give each pool a range of its own")
			}
		}
	}
	var pins []member
	for i, path := range c.clusterPaths {
		cluster := &c.set.Spec.Clusters[i]
		c.cidrs(path+".podCIDRs", cluster.PodCIDRs, ranges, pools)
		c.cidrs(path+".serviceCIDRs", cluster.ServiceCIDRs, ranges, pools)
		for _, pin := range cluster.pinned(path) {
			if c.prefix(pin.path, pin.prefix, ranges); c.pin(pin) {
				pins = append(pins, member{cluster: i, path: pin.path, prefix: pin.prefix.Masked(), order: len(pins)})
			}
		}
	}
	none := !slices.ContainsFunc(c.set.Spec.Clusters, func(k Cluster) bool { return len(k.PodCIDRs)+len(k.ServiceCIDRs) > 0 })
	if none && len(c.clusterPaths) > 1 {
		c.fail(diag.Diagnostic{
			Code: "no-cidrs", Path: c.clusterPaths[0] + ".podCIDRs", // which may be there, and unreadable
			Summary: "no cluster has podCIDRs or serviceCIDRs: there is nothing to reach",
			Hint:    "write the ranges of its pods and Services: podCIDRs: [10.42.0.0/16], serviceCIDRs: [10.43.0.0/16]",
		})
	}
	c.pinOverlaps(pins)
	c.dnsAddresses(pools)
}

// cidrs checks prefixes of a cluster, of either family.
func (c *checker) cidrs(path string, prefixes []netip.Prefix, ranges, pools []use) {
	for i, p := range prefixes {
		u := use{path: nth(path, i), prefix: p}
		if !p.IsValid() || !c.prefix(u.path, p, ranges) {
			continue
		}
		for _, pool := range pools {
			if p.Overlaps(pool.prefix) {
				c.overlap(u, pool, "choose another range for "+pool.path)
			}
		}
	}
}

// prefix checks one prefix by itself and reports whether it is good.
func (c *checker) prefix(path string, p netip.Prefix, ranges []use) bool {
	switch {
	case p.Addr().Is4In6():
		c.fail(diag.Diagnostic{
			Code: "bad-prefix", Path: path, Summary: p.String() + " is an IPv4 prefix in the form of IPv6", Hint: "write it as IPv4",
		})
		return false
	case p.Masked() != p:
		c.fail(diag.Diagnostic{
			Code: "host-bits", Path: path, Summary: p.String() + " has bits set after its prefix length",
			Hint: "write " + p.Masked().String(),
		})
	}
	for _, r := range ranges {
		if p.Overlaps(r.prefix) {
			c.fail(diag.Diagnostic{
				Code: "reserved-range", Path: path,
				Summary: fmt.Sprintf("%s holds addresses of %s, which are reserved (%s)", p, r.prefix, r.path),
			})
			return false
		}
	}
	return true
}

// reserved gives ranges that cannot be routed between hosts, each with what it
// is for in place of a path (RFC 6890).
func reserved() []use {
	return []use{
		{path: "this network", prefix: netip.MustParsePrefix("0.0.0.0/8")},
		{path: "loopback", prefix: netip.MustParsePrefix("127.0.0.0/8")},
		{path: "link-local", prefix: netip.MustParsePrefix("169.254.0.0/16")},
		{path: "multicast", prefix: netip.MustParsePrefix("224.0.0.0/4")},
		{path: "broadcast", prefix: netip.MustParsePrefix("255.255.255.255/32")},
		{path: "unspecified and loopback", prefix: netip.MustParsePrefix("::/127")},
		{path: "link-local", prefix: netip.MustParsePrefix("fe80::/10")},
		{path: "multicast", prefix: netip.MustParsePrefix("ff00::/8")},
	}
}

// family checks that a value is of its field's family and reports whether it is.
func (c *checker) family(u use) bool {
	if u.prefix.Addr().Is6() == u.six {
		return true
	}
	want, hint := "an IPv4", "IPv6 prefixes go into the field beside it that has ipv6 in its name"
	if u.six {
		want, hint = "an IPv6", "IPv4 prefixes go into the field beside it that has no ipv6 in its name"
	}
	c.fail(diag.Diagnostic{Code: "wrong-family", Path: u.path, Summary: fmt.Sprintf("%s is not %s prefix", u.prefix, want), Hint: hint})
	return false
}

func (c *checker) overlap(u, other use, hint string) {
	c.fail(diag.Diagnostic{
		Code: "overlap", Path: u.path, Summary: fmt.Sprintf("%s overlaps %s %s", u.prefix, other.path, other.prefix),
		Hint: hint, Related: related(other.path),
	})
}

// pinned gives the blocks that the file fixes for the cluster at path.
func (c *Cluster) pinned(path string) []use {
	pins := []use{{path + ".globalCIDR", c.GlobalCIDR, false}, {path + ".globalIPv6CIDR", c.GlobalIPv6CIDR, true}}
	return slices.DeleteFunc(pins, func(u use) bool { return !u.prefix.IsValid() })
}

// pin checks a fixed block against its pool and reports whether it lies in it.
func (c *checker) pin(u use) bool {
	if !c.family(u) {
		return false
	}
	pool := use{"globalnet.cidr", c.set.Spec.Globalnet.CIDR, false}
	if u.six {
		pool = use{"globalnet.ipv6Cidr", c.set.Spec.Globalnet.IPv6CIDR, true}
	}
	switch {
	case !pool.prefix.IsValid():
		c.fail(diag.Diagnostic{Code: "outside-pool", Path: u.path, Summary: "there is no pool for it", Hint: "set " + pool.path})
		return false
	case !contains(pool.prefix.Masked(), u.prefix):
		c.fail(diag.Diagnostic{
			Code: "outside-pool", Path: u.path, Summary: fmt.Sprintf("%s is not inside %s %s", u.prefix, pool.path, pool.prefix),
			Related: related(pool.path),
		})
		return false
	}
	return true
}

// pinOverlaps reports blocks that the file gives to two clusters.
func (c *checker) pinOverlaps(pins []member) {
	groups := groupMembers(pins)
	for i := range groups {
		first := groups[i].members[0]
		for _, m := range groups[i].members[1:] {
			c.overlap(use{path: m.path, prefix: m.prefix}, use{path: first.path, prefix: first.prefix}, "give each cluster a block of its own")
		}
		if outer := parentOf(groups, &groups[i]); outer != nil {
			a, b := outer.members[0], first
			if a.order > b.order {
				a, b = b, a
			}
			c.overlap(use{path: b.path, prefix: b.prefix}, use{path: a.path, prefix: a.prefix}, "give each cluster a block of its own")
		}
	}
}

// dnsAddresses checks that the agents' addresses belong to nothing else.
func (c *checker) dnsAddresses(pools []use) {
	dns := c.set.Spec.DNS
	c.dnsAddress("dns.address", dns.Address, false, "169.254.73.53", pools)
	c.dnsAddress("dns.ipv6Address", dns.IPv6Address, true, dnsIPv6, pools)
}

func (c *checker) dnsAddress(path string, a netip.Addr, six bool, usual string, pools []use) {
	fail := func(summary string, others ...string) {
		c.fail(diag.Diagnostic{
			Code: "bad-address", Path: path, Summary: summary,
			Hint: "leave it out: " + usual + " is used then", Related: related(others...),
		})
	}
	switch {
	case !a.IsValid():
		return
	case six && a.Is4():
		fail(a.String() + " is not an IPv6 address")
		return
	case six && a.IsLinkLocalUnicast():
		fail(a.String() + " is link-local: pods are not on one link with their node")
		return
	case a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a.Zone() != "" || a.Is4In6():
		fail(a.String() + " is not a unicast address that other hosts can use")
		return
	}
	for _, p := range pools {
		if p.prefix.Contains(a) {
			fail(fmt.Sprintf("%s is inside %s %s", a, p.path, p.prefix), p.path)
		}
	}
	if g := find(c.groups, a); g != nil {
		fail(fmt.Sprintf("%s is inside %s %s", a, g.members[0].path, g.prefix), g.members[0].path)
	}
}
