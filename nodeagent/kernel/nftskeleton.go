package kernel

import (
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/kernel/nftables"
)

// nftHashSeed is the seed of the hash from client to slot. It is the same on every gateway, so all
// gateways choose the same slot.
const nftHashSeed = 0x6861

// Priorities of the hooks: NAT before kube-proxy's (-100, 100), filters before the filters of
// other programs (0), and the clamp at the priority of mangle rules.
const (
	nftPriorityDNAT   = -110
	nftPrioritySNAT   = 90
	nftPriorityFilter = -10
	nftPriorityMSS    = -150
)

// nftHook returns the hook of a base chain; kind is nat or filter.
func nftHook(kind string, hook uint32, priority int32) *nftables.Hook {
	return &nftables.Hook{Type: kind, Number: hook, Priority: priority}
}

// nftChain is one chain with its rules, in order.
type nftChain struct {
	name  string
	base  *nftables.Hook
	rules []*nftRule
}

// newRule starts an empty rule.
func newRule() *nftRule { return &nftRule{} }

// nftChains returns all chains of the table. testdata/skeleton.nft is the same ruleset in the
// syntax of nft(8), with the reasons. A test compares the two in the kernel.
func nftChains(t desired.Table) []nftChain {
	var chains []nftChain
	for _, f := range nftFamilies() {
		chains = append(chains, nftPickChains(f)...)
	}
	chains = append(chains, nftTransitNoTrackChains()...)
	chains = append(chains, nftNATChains(t)...)
	chains = append(chains, nftReturnChains()...)
	return append(chains, nftFilterChains(t)...)
}

// nftPickChains choose a backend. The packet's mark contains the slot, as nft 1.0.6 cannot list
// a hash inside a concatenation.
func nftPickChains(f nftFamily) []nftChain {
	chain := func(slots int, affinity bool) nftChain {
		r := newRule()
		r.saveMark()
		if slots == desired.SlotsOne {
			r.add(&expr.Immediate{Register: nftReg, Data: nftHostOrder(0)}).setMark(nftReg).family(f)
		} else {
			r.family(f).hashSlot(f, slots, !affinity)
		}
		r.dnatSlot(f)
		return nftChain{name: desired.PickChain(slots, affinity) + f.digit, rules: []*nftRule{r}}
	}
	return []nftChain{
		chain(desired.SlotsOne, false),
		chain(desired.SlotsMany, false), chain(desired.SlotsMany, true),
	}
}

// saveMark saves the packet's mark, which belongs to other programs, in a register.
func (r *nftRule) saveMark() *nftRule { return r.load(expr.MetaKeyMARK, nftRegSpare) }

// restoreMark restores the packet's mark. It comes before the lookup that uses the slot, so
// packets without an element also keep their mark.
func (r *nftRule) restoreMark() *nftRule { return r.setMark(nftRegSpare) }

// hashSlot puts the hash of the source (and its port) into the mark.
func (r *nftRule) hashSlot(f nftFamily, slots int, port bool) *nftRule {
	size := f.size
	r.network(f.src, f.size, nftReg2)
	if port {
		register := uint32(nftReg3)
		if f.size == 4 {
			register = unix.NFT_REG32_05 // after 32 bits in register 2
		}
		r.transport(0, 2, register)
		size += 4
	}
	r.add(&expr.Hash{
		SourceRegister: nftReg2, DestRegister: nftReg, Length: size,
		Modulus: uint32(slots), Seed: nftHashSeed, Type: expr.HashTypeJenkins,
	})
	return r.setMark(nftReg)
}

// dnatSlot translates to the element of slots for destination, port and mark.
func (r *nftRule) dnatSlot(f nftFamily) *nftRule {
	return r.loadService(f).load(expr.MetaKeyMARK, f.regAfter(2)).restoreMark().
		lookup(desired.SetSlots, f).nat(expr.NATTypeDestNAT, f, f.regAfter(0))
}

// loadService loads destination, protocol and port.
func (r *nftRule) loadService(f nftFamily) *nftRule { return r.loadEndpoint(f, f.dst, 2) }

// loadEndpoint loads an address, the protocol and a port, one after the other.
func (r *nftRule) loadEndpoint(f nftFamily, address, port uint32) *nftRule {
	return r.network(address, f.size, nftReg).load(expr.MetaKeyL4PROTO, f.regAfter(0)).transport(port, 2, f.regAfter(1))
}

