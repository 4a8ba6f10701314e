package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// GuardTable is the nftables table of a Guard, of family inet.
const GuardTable = "hawser-hold"

const (
	guardOpen     = "open"
	guardPriority = -250 // before filters, NAT and conntrack's helpers
	// metaTime is NFT_META_TIME_NS (uapi/linux/netfilter/nf_tables.h, Linux 5.4): the wall
	// clock in ns.
	metaTime = 30
)

// PortRange are UDP ports, both ends included.
type PortRange struct{ First, Last uint16 }

// Guard is a table of its own that lets the tunnels of a gateway work for a while only: what
// comes to their ports or leaves from there, and what is in them. It closes by itself, also
// when the agent does not run then. Two clocks close it, and the first one counts: an element
// that the kernel takes out when its time is over, and a comparison with the wall clock, which
// holds where an agent stands still between looking at a clock and writing here. Its methods
// may be called from any goroutine.
type Guard struct {
	ns    *Namespace
	ports func() []PortRange

	mu sync.Mutex
}

// NewGuard makes a guard of the ports that a gateway on this node listens on. Nothing is
// written yet.
func (ns *Namespace) NewGuard(ports func() []PortRange) *Guard { return &Guard{ns: ns, ports: ports} }

// Open lets the tunnels work until a time, and not after it.
func (g *Guard) Open(until time.Time) error {
	if err := g.write(until); err != nil {
		return fmt.Errorf("open the guard of the gateway: %w", err)
	}
	return nil
}

// Close stops the tunnels.
func (g *Guard) Close() error {
	if err := g.write(time.Time{}); err != nil {
		return fmt.Errorf("close the guard of the gateway: %w", err)
	}
	return nil
}

// Remove takes the table away; one that is not there is fine.
func (g *Guard) Remove() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	err := g.ns.nftCommit(func(b *nftBatch) { b.deleteTable(GuardTable) })
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return fmt.Errorf("remove the guard of the gateway: %w", err)
}

// write replaces the table in one transaction, so that nothing passes in between.
func (g *Guard) write(until time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	ports := slices.Clone(g.ports())
	return g.ns.nftCommit(func(b *nftBatch) {
		b.newTable(GuardTable)
		b.deleteTable(GuardTable)
		b.newTable(GuardTable)
		b.guardSet(until)
		for _, c := range guardChains(until, ports) {
			b.newChain(GuardTable, c)
			for _, r := range c.rules {
				b.newRule(GuardTable, c.name, r, nil)
			}
		}
	})
}

// guardChains are the rules: in each chain the first one lets all pass while the guard is
// open, and the others drop what a gateway has.
func guardChains(until time.Time, ports []PortRange) []nftChain {
	chain := func(name string, hook uint32, rules ...*nftRule) nftChain {
		if !until.IsZero() {
			rules = slices.Insert(rules, 0, guardPass(until))
		}
		return nftChain{name: name, base: &nftHook{kind: "filter", hook: hook, priority: guardPriority}, rules: rules}
	}
	var to, from []*nftRule
	for _, p := range ports {
		to = append(to, guardPorts(2, p))
		from = append(from, guardPorts(0, p))
	}
	in, out := nftNew().tunnel(expr.MetaKeyIIFNAME).drop(), nftNew().tunnel(expr.MetaKeyOIFNAME).drop()
	return []nftChain{
		chain("input", unix.NF_INET_LOCAL_IN, append(to, in)...),
		chain("forward", unix.NF_INET_FORWARD, in, out),
		chain("output", unix.NF_INET_LOCAL_OUT, append(from, out)...),
	}
}

// guardPass lets a packet through up to a time: while its protocol's element is there, and
// the wall clock says so.
func guardPass(until time.Time) *nftRule {
	return nftNew().load(expr.MetaKeyNFPROTO, nftReg).add(&expr.Lookup{SourceRegister: nftReg, SetName: guardOpen}).
		load(metaTime, nftReg).
		add(&expr.Byteorder{SourceRegister: nftReg, DestRegister: nftReg, Op: expr.ByteorderHton, Len: 8, Size: 8}).
		add(&expr.Cmp{Op: expr.CmpOpLt, Register: nftReg, Data: binary.BigEndian.AppendUint64(nil, uint64(until.UnixNano()))}).
		accept()
}

// guardPorts drops UDP with a port of a range at an offset of the header.
func guardPorts(offset uint32, p PortRange) *nftRule {
	return nftNew().l4proto(unix.IPPROTO_UDP).transport(offset, 2, nftReg).
		add(&expr.Cmp{Op: expr.CmpOpGte, Register: nftReg, Data: nftNetOrder16(p.First)}).
		add(&expr.Cmp{Op: expr.CmpOpLte, Register: nftReg, Data: nftNetOrder16(p.Last)}).drop()
}

// guardSet makes the set of protocols that may pass. Where its time is over it is empty.
func (b *nftBatch) guardSet(until time.Time) {
	b.message(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, func() {
		b.text(unix.NFTA_SET_TABLE, GuardTable)
		b.text(unix.NFTA_SET_NAME, guardOpen)
		b.u32(unix.NFTA_SET_FLAGS, unix.NFT_SET_TIMEOUT)
		b.u32(unix.NFTA_SET_KEY_TYPE, nftables.TypeNFProto.GetNFTMagic())
		b.u32(unix.NFTA_SET_KEY_LEN, 1)
		b.u32(unix.NFTA_SET_ID, 1)
	})
	left := time.Until(until)
	if left < time.Millisecond {
		return
	}
	b.setElements(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, GuardTable, guardOpen, func() {
		for _, f := range nftFamilies() {
			b.expiring([]byte{f.proto}, left)
		}
	})
}
