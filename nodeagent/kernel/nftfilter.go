package kernel

import (
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/desired"
)

// TCP flags in their header byte, and bits of conntrack states and statuses
// (nf_conntrack_common.h).
const (
	nftSyn        = 0x02
	nftSynOrRst   = 0x06
	nftCtOriginal = 0      // IP_CT_DIR_ORIGINAL
	nftCtReply    = 1      // IP_CT_DIR_REPLY
	nftCtDNATted  = 1 << 5 // IPS_DST_NAT
	nftTCPOptMSS  = 2      // the option's kind, and the offset of its value
)

func nftFilterChains(t desired.Table) []nftChain {
	outgoing := nftChain{name: "outgoing", base: nftHook("filter", unix.NF_INET_LOCAL_OUT, nftPriorityFilter)}
	input := nftChain{name: "input", base: nftHook("filter", unix.NF_INET_LOCAL_IN, nftPriorityFilter)}
	outgoing.rules = append(outgoing.rules, nftRequireESP(expr.MetaKeyOIFNAME))
	// Transit traffic arrives from tunnels only: its outer addresses are tunnel addresses,
	// which have no meaning outside.
	port := func() *nftRule { return newRule().dport(unix.IPPROTO_UDP, desired.TransitPort) }
	input.rules = []*nftRule{
		port().notIfname(expr.MetaKeyIIFNAME, desired.DevicePrefix).drop(),
		port().ifname(expr.MetaKeyIIFNAME, desired.NodeDevicePrefix).drop(),
		nftRequireESP(expr.MetaKeyIIFNAME),
	}
	for _, f := range nftFamilies() {
		outgoing.rules = append(outgoing.rules,
			// This host sends no redirects into tunnels: transit packets may leave by
			// the device they came from, and the topology decides their path.
			newRule().icmpType(f, f.redirect).ifname(expr.MetaKeyOIFNAME, desired.DevicePrefix).drop(),
			// VXLAN to other clusters is counted.
			newRule().family(f).l4proto(unix.IPPROTO_UDP).daddr(f).transport(2, 2, f.regAfter(0)).
				add(&expr.Lookup{SourceRegister: nftReg, SetName: desired.SetSent + f.digit}),
		)
		input.rules = append(input.rules,
			// Packets from the previous endpoint of a WireGuard peer, for
			// nftOldEndpointTime.
			newRule().family(f).l4proto(unix.IPPROTO_UDP).saddr(f).transport(0, 2, f.regAfter(0)).
				in(desired.SetOldEndpoints, f).dropAs(desired.DropOldEndpoint),
			newRule().family(f).l4proto(unix.IPPROTO_UDP).transport(2, 2, nftReg).in(desired.SetOverlays, f).jump("overlay"+f.digit),
			nftFromConnected(f).dropAs(desired.DropConnected),
			// Packets from a remote gateway through ESP that are not VXLAN: all other
			// filters apply to the VXLAN device. If the host itself has a device of
			// that name, its other packets are not affected.
			newRule().ifname(expr.MetaKeyIIFNAME, nftESPLink).family(f).daddr(f).in(desired.SetTunnels, f).drop(),
		)
	}
	for _, f := range nftFamilies() {
		// A connection to a clusterset IP without a backend is rejected at once.
		outgoing.rules = append(outgoing.rules, newRule().family(f).daddr(f).in(desired.SetPools, f).goTo("reject_packet"))
	}
	outgoing.rules = append(outgoing.rules, nftReplies().ifname(expr.MetaKeyOIFNAME, desired.DevicePrefix).goTo("revoked"))
	for _, f := range nftFamilies() {
		input.rules = append(input.rules, newRule().family(f).daddr(f).in(desired.SetDNS, f).jump("resolver"))
	}
	input.rules = append(input.rules,
		newRule().dport(unix.IPPROTO_UDP, desired.VXLANPort).jump("nodes"),
		newRule().ownDevice(expr.MetaKeyIIFNAME, desired.NodeDevice).goTo("local"),
	)
	for _, f := range nftFamilies() {
		input.rules = append(input.rules, newRule().notIfname(expr.MetaKeyIIFNAME, "lo\x00").family(f).
			daddr(f).in(desired.SetTunnels, f).dropAs(desired.DropTunnel))
	}
	var chains []nftChain
	for _, d := range desired.Drops() { // each chain counts the packets dropped for one reason
		chains = append(chains, nftChain{name: d.Chain(), rules: []*nftRule{newRule().add(&expr.Counter{}).drop()}})
	}
	for _, f := range nftFamilies() {
		chains = append(chains, nftOverlayChain(f))
	}
	chains = append(append(append(chains, nftForwardChains()...), nftLeakChains()...), outgoing, nftNodesChain(), nftResolverChain())
	chains = append(chains, nftLocalChains()...)
	chains = append(chains, nftInboundChain(), nftReturnOnlyChain(), input)
	return append(chains, nftMSSChain(), nftClampChain(t))
}

