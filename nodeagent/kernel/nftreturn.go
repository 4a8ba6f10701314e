package kernel

import (
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/desired"
)

// Priorities of the chains around the routing of packets from tunnels. The first is after all
// translation, so earlier rules of other programs never see the mark. The second is before all
// other forward chains.
const (
	nftPriorityReturn = 50
	nftPriorityClear  = -300
)

// The position of the last four bytes of a frame's source hardware address, which identify the
// sender.
const (
	nftFrameID     = 8
	nftFrameIDSize = 4
)

// nftReturnChains lead packets back to the node that handed their flow to this gateway
// (docs/adr/0013). Such packets come from a tunnel, or from a gateway to which this one handed the
// flow. The conntrack mark identifies that node by the last four bytes of its hardware address on
// NodeDevice. Routing rules select the node by the packet's mark, which the first forward chain
// clears.
func nftReturnChains() []nftChain {
	setCtMark := func(r *nftRule) *nftRule {
		return r.add(&expr.Ct{Key: expr.CtKeyMARK, SourceRegister: true, Register: nftReg})
	}
	// A mark that another program set is not changed.
	unmarked := func() *nftRule { return newRule().load(expr.MetaKeyMARK, nftReg).equal(nftHostOrder(0)...) }
	returnPath := nftChain{name: "return_path", base: nftHook("filter", unix.NF_INET_PRE_ROUTING, nftPriorityReturn), rules: []*nftRule{
		newRule().notIfname(expr.MetaKeyIIFNAME, desired.DevicePrefix).goTo("non_tunnel"),
		// The remaining packets come from a gateway to which this one handed over the flow.
		newRule().ifname(expr.MetaKeyIIFNAME, desired.NodeDevice).jump("mark_node"),
		newRule().ifname(expr.MetaKeyIIFNAME, desired.SiblingDevice).accept(),
	}}
	nonTunnel, markNode := nftChain{name: "non_tunnel"}, nftChain{name: "mark_node"}
	for _, f := range nftFamilies() {
		// A node handed over the packet without VXLAN. The mark is the same as in
		// mark_node.
		nonTunnel.rules = append(nonTunnel.rules, newRule().loadSender(f).family(f).daddr(f).in(desired.SetRemote, f).
			add(&expr.Ct{Key: expr.CtKeyMARK, SourceRegister: true, Register: nftRegSpare}).accept())
		markNode.rules = append(markNode.rules, setCtMark(newRule().family(f).daddr(f).in(desired.SetRemote, f).
			add(&expr.Payload{DestRegister: nftReg, Base: expr.PayloadBaseLLHeader, Offset: nftFrameID, Len: nftFrameIDSize})).accept())
		// Clear the mark of a local pod's flow: the pod's address may have belonged to a
		// pod of another node.
		nonTunnel.rules = append(nonTunnel.rules, setCtMark(newRule().
			add(&expr.Ct{Key: expr.CtKeyMARK, Register: nftReg}).
			add(&expr.Cmp{Op: expr.CmpOpNeq, Register: nftReg, Data: nftHostOrder(0)}).
			family(f).daddr(f).in(desired.SetRemote, f).
			add(&expr.Immediate{Register: nftReg, Data: nftHostOrder(0)})))
		returnPath.rules = append(returnPath.rules, unmarked().family(f).add(&expr.Ct{Key: expr.CtKeyMARK, Register: nftReg}).
			lookup(desired.SetNodeMarks, f).setMark(nftReg).accept())
	}
	returnPath.rules = append(returnPath.rules, unmarked().
		add(&expr.Ct{Key: expr.CtKeyDIRECTION, Register: nftReg}).equal(nftCtReply).
		add(&expr.Immediate{Register: nftReg, Data: nftHostOrder(desired.MarkReturn)}).setMark(nftReg))
	nonTunnel.rules = append(nonTunnel.rules, newRule().
		add(&expr.Ct{Key: expr.CtKeySTATE, Register: nftReg}).bits(nftHostOrder(expr.CtStateBitNEW), expr.CmpOpNeq).
		add(&expr.Ct{Key: expr.CtKeySTATUS, Register: nftReg}).bits(nftHostOrder(nftCtDNATted), expr.CmpOpNeq).jump("backends"))
	clearMark := nftChain{name: "clear_mark", base: nftHook("filter", unix.NF_INET_FORWARD, nftPriorityClear), rules: []*nftRule{
		newRule().load(expr.MetaKeyMARK, nftReg).
			add(&expr.Bitwise{
				SourceRegister: nftReg, DestRegister: nftReg, Len: 4,
				Mask: nftHostOrder(^uint32(desired.ReturnDigits)), Xor: nftHostOrder(0),
			}).
			equal(nftHostOrder(desired.MarkReturn)...).ifname(expr.MetaKeyIIFNAME, desired.DevicePrefix).
			add(&expr.Immediate{Register: nftReg, Data: nftHostOrder(0)}).setMark(nftReg),
	}}
	return append(nftBypassChains(), markNode, nonTunnel, returnPath, clearMark)
}

