package underlayspec

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/diag"
)

// checker collects findings.
type checker struct {
	file  *File
	known func(target string) bool
	list  diag.List
}

func (f *File) check(known func(string) bool) diag.List {
	c := checker{file: f, known: known}
	c.segments()
	c.routers()
	c.paths()
	return c.list
}

func (c *checker) fail(code, path, summary, hint string) {
	c.list = append(c.list, diag.Diagnostic{Severity: diag.Error, Code: code, Path: path, Summary: summary, Hint: hint})
}

var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// name checks the name at path and reports a duplicate.
func (c *checker) name(path, name string, seen map[string]bool) {
	switch {
	case name == "":
	case !label.MatchString(name):
		c.fail("bad-name", path+".name", fmt.Sprintf("%q is not a name", name), "use small letters, digits and hyphens")
	case seen[name]:
		c.fail("duplicate-name", path+".name", name+" is the name of two", "")
	}
	seen[name] = true
}

func (c *checker) segments() {
	seen := map[string]bool{}
	for i, s := range c.file.Segments {
		path := fmt.Sprintf("segments[%d]", i)
		c.name(path, s.Name, seen)
		for k, p := range s.CIDRs {
			for _, other := range c.file.Segments[:i] {
				if slices.ContainsFunc(other.CIDRs, p.Overlaps) {
					c.fail("overlap", fmt.Sprintf("%s.cidrs[%d]", path, k), fmt.Sprintf("%s overlaps segment %s", p, other.Name), "an address is in one segment only")
				}
			}
		}
	}
}

func (c *checker) routers() {
	seen, members, taken := map[string]bool{}, map[string]string{}, map[netip.Addr]string{}
	for i := range c.file.Routers {
		r := &c.file.Routers[i]
		path := fmt.Sprintf("routers[%d]", i)
		c.name(path, r.Name, seen)
		for k, target := range r.UplinkOf {
			at := fmt.Sprintf("%s.uplinkOf[%d]", path, k)
			if !c.target(at, target) {
				continue
			}
			if other, duplicate := members[target]; duplicate {
				c.fail("two-routers", at, target+" is behind router "+other+" too", "a gateway has one uplink")
			}
			members[target] = r.Name
		}
		c.addresses(path, r, taken)
		c.forward(path, r)
		c.firewall(path, r)
	}
}

func (c *checker) addresses(path string, r *Router, taken map[netip.Addr]string) {
	families := map[bool]bool{}
	for k, a := range r.Addresses {
		at := fmt.Sprintf("%s.addresses[%d]", path, k)
		switch other, duplicate := taken[a]; {
		case !a.IsValid():
			continue
		case !a.IsGlobalUnicast() || a.Is4In6() || a.Zone() != "":
			c.fail("bad-address", at, a.String()+" is not the address of a host", "")
		case duplicate:
			c.fail("duplicate-address", at, a.String()+" is router "+other+"'s too", "")
		case families[a.Is6()]:
			c.fail("two-addresses", at, "a router has one address a family", "")
		}
		taken[a], families[a.Is6()] = r.Name, true
	}
}

func (c *checker) forward(path string, r *Router) {
	used := map[int]bool{}
	for k, f := range r.Forward {
		at := fmt.Sprintf("%s.forward[%d]", path, k)
		if r.NAT == "" {
			c.fail("forward-without-nat", at, "router "+r.Name+" translates nothing, so there is nothing to forward", "give it nat: full-cone, port-restricted or symmetric")
		}
		if c.target(at+".to", f.To) && (!strings.Contains(f.To, "/") || !r.has(f.To)) {
			c.fail("not-behind", at+".to", f.To+" is no gateway behind the router", "write a node, cluster/node, that for: names by itself or by its cluster")
		}
		for _, p := range f.ports() {
			if p[0] > 65535 || p[1] > 65535 {
				c.fail("out-of-range", at+".count", "the last port is past 65535", "")
				break
			}
			if used[p[0]] {
				c.fail("duplicate-port", at+".port", fmt.Sprintf("port %d is forwarded twice", p[0]), "")
				break
			}
			used[p[0]] = true
		}
	}
}

func (c *checker) firewall(path string, r *Router) {
	for k, rule := range r.Firewall {
		at := fmt.Sprintf("%s.firewall[%d]", path, k)
		switch {
		case rule.Drop != DropUDP && (rule.Port != 0 || rule.Count != 0):
			c.fail("bad-rule", at, "only drop: udp has ports", "")
		case rule.Port == 0 && rule.Count != 0:
			c.fail("bad-rule", at+".count", "count needs a port", "")
		case rule.Port+max(rule.Count, 1)-1 > 65535:
			c.fail("out-of-range", at+".count", "the last port is past 65535", "")
		}
	}
}

func (c *checker) paths() {
	for i, p := range c.file.Paths {
		at := fmt.Sprintf("paths[%d]", i)
		c.target(at+".from", p.From)
		c.target(at+".to", p.To)
		via := c.file.Named(p.Via)
		if p.Via == "" {
			continue
		}
		if via == nil {
			c.fail("unknown-router", at+".via", fmt.Sprintf("no router %q", p.Via), "name one of routers")
			continue
		}
		if via.NAT != "" {
			c.fail("path-through-nat", at+".via", "router "+p.Via+" translates addresses, and answers would not find back", "take a router without nat")
		}
		for j := range c.file.Routers {
			if r := &c.file.Routers[j]; p.From != "" && (r.has(p.From) || slices.Contains(r.UplinkOf, p.From)) {
				c.fail("path-behind-router", at+".from", p.From+" is behind router "+r.Name+", which takes the straight way", "")
			}
		}
	}
}

// has reports whether a cluster/node is behind the router.
func (r *Router) has(target string) bool {
	cluster, _, _ := strings.Cut(target, "/")
	return slices.Contains(r.UplinkOf, target) || slices.Contains(r.UplinkOf, cluster)
}

// target checks a cluster or cluster/node, and reports whether it is valid.
func (c *checker) target(path, text string) bool {
	cluster, node, two := strings.Cut(text, "/")
	if text == "" {
		return false
	}
	if cluster == "" || two && node == "" || strings.Contains(node, "/") {
		c.fail("bad-target", path, fmt.Sprintf("%q is neither a cluster nor cluster/node", text), "")
		return false
	}
	if c.known != nil && !c.known(text) {
		what := "cluster " + cluster
		if two {
			what = "gateway on node " + node + " of cluster " + cluster
		}
		c.fail("unknown-target", path, "the topology has no "+what, "")
		return false
	}
	return true
}
