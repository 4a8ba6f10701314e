package validate

import (
	"fmt"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fieldpath"
	"hawser.dev/hawser/schema/linkconfig"
	"hawser.dev/hawser/schema/overlap"
	"hawser.dev/hawser/schema/tags"
)

// connectivity checks that the mode has all settings that it needs, and no others.
func (c *checker) connectivity() {
	conn := &c.set.Spec.Connectivity
	c.checkOnlyWith("connectivity.hubs", len(conn.Hubs) > 0, conn.Mode == schema.ModeHub, "mode: hub")
	c.checkOnlyWith("connectivity.links", len(conn.Links) > 0, conn.Mode == schema.ModeLinks,
		"mode: links")
	if conn.Partial && conn.Mode != schema.ModeLinks {
		c.checkOnlyWith("connectivity.partial", true, false, "mode: links")
	}
	c.clusterNames("connectivity.hubs", conn.Hubs)
	seen, valid := uniqueness{}, true
	for i, pair := range conn.Links {
		path := fieldpath.Index("connectivity.links", i)
		valid = c.checkPair(path, pair, seen, "a link joins 2 clusters", "write [a, b]") && valid
	}
	if conn.Mode == schema.ModeLinks && len(conn.Links) > 0 && valid {
		c.checkConnected()
	}
}

// checkPair checks a list of two clusters, and reports whether it has two items.
func (c *checker) checkPair(path string, pair []string, seen uniqueness, what, hint string) bool {
	if len(pair) != 2 {
		c.Fail("bad-link", path, fmt.Sprintf("%s, not %d", what, len(pair)), hint)
		return false
	}
	for j, name := range pair {
		c.knownCluster(fieldpath.Index(path, j), name)
	}
	if pair[0] == pair[1] {
		c.Fail("bad-link", path, "the link joins "+pair[0]+" to itself", "")
		return true
	}
	p := fabric.SortedPair(pair[0], pair[1])
	c.unique(seen, p[0]+" "+p[1], path, "the link between "+p[0]+" and "+p[1]+" is listed twice")
	return true
}

// checkConnected reports clusters that have no path to the others.
func (c *checker) checkConnected() {
	if c.set.Spec.Connectivity.Partial {
		return
	}
	groups := c.links.Graph.Components()
	largest := slices.MaxFunc(append(groups, nil), func(a, b []string) int { return len(a) - len(b) })
	for _, group := range groups {
		if slices.Equal(group, largest) {
			continue
		}
		first := slices.MinFunc(group, func(a, b string) int { return c.clusters[a] - c.clusters[b] })
		c.Fail("no-way", c.clusterPaths[c.clusters[first]],
			fmt.Sprintf("no links lead from %s to %s", humanize.FirstN(group, overlap.MaxOthers), humanize.FirstN(largest, overlap.MaxOthers)),
			"add one to connectivity.links, or say connectivity: {partial: true} there if it is meant so",
			"connectivity.links")
	}
}

// linkSettings checks the settings of single links.
func (c *checker) linkSettings() {
	seen := uniqueness{}
	for i := range c.set.Spec.Links {
		l, path := &c.set.Spec.Links[i], fieldpath.Index("links", i)
		if len(l.Between) == 0 || !c.checkPair(path+".between", l.Between, seen, "a link is between 2 clusters", "write between: [a, b]") {
			continue
		}
		a, b := l.Between[0], l.Between[1]
		_, knowsA := c.clusters[a]
		_, knowsB := c.clusters[b]
		if !knowsA || !knowsB || a == b {
			continue
		}
		if !c.links.Graph.Linked(a, b) {
			c.Fail("not-linked", path+".between", fmt.Sprintf("%s and %s have no link of their own", a, b),
				c.linkHint(a, b), "connectivity.mode")
		}
		if l.Driver == "" && l.Port == 0 && l.MTU == 0 && l.Keepalive == nil {
			c.Warn("no-effect", path, "nothing is set for the link",
				"set driver, port, mtu or keepalive, or remove the entry")
		}
		if l.Port != 0 {
			c.linkPort(a, b, path+".port")
		}
	}
}

// linkHint returns a hint for settings of a link that does not exist.
func (c *checker) linkHint(a, b string) string {
	if c.set.Spec.Connectivity.Mode == schema.ModeHub {
		return "they reach each other through " + strings.Join(c.set.Spec.Connectivity.Hubs, " or ") + ": set the links between each of them and a hub"
	}
	return fmt.Sprintf("add [%s, %s] to connectivity.links", a, b)
}

// linkPort checks that a link can have its own port.
func (c *checker) linkPort(a, b, path string) {
	if c.links.Of(a, b).Driver == fabric.DriverIPsec {
		c.Fail("misplaced", path, "IPsec has the same ports on every link",
			"set tunnel: {ipsec: {ikePort: ..., natPort: ...}}")
		return
	}
	for _, name := range []string{a, b} {
		i := c.clusters[name]
		cluster := &c.set.Spec.Clusters[i]
		for j, p := range cluster.GatewayPaths(c.clusterPaths[i]) {
			for k, text := range cluster.Gateways[j].Endpoints {
				if e, err := fabric.ParseEndpoint(text); err == nil && e.Port != 0 {
					c.Fail("bad-port", path,
						fmt.Sprintf("a router forwards from %s to the gateway's own port, not to this one", e),
						"remove port here", fieldpath.Index(p+".endpoints", k))
					return
				}
			}
		}
	}
}