// dropAs drops the packet and counts it under a reason.
func (r *nftRule) dropAs(reason string) *nftRule { return r.goTo(desired.Drop{Reason: reason}.Chain()) }

// nftResolverChain accepts packets for the DNS server's address from pods, from nodes and from
// this host. The kernel accepts them from every network that the node is connected to.
func nftResolverChain() nftChain {
	accept := func(r *nftRule) *nftRule { return r.verdict(expr.VerdictReturn, "") }
	c := nftChain{name: "resolver", rules: []*nftRule{
		accept(newRule().ifname(expr.MetaKeyIIFNAME, "lo\x00")),
		accept(newRule().ifname(expr.MetaKeyIIFNAME, desired.NodeDevice)),
	}}
	for _, f := range nftFamilies() {
		for _, set := range []string{desired.SetPods, desired.SetNodes} {
			c.rules = append(c.rules, accept(newRule().family(f).saddr(f).in(set, f)))
		}
	}
	c.rules = append(c.rules, newRule().dropAs(desired.DropResolver))
	return c
}

// nftNodesChain accepts VXLAN from nodes of the cluster, with transit traffic from gateways only,
// and only plain IPv4 and IPv6 inside. The kernel removes VLAN tags after this chain, so the
// address behind a tag would not be checked. VXLAN between two node addresses is untracked. So a
// tracked packet was translated, or is not from a node.
func nftNodesChain() nftChain {
	c := nftChain{name: "nodes", rules: []*nftRule{
		newRule().add(&expr.Ct{Key: expr.CtKeySTATE, Register: nftReg}).
			bits(nftHostOrder(expr.CtStateBitUNTRACKED), expr.CmpOpEq).dropAs(desired.DropVXLAN),
		nftNotPlainVXLAN().dropAs(desired.DropVXLAN),
	}}
	families := nftFamilies()
	for _, f := range families {
		for _, inner := range families {
			c.rules = append(c.rules, nftSpoofedVXLAN(f, inner))
		}
		c.rules = append(c.rules, newRule().family(f).saddr(f).notIn(desired.SetNodes, f).dropAs(desired.DropVXLAN),
			newRule().transport(8+4, 3, nftReg).equal(0, 0, desired.TransitVNI).family(f).saddr(f).notIn(desired.SetSiblings, f).dropAs(desired.DropVXLAN))
	}
	for _, inner := range families {
		c.rules = append(c.rules, newRule().innerFamily(inner).verdict(expr.VerdictReturn, ""))
	}
	c.rules = append(c.rules, newRule().dropAs(desired.DropVXLAN))
	return c
}

// nftNotPlainVXLAN matches VXLAN whose first word has more than the flag of the VNI
// (RFC 7348): options of GPE and GBP, and reserved bits.
func nftNotPlainVXLAN() *nftRule {
	return newRule().transport(8, 4, nftReg).add(&expr.Cmp{Op: expr.CmpOpNeq, Register: nftReg, Data: []byte{0x08, 0, 0, 0}})
}

