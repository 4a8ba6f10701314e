package kernel

import (
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/kernel/nftables"
)

// The seed of the hash from client to slot. It is the same on every gateway, so all gateways
// choose the same slot.
const nftHashSeed = 0x6861

// Priorities of the hooks: NAT before kube-proxy's (-100, 100), filters before the filters of
// other programs (0), and the clamp at the priority of mangle rules.
const (
	nftPriorityDNAT   = -110
	nftPrioritySNAT   = 90
	nftPriorityFilter = -10
	nftPriorityMSS    = -150
)

// nftBase returns the hook of a base chain; kind is nat or filter.
func nftBase(kind string, hook uint32, priority int32) *nftables.Hook {
	return &nftables.Hook{Type: kind, Number: hook, Priority: priority}
}

// nftChain is one chain with its rules, in order.
type nftChain struct {
	name  string
	base  *nftables.Hook
	rules []*nftRule
}

// nftNew starts an empty rule.
func nftNew() *nftRule { return &nftRule{} }

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
		r := nftNew()
		r.saveMark()
		if slots == desired.SlotsOne {
			r.add(&expr.Immediate{Register: nftReg, Data: nftHostOrder(0)}).markFrom(nftReg).family(f)
		} else {
			r.family(f).slot(f, slots, !affinity)
		}
		r.pick(f)
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
func (r *nftRule) restoreMark() *nftRule { return r.markFrom(nftRegSpare) }

// slot puts the hash of the source (and its port) into the mark.
func (r *nftRule) slot(f nftFamily, slots int, port bool) *nftRule {
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
	return r.markFrom(nftReg)
}

// pick translates to the element of slots for destination, port and mark.
func (r *nftRule) pick(f nftFamily) *nftRule {
	return r.service(f).load(expr.MetaKeyMARK, f.behind(2)).restoreMark().
		mapped(desired.SetSlots, f).nat(expr.NATTypeDestNAT, f, f.behind(0))
}

// service loads destination, protocol and port.
func (r *nftRule) service(f nftFamily) *nftRule { return r.endpoint(f, f.dst, 2) }

// endpoint loads an address, the protocol and a port, one after the other.
func (r *nftRule) endpoint(f nftFamily, address, port uint32) *nftRule {
	return r.network(address, f.size, nftReg).load(expr.MetaKeyL4PROTO, f.behind(0)).transport(port, 2, f.behind(1))
}

func nftNATChains(t desired.Table) []nftChain {
	services, inverse := nftChain{name: "services"}, nftChain{name: "inverse"}
	egress, serverFirst, sharedEgress := nftChain{name: "egress"}, nftChain{name: "server_first"}, nftChain{name: "shared_egress"}
	var counts []nftChain
	// Clusterset IPs and exports are for packets from our own devices and from pods. Other hosts
	// of the nodes' network cannot use them.
	prerouting := nftChain{name: "prerouting", base: nftBase("nat", unix.NF_INET_PRE_ROUTING, nftPriorityDNAT), rules: []*nftRule{
		nftNew().link(expr.MetaKeyIIFNAME, desired.DevicePrefix).goTo("arriving"),
	}}
	arriving := nftChain{name: "arriving", rules: []*nftRule{
		nftNew().jump("services"),
		nftNew().notLink(expr.MetaKeyIIFNAME, desired.NodePrefix).goTo("inverse"),
	}}
	postrouting := nftChain{
		name: "postrouting", base: nftBase("nat", unix.NF_INET_POST_ROUTING, nftPrioritySNAT),
		rules: []*nftRule{
			nftNew().tunnel(expr.MetaKeyOIFNAME).goTo("egress"),
			nftNew().add(&expr.Ct{Key: expr.CtKeyMARK, Register: nftReg}).equal(nftHostOrder(nftShortcut)...).add(&expr.Masq{}),
		},
	}
	for _, f := range nftFamilies() {
		// Test packets for direct paths keep their source, as packets to and from other clusters do.
		postrouting.rules = append(postrouting.rules, nftNew().link(expr.MetaKeyIIFNAME, desired.NodeDevice).
			dport(unix.IPPROTO_UDP, desired.ProbePort).family(f).saddr(f).nat(expr.NATTypeSourceNAT, f, 0))
	}
	for _, f := range nftFamilies() {
		services.rules = append(services.rules,
			nftNew().family(f).service(f).add(&expr.Lookup{
				SourceRegister: nftReg, DestRegister: unix.NFT_REG_VERDICT, IsDestRegSet: true, SetName: desired.SetServices + f.digit,
			}),
			nftNew().icmpType(f, f.echo).daddr(f).mapped(desired.SetEcho, f).nat(expr.NATTypeDestNAT, f, 0),
		)
		inverse.rules = append(inverse.rules,
			nftNew().family(f).daddr(f).mapped(desired.SetOwners, f).nat(expr.NATTypeDestNAT, f, 0),
			nftNew().family(f).daddr(f).mapped(desired.SetUnmapped, f).natPrefix(expr.NATTypeDestNAT, f),
		)
		postrouting.rules = append(postrouting.rules, nftKeepSource(f)...)
		prerouting.rules = append(prerouting.rules, nftNew().family(f).saddr(f).in(desired.SetPods, f).goTo("services"))
		egress.rules = append(egress.rules, nftEgress(f, t)...)
		counts = append(counts, nftCount(f, t.Connections))
		sharedEgress.rules = append(sharedEgress.rules, nftNew().saveMark().family(f).slot(f, desired.SharedSlots, false).
			load(expr.MetaKeyMARK, nftReg).restoreMark().mapped(desired.SetShared, f).nat(expr.NATTypeSourceNAT, f, 0))
		serverFirst.rules = append(serverFirst.rules, nftServerFirst(f)...)
	}
	egress.rules = append(egress.rules,
		nftNew().link(expr.MetaKeyIIFNAME, desired.NodeDevice).goTo("shared_egress"),
		nftHandedOver(nftFamilies()[0]).goTo("shared_egress"),
		nftHandedOver(nftFamilies()[1]).goTo("shared_egress"),
		nftNew().add(&expr.Fib{Register: nftReg, FlagSADDR: true, ResultADDRTYPE: true}).
			equal(nftHostOrder(unix.RTN_LOCAL)...).goTo("shared_egress"),
		nftNew().dropAs(desired.DropUnknownSource),
	)
	return append([]nftChain{
		services,
		inverse,
		arriving,
		prerouting,
		{name: "output", base: nftBase("nat", unix.NF_INET_LOCAL_OUT, nftPriorityDNAT), rules: []*nftRule{
			nftNew().jump("services"),
		}},
		postrouting,
		serverFirst,
		sharedEgress,
		egress,
	}, counts...)
}