// nftHandedOver matches a flow that another node handed over.
func nftHandedOver(f nftFamily) *nftRule {
	return newRule().family(f).add(&expr.Ct{Key: expr.CtKeyMARK, Register: nftReg}).in(desired.SetNodeMarks, f)
}

// nftMetaIIFKind is the kind of the device that a packet came in by (NFT_META_IIFKIND).
const nftMetaIIFKind = 26

// nftMasqueradeMark is the conntrack mark of a flow to a backend of this cluster whose replies
// would bypass this node.
const nftMasqueradeMark = 0x68770001

// nftBypassChains match flows to clusterset IPs whose backend is a pod of this cluster, if the
// replies would go directly from pod to pod. Such replies bypass this node and its translation. A
// pod network of this kind has a device here that leads to the backend. Either the caller's packet
// came in by that device, or that device leads to the caller although its packet came in by
// another. These flows get this node's address as source, as in kube-proxy. Bridges are excluded:
// Kubernetes requires that bridged packets pass the node's rules (br_netfilter).
func nftBypassChains() []nftChain {
	backends, masquerade := nftChain{name: "backends"}, nftChain{name: "mark_masquerade"}
	for _, f := range nftFamilies() {
		backends.rules = append(backends.rules,
			newRule().family(f).daddr(f).in(desired.SetRemote, f).verdict(expr.VerdictReturn, ""),
			newRule().ctOriginalDst(f, nftReg).in(desired.SetPools, f).goTo("mark_masquerade"),
			newRule().ctOriginalDst(f, nftReg).in(desired.SetBlocks, f).goTo("mark_masquerade"),
		)
	}
	setMasqueradeMark := func(r *nftRule) *nftRule {
		return r.add(&expr.Immediate{Register: nftReg, Data: nftHostOrder(nftMasqueradeMark)}).
			add(&expr.Ct{Key: expr.CtKeyMARK, SourceRegister: true, Register: nftReg})
	}
	bridge := make([]byte, unix.IFNAMSIZ)
	copy(bridge, "bridge")
	masquerade.rules = []*nftRule{
		setMasqueradeMark(newRule().load(nftMetaIIFKind, nftReg).add(&expr.Cmp{Op: expr.CmpOpNeq, Register: nftReg, Data: bridge}).
			add(&expr.Fib{Register: nftReg, FlagDADDR: true, FlagIIF: true, FlagPRESENT: true, ResultOIF: true}).
			equal(nftHostOrder(1)...)),
		setMasqueradeMark(newRule().
			add(&expr.Fib{Register: nftReg, FlagSADDR: true, FlagIIF: true, FlagPRESENT: true, ResultOIF: true}).
			equal(nftHostOrder(0)...)),
	}
	return []nftChain{masquerade, backends}
}