// innerFamily matches VXLAN whose inner packet belongs to a family by its EtherType and by its
// version field. A frame with a VLAN tag belongs to neither family.
func (r *nftRule) innerFamily(inner nftFamily) *nftRule {
	r.transport(nftInnerType, 3, nftReg)
	r.add(&expr.Bitwise{SourceRegister: nftReg, DestRegister: nftReg, Len: 3, Mask: []byte{0xff, 0xff, 0xf0}, Xor: make([]byte, 3)})
	if inner.size == 4 {
		return r.equal(0x08, 0x00, 0x40)
	}
	return r.equal(0x86, 0xdd, 0x60)
}

// nftSpoofedVXLAN drops VXLAN of a node with another node's address as inner source.
func nftSpoofedVXLAN(f, inner nftFamily) *nftRule {
	return newRule().family(f).innerFamily(inner).
		transport(nftInnerIP+inner.src, inner.size, nftReg).in(desired.SetNodes, inner).
		saddr(f).transport(nftInnerIP+inner.src, inner.size, f.regAfter(0)).notIn(inner.self, f).dropAs(desired.DropVXLAN)
}

// nftForwardChains first branch by the devices of the packet. Every forwarded packet passes these
// chains, and a match on a device's name costs more than most others.
func nftForwardChains() []nftChain {
	forward := nftChain{name: "forward", base: nftHook("filter", unix.NF_INET_FORWARD, nftPriorityFilter), rules: []*nftRule{
		newRule().ownDevice(expr.MetaKeyIIFNAME, desired.NodeDevice).goTo("from_tunnel"),
		newRule().ifname(expr.MetaKeyOIFNAME, desired.DevicePrefix).goTo("to_hawser"),
	}}
	fromTunnel := nftChain{name: "from_tunnel", rules: []*nftRule{
		newRule().ifname(expr.MetaKeyOIFNAME, desired.NodeDevice).notIfname(expr.MetaKeyIIFNAME, desired.NodeDevicePrefix).goTo("inbound"),
		newRule().ifname(expr.MetaKeyOIFNAME, desired.DevicePrefix).goTo("transit"),
		newRule().ifname(expr.MetaKeyIIFNAME, desired.NodeDevicePrefix).drop(),
	}}
	toHawser := nftChain{name: "to_hawser", rules: []*nftRule{
		newRule().ifname(expr.MetaKeyOIFNAME, desired.SiblingDevice).drop(),
		newRule().ifname(expr.MetaKeyOIFNAME, desired.NodeDevicePrefix).goTo("check_source"),
		// Packets that conntrack cannot assign to a flow bypass NAT. They would leave with
		// an address that has another meaning in the remote cluster.
		newRule().add(&expr.Ct{Key: expr.CtKeySTATE, Register: nftReg}).
			bits(nftHostOrder(expr.CtStateBitINVALID), expr.CmpOpNeq).drop(),
		newRule().jump("check_pool"),
	}}
	// To another node, or to an unassigned address that is routed there.
	checkSource := nftChain{name: "check_source"}
	checkPool, noBackend := nftChain{name: "check_pool"}, nftChain{name: "no_backend"}
	revoked := nftChain{name: "revoked"}
	for _, f := range nftFamilies() {
		// Pods, and hosts that route through this node, must not send VXLAN to peers that
		// identify this node by its address: the pod network may translate their source to
		// it. Packets for a load balancer pass here if kube-proxy has not translated them.
		forward.rules = append(forward.rules, nftUnsolicited(f).drop(),
			newRule().family(f).l4proto(unix.IPPROTO_UDP).daddr(f).transport(2, 2, f.regAfter(0)).
				in(desired.SetVXLAN, f).dropAs(desired.DropVXLAN),
			nftFromConnected(f).dropAs(desired.DropConnected),
			// Packets to a gateway without VXLAN get the checks of packets to a node in
			// VXLAN.
			newRule().loadNextHop(f).in(desired.SetGatewayHops, f).family(f).daddr(f).in(desired.SetRemote, f).goTo("check_source"))
		// The rules of other nodes decide about packets to their pods, with VXLAN and
		// without it.
		fromTunnel.rules = append(fromTunnel.rules, nftUnsolicited(f).loadNextHop(f).notIn(desired.SetNodeHops, f).drop(),
			nftFromConnected(f).loadNextHop(f).notIn(desired.SetNodeHops, f).dropAs(desired.DropConnected))
		// Packets that another gateway translated to its own egress address before it
		// handed them over. No node sends from those addresses. A conntrack entry for one
		// would use the address and port that the same flow is about to get here.
		toHawser.rules = append(toHawser.rules, newRule().family(f).saddr(f).in(desired.SetBlocks, f).drop())
		// Replies to a client that was removed from an allow list are dropped: a server
		// that only sends needs no packet from its client.
		revoked.rules = append(revoked.rules, nftOriginalDst(f, desired.SetRestricted).family(f).daddr(f).
			ctOriginalDst(f, f.regAfter(0)).notIn(desired.SetAllowed, f).dropAs(desired.DropNotAllowed))
		checkSource.rules = append(checkSource.rules, newRule().family(f).saddr(f).in(desired.SetPods, f).goTo("check_pool"))
		checkPool.rules = append(checkPool.rules, newRule().family(f).daddr(f).in(desired.SetPools, f).goTo("no_backend"))
		noBackend.rules = append(noBackend.rules, newRule().family(f).saddr(f).in(desired.SetPods, f).goTo("reject_packet"))
	}
	checkSource.rules = append(checkSource.rules,
		newRule().ifname(expr.MetaKeyIIFNAME, desired.NodeDevice).goTo("check_pool"),
		nftReplies().goTo("check_pool"),
		newRule().dropAs(desired.DropUnknownSource),
	)
	noBackend.rules = append(noBackend.rules,
		newRule().ifname(expr.MetaKeyIIFNAME, desired.NodeDevice).goTo("reject_packet"),
		newRule().dropAs(desired.DropUnknownSource),
	)
	toHawser.rules = append(toHawser.rules, nftReplies().goTo("revoked"))
	reject := nftChain{name: "reject_packet", rules: []*nftRule{
		newRule().l4proto(unix.IPPROTO_TCP).add(&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}),
		newRule().add(&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_PORT_UNREACH}),
	}}
	fromTunnel.rules = append(fromTunnel.rules, newRule().goTo("inbound"))
	forward.rules = append(forward.rules, newRule().jump("check_pool"))
	return []nftChain{forward, fromTunnel, nftTransitForward(), toHawser, revoked, checkSource, checkPool, noBackend, reject}
}

