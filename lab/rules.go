package lab

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// rules returns the nftables rules of a node, for nft -f in one transaction: ClusterIPs like
// kube-proxy, and masquerading of packets to other networks like CNIs. They have their own tables,
// at the priorities of those programs (dstnat -100, srcnat 100).
func rules(n *node, services []service) string {
	var out strings.Builder
	for _, f := range []ruleFamily{{"ip", false}, {"ip6", true}} {
		pods, ranges := f.of(n.clusterPodCIDRs), f.of(n.services)
		fmt.Fprintf(&out, "table %s lab\ndelete table %s lab\n", f.name, f.name)
		if len(pods) == 0 {
			continue
		}
		dnat, reject, hairpin := f.services(n, services)
		fmt.Fprintf(&out, "table %s lab {\n", f.name)
		chain(&out, "services", "", dnat)
		chain(&out, "prerouting", "type nat hook prerouting priority -100", []string{"jump services"})
		chain(&out, "output", "type nat hook output priority -100", []string{"jump services"})
		chain(&out, "noendpoints", "", reject)
		chain(&out, "forward", "type filter hook forward priority 0", []string{"jump noendpoints"})
		chain(&out, "local", "type filter hook output priority 0", []string{"jump noendpoints"})
		chain(&out, "strangers", "", f.masqueradeUnless("saddr", pods))
		chain(&out, "leaving", "", f.masqueradeUnless("daddr", slices.Concat(pods, ranges)))
		chain(&out, "postrouting", "type nat hook postrouting priority 100", f.masquerade(pods, ranges, hairpin))
		out.WriteString("}\n")
	}
	return out.String()
}

func chain(out *strings.Builder, name, hook string, rules []string) {
	fmt.Fprintf(out, "  chain %s {\n", name)
	if hook != "" {
		fmt.Fprintf(out, "    %s\n", hook)
	}
	for _, rule := range rules {
		fmt.Fprintf(out, "    %s\n", rule)
	}
	out.WriteString("  }\n")
}

type ruleFamily struct {
	name string // name of the table and of the header matches
	six  bool
}

func (f ruleFamily) of(prefixes []netip.Prefix) []string {
	var out []string
	for _, p := range prefixes {
		if p.Addr().Is6() == f.six {
			out = append(out, p.String())
		}
	}
	return out
}

func (f ruleFamily) addr(addrs []netip.Addr) (netip.Addr, bool) {
	i := slices.IndexFunc(addrs, func(a netip.Addr) bool { return a.Is6() == f.six })
	if i < 0 {
		return netip.Addr{}, false
	}
	return addrs[i], true
}

// services returns the rules that translate each ClusterIP and port to a ready endpoint, and reject
// packets to services without one. With internalTrafficPolicy Local, only endpoints on the node
// count. If the node has none, packets are dropped, like in kube-proxy. With sessionAffinity, the
// client's address selects the endpoint.
func (f ruleFamily) services(n *node, services []service) (dnat, reject, hairpin []string) {
	for _, svc := range services {
		vip, ok := f.addr(svc.addrs)
		if !ok {
			continue
		}
		for _, port := range svc.Spec.Ports {
			protocol := strings.ToLower(cmp.Or(string(port.Protocol), "TCP"))
			match := fmt.Sprintf("%s daddr %s %s dport %d", f.name, vip, protocol, port.Port)
			var targets []string
			elsewhere := false
			for _, b := range svc.backends {
				addr, number := f.target(b, port.Name, int(port.Port))
				if number == 0 {
					continue
				}
				if ptr.Deref(svc.Spec.InternalTrafficPolicy, "") == corev1.ServiceInternalTrafficPolicyLocal && b.pod.node != n.name {
					elsewhere = true
					continue
				}
				targets = append(targets, fmt.Sprintf("%d : %s . %d", len(targets), addr, number))
				hairpin = append(hairpin, fmt.Sprintf("%s . %s", addr, addr))
			}
			switch {
			case len(targets) == 0 && elsewhere:
				reject = append(reject, match+" drop")
				continue
			case len(targets) == 0:
				reject = append(reject, match+" reject")
				continue
			}
			by := "numgen random"
			if svc.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
				by = "jhash " + f.name + " saddr"
			}
			dnat = append(dnat, fmt.Sprintf("%s dnat to %s mod %d map { %s }", match, by, len(targets), strings.Join(targets, ", ")))
		}
	}
	slices.Sort(hairpin)
	return dnat, reject, slices.Compact(hairpin)
}

// target returns the address and port of a backend. The port is 0 if the backend is not ready or
// does not serve the port.
func (f ruleFamily) target(b backend, name string, port int) (netip.Addr, int) {
	addr, ok := f.addr(b.pod.addrs)
	if !ok || !b.ready {
		return addr, 0
	}
	for _, p := range b.ports {
		if p.Name == name && p.Port == port {
			return addr, p.Target
		}
	}
	return addr, 0
}

// masqueradeUnless returns rules that exclude packets with an address in any of the prefixes from
// masquerading. They compare prefix by prefix, without a set: during a replacement of the table,
// packets in flight see the old table's sets empty, and would be masqueraded.
func (f ruleFamily) masqueradeUnless(field string, prefixes []string) []string {
	var out []string
	for _, p := range prefixes {
		out = append(out, fmt.Sprintf("%s %s %s return", f.name, field, p))
	}
	return append(out, "masquerade")
}

func (f ruleFamily) masquerade(pods, ranges, hairpin []string) []string {
	var out []string
	if len(hairpin) > 0 {
		out = append(out, fmt.Sprintf("ct status dnat %s saddr . %s daddr { %s } masquerade", f.name, f.name, strings.Join(hairpin, ", ")))
	}
	for _, services := range ranges {
		// Like kube-proxy with --cluster-cidr: replies to clients that are not pods pass
		// through this node.
		out = append(out, fmt.Sprintf("ct status dnat ct original %s daddr %s jump strangers", f.name, services))
	}
	for _, p := range pods {
		out = append(out, fmt.Sprintf("%s saddr %s jump leaving", f.name, p))
	}
	return out
}
