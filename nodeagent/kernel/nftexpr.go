package kernel

import (
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/kernel/nftables"
)

// Registers, as nft itself assigns them. The 128-bit registers 1 to 4 contain the 32-bit
// registers NFT_REG32_00 to NFT_REG32_15.
const (
	nftReg      = 1
	nftReg2     = 2
	nftReg3     = 3
	nftRegSpare = unix.NFT_REG32_15 // the last word: no key reaches it
)

// nftFamily holds the differences between the rules of IPv4 and of IPv6.
type nftFamily struct {
	digit     string
	proto     byte // NFPROTO_IPV4, NFPROTO_IPV6
	size      uint32
	src, dst  uint32 // offsets of the addresses in the header
	etherType uint16
	icmp      byte
	echo      byte   // ICMP type of an echo request
	redirect  byte   // ICMP type that reports a better next hop
	ctSrc     uint32 // conntrack key of the source address
	ctDst     uint32 // conntrack key of the destination address
	// Sets that match VXLAN packets with an inner packet of this family.
	self, sourcesIn, splitHorizonIn string
}

func nftFamilies() [2]nftFamily {
	return [2]nftFamily{
		{
			digit: "4", proto: unix.NFPROTO_IPV4, size: 4, src: 12, dst: 16,
			etherType: unix.ETH_P_IP, icmp: unix.IPPROTO_ICMP, echo: 8, redirect: 5, ctSrc: unix.NFT_CT_SRC_IP, ctDst: unix.NFT_CT_DST_IP,
			self: desired.SetSelf4, sourcesIn: desired.SetSources4In, splitHorizonIn: desired.SetSplitHorizon4,
		},
		{
			digit: "6", proto: unix.NFPROTO_IPV6, size: 16, src: 8, dst: 24,
			etherType: unix.ETH_P_IPV6, icmp: unix.IPPROTO_ICMPV6, echo: 128, redirect: 137, ctSrc: unix.NFT_CT_SRC_IP6, ctDst: unix.NFT_CT_DST_IP6,
			self: desired.SetSelf6, sourcesIn: desired.SetSources6In, splitHorizonIn: desired.SetSplitHorizon6,
		},
	}
}

// regAfter returns the 32-bit register that follows an address in register 1 and some more
// words of 32 bits.
func (f nftFamily) regAfter(words uint32) uint32 { return unix.NFT_REG32_00 + f.size/4 + words }

// nftRule builds one rule: expressions in the encoding of nf_tables. The methods append
// expressions. Their names follow the syntax of nft(8).
type nftRule struct {
	exprs   nftables.Attributes // expressions, encoded
	members []byte              // of the anonymous set (of protocols) in the rule
	mss     int                 // of a clamping rule, for Observe
	// connections is the quota of a pod in this rule, for Observe; 0 if it is not a quota rule.
	connections int
}

func (r *nftRule) add(e expr.Any) *nftRule {
	r.exprs.Expression(e)
	return r
}

func (r *nftRule) load(key expr.MetaKey, register uint32) *nftRule {
	return r.add(&expr.Meta{Key: key, Register: register})
}

// random loads a random number below limit, in host byte order.
func (r *nftRule) random(limit int) *nftRule {
	return r.add(&expr.Numgen{Register: nftReg, Modulus: uint32(limit), Type: unix.NFT_NG_RANDOM})
}

func (r *nftRule) equal(value ...byte) *nftRule {
	return r.add(&expr.Cmp{Op: expr.CmpOpEq, Register: nftReg, Data: value})
}

func (r *nftRule) family(f nftFamily) *nftRule {
	return r.load(expr.MetaKeyNFPROTO, nftReg).equal(f.proto)
}

func (r *nftRule) network(offset, size, register uint32) *nftRule {
	return r.add(&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size})
}

func (r *nftRule) transport(offset, size, register uint32) *nftRule {
	return r.add(&expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: size})
}

func (r *nftRule) saddr(f nftFamily) *nftRule { return r.network(f.src, f.size, nftReg) }
func (r *nftRule) daddr(f nftFamily) *nftRule { return r.network(f.dst, f.size, nftReg) }

// in matches when register 1 is in the set.
func (r *nftRule) in(set string, f nftFamily) *nftRule {
	return r.add(&expr.Lookup{SourceRegister: nftReg, SetName: set + f.digit})
}

func (r *nftRule) notIn(set string, f nftFamily) *nftRule {
	return r.add(&expr.Lookup{SourceRegister: nftReg, SetName: set + f.digit, Invert: true})
}

// lookup replaces register 1 by its value in the map. Without an element the rule does not
// match.
func (r *nftRule) lookup(set string, f nftFamily) *nftRule {
	return r.add(&expr.Lookup{SourceRegister: nftReg, DestRegister: nftReg, IsDestRegSet: true, SetName: set + f.digit})
}

// loadSender loads, into the spare register, the mark of the node whose hardware address sent the
// frame over this device without VXLAN. A packet without a link-layer header does not match.
func (r *nftRule) loadSender(f nftFamily) *nftRule {
	return r.add(&expr.Payload{DestRegister: nftReg, Base: expr.PayloadBaseLLHeader, Offset: nftFrameID, Len: nftFrameIDSize}).
		load(expr.MetaKeyIIFNAME, unix.NFT_REG32_01).
		add(&expr.Lookup{SourceRegister: nftReg, DestRegister: nftRegSpare, IsDestRegSet: true, SetName: desired.SetSenders + f.digit})
}

// loadNextHop loads the next hop of the packet's route and the name of its device.
func (r *nftRule) loadNextHop(f nftFamily) *nftRule {
	key := expr.RtNexthop4
	if f.size == 16 {
		key = expr.RtNexthop6
	}
	return r.add(&expr.Rt{Register: nftReg, Key: key}).load(expr.MetaKeyOIFNAME, f.regAfter(0))
}

