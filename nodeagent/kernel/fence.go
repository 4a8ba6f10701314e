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

// FenceTable is the nftables table of a Fence, of family inet.
const FenceTable = "hawser-hold"

const (
	fenceSetName  = "open"
	fencePriority = -250 // before filters, NAT and conntrack's helpers
	// metaTime is NFT_META_TIME_NS (uapi/linux/netfilter/nf_tables.h, Linux 5.4): the wall
	// clock in ns.
	metaTime = 30
)

// PortRange is a range of UDP ports, including First and Last.
type PortRange struct{ First, Last uint16 }

// Fence is a table that accepts the packets of a gateway's tunnels until a deadline, and drops them
// afterwards: packets to and from the UDP ports, and packets inside the tunnels. It closes at the
// deadline even if the agent hangs. The earlier of two clocks closes it: the timeout of a set
// element, and a comparison with the wall clock. The latter is for an agent that hangs between
// reading its clock and writing the table. The methods may be called from any goroutine.
type Fence struct {
	ns    *Namespace
	ports func() []PortRange

	mu sync.Mutex
}

// NewFence returns a fence for the UDP ports that a gateway on this node listens on. It writes
// nothing.
func (ns *Namespace) NewFence(ports func() []PortRange) *Fence { return &Fence{ns: ns, ports: ports} }

// AllowUntil allows the tunnels until a deadline, and drops their packets after it.
func (f *Fence) AllowUntil(until time.Time) error {
	if err := f.write(until); err != nil {
		return fmt.Errorf("open the fence of the gateway: %w", err)
	}
	return nil
}

// Block drops the packets of the tunnels.
func (f *Fence) Block() error {
	if err := f.write(time.Time{}); err != nil {
		return fmt.Errorf("close the fence of the gateway: %w", err)
	}
	return nil
}

// Remove deletes the table. A missing table is no error.
func (f *Fence) Remove() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.ns.nftCommit(func(b *nftables.Batch) { b.DeleteTable(fenceTable()) })
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return fmt.Errorf("remove the fence of the gateway: %w", err)
}

// write replaces the table in one transaction, so that no packet passes in between.
func (f *Fence) write(until time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	ports := slices.Clone(f.ports())
	return f.ns.nftCommit(func(b *nftables.Batch) { fenceReplace(b, until, fenceChains(until, ports)) })
}

func fenceTable() nftables.TableName {
	return nftables.TableName{Family: nftables.FamilyINet, Name: FenceTable}
}

// fenceReplace replaces the table. The elements of its set expire at until.
func fenceReplace(b *nftables.Batch, until time.Time, chains []nftChain) {
	table := nftables.Table{TableName: fenceTable()}
	b.AddTable(table) // so that the table exists when it is deleted
	b.DeleteTable(fenceTable())
	b.AddTable(table)
	fenceSet(b, until)
	for _, c := range chains {
		b.AddChain(c.declaration(fenceTable()))
		for _, r := range c.rules {
			b.AddRule(nftables.Rule{Table: fenceTable(), Chain: c.name, Expressions: r.exprs.Encoded()})
		}
	}
}

// fenceChains returns the rules. In each chain, the first rule accepts all packets while the
// fence is open. The other rules drop the packets of the gateway.
func fenceChains(until time.Time, ports []PortRange) []nftChain {
	chain := func(name string, hook uint32, rules ...*nftRule) nftChain {
		if !until.IsZero() {
			rules = slices.Insert(rules, 0, fenceAccept(until))
		}
		return nftChain{name: name, base: nftHook("filter", hook, fencePriority), rules: rules}
	}
	var to, from []*nftRule
	for _, p := range ports {
		to = append(to, fenceDropPorts(2, p))
		from = append(from, fenceDropPorts(0, p))
	}
	in, out := newRule().tunnel(expr.MetaKeyIIFNAME).drop(), newRule().tunnel(expr.MetaKeyOIFNAME).drop()
	return []nftChain{
		chain("input", unix.NF_INET_LOCAL_IN, append(to, in)...),
		chain("forward", unix.NF_INET_FORWARD, in, out),
		chain("output", unix.NF_INET_LOCAL_OUT, append(from, out)...),
	}
}

// fenceAccept accepts a packet until a deadline: its protocol's element must exist, and the wall
// clock must be before the deadline.
func fenceAccept(until time.Time) *nftRule {
	return newRule().load(expr.MetaKeyNFPROTO, nftReg).add(&expr.Lookup{SourceRegister: nftReg, SetName: fenceSetName}).
		load(metaTime, nftReg).
		add(&expr.Byteorder{SourceRegister: nftReg, DestRegister: nftReg, Op: expr.ByteorderHton, Len: 8, Size: 8}).
		add(&expr.Cmp{Op: expr.CmpOpLt, Register: nftReg, Data: binary.BigEndian.AppendUint64(nil, uint64(until.UnixNano()))}).
		accept()
}

// fenceDropPorts drops UDP with a port of a range at an offset of the header.
func fenceDropPorts(offset uint32, p PortRange) *nftRule {
	return newRule().l4proto(unix.IPPROTO_UDP).transport(offset, 2, nftReg).
		add(&expr.Cmp{Op: expr.CmpOpGte, Register: nftReg, Data: nftNetOrder16(p.First)}).
		add(&expr.Cmp{Op: expr.CmpOpLte, Register: nftReg, Data: nftNetOrder16(p.Last)}).drop()
}

// fenceSet adds the set of protocols that may pass. The elements expire at until.
func fenceSet(b *nftables.Batch, until time.Time) {
	set := nftables.SetName{Table: fenceTable(), Name: fenceSetName}
	b.AddSet(nftables.Set{
		SetName: set, ID: 1, Flags: unix.NFT_SET_TIMEOUT, Key: nftables.Type{Number: googlenft.TypeNFProto.GetNFTMagic(), Size: 1},
	})
	timeout := time.Until(until)
	if timeout < time.Millisecond {
		return
	}
	var elements []nftables.Element
	for _, f := range nftFamilies() {
		elements = append(elements, nftables.Element{Key: []byte{f.proto}, Timeout: timeout})
	}
	b.AddElements(set, 0, elements)
}
