package kernel

import (
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/desired"
)

// Offsets in a VXLAN packet from its UDP header on: UDP 8 bytes, VXLAN 8
// (RFC 7348), Ethernet 14.
const (
	nftInnerType = 8 + 8 + 12
	nftInnerIP   = 8 + 8 + 14
)

// nftOverlayPort has VXLAN from other clusters looked at.
func nftOverlayPort(f nftFamily) *nftRule {
	return nftNew().family(f).l4proto(unix.IPPROTO_UDP).transport(2, 2, nftReg).in(desired.SetOverlays, f).jump("overlay" + f.digit)
}

// nftOverlay takes VXLAN from the outer addresses of a remote gateway with a
// source of its cluster inside, by one lookup, which also counts. VXLAN itself
// authenticates nothing, and behind the device nothing tells any more who sent.
func nftOverlay(f nftFamily) nftChain {
	families := nftFamilies()
	inner := func(i int, etherType uint16, set string) *nftRule {
		port, source := uint32(nftRegWord1), uint32(nftRegWord2)
		if f.size == 16 {
			port, source = nftRegWord4, nftRegWord5
		}
		return nftNew().transport(nftInnerType, 2, nftReg).equal(nftNetOrder16(etherType)...).
			saddr(f).transport(2, 2, port).transport(nftInnerIP+families[i].src, families[i].size, source).in(set, f).accept()
	}
	return nftChain{name: "overlay" + f.digit, rules: []*nftRule{
		// Sent to another port, or another host, by somebody with a gateway's address.
		nftNew().add(&expr.Ct{Key: expr.CtKeySTATUS, Register: nftReg}).
			bits(nftHostOrder(nftCtDNATted), expr.CmpOpNeq).dropAs(desired.DropOverlay),
		nftTurnBack(f, families[0], unix.ETH_P_IP, desired.SetTurn4In),
		nftTurnBack(f, families[1], unix.ETH_P_IPV6, desired.SetTurn6In),
		inner(0, unix.ETH_P_IP, desired.SetCarry4In),
		inner(1, unix.ETH_P_IPV6, desired.SetCarry6In),
		nftNew().dropAs(desired.DropOverlay),
	}}
}

// nftCountSent counts VXLAN to other clusters.
func nftCountSent(f nftFamily) *nftRule {
	return nftNew().family(f).l4proto(unix.IPPROTO_UDP).daddr(f).transport(2, 2, f.behind).
		add(&expr.Lookup{SourceRegister: nftReg, SetName: desired.SetSent + f.digit})
}
