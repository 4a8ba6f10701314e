package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	googlenft "github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/kernel/nftables"
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

// AllowUntil allows the tunnels until a deadline, and drops their packets after it.
func (g *Guard) AllowUntil(until time.Time) error {
	if err := g.write(until); err != nil {
		return fmt.Errorf("open the guard of the gateway: %w", err)
	}
	return nil
}

// Block drops the packets of the tunnels.
func (g *Guard) Block() error {
	if err := g.write(time.Time{}); err != nil {
		return fmt.Errorf("close the guard of the gateway: %w", err)
	}
	return nil
}

// Remove takes the table away; one that is not there is fine.
func (g *Guard) Remove() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	err := g.ns.nftCommit(func(b *nftables.Batch) { b.DeleteTable(guardTable()) })
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
	return g.ns.nftCommit(func(b *nftables.Batch) { guardReplace(b, until, guardChains(until, ports)) })
}

func guardTable() nftables.TableName {
	return nftables.TableName{Family: nftables.FamilyINet, Name: GuardTable}
}

// guardReplace replaces the table. The elements of its set expire at a time.
func guardReplace(b *nftables.Batch, until time.Time, chains []nftChain) {
	table := nftables.Table{TableName: guardTable()}
	b.AddTable(table) // so that there is one to delete
	b.DeleteTable(guardTable())
	b.AddTable(table)
	guardSet(b, until)
	for _, c := range chains {
		b.AddChain(c.declaration(guardTable()))
		for _, r := range c.rules {
			b.AddRule(nftables.Rule{Table: guardTable(), Chain: c.name, Expressions: r.code.Encoded()})
		}
	}
}

// guardChains are the rules: in each chain the first one lets all pass while the guard is
// open, and the others drop what a gateway has.
func guardChains(until time.Time, ports []PortRange) []nftChain {
	chain := func(name string, hook uint32, rules ...*nftRule) nftChain {
		if !until.IsZero() {
			rules = slices.Insert(rules, 0, guardPass(until))
		}
		return nftChain{name: name, base: nftBase("filter", hook, guardPriority), rules: rules}
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

// guardSet adds the set of protocols that may pass. It is empty after that time.
func guardSet(b *nftables.Batch, until time.Time) {
	set := nftables.SetName{Table: guardTable(), Name: guardOpen}
	b.AddSet(nftables.Set{
		SetName: set, ID: 1, Flags: unix.NFT_SET_TIMEOUT, Key: nftables.Type{Number: googlenft.TypeNFProto.GetNFTMagic(), Size: 1},
	})
	left := time.Until(until)
	if left < time.Millisecond {
		return
	}
	var elements []nftables.Element
	for _, f := range nftFamilies() {
		elements = append(elements, nftables.Element{Key: []byte{f.proto}, Timeout: left})
	}
	b.AddElements(set, 0, elements)
}