// nftKeepSource translates an address to itself towards and from remote prefixes: a later chain
// does not masquerade a flow with a mapping. In the middle of a TCP connection it also sets the
// port. Otherwise the kernel changes the port if both directions are new here at the same
// moment and the reverse direction came first. Then the packet is lost instead, and the next
// one belongs to that entry. Networks that the node is connected to are not remote.
func nftKeepSource(f nftFamily) []*nftRule {
	rule := func() *nftRule { return nftNew().family(f) }
	middle := func() *nftRule { return nftNew().tcpFlags(nftSynOrRst, expr.CmpOpEq).family(f) }
	exact := func(r *nftRule) *nftRule {
		return r.saddr(f).transport(0, 2, f.behind(0)).nat(expr.NATTypeSourceNAT, f, f.behind(0))
	}
	same := func(r *nftRule) *nftRule { return r.saddr(f).nat(expr.NATTypeSourceNAT, f, 0) }
	to := func(r *nftRule) *nftRule {
		return r.daddr(f).in(desired.SetRemote, f).daddr(f).load(expr.MetaKeyOIFNAME, f.behind(0)).notIn(desired.SetConnected, f)
	}
	from := func(r *nftRule) *nftRule {
		return r.saddr(f).in(desired.SetRemote, f).saddr(f).load(expr.MetaKeyIIFNAME, f.behind(0)).notIn(desired.SetConnected, f)
	}
	return []*nftRule{
		// A machine that is not a pod has no route to other clusters.
		rule().saddr(f).in(desired.SetRemote, f).service(f).in(desired.SetMachines, f).add(&expr.Masq{}),
		rule().saddr(f).network(f.dst, f.size, f.behind(0)).in(desired.SetHairpin, f).add(&expr.Masq{}),
		exact(to(middle())), same(to(rule())),
		exact(from(middle())), same(from(rule())),
	}
}

// nftServerFirst handles packets of a server in a connection that this gateway has not seen. If
// the server backs one address, they leave with that address. If it backs several, a wrong
// address would end the connection: the packets are dropped until the client sends.
func nftServerFirst(f nftFamily) []*nftRule {
	return []*nftRule{
		nftNew().family(f).endpoint(f, f.src, 0).in(desired.SetAmbiguous, f).drop(),
		nftNew().family(f).endpoint(f, f.src, 0).mapped(desired.SetReverse, f).nat(expr.NATTypeSourceNAT, f, f.behind(0)),
	}
}

// nftEgress sets the source address with which a packet enters a tunnel. The first rule with a
// matching address wins. A source that is neither a pod nor a node gets none.
func nftEgress(f nftFamily, t desired.Table) []*nftRule {
	rules := []*nftRule{
		nftNew().family(f).saddr(f).in(desired.SetTunnels, f).accept(),
		nftNew().family(f).daddr(f).in(desired.SetPeers, f).dropAs(desired.DropTunnel),
	}
	if t.Connections > 0 {
		rules = append(rules, nftQuota(f, t.Connections)...)
	}
	return append(rules,
		nftNew().family(f).tcpFlags(nftSynOrRst, expr.CmpOpEq).jump("server_first"),
		nftNew().family(f).l4proto(unix.IPPROTO_UDP).jump("server_first"),
		nftNew().family(f).saddr(f).mapped(desired.SetEgress, f).nat(expr.NATTypeSourceNAT, f, 0),
		nftNew().family(f).saddr(f).in(desired.SetKeepSource, f).saddr(f).nat(expr.NATTypeSourceNAT, f, 0),
		// As in nftKeepSource. nft(8) can list the port, but not write it.
		nftNew().tcpFlags(nftSynOrRst, expr.CmpOpEq).family(f).saddr(f).mapped(desired.SetMapped, f).natPrefixPort(expr.NATTypeSourceNAT, f),
		nftNew().family(f).saddr(f).mapped(desired.SetMapped, f).natPrefix(expr.NATTypeSourceNAT, f),
		nftNew().family(f).saddr(f).in(desired.SetPods, f).goTo("shared_egress"),
	)
}
