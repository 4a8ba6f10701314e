package kernel

import (
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/desired"
)

// nftPriorityRaw is before connection tracking.
const nftPriorityRaw = -300

// nftTransitNoTrackChains exclude transit traffic from connection tracking, and so from all
// NAT: this gateway sees one direction only, and the addresses belong to other clusters. The
// overlay of a tunnel and the VXLAN between nodes are not tracked either. Each inner flow has
// its own source port there. Conntrack would hold an entry per direction on both nodes and
// never see a reply.
func nftTransitNoTrackChains() []nftChain {
	untracked := func(r *nftRule) *nftRule { return r.add(&expr.Notrack{}) }
	transitVXLAN := func(key expr.MetaKey) *nftRule {
		return untracked(newRule().dport(unix.IPPROTO_UDP, desired.TransitPort).tunnel(key))
	}
	// Only between nodes: other hosts may use the port, and may have a translated address.
	betweenNodes := func(f nftFamily) *nftRule {
		return untracked(newRule().dport(unix.IPPROTO_UDP, desired.VXLANPort).family(f).
			saddr(f).in(desired.SetNodes, f).daddr(f).in(desired.SetNodes, f)).accept()
	}
	prerouting := nftChain{name: "raw_prerouting", base: nftHook("filter", unix.NF_INET_PRE_ROUTING, nftPriorityRaw)}
	output := nftChain{name: "raw_output", base: nftHook("filter", unix.NF_INET_LOCAL_OUT, nftPriorityRaw)}
	for _, f := range nftFamilies() {
		prerouting.rules = append(prerouting.rules, betweenNodes(f))
		output.rules = append(output.rules, betweenNodes(f))
	}
	prerouting.rules = append(prerouting.rules, newRule().ownDevice(expr.MetaKeyIIFNAME, desired.NodeDevice).goTo("raw_tunnel"))
	output.rules = append(output.rules, transitVXLAN(expr.MetaKeyOIFNAME))
	fromTunnels := nftChain{name: "raw_tunnel", rules: []*nftRule{transitVXLAN(expr.MetaKeyIIFNAME)}}
	for _, f := range nftFamilies() {
		fromTunnels.rules = append(fromTunnels.rules,
			untracked(newRule().family(f).ifname(expr.MetaKeyIIFNAME, desired.TransitDevicePrefix).daddr(f).in(desired.SetNoTrack, f)),
			untracked(newRule().family(f).ifname(expr.MetaKeyIIFNAME, desired.SiblingDevice).daddr(f).notIn(desired.SetTunnels, f)),
		)
	}
	return []nftChain{fromTunnels, prerouting, output}
}

// nftTransitForward accepts transit traffic from tunnel to tunnel, and to and from the other
// gateways of the cluster. Only transit traffic uses the link to these gateways. All other
// traffic from tunnel to tunnel is dropped.
func nftTransitForward() nftChain {
	acceptUntracked := func(from, to string) *nftRule {
		return newRule().ifname(expr.MetaKeyIIFNAME, from).ifname(expr.MetaKeyOIFNAME, to).
			add(&expr.Ct{Key: expr.CtKeySTATE, Register: nftReg}).bits(nftHostOrder(expr.CtStateBitUNTRACKED), expr.CmpOpNeq).accept()
	}
	return nftChain{name: "transit", rules: []*nftRule{
		acceptUntracked(desired.TransitDevicePrefix, desired.TransitDevicePrefix),
		acceptUntracked(desired.TransitDevicePrefix, desired.SiblingDevice),
		acceptUntracked(desired.SiblingDevice, desired.TransitDevicePrefix),
		newRule().dropAs(desired.DropTransit),
	}}
}

// nftSplitHorizonRule drops transit packets from a neighbour's gateway that would have to go
// back to the same neighbour.
func nftSplitHorizonRule(f, inner nftFamily) *nftRule {
	return newRule().transport(nftInnerType, 2, nftReg).equal(nftNetOrder16(inner.etherType)...).
		saddr(f).transport(nftInnerIP+inner.dst, inner.size, f.regAfter(0)).in(inner.splitHorizonIn, f).drop()
}
