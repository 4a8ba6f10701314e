package validate

import (
	"fmt"
	"net/netip"
	"slices"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fieldpath"
	"hawser.dev/hawser/schema/overlap"
)

// prefixes checks every prefix, and that it does not overlap a pool.
func (c *checker) prefixes() {
	ranges, pools := reservedRanges(), overlap.Pools(c.set)
	for i, p := range pools {
		c.prefix(p.Path, p.Prefix, ranges)
		c.family(p)
		for _, earlier := range pools[:i] {
			if p.Prefix.Overlaps(earlier.Prefix) {
				overlap.Report(&c.Findings, p, earlier, "give each pool a range of its own")
			}
		}
	}
	var pins []overlap.Member
	for i, path := range c.clusterPaths {
		cluster := &c.set.Spec.Clusters[i]
		c.cidrs(path+".podCIDRs", cluster.PodCIDRs, ranges, pools)
		c.cidrs(path+".serviceCIDRs", cluster.ServiceCIDRs, ranges, pools)
		for _, pin := range overlap.Pins(cluster, path) {
			if c.prefix(pin.Path, pin.Prefix, ranges); c.pin(pin) {
				pins = append(pins, overlap.Member{Cluster: i, Path: pin.Path, Prefix: pin.Prefix.Masked(), Order: len(pins)})
			}
		}
	}
	none := !slices.ContainsFunc(c.set.Spec.Clusters, func(k schema.Cluster) bool { return len(k.PodCIDRs)+len(k.ServiceCIDRs) > 0 })
	if none && len(c.clusterPaths) > 1 {
		c.Fail("no-cidrs", c.clusterPaths[0]+".podCIDRs", // which may be there, and unreadable
			"no cluster has podCIDRs or serviceCIDRs: there is nothing to reach",
			"write the ranges of its pods and Services: podCIDRs: [10.42.0.0/16], serviceCIDRs: [10.43.0.0/16]")
	}
	c.pinOverlaps(pins)
	c.dnsAddress("dns.address", c.set.Spec.DNS.Address, false, "169.254.73.53", pools)
	c.dnsAddress("dns.ipv6Address", c.set.Spec.DNS.IPv6Address, true, schema.DNSIPv6, pools)
}

// cidrs checks prefixes of a cluster, of either family.
func (c *checker) cidrs(path string, prefixes []netip.Prefix, ranges, pools []overlap.Use) {
	for i, p := range prefixes {
		u := overlap.Use{Path: fieldpath.Index(path, i), Prefix: p}
		if !p.IsValid() || !c.prefix(u.Path, p, ranges) {
			continue
		}
		for _, pool := range pools {
			if p.Overlaps(pool.Prefix) {
				overlap.Report(&c.Findings, u, pool, "choose another range for "+pool.Path)
			}
		}
	}
}

// prefix checks one prefix and reports whether it can be used.
func (c *checker) prefix(path string, p netip.Prefix, ranges []overlap.Use) bool {
	switch {
	case p.Addr().Is4In6():
		c.Fail("bad-prefix", path, p.String()+" is an IPv4 prefix in the form of IPv6", "write it as IPv4")
		return false
	case p.Masked() != p:
		c.Fail("host-bits", path, p.String()+" has bits set after its prefix length", "write "+p.Masked().String())
	}
	for _, r := range ranges {
		if p.Overlaps(r.Prefix) {
			c.Fail("reserved-range", path,
				fmt.Sprintf("%s holds addresses of %s, which are reserved (%s)", p, r.Prefix, r.Path), "")
			return false
		}
	}
	return true
}

// reservedRanges returns ranges that cannot be routed between hosts (RFC 6890). Path is the purpose
// of the range.
func reservedRanges() []overlap.Use {
	return []overlap.Use{
		{Path: "this network", Prefix: netip.MustParsePrefix("0.0.0.0/8")},
		{Path: "loopback", Prefix: netip.MustParsePrefix("127.0.0.0/8")},
		{Path: "link-local", Prefix: netip.MustParsePrefix("169.254.0.0/16")},
		{Path: "multicast", Prefix: netip.MustParsePrefix("224.0.0.0/4")},
		{Path: "broadcast", Prefix: netip.MustParsePrefix("255.255.255.255/32")},
		{Path: "unspecified and loopback", Prefix: netip.MustParsePrefix("::/127")},
		{Path: "link-local", Prefix: netip.MustParsePrefix("fe80::/10")},
		{Path: "multicast", Prefix: netip.MustParsePrefix("ff00::/8")},
	}
}

// family checks that a value has its field's family and reports the result.
func (c *checker) family(u overlap.Use) bool {
	if u.Prefix.Addr().Is6() == u.Six {
		return true
	}
	want, hint := "an IPv4", "write IPv6 prefixes to the field with ipv6 in its name"
	if u.Six {
		want, hint = "an IPv6", "write IPv4 prefixes to the field without ipv6 in its name"
	}
	c.Fail("wrong-family", u.Path, fmt.Sprintf("%s is not %s prefix", u.Prefix, want), hint)
	return false
}

// pin checks a fixed block against its pool and reports whether it lies in it.
func (c *checker) pin(u overlap.Use) bool {
	if !c.family(u) {
		return false
	}
	pool := overlap.Use{Path: "globalnet.cidr", Prefix: c.set.Spec.Globalnet.CIDR, Six: false}
	if u.Six {
		pool = overlap.Use{Path: "globalnet.ipv6Cidr", Prefix: c.set.Spec.Globalnet.IPv6CIDR, Six: true}
	}
	switch {
	case !pool.Prefix.IsValid():
		c.Fail("outside-pool", u.Path, "there is no pool for it", "set "+pool.Path)
		return false
	case !cidr.Contains(pool.Prefix.Masked(), u.Prefix):
		c.Fail("outside-pool", u.Path, fmt.Sprintf("%s is not inside %s %s", u.Prefix, pool.Path, pool.Prefix), "",
			pool.Path)
		return false
	}
	return true
}

// pinOverlaps reports blocks that are pinned for two clusters.
func (c *checker) pinOverlaps(pins []overlap.Member) {
	groups := overlap.GroupMembers(pins)
	for i := range groups {
		first := groups[i].Members[0]
		for _, m := range groups[i].Members[1:] {
			overlap.Report(&c.Findings, overlap.Use{Path: m.Path, Prefix: m.Prefix}, overlap.Use{Path: first.Path, Prefix: first.Prefix}, "give each cluster a block of its own")
		}
		if outer := overlap.ParentOf(groups, &groups[i]); outer != nil {
			a, b := outer.Members[0], first
			if a.Order > b.Order {
				a, b = b, a
			}
			overlap.Report(&c.Findings, overlap.Use{Path: b.Path, Prefix: b.Prefix}, overlap.Use{Path: a.Path, Prefix: a.Prefix}, "give each cluster a block of its own")
		}
	}
}

// dnsAddress checks that no pool or cluster contains an address of the agents' name servers.
func (c *checker) dnsAddress(path string, a netip.Addr, six bool, usual string, pools []overlap.Use) {
	fail := func(summary string, others ...string) {
		c.Fail("bad-address", path, summary, "leave it out: "+usual+" is used then", others...)
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
		if p.Prefix.Contains(a) {
			fail(fmt.Sprintf("%s is inside %s %s", a, p.Path, p.Prefix), p.Path)
		}
	}
	if g := overlap.Find(c.groups, a); g != nil {
		fail(fmt.Sprintf("%s is inside %s %s", a, g.Members[0].Path, g.Prefix), g.Members[0].Path)
	}
}