// nftReplies matches packets in the reply direction of a connection.
func nftReplies() *nftRule {
	return newRule().add(&expr.Ct{Key: expr.CtKeyDIRECTION, Register: nftReg}).equal(nftCtReply)
}

// nftOriginalDst matches a connection whose original destination is in a set. NAT may have
// replaced that address in the packet.
func nftOriginalDst(f nftFamily, set string) *nftRule {
	return newRule().ctOriginalDst(f, nftReg).in(set, f)
}

// nftLeakChains drops packets for other clusters that would leave by a foreign device. The kernel
// deletes routes with their device, and the next matching route is the default route. The hook
// is postrouting, as output still has the device from before a translation. Packets to a network
// that the node is connected to pass, but only by its device. Packets that other nodes hand over,
// or for a clusterset IP, are always for another cluster.
func nftLeakChains() []nftChain {
	leaving := nftChain{name: "leaving", base: nftHook("filter", unix.NF_INET_POST_ROUTING, nftPriorityFilter), rules: []*nftRule{
		newRule().ifname(expr.MetaKeyOIFNAME, desired.NodeDevicePrefix).accept(),
		newRule().ifname(expr.MetaKeyOIFNAME, desired.DevicePrefix).goTo("count_tunnel"),
	}}
	// The lookup counts the packets that enter a tunnel, per prefix of another cluster. The
	// agent probes the links to clusters with traffic more often.
	countTunnel := nftChain{name: "count_tunnel"}
	connected := nftChain{name: "connected", rules: []*nftRule{
		// VXLAN inside ESP, between tunnel addresses: over the device of charon, or over an
		// xfrm interface. Postrouting has the underlay's device for the latter, so the rule
		// checks the xfrm state.
		newRule().dport(unix.IPPROTO_UDP, desired.IPsecVXLANPort).ifname(expr.MetaKeyOIFNAME, nftESPLink).verdict(expr.VerdictReturn, ""),
		newRule().dport(unix.IPPROTO_UDP, desired.IPsecVXLANPort).add(&expr.Rt{Register: nftReg, Key: nftRtXFRM}).equal(1).verdict(expr.VerdictReturn, ""),
		newRule().ifname(expr.MetaKeyIIFNAME, desired.DevicePrefix).dropAs(desired.DropLeak),
	}}
	for _, f := range nftFamilies() {
		connected.rules = append(connected.rules, newRule().loadNextHop(f).in(desired.SetGatewayHops, f).verdict(expr.VerdictReturn, ""))
	}
	for _, f := range nftFamilies() {
		countTunnel.rules = append(countTunnel.rules, newRule().family(f).daddr(f).in(desired.SetRemote, f).accept())
		leaving.rules = append(leaving.rules, newRule().family(f).daddr(f).in(desired.SetRemote, f).goTo("connected"))
		connected.rules = append(connected.rules,
			nftOriginalDst(f, desired.SetPools).dropAs(desired.DropLeak),
			newRule().family(f).daddr(f).load(expr.MetaKeyOIFNAME, f.regAfter(0)).in(desired.SetConnected, f).verdict(expr.VerdictReturn, ""),
		)
	}
	connected.rules = append(connected.rules, newRule().dropAs(desired.DropLeak))
	return []nftChain{leaving, countTunnel, connected}
}