func nftNATChains(t desired.Table) []nftChain {
	services, inverse := nftChain{name: "services"}, nftChain{name: "inverse"}
	egress, serverFirst, sharedEgress := nftChain{name: "egress"}, nftChain{name: "server_first"}, nftChain{name: "shared_egress"}
	var countChains []nftChain
	// Clusterset IPs and exports are for packets from our own devices and from pods. Other
	// hosts of the nodes' network cannot use them.
	prerouting := nftChain{name: "prerouting", base: nftHook("nat", unix.NF_INET_PRE_ROUTING, nftPriorityDNAT), rules: []*nftRule{
		newRule().ifname(expr.MetaKeyIIFNAME, desired.DevicePrefix).goTo("arriving"),
	}}
	arriving := nftChain{name: "arriving", rules: []*nftRule{
		newRule().jump("services"),
		newRule().notIfname(expr.MetaKeyIIFNAME, desired.NodeDevicePrefix).goTo("inverse"),
	}}
	postrouting := nftChain{
		name: "postrouting", base: nftHook("nat", unix.NF_INET_POST_ROUTING, nftPrioritySNAT),
		rules: []*nftRule{
			newRule().tunnel(expr.MetaKeyOIFNAME).goTo("egress"),
			newRule().add(&expr.Ct{Key: expr.CtKeyMARK, Register: nftReg}).equal(nftHostOrder(nftMasqueradeMark)...).add(&expr.Masq{}),
		},
	}
	for _, f := range nftFamilies() {
		// Test packets for direct paths keep their source, as packets to and from other
		// clusters do.
		postrouting.rules = append(postrouting.rules, newRule().ifname(expr.MetaKeyIIFNAME, desired.NodeDevice).
			dport(unix.IPPROTO_UDP, desired.ProbePort).family(f).saddr(f).nat(expr.NATTypeSourceNAT, f, 0))
	}
	for _, f := range nftFamilies() {
		services.rules = append(services.rules,
			newRule().family(f).loadService(f).add(&expr.Lookup{
				SourceRegister: nftReg, DestRegister: unix.NFT_REG_VERDICT, IsDestRegSet: true, SetName: desired.SetServices + f.digit,
			}),
			newRule().icmpType(f, f.echo).daddr(f).lookup(desired.SetICMPEcho, f).nat(expr.NATTypeDestNAT, f, 0),
		)
		inverse.rules = append(inverse.rules,
			newRule().family(f).daddr(f).lookup(desired.SetOwners, f).nat(expr.NATTypeDestNAT, f, 0),
			newRule().family(f).daddr(f).lookup(desired.SetUnmapped, f).natPrefix(expr.NATTypeDestNAT, f),
		)
		postrouting.rules = append(postrouting.rules, nftKeepSourceRules(f)...)
		prerouting.rules = append(prerouting.rules, newRule().family(f).saddr(f).in(desired.SetPods, f).goTo("services"))
		egress.rules = append(egress.rules, nftEgressRules(f, t)...)
		countChains = append(countChains, nftCountChain(f, t.Connections))
		sharedEgress.rules = append(sharedEgress.rules, newRule().saveMark().family(f).hashSlot(f, desired.SharedSlots, false).
			load(expr.MetaKeyMARK, nftReg).restoreMark().lookup(desired.SetShared, f).nat(expr.NATTypeSourceNAT, f, 0))
		serverFirst.rules = append(serverFirst.rules, nftServerFirstRules(f)...)
	}
	egress.rules = append(egress.rules,
		newRule().ifname(expr.MetaKeyIIFNAME, desired.NodeDevice).goTo("shared_egress"),
		nftHandedOver(nftFamilies()[0]).goTo("shared_egress"),
		nftHandedOver(nftFamilies()[1]).goTo("shared_egress"),
		newRule().add(&expr.Fib{Register: nftReg, FlagSADDR: true, ResultADDRTYPE: true}).
			equal(nftHostOrder(unix.RTN_LOCAL)...).goTo("shared_egress"),
		newRule().dropAs(desired.DropUnknownSource),
	)
	return append([]nftChain{
		services,
		inverse,
		arriving,
		prerouting,
		{name: "output", base: nftHook("nat", unix.NF_INET_LOCAL_OUT, nftPriorityDNAT), rules: []*nftRule{
			newRule().jump("services"),
		}},
		postrouting,
		serverFirst,
		sharedEgress,
		egress,
	}, countChains...)
}

