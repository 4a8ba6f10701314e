package projection

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"

	"hawser.dev/hawser/internal/stablehash"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// addEgress adds the elements that select the source address of packets into a tunnel. Only
// gateways have them.
func (v *builder) addEgress() {
	for _, a := range v.gateway.Addresses {
		v.elements.addr(desired.SetTunnels, a, netip.Addr{}, v.gatewayPath())
	}
	// The first element with a key wins, so this order is the precedence: pod selector,
	// headless pod, namespace.
	v.addEgressRules(true)
	if v.self.Globalnet {
		v.addHeadlessEgress()
	}
	v.addEgressRules(false)
	v.addKeepSource()
	if v.self.Globalnet && v.self.EgressMode == fabric.EgressMapped {
		origin := clusterPath(v.self.Name) + ".globalCIDR"
		for _, m := range v.self.Mappings {
			pods, global := m.Pods.Masked(), m.Global.Masked()
			v.elements.prefix(desired.SetMapped, pods, global, origin)
			v.elements.prefix(desired.SetUnmapped, global, pods, origin)
			v.elements.prefix(desired.SetPodBlocks, global, netip.Prefix{}, origin)
		}
	}
	v.addShared()
}

// addEgressRules applies the rules with a pod selector, or the rules for a whole namespace. It
// ignores pods on the host network, because their address is the node's.
func (v *builder) addEgressRules(selector bool) {
	rules := slices.Clone(v.self.EgressRules)
	slices.SortFunc(rules, func(a, b fabric.EgressRule) int { return cmp.Compare(a.Name, b.Name) })
	claimed := map[string]string{}
	for i := range rules {
		rule := &rules[i]
		if (len(rule.MatchLabels) > 0) != selector {
			continue
		}
		origin := clusterPath(v.self.Name) + ".egress[" + rule.Name + "]"
		matched := false
		for j := range v.in.Facts.Pods {
			pod := &v.in.Facts.Pods[j]
			if pod.HostNetwork || !matches(rule, pod) {
				continue
			}
			matched = true
			id := pod.Namespace + "/" + pod.Name
			if other, taken := claimed[id]; taken {
				v.problem(origin, status.EgressAmbiguous, "pod "+id+" also matches "+other+", which takes precedence")
				continue
			}
			claimed[id] = rule.Name
			// Every gateway chooses the same address.
			for _, a := range pod.Addrs {
				if ip, ok := fixedChoice(id, rule.IPs, fabric.Family(a)); ok {
					v.elements.addr(desired.SetEgress, a, ip, origin)
				}
			}
		}
		if !matched {
			v.problem(origin, status.EgressNoMatch, "no pod of namespace "+rule.Namespace+" matches")
		}
	}
}

func matches(rule *fabric.EgressRule, pod *model.Pod) bool {
	if pod.Namespace != rule.Namespace {
		return false
	}
	for k, want := range rule.MatchLabels {
		if have, exists := pod.Labels[k]; !exists || have != want {
			return false
		}
	}
	return true
}

// fixedChoice returns the address of a family with the highest rendezvous hash for an identity.
func fixedChoice(identity string, ips []netip.Addr, fam int) (netip.Addr, bool) {
	var best netip.Addr
	var top uint64
	for _, ip := range ips {
		if fabric.Family(ip) != fam {
			continue
		}
		if score := stablehash.Mix64(stablehash.Sum64(identity + "\n" + ip.String())); !best.IsValid() || score > top {
			best, top = ip, score
		}
	}
	return best, best.IsValid()
}

// addHeadlessEgress sets the source of a headless pod's packets to the pod's fixed global address.
// It also delivers packets for that address to the pod.
func (v *builder) addHeadlessEgress() {
	for _, e := range v.exports {
		part := e.ClusterPart(v.self.Name)
		if e.Type != fabric.Headless || part == nil {
			continue
		}
		origin := exportPath(e.ID(), v.self.Name)
		for _, m := range members(part, v.services[e.ID()]) {
			if m.host == nil {
				continue
			}
			for _, ip := range m.host.IPs {
				if !v.self.IsGlobalnet(fabric.Family(ip)) {
					continue
				}
				if a, ok := ofFamily(m.Addrs, fabric.Family(ip)); ok && !v.isNode(a) {
					v.elements.addr(desired.SetEgress, a, ip, origin)
					v.elements.addr(desired.SetOwners, ip, a, origin)
				}
			}
		}
	}
}

// addKeepSource adds the pod prefixes of a flat cluster, whose packets keep their source address.
// It omits a prefix that another cluster uses as well, because that cluster could not reply.
func (v *builder) addKeepSource() {
	origin := clusterPath(v.self.Name)
	for _, p := range disjoint(v.self.PodCIDRs) {
		if v.self.IsGlobalnet(fabric.Family(p.Addr())) {
			continue
		}
		if r := v.overlappingCluster(p); r != "" {
			v.problem(origin+".podCIDRs", status.SourceTranslated, p.String()+" is used in "+r+" too, so its pods go out with egress addresses")
			continue
		}
		v.elements.prefix(desired.SetKeepSource, p, netip.Prefix{}, origin+".podCIDRs")
	}
}

// overlappingCluster returns the name of the first other cluster that uses addresses of a
// prefix.
func (v *builder) overlappingCluster(p netip.Prefix) string {
	for _, r := range v.remotes {
		if overlapsAny(p, r.PodCIDRs) || overlapsAny(p, r.ServiceCIDRs) {
			return r.Name
		}
	}
	return ""
}

// addShared assigns one of the cluster's egress addresses to each other source. A flat cluster
// needs them too, because other clusters cannot reach its nodes' own addresses.
func (v *builder) addShared() {
	for _, fam := range []int{4, 6} {
		var backends []Backend
		var values []string
		for _, ip := range v.self.EgressIPs {
			if fabric.Family(ip) == fam {
				backends = append(backends, Backend{Key: ip.String(), Weight: 1})
				values = append(values, ip.String())
			}
		}
		if len(backends) == 0 {
			continue
		}
		for slot, i := range Slots(desired.SharedSlots, backends) {
			v.elements.add(desired.Element{
				Set: desired.SetShared, Family: fam, ID: strconv.Itoa(slot), Value: values[i],
				Origin: clusterPath(v.self.Name) + ".egressIPs",
			})
		}
	}
}