// nftFromConnected matches packets from another cluster whose source belongs to a network that the
// node is connected to. The reply of this node or of a local pod would go to that network in the
// clear.
func nftFromConnected(f nftFamily) *nftRule {
	return newRule().family(f).saddr(f).in(desired.SetNetworks, f).ifname(expr.MetaKeyIIFNAME, desired.DevicePrefix)
}

// nftUnsolicited matches packets of a remote export's server for which conntrack has no flow. A pod
// of this node connected to a VIP, not to the export's address, and would reply with a reset. The
// node of another pod may know the flow.
func nftUnsolicited(f nftFamily) *nftRule {
	return newRule().add(&expr.Ct{Key: expr.CtKeySTATE, Register: nftReg}).bits(nftHostOrder(expr.CtStateBitNEW), expr.CmpOpNeq).
		tcpFlags(nftSynOrRst, expr.CmpOpEq).family(f).saddr(f).in(desired.SetMultiPod, f)
}

// nftLocalChains filters packets from tunnels to the gateway itself, from other gateways.
func nftLocalChains() []nftChain {
	c := nftChain{name: "local"}
	gateways := nftChain{name: "gateways"}
	for _, f := range nftFamilies() {
		c.rules = append(c.rules, newRule().family(f).saddr(f).in(desired.SetPeers, f).
			daddr(f).in(desired.SetTunnels, f).jump("gateways"))
		// Packets of another cluster's gateway beyond its rate are dropped before the
		// sockets, which all gateways share.
		r := newRule().load(expr.MetaKeyL4PROTO, nftReg).
			add(&expr.Cmp{Op: expr.CmpOpNeq, Register: nftReg, Data: []byte{unix.IPPROTO_TCP}}).family(f).saddr(f)
		gateways.rules = append(gateways.rules, r.add(&expr.Dynset{
			SrcRegKey: nftReg, SetName: desired.SetRates + f.digit, Operation: unix.NFT_DYNSET_OP_ADD,
			Exprs: []expr.Any{&expr.Limit{Type: expr.LimitTypePkts, Rate: nftPeerRate, Burst: nftPeerBurst, Unit: expr.LimitTimeSecond, Over: true}},
		}).dropAs(desired.DropFlood))
	}
	c.rules = append(c.rules, newRule().goTo("inbound"))
	gateways.rules = append(gateways.rules, nftErrorJumps()...)
	gateways.rules = append(gateways.rules,
		newRule().dport(unix.IPPROTO_UDP, desired.ProbePort).accept(),
		newRule().dport(unix.IPPROTO_TCP, desired.FeedPort).accept(),
		newRule().protocols(unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6).accept(),
	)
	return []nftChain{nftErrorsChain(), gateways, c}
}