// nftKeepSourceRules translates an address to itself towards and from remote prefixes: a later
// chain does not masquerade a flow with a mapping. In the middle of a TCP connection it also sets
// the port. Otherwise the kernel changes the port if both directions are new here at the same
// moment and the reverse direction came first. With the port set, the kernel drops the packet
// instead, and the next one belongs to the existing entry. Networks that the node is connected to
// are not remote.
func nftKeepSourceRules(f nftFamily) []*nftRule {
	rule := func() *nftRule { return newRule().family(f) }
	middle := func() *nftRule { return newRule().tcpFlags(nftSynOrRst, expr.CmpOpEq).family(f) }
	snatToSelfWithPort := func(r *nftRule) *nftRule {
		port := f.regAfter(0)
		return r.saddr(f).transport(0, 2, port).nat(expr.NATTypeSourceNAT, f, port)
	}
	snatToSelf := func(r *nftRule) *nftRule { return r.saddr(f).nat(expr.NATTypeSourceNAT, f, 0) }
	toRemote := func(r *nftRule) *nftRule {
		return r.daddr(f).in(desired.SetRemote, f).daddr(f).load(expr.MetaKeyOIFNAME, f.regAfter(0)).notIn(desired.SetConnected, f)
	}
	fromRemote := func(r *nftRule) *nftRule {
		return r.saddr(f).in(desired.SetRemote, f).saddr(f).load(expr.MetaKeyIIFNAME, f.regAfter(0)).notIn(desired.SetConnected, f)
	}
	return []*nftRule{
		// A machine that is not a pod has no route to other clusters.
		rule().saddr(f).in(desired.SetRemote, f).loadService(f).in(desired.SetExternalEndpoints, f).add(&expr.Masq{}),
		rule().saddr(f).network(f.dst, f.size, f.regAfter(0)).in(desired.SetHairpin, f).add(&expr.Masq{}),
		snatToSelfWithPort(toRemote(middle())), snatToSelf(toRemote(rule())),
		snatToSelfWithPort(fromRemote(middle())), snatToSelf(fromRemote(rule())),
	}
}

// nftServerFirstRules handles packets of a server in a connection that this gateway has not seen.
// If the server backs one address, they leave with that address. If it backs several, a wrong
// address would end the connection: the packets are dropped until the client sends.
func nftServerFirstRules(f nftFamily) []*nftRule {
	return []*nftRule{
		newRule().family(f).loadEndpoint(f, f.src, 0).in(desired.SetAmbiguous, f).drop(),
		newRule().family(f).loadEndpoint(f, f.src, 0).lookup(desired.SetReverse, f).nat(expr.NATTypeSourceNAT, f, f.regAfter(0)),
	}
}

// nftEgressRules sets the source address with which a packet enters a tunnel. The first rule with a
// matching address wins. A source that is neither a pod nor a node gets none.
func nftEgressRules(f nftFamily, t desired.Table) []*nftRule {
	rules := []*nftRule{
		newRule().family(f).saddr(f).in(desired.SetTunnels, f).accept(),
		newRule().family(f).daddr(f).in(desired.SetPeers, f).dropAs(desired.DropTunnel),
	}
	if t.Connections > 0 {
		rules = append(rules, nftQuotaRules(f, t.Connections)...)
	}
	return append(rules,
		newRule().family(f).tcpFlags(nftSynOrRst, expr.CmpOpEq).jump("server_first"),
		newRule().family(f).l4proto(unix.IPPROTO_UDP).jump("server_first"),
		newRule().family(f).saddr(f).lookup(desired.SetEgress, f).nat(expr.NATTypeSourceNAT, f, 0),
		newRule().family(f).saddr(f).in(desired.SetKeepSource, f).saddr(f).nat(expr.NATTypeSourceNAT, f, 0),
		// As in nftKeepSourceRules. nft(8) can list the port, but not write it.
		newRule().tcpFlags(nftSynOrRst, expr.CmpOpEq).family(f).saddr(f).lookup(desired.SetMapped, f).natPrefixPort(expr.NATTypeSourceNAT, f),
		newRule().family(f).saddr(f).lookup(desired.SetMapped, f).natPrefix(expr.NATTypeSourceNAT, f),
		newRule().family(f).saddr(f).in(desired.SetPods, f).goTo("shared_egress"),
	)
}
