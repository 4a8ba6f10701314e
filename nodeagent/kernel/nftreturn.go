package kernel

import (
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/desired"
)

// Priorities of the chains around the routing of what came out of a tunnel: behind all
// translation, so that no mark is seen by rules of others before, and before all others
// of forward.
const (
	nftPriorityHome  = 50
	nftPriorityClear = -300
)

// Where a frame's source is known by: the last four bytes of its hardware address.
const (
	nftFrameID     = 8
	nftFrameIDSize = 4
)

// nftReturnChains lead what comes out of a tunnel, or from a gateway that this one handed the
// flow on to, back to the node that handed it to this gateway (docs/adr/0013). Conntrack's
// mark says which node that was: the last four bytes of its hardware address on NodeLink.
// Routing rules find the node by the packet's mark, which goes away again in the first
// chain of forward.
func nftReturnChains() []nftChain {
	setCtMark := func(r *nftRule) *nftRule {
		return r.add(&expr.Ct{Key: expr.CtKeyMARK, SourceRegister: true, Register: nftReg})
	}
	// A mark that somebody else gave is not touched.
	unmarked := func() *nftRule { return nftNew().load(expr.MetaKeyMARK, nftReg).equal(nftHostOrder(0)...) }
	home := nftChain{name: "home", base: nftBase("filter", unix.NF_INET_PRE_ROUTING, nftPriorityHome), rules: []*nftRule{
		nftNew().notLink(expr.MetaKeyIIFNAME, desired.DevicePrefix).goTo("begun"),
		// What is left of it comes from a gateway that this one handed the flow on to.
		nftNew().link(expr.MetaKeyIIFNAME, desired.NodeDevice).jump("handed"),
		nftNew().link(expr.MetaKeyIIFNAME, desired.SiblingDevice).accept(),
	}}
	begun, handed := nftChain{name: "begun"}, nftChain{name: "handed"}
	for _, f := range nftFamilies() {
		handed.rules = append(handed.rules, setCtMark(nftNew().family(f).daddr(f).in(desired.SetRemote, f).
			add(&expr.Payload{DestRegister: nftReg, Base: expr.PayloadBaseLLHeader, Offset: nftFrameID, Len: nftFrameIDSize})).accept())
		// A pod with the address of one that was elsewhere.
		begun.rules = append(begun.rules, setCtMark(nftNew().
			add(&expr.Ct{Key: expr.CtKeyMARK, Register: nftReg}).
			add(&expr.Cmp{Op: expr.CmpOpNeq, Register: nftReg, Data: nftHostOrder(0)}).
			family(f).daddr(f).in(desired.SetRemote, f).
			add(&expr.Immediate{Register: nftReg, Data: nftHostOrder(0)})))
		home.rules = append(home.rules, unmarked().family(f).add(&expr.Ct{Key: expr.CtKeyMARK, Register: nftReg}).
			mapped(desired.SetHomes, f).markFrom(nftReg).accept())
	}
	home.rules = append(home.rules, unmarked().
		add(&expr.Ct{Key: expr.CtKeyDIRECTION, Register: nftReg}).equal(nftCtReply).
		add(&expr.Immediate{Register: nftReg, Data: nftHostOrder(desired.MarkHome)}).markFrom(nftReg))
	begun.rules = append(begun.rules, nftNew().
		add(&expr.Ct{Key: expr.CtKeySTATE, Register: nftReg}).bits(nftHostOrder(expr.CtStateBitNEW), expr.CmpOpNeq).
		add(&expr.Ct{Key: expr.CtKeySTATUS, Register: nftReg}).bits(nftHostOrder(nftCtDNATted), expr.CmpOpNeq).jump("backends"))
	clean := nftChain{name: "clean", base: nftBase("filter", unix.NF_INET_FORWARD, nftPriorityClear), rules: []*nftRule{
		nftNew().load(expr.MetaKeyMARK, nftReg).
			add(&expr.Bitwise{
				SourceRegister: nftReg, DestRegister: nftReg, Len: 4,
				Mask: nftHostOrder(^uint32(desired.HomeDigits)), Xor: nftHostOrder(0),
			}).
			equal(nftHostOrder(desired.MarkHome)...).link(expr.MetaKeyIIFNAME, desired.DevicePrefix).
			add(&expr.Immediate{Register: nftReg, Data: nftHostOrder(0)}).markFrom(nftReg),
	}}
	return append(nftBypassChains(), handed, begun, home, clean)
}

// nftMetaIIFKind is the kind of the link that a packet came in by (NFT_META_IIFKIND).
const nftMetaIIFKind = 26

// nftShortcut is conntrack's mark of a flow to a backend of this cluster whose answer
// would not come back through this node.
const nftShortcut = 0x68770001

// nftBypassChains find the flows of clusterset IPs to pods of this cluster whose answers
// would go from pod to pod past this node, and so past its translation: the network of the
// pods has a link here that leads to the backend and from which the caller came, or by
// which the caller itself is reached though it came by another one. They get this node's
// address as source, as kube-proxy does it where it has to. A bridge is none of
// these: Kubernetes has what crosses one pass the node's rules (br_netfilter).
func nftBypassChains() []nftChain {
	backends, shortcut := nftChain{name: "backends"}, nftChain{name: "shortcut"}
	for _, f := range nftFamilies() {
		backends.rules = append(backends.rules,
			nftNew().family(f).daddr(f).in(desired.SetRemote, f).verdict(expr.VerdictReturn, ""),
			nftNew().ctOriginalDst(f, nftReg).in(desired.SetPools, f).goTo("shortcut"),
			nftNew().ctOriginalDst(f, nftReg).in(desired.SetBlocks, f).goTo("shortcut"),
		)
	}
	mark := func(r *nftRule) *nftRule {
		return r.add(&expr.Immediate{Register: nftReg, Data: nftHostOrder(nftShortcut)}).
			add(&expr.Ct{Key: expr.CtKeyMARK, SourceRegister: true, Register: nftReg})
	}
	bridge := make([]byte, unix.IFNAMSIZ)
	copy(bridge, "bridge")
	shortcut.rules = []*nftRule{
		mark(nftNew().load(nftMetaIIFKind, nftReg).add(&expr.Cmp{Op: expr.CmpOpNeq, Register: nftReg, Data: bridge}).
			add(&expr.Fib{Register: nftReg, FlagDADDR: true, FlagIIF: true, FlagPRESENT: true, ResultOIF: true}).
			equal(nftHostOrder(1)...)),
		mark(nftNew().
			add(&expr.Fib{Register: nftReg, FlagSADDR: true, FlagIIF: true, FlagPRESENT: true, ResultOIF: true}).
			equal(nftHostOrder(0)...)),
	}
	return []nftChain{shortcut, backends}
}
