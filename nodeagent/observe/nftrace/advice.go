package nftrace

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/status"
)

// explainDrop explains the end of a trace and suggests a fix. blocks are the prefixes by which this
// cluster knows other clusters.
func explainDrop(t *flowTrace, blocks []netip.Prefix) status.Finding {
	f := status.Finding{Location: t.lastRule.String()}
	switch {
	case t.end == Queued:
		f.Kind = status.FindingQueued
		f.Text = "queued to a program (NFQUEUE) and not seen again"
		f.Next = "check that the program on this node accepts packets of the clusterset's addresses"
	case t.end != Dropped:
		f.Kind = status.FindingLost
		f.Text = "not seen after this rule: no rule of nftables dropped it"
		f.Next = "check what nftables does not show: eBPF programs of the CNI (see its own policy tool), rules of iptables-legacy, " +
			"rp_filter (sysctl net.ipv4.conf.all.rp_filter), a missing route (ip route get)"
	case t.lastRule.Family == "inet" && t.lastRule.Table == desired.TableName:
		f.Kind = status.FindingOwn
		if i := slices.IndexFunc(desired.Drops(), func(d desired.Drop) bool { return d.Chain() == t.lastRule.Chain }); i >= 0 {
			d := desired.Drops()[i]
			f.Text, f.Next = "dropped by Hawser itself ("+d.Reason+"): "+d.Doc, d.Do
			break
		}
		f.Text = "dropped by Hawser itself: the topology does not allow this client to reach that address"
		f.Next = "check exports[].allow in the topology; Hawser also drops packets to addresses that are neither an export nor a pod of a flat cluster"
	default:
		f.Kind = status.FindingForeign
		name, advice := owner(t.lastRule)
		if advice == policy {
			advice = fmt.Sprintf(policy, blockText(t, blocks))
		}
		f.Text = "dropped by " + name + ", not by Hawser"
		f.Next = advice + "; nft -a list chain " + t.lastRule.Family + " " + t.lastRule.Table + " " + t.lastRule.Chain + " shows the rule"
	}
	return f
}

// policy is the advice if a NetworkPolicy dropped the packet; %s is the prefix to admit.
const policy = "let the NetworkPolicies that select this pod admit the other cluster: ipBlock %s, in ingress as the source or in egress " +
	"as the destination"

// blockText returns the prefix in blocks that contains the source or destination of the dropped
// packet. If no prefix does, it returns a description of such prefixes.
func blockText(t *flowTrace, blocks []netip.Prefix) string {
	for _, f := range []*Flow{t.last, t.flow} {
		if f == nil {
			continue
		}
		for _, a := range []netip.Addr{f.From.Addr(), f.To.Addr()} {
			if i := slices.IndexFunc(blocks, func(p netip.Prefix) bool { return p.Contains(a) }); i >= 0 {
				return blocks[i].String()
			}
		}
	}
	return "of its global addresses, or of its podCIDRs if it is flat"
}

// owner returns the program that usually owns the chain of a rule, and the advice.
func owner(p RuleRef) (name, advice string) {
	// The first match wins. The names are from the source code of these projects.
	const proxy = "kube-proxy's rules drop packets that connection tracking classifies as invalid, usually after asymmetric routing; " +
		"check hawser-agent status on both nodes"
	const firewall = "let it forward the clusterset's addresses"
	for _, known := range []chainOwner{
		{"", "cali", "Calico", policy},
		{"calico", "", "Calico", policy},
		{"kube-network-policies", "", "kube-network-policies", policy},
		{"kindnet", "", "kindnet's NetworkPolicy", policy},
		{"", "KUBE-NWPLCY", "kube-router's NetworkPolicy", policy},
		{"", "KUBE-POD-FW", "kube-router's NetworkPolicy", policy},
		{"", "WEAVE-NPC", "Weave's NetworkPolicy", policy},
		{"", "ANTREA", "Antrea", policy},
		{"antrea", "", "Antrea", policy},
		{"", "CILIUM", "Cilium", policy},
		{"", "KUBE-", "kube-proxy or the kubelet", proxy},
		{"kube-proxy", "", "kube-proxy", proxy},
		{"firewalld", "", "firewalld", firewall + ": firewall-cmd --zone=trusted --add-interface=hw-vx0, and the pods' sources"},
		{"", "ufw", "ufw", firewall + ": ufw route allow"},
		{"", "DOCKER", "Docker", firewall + ": rules in DOCKER-USER"},
		{"filter", "FORWARD", "a firewall of iptables", firewall + ", or set the policy of FORWARD to ACCEPT, as nodes that route for pods need it"},
		{"filter", "INPUT", "a firewall of iptables", "let it accept packets to the node's own clusterset addresses"},
	} {
		if strings.HasPrefix(p.Chain, known.chain) && strings.HasPrefix(p.Table, known.table) {
			return known.name, known.advice
		}
	}
	return "another program", "let the firewall or NetworkPolicy that owns the rule accept the clusterset's addresses"
}

// chainOwner describes the owner of chains whose name and table have these prefixes.
type chainOwner struct{ table, chain, name, advice string }
