package underlayspec

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Names of a router's interfaces.
const (
	Out = "out0"
	In  = "in0"
)

// mappedPorts is the port range of translated sources. Gateways listen on other ports, so the
// translation always changes their source port.
const mappedPorts = "20000-39999"

// mappingTimeout is the lifetime of a full-cone mapping without a packet (RFC 4787, REQ-5: not less
// than two minutes).
const mappingTimeout = "120s"

// Rules returns the nftables rules of the router, for nft -f in one transaction. inside has the
// addresses of the nodes behind it, by cluster/node.
func (r *Router) Rules(inside map[string][]netip.Addr) string {
	var out strings.Builder
	for _, six := range []bool{false, true} {
		family := family{name: "ip", address: "ipv4_addr", six: six}
		if six {
			family.name, family.address = "ip6", "ipv6_addr"
		}
		fmt.Fprintf(&out, "table %s lab\ndelete table %s lab\ntable %s lab {\n", family.name, family.name, family.name)
		if r.NAT != "" && r.Outside(six).IsValid() {
			r.translate(&out, family, inside)
		}
		chain(&out, "forward", "type filter hook forward priority 0", r.filter())
		out.WriteString("}\n")
	}
	return out.String()
}

type family struct {
	name, address string
	six           bool
}

func (r *Router) translate(out *strings.Builder, f family, inside map[string][]netip.Addr) {
	address := r.Outside(f.six).String()
	if f.six {
		address = "[" + address + "]"
	}
	mode := ""
	if r.NAT == Symmetric {
		// Without fully-random, the kernel would first try an existing mapping of the
		// source.
		mode = " fully-random"
	}
	to := r.forwards(f, inside)
	if r.NAT == FullCone {
		// Two maps, because nft 1.0.6 cannot store an IPv6 address and a port in one.
		for _, m := range [][2]string{{"cone", f.address}, {"coneport", "inet_service"}} {
			fmt.Fprintf(out, "  map %s { type inet_service : %s; flags dynamic,timeout; timeout %s; }\n", m[0], m[1], mappingTimeout)
		}
		to = append(to, fmt.Sprintf("iifname %q dnat %s to udp dport map @cone : udp dport map @coneport", Out, f.name))
		// After the translation, because the outer port is unknown before it.
		chain(out, "learn", "type filter hook postrouting priority 300", []string{fmt.Sprintf(
			"oifname %q meta l4proto udp ct direction original "+
				"update @cone { ct reply proto-dst : ct original %s saddr } update @coneport { ct reply proto-dst : ct original proto-src }",
			Out, f.name)})
	}
	chain(out, "prerouting", "type nat hook prerouting priority -100", to)
	chain(out, "postrouting", "type nat hook postrouting priority 100", []string{
		fmt.Sprintf("oifname %q meta l4proto udp snat to %s:%s%s", Out, address, mappedPorts, mode),
		fmt.Sprintf("oifname %q snat to %s", Out, strings.Trim(address, "[]")),
	})
	// Like most routers, it does not reply to TCP or UDP itself.
	chain(out, "input", "type filter hook input priority 0", []string{fmt.Sprintf("iifname %q meta l4proto { tcp, udp } drop", Out)})
}

// forwards returns the rules of the port forwards.
func (r *Router) forwards(f family, inside map[string][]netip.Addr) []string {
	var elements []string
	for _, forward := range r.Forward {
		addrs := inside[forward.To]
		i := slices.IndexFunc(addrs, func(a netip.Addr) bool { return a.Is6() == f.six })
		if i < 0 {
			continue
		}
		for _, p := range forward.ports() {
			elements = append(elements, fmt.Sprintf("%d : %s . %d", p[0], addrs[i], p[1]))
		}
	}
	if len(elements) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("iifname %q dnat %s to udp dport map { %s }", Out, f.name, strings.Join(elements, ", "))}
}

// filter returns the rules for forwarded packets.
func (r *Router) filter() []string {
	var out []string
	for _, rule := range r.Firewall {
		for _, from := range rule.directions() {
			out = append(out, from+rule.match()+" drop")
		}
	}
	if r.NAT != "" {
		out = append(out, fmt.Sprintf("iifname %q ct state new ct status & dnat == 0 drop", Out))
	}
	return out
}

func (r Rule) directions() []string {
	in, out := fmt.Sprintf("iifname %q oifname %q ", Out, In), fmt.Sprintf("iifname %q oifname %q ", In, Out)
	switch r.Direction {
	case DirectionIn:
		return []string{in}
	case DirectionOut:
		return []string{out}
	}
	return []string{""} // also matches packets from outside to outside
}

func (r Rule) match() string {
	switch {
	case r.Drop == DropICMP:
		return "meta l4proto { icmp, ipv6-icmp }"
	case r.Drop == DropNew:
		return "ct state new"
	case r.Port == 0:
		return "meta l4proto udp"
	}
	return "udp dport " + r.ports()
}

// IsolationRules returns the bridge rules that isolate segments. They do not apply to packets from
// the ports inside, which come from behind a router.
func (f *File) IsolationRules(inside []string) []string {
	var out []string
	match := ""
	if len(inside) > 0 {
		match = fmt.Sprintf("iifname != { %s } ", strings.Join(inside, ", "))
	}
	for _, s := range f.Segments {
		for _, six := range []bool{false, true} {
			var inside []string
			for _, p := range s.CIDRs {
				if p.Addr().Is6() == six {
					inside = append(inside, p.String())
				}
			}
			name := "ip"
			if six {
				name = "ip6"
			}
			if len(inside) > 0 {
				set := strings.Join(inside, ", ")
				out = append(out,
					fmt.Sprintf("%s%s saddr { %s } %s daddr != { %s } drop", match, name, set, name, set),
					fmt.Sprintf("%s%s daddr { %s } %s saddr != { %s } drop", match, name, set, name, set))
			}
		}
	}
	return out
}

func chain(out *strings.Builder, name, hook string, rules []string) {
	fmt.Fprintf(out, "  chain %s {\n    %s\n", name, hook)
	for _, rule := range rules {
		fmt.Fprintf(out, "    %s\n", rule)
	}
	out.WriteString("  }\n")
}