// tunnels checks drivers, MTUs and the settings of IPsec.
func (c *checker) tunnels() {
	t := &c.set.Spec.Tunnel
	if len(c.links.Overrides()) > linkconfig.MaxOverrides {
		c.Fail("too-many", "tunnel", fmt.Sprintf("more than %d links differ from it", linkconfig.MaxOverrides),
			"say here what most links have, and in clusters and links what the others have")
	}
	c.tunnel("tunnel", t.Driver, t.MTU)
	for i, path := range c.clusterPaths {
		o := &c.set.Spec.Clusters[i].Tunnel
		c.tunnel(path+".tunnel", o.Driver, o.MTU)
		c.checkDriverConflict(i)
		c.checkOwnKeys(i)
	}
	for i := range c.set.Spec.Links {
		c.tunnel(fieldpath.Index("links", i), c.set.Spec.Links[i].Driver, c.set.Spec.Links[i].MTU)
	}
	c.ipsec()
}

// minMTU is the minimum MTU of a link with IPv6 (RFC 8200, section 5).
const minMTU = 1280

func (c *checker) tunnel(path, driver string, mtu int) {
	if driver == fabric.DriverVXLAN {
		c.Warn("not-encrypted", path+".driver",
			"vxlan does not encrypt: the network between the gateways can read and forge packets",
			"use wireguard or ipsec unless you control that network")
	}
	if mtu > 0 && mtu < minMTU && c.set.HasFamily(true) {
		c.Fail("bad-mtu", path+".mtu", fmt.Sprintf("%d is less than %d, which IPv6 needs", mtu, minMTU), "")
	}
}

// checkDriverConflict finds two linked clusters with different drivers and no link
// setting that decides.
func (c *checker) checkDriverConflict(i int) {
	own := &c.set.Spec.Clusters[i]
	if own.Tunnel.Driver == "" {
		return
	}
	for j := range i {
		other := &c.set.Spec.Clusters[j]
		if other.Tunnel.Driver == "" || other.Tunnel.Driver == own.Tunnel.Driver || !c.links.Graph.Linked(own.Name, other.Name) {
			continue
		}
		if pair := c.links.Entries[fabric.SortedPair(own.Name, other.Name)]; pair != nil && pair.Driver != "" {
			continue
		}
		c.Fail("driver-clash", c.clusterPaths[i]+".tunnel.driver",
			fmt.Sprintf("%s wants %s for its links, and %s wants %s", own.Name, own.Tunnel.Driver, other.Name, other.Tunnel.Driver),
			fmt.Sprintf("decide in links: {between: [%s, %s], driver: ...}", other.Name, own.Name),
			c.clusterPaths[j]+".tunnel.driver")
		return
	}
}

// checkOwnKeys finds gateways on IPsec links whose user-supplied keys are only for
// WireGuard.
func (c *checker) checkOwnKeys(i int) {
	cluster := &c.set.Spec.Clusters[i]
	if !c.links.Uses(cluster.Name, fabric.DriverIPsec) {
		return
	}
	for j, p := range cluster.GatewayPaths(c.clusterPaths[i]) {
		if g := &cluster.Gateways[j]; g.PublicKey != "" && g.IKEPublicKey == "" {
			c.Fail("no-ike-key", p+".publicKey",
				"the key serves WireGuard only, and "+cluster.Name+" has links with ipsec, which need one for IKE",
				"add ikePublicKey, or remove publicKey: then both keys are derived")
		}
	}
}

// ipsec checks the ports and the ciphers.
func (c *checker) ipsec() {
	s := &c.set.Spec.Tunnel.IPsec
	if s.IKEPort == s.NATPort && s.IKEPort != 0 {
		c.Fail("bad-port", "tunnel.ipsec.natPort", fmt.Sprintf("%d is ikePort already", s.NATPort),
			"leave both out: 500 and 4500 are used then", "tunnel.ipsec.ikePort")
	}
	names, seen := []string{fabric.ProposalAESGCM, fabric.ProposalChaCha20}, uniqueness{}
	for i, p := range s.Proposals {
		path := fieldpath.Index("tunnel.ipsec.proposals", i)
		c.enum(tags.Field{Enum: names}, p, path)
		c.unique(seen, p, path, p+" is listed twice")
	}
}

// checkAllowPaths warns of allowed clusters of an export without a path to any exporting
// cluster.
func (c *checker) checkAllowPaths() {
	if !c.set.Spec.Connectivity.Partial {
		return
	}
	group := map[string]int{}
	for i, names := range c.links.Graph.Components() {
		for _, name := range names {
			group[name] = i
		}
	}
	for i, path := range c.exportPaths {
		e := &c.set.Spec.Exports[i]
		if e.Allow == nil {
			continue
		}
		for j, caller := range e.Allow.Clusters {
			own, known := group[caller]
			if known && len(e.Clusters) > 0 && !slices.ContainsFunc(e.Clusters, func(name string) bool { g, ok := group[name]; return !ok || g == own }) {
				c.Warn("no-way", fieldpath.Index(path+".allow.clusters", j),
					fmt.Sprintf("no links lead from %s to %s, where the export is", caller, humanize.FirstN(e.Clusters, overlap.MaxOthers)),
					"add one to connectivity.links")
			}
		}
	}
}