// nftErrorJumps sends ICMP errors about known flows to the chain errors. For flows that a
// conntrack helper expects, the rules for all flows apply.
func nftErrorJumps() []*nftRule {
	var rules []*nftRule
	for _, f := range nftFamilies() {
		rules = append(rules, newRule().l4proto(f.icmp).add(&expr.Ct{Key: expr.CtKeySTATE, Register: nftReg}).
			bits(nftHostOrder(expr.CtStateBitRELATED), expr.CmpOpNeq).goTo("errors"))
	}
	return rules
}

// nftErrorsChain accepts an ICMP error from the cluster at the remote end of its flow, or from a
// cluster on the path. The remote end is the source of the flow's packets in the direction of the
// error. No router of a tunnel sends redirects.
func nftErrorsChain() nftChain {
	c := nftChain{name: "errors"}
	for _, f := range nftFamilies() {
		c.rules = append(c.rules, newRule().icmpType(f, f.redirect).dropAs(desired.DropError))
		for _, direction := range []byte{nftCtOriginal, nftCtReply} {
			c.rules = append(c.rules, newRule().
				add(&expr.Ct{Key: expr.CtKeyDIRECTION, Register: nftReg}).equal(direction).
				family(f).saddr(f).ctAddress(f.ctSrc, direction, f.regAfter(0)).in(desired.SetErrors, f).accept())
		}
	}
	c.rules = append(c.rules, newRule().dropAs(desired.DropError))
	return c
}

// Limits for packets, except TCP, from a gateway of another cluster to this gateway. A cluster
// with many gateways has the sum.
const (
	nftPeerRate  = 500 // packets per second: probes at the shortest interval plus as many replies are 100
	nftPeerBurst = 100 // packets at once: a socket buffer holds about 250
)

// nftInboundChain filters traffic from tunnels to this cluster.
func nftInboundChain() nftChain {
	c := nftChain{name: "inbound", rules: append(nftErrorJumps(), nftReplies().accept())}
	for _, f := range nftFamilies() {
		c.rules = append(c.rules,
			newRule().family(f).saddr(f).ctOriginalDst(f, f.regAfter(0)).in(desired.SetAllowed, f).accept(),
			nftOriginalDst(f, desired.SetRestricted).dropAs(desired.DropNotAllowed),
			nftOriginalDst(f, desired.SetPodBlocks).goTo("return_only"),
			nftOriginalDst(f, desired.SetDirect).accept(),
			// Other programs also translate: kube-proxy has ClusterIPs and node ports,
			// which are not exports.
			nftOriginalDst(f, desired.SetBlocks).add(&expr.Ct{Key: expr.CtKeySTATUS, Register: nftReg}).
				bits(nftHostOrder(nftCtDNATted), expr.CmpOpNeq).accept(),
		)
	}
	c.rules = append(c.rules, newRule().dropAs(desired.DropNotExported))
	return c
}

// nftReturnOnlyChain accepts replies at a gateway that did not see the first packet of the flow.
// Over TCP it accepts packets that cannot begin a connection. Over UDP it accepts packets from
// the port of an export, unless a pod here serves an export on the destination port.
func nftReturnOnlyChain() nftChain {
	c := nftChain{name: "return_only", rules: []*nftRule{
		newRule().tcpFlags(nftSynOrRst, expr.CmpOpEq).accept(),
		newRule().l4proto(unix.IPPROTO_TCP).dropAs(desired.DropUnsolicited),
	}}
	for _, f := range nftFamilies() {
		c.rules = append(c.rules,
			newRule().family(f).loadService(f).in(desired.SetServed, f).dropAs(desired.DropUnsolicited),
			newRule().family(f).loadEndpoint(f, f.src, 0).in(desired.SetRemoteExports, f).accept(),
		)
	}
	c.rules = append(c.rules, newRule().dropAs(desired.DropUnsolicited))
	return c
}