func (r *nftRule) l4proto(proto byte) *nftRule {
	return r.load(expr.MetaKeyL4PROTO, nftReg).equal(proto)
}

func (r *nftRule) dport(proto byte, port uint16) *nftRule {
	return r.l4proto(proto).transport(2, 2, nftReg).equal(nftNetOrder16(port)...)
}

func (r *nftRule) icmpType(f nftFamily, typ byte) *nftRule {
	return r.family(f).l4proto(f.icmp).transport(0, 1, nftReg).equal(typ)
}

// bits matches bits of register 1: any bit of mask set, or none with op eq.
func (r *nftRule) bits(mask []byte, op expr.CmpOp) *nftRule {
	zero := make([]byte, len(mask))
	r.add(&expr.Bitwise{SourceRegister: nftReg, DestRegister: nftReg, Len: uint32(len(mask)), Mask: mask, Xor: zero})
	return r.add(&expr.Cmp{Op: op, Register: nftReg, Data: zero})
}

// tcpFlags matches TCP packets with any flag of mask, or none with op eq.
func (r *nftRule) tcpFlags(mask byte, op expr.CmpOp) *nftRule {
	return r.l4proto(unix.IPPROTO_TCP).transport(13, 1, nftReg).bits([]byte{mask}, op)
}

// ifname matches interface names that begin with prefix.
func (r *nftRule) ifname(key expr.MetaKey, prefix string) *nftRule {
	return r.load(key, nftReg).equal([]byte(prefix)...)
}

// notIfname matches interface names that do not begin with prefix.
func (r *nftRule) notIfname(key expr.MetaKey, prefix string) *nftRule {
	return r.load(key, nftReg).add(&expr.Cmp{Op: expr.CmpOpNeq, Register: nftReg, Data: []byte(prefix)})
}

// tunnel matches devices to other clusters: all our devices except those between nodes.
func (r *nftRule) tunnel(key expr.MetaKey) *nftRule {
	return r.ownDevice(key, desired.NodeDevicePrefix)
}

// ownDevice matches our devices whose names do not begin with exceptPrefix. It loads the name once,
// because that is the most expensive step of a rule.
func (r *nftRule) ownDevice(key expr.MetaKey, exceptPrefix string) *nftRule {
	return r.ifname(key, desired.DevicePrefix).add(&expr.Cmp{Op: expr.CmpOpNeq, Register: nftReg, Data: []byte(exceptPrefix)})
}

func (r *nftRule) verdict(kind expr.VerdictKind, chain string) *nftRule {
	return r.add(&expr.Verdict{Kind: kind, Chain: chain})
}

func (r *nftRule) accept() *nftRule           { return r.verdict(expr.VerdictAccept, "") }
func (r *nftRule) drop() *nftRule             { return r.verdict(expr.VerdictDrop, "") }
func (r *nftRule) jump(chain string) *nftRule { return r.verdict(expr.VerdictJump, chain) }
func (r *nftRule) goTo(chain string) *nftRule { return r.verdict(expr.VerdictGoto, chain) }
func (r *nftRule) setMark(reg uint32) *nftRule {
	return r.add(&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: reg})
}

// nat translates to the address in register 1. If port is not 0, it also translates to the port
// in that register.
func (r *nftRule) nat(kind expr.NATType, f nftFamily, port uint32) *nftRule {
	return r.add(&expr.NAT{Type: kind, Family: uint32(f.proto), RegAddrMin: nftReg, RegProtoMin: port})
}

// natPrefix translates to the prefix in register 1. The host part of the address does not change.
func (r *nftRule) natPrefix(kind expr.NATType, f nftFamily) *nftRule {
	return r.add(&expr.NAT{Type: kind, Family: uint32(f.proto), RegAddrMin: nftReg, RegAddrMax: f.regAfter(0), Prefix: true})
}

// natPrefixPort is like natPrefix. It also preserves the source port, even if other flows use it.
func (r *nftRule) natPrefixPort(kind expr.NATType, f nftFamily) *nftRule {
	port := f.regAfter(f.size / 4) // after the first and the last address of the prefix
	return r.transport(0, 2, port).
		add(&expr.NAT{Type: kind, Family: uint32(f.proto), RegAddrMin: nftReg, RegAddrMax: f.regAfter(0), RegProtoMin: port, Prefix: true})
}

// ctOriginalDst loads the original destination of the connection.
func (r *nftRule) ctOriginalDst(f nftFamily, register uint32) *nftRule {
	return r.ctAddress(f.ctDst, nftCtOriginal, register)
}

// ctAddress loads an address of the connection as in its packets of a direction. The expression
// type of the nftables module has no direction for these keys.
func (r *nftRule) ctAddress(key uint32, direction byte, register uint32) *nftRule {
	r.exprs.Nest(unix.NFTA_LIST_ELEM, func() {
		r.exprs.String(unix.NFTA_EXPR_NAME, "ct")
		r.exprs.Nest(unix.NFTA_EXPR_DATA, func() {
			r.exprs.Uint32(unix.NFTA_CT_KEY, key)
			r.exprs.Uint32(unix.NFTA_CT_DREG, register)
			r.exprs.Bytes(unix.NFTA_CT_DIRECTION, []byte{direction})
		})
	})
	return r
}

// protocols matches any of several protocols, by an anonymous set.
func (r *nftRule) protocols(members ...byte) *nftRule {
	r.members = members
	return r.load(expr.MetaKeyL4PROTO, nftReg).
		add(&expr.Lookup{SourceRegister: nftReg, SetName: nftAnonymous, SetID: nftAnonymousID})
}
