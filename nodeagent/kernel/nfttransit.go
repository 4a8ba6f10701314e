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
	outer := func(key expr.MetaKey) *nftRule {
		return untracked(nftNew().dport(unix.IPPROTO_UDP, desired.TransitPort).tunnel(key))
	}
	// Only between nodes: other hosts may use the port, and may have a translated address.
	between := func(f nftFamily) *nftRule {
		return untracked(nftNew().dport(unix.IPPROTO_UDP, desired.VXLANPort).family(f).
			saddr(f).in(desired.SetNodes, f).daddr(f).in(desired.SetNodes, f)).accept()
	}
	in := nftChain{name: "raw_prerouting", base: nftBase("filter", unix.NF_INET_PRE_ROUTING, nftPriorityRaw)}
	out := nftChain{name: "raw_output", base: nftBase("filter", unix.NF_INET_LOCAL_OUT, nftPriorityRaw)}
	for _, f := range nftFamilies() {
		in.rules, out.rules = append(in.rules, between(f)), append(out.rules, between(f))
	}
	in.rules = append(in.rules, nftNew().ownDevice(expr.MetaKeyIIFNAME, desired.NodeDevice).goTo("raw_tunnel"))
	out.rules = append(out.rules, outer(expr.MetaKeyOIFNAME))
	inside := nftChain{name: "raw_tunnel", rules: []*nftRule{outer(expr.MetaKeyIIFNAME)}}
	for _, f := range nftFamilies() {
		inside.rules = append(inside.rules,
			untracked(nftNew().family(f).link(expr.MetaKeyIIFNAME, desired.TransitPrefix).daddr(f).in(desired.SetTransit, f)),
			untracked(nftNew().family(f).link(expr.MetaKeyIIFNAME, desired.SiblingDevice).daddr(f).notIn(desired.SetTunnels, f)),
		)
	}
	return []nftChain{inside, in, out}
}

// nftTransitForward accepts transit traffic from tunnel to tunnel, and to and from the other
// gateways of the cluster. Only transit traffic uses the link to these gateways. All other
// traffic from tunnel to tunnel is dropped.
func nftTransitForward() nftChain {
	pass := func(from, to string) *nftRule {
		return nftNew().link(expr.MetaKeyIIFNAME, from).link(expr.MetaKeyOIFNAME, to).
			add(&expr.Ct{Key: expr.CtKeySTATE, Register: nftReg}).bits(nftHostOrder(expr.CtStateBitUNTRACKED), expr.CmpOpNeq).accept()
	}
	return nftChain{name: "transit", rules: []*nftRule{
		pass(desired.TransitPrefix, desired.TransitPrefix),
		pass(desired.TransitPrefix, desired.SiblingDevice),
		pass(desired.SiblingDevice, desired.TransitPrefix),
		nftNew().dropAs(desired.DropTransit),
	}}
}

// nftSplitHorizon drops transit packets from a neighbour's gateway that would have to go
// back to the same neighbour.
func nftSplitHorizon(f, inner nftFamily) *nftRule {
	return nftNew().transport(nftInnerType, 2, nftReg).equal(nftNetOrder16(inner.etherType)...).
		saddr(f).transport(nftInnerIP+inner.dst, inner.size, f.behind(0)).in(inner.splitHorizonIn, f).drop()
}