func nftMSSChain() nftChain {
	c := nftChain{name: "mss", base: nftHook("filter", unix.NF_INET_FORWARD, nftPriorityMSS)}
	for _, key := range []expr.MetaKey{expr.MetaKeyIIFNAME, expr.MetaKeyOIFNAME} {
		c.rules = append(c.rules, newRule().tcpFlags(nftSyn, expr.CmpOpNeq).ifname(key, desired.DevicePrefix).jump("clamp"))
	}
	return c
}

// nftClampChain lowers a TCP segment size that exceeds the MTU of a tunnel, or the MTU of its
// route. It never raises the size: the kernel ignores a larger value.
func nftClampChain(t desired.Table) nftChain {
	c := nftChain{name: "clamp"}
	for _, f := range nftFamilies() {
		mss := t.MSS4
		if f.proto == unix.NFPROTO_IPV6 {
			mss = t.MSS6
		}
		value := nftNetOrder16(uint16(mss))
		option := expr.Exthdr{Type: nftTCPOptMSS, Offset: 2, Len: 2, Op: expr.ExthdrOpTcpopt}
		read, write := option, option
		read.DestRegister, write.SourceRegister = nftReg, nftReg
		r := newRule().family(f).add(&read).add(&expr.Cmp{Op: expr.CmpOpGt, Register: nftReg, Data: value}).
			add(&expr.Immediate{Register: nftReg, Data: value}).add(&write)
		r.mss = mss
		c.rules = append(c.rules, r)
	}
	option := expr.Exthdr{Type: nftTCPOptMSS, Offset: 2, Len: 2, Op: expr.ExthdrOpTcpopt, SourceRegister: nftReg}
	c.rules = append(c.rules, newRule().add(&expr.Rt{Register: nftReg, Key: expr.RtTCPMSS}).
		add(&expr.Byteorder{SourceRegister: nftReg, DestRegister: nftReg, Op: expr.ByteorderHton, Len: 2, Size: 2}).
		add(&option))
	return c
}

// nftESPLink is the name of the device with its NUL terminator: it matches the whole name, not a
// prefix.
const nftESPLink = desired.IPsecDevice + "\x00"

// nftRtXFRM is the key of "rt ipsec" (NFT_RT_XFRM): one byte, 1 if the packet will be encrypted.
const nftRtXFRM expr.RtKey = 4

// nftRequireESP drops VXLAN that must use ESP but does not: forged packets from the underlay, or
// our own packets when ESP is unavailable.
func nftRequireESP(direction expr.MetaKey) *nftRule {
	return newRule().dport(unix.IPPROTO_UDP, desired.IPsecVXLANPort).notIfname(direction, nftESPLink).drop()
}

// Offsets in a VXLAN packet from its UDP header: UDP 8 bytes, VXLAN 8 (RFC 7348), Ethernet 14.
const (
	nftInnerType = 8 + 8 + 12
	nftInnerIP   = 8 + 8 + 14
)

// nftOverlayChain accepts VXLAN from the outer addresses of a remote gateway if the inner source
// belongs to its cluster. One lookup checks both and counts. VXLAN does not authenticate, and
// behind the device the sender is unknown.
func nftOverlayChain(f nftFamily) nftChain {
	c := nftChain{name: "overlay" + f.digit, rules: []*nftRule{
		// DNAT redirected these packets: a sender with a gateway's address sent them to
		// another port or host.
		newRule().add(&expr.Ct{Key: expr.CtKeySTATUS, Register: nftReg}).
			bits(nftHostOrder(nftCtDNATted), expr.CmpOpNeq).dropAs(desired.DropOverlay),
		nftNotPlainVXLAN().dropAs(desired.DropOverlay),
	}}
	for _, inner := range nftFamilies() {
		c.rules = append(c.rules, nftSplitHorizonRule(f, inner))
	}
	for _, inner := range nftFamilies() {
		c.rules = append(c.rules, newRule().innerFamily(inner).
			saddr(f).transport(2, 2, f.regAfter(0)).transport(nftInnerIP+inner.src, inner.size, f.regAfter(1)).in(inner.sourcesIn, f).accept())
	}
	c.rules = append(c.rules, newRule().dropAs(desired.DropOverlay))
	return c
}
