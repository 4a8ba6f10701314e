package kernel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/kernel/nftables"
)

const (
	// nftQuotaSample is how many connections of a pod the kernel lists to know how many it
	// has. It looks up all that it lists at each new one that is counted (nf_conncount), so
	// with a larger quota one of several is counted, at random. "The quota of a pod" in
	// docs/datapath.md has what that costs, and how far it is from the quota.
	nftQuotaSample = 256
	// nftQuotaPause is how long a pod is refused without another count: the kernel lists
	// what it then refuses, too, and forgets only some of it at a time.
	nftQuotaPause = 100 * time.Millisecond
	// nftQuotaMemory is how long a pod that was refused has each new connection counted,
	// if it begins none.
	nftQuotaMemory = 10 * time.Minute
	// nftDynamicSize is how many elements a set that the rules fill has at most.
	nftDynamicSize = 1 << 20
)

// nftQuota has some of a pod's new flows counted: one of as many as each listed one
// stands for, and all while the pod has what it may have. It stands in a NAT chain: no
// packet of a flow that was let through comes here again.
func nftQuota(f nftFamily, connections int) []*nftRule {
	each := nftQuotaEach(connections)
	if each == 1 {
		return []*nftRule{nftNew().family(f).saddr(f).in(desired.SetPods, f).jump("count" + f.digit)}
	}
	sampled := nftNew().family(f).random(each).equal(nftHostOrder(0)...)
	return []*nftRule{
		nftNew().family(f).saddr(f).in(desired.SetHeld, f).jump("count" + f.digit),
		sampled.saddr(f).in(desired.SetPods, f).jump("count" + f.digit),
	}
}

// nftQuotaEach is how many connections each listed one stands for.
func nftQuotaEach(connections int) int { return max(1, connections/nftQuotaSample) }

// nftCount drops the first packet of a flow when its pod has as many flows as it may
// have. A pod that was refused is held: each flow counts until one finds room, which is
// the place of one listed that ended, and so of all those that it stood for. A set that
// is full takes no more elements and the rule ends there, so that sources which somebody
// made up keep nobody else out.
func nftCount(f nftFamily, connections int) nftChain {
	c := nftChain{name: "count" + f.digit}
	if connections == 0 {
		return c
	}
	each := nftQuotaEach(connections)
	add := func(set string, timeout time.Duration, by ...expr.Any) *expr.Dynset {
		return &expr.Dynset{
			SrcRegKey: nftReg, SetName: set + f.digit, Operation: unix.NFT_DYNSET_OP_ADD, Timeout: timeout, Exprs: by,
		}
	}
	held := add(desired.SetHeld, nftQuotaMemory)
	held.Operation = unix.NFT_DYNSET_OP_UPDATE
	over := nftNew().family(f).saddr(f).
		add(add(desired.SetQuota, 0, &expr.Connlimit{Count: uint32(connections / each), Flags: expr.NFT_CONNLIMIT_F_INV})).
		add(add(desired.SetFull, nftQuotaPause)).add(held).dropAs(desired.DropQuota)
	over.connections = connections
	c.rules = append(c.rules, nftNew().family(f).saddr(f).in(desired.SetFull, f).dropAs(desired.DropQuota), over)
	if each > 1 {
		c.rules = append(c.rules, nftNew().family(f).saddr(f).add(&expr.Dynset{
			SrcRegKey: nftReg, SetName: desired.SetHeld + f.digit, Operation: nftDynsetDelete,
		}))
	}
	return c
}

// nftDynsetDelete is NFT_DYNSET_OP_DELETE (uapi/linux/netfilter/nf_tables.h, Linux 5.5).
const nftDynsetDelete = 2

// CountsConnections reports whether the kernel can count the connections of a source in
// nftables (CONFIG_NFT_CONNLIMIT) and take some at random (CONFIG_NFT_NUMGEN), which the
// quota of desired.Table needs. It finds out with a transaction that the kernel refuses
// as a whole, whatever it can do, so that nothing changes.
func (ns *Namespace) CountsConnections(context.Context) (bool, error) {
	var counts bool
	err := ns.nft(func(conn *nftables.Conn) (err error) {
		counts, err = nftCountsConnections(conn)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("find out whether nftables counts connections: %w", err)
	}
	return counts, nil
}

func nftCountsConnections(conn *nftables.Conn) (bool, error) {
	trial := nftables.TableName{Family: nftables.FamilyINet, Name: desired.TableName + "-trial"}
	b := nftables.NewBatch(0)
	b.AddTable(nftables.Table{TableName: trial})
	b.AddChain(nftables.Chain{Table: trial, Name: "trial"})
	expressions := nftNew().random(2).add(&expr.Connlimit{Count: 1}).code.Encoded()
	rule := b.AddRule(nftables.Rule{Table: trial, Chain: "trial", Expressions: expressions})
	never := b.DeleteChain(trial, "never") // so that the kernel refuses the transaction
	err := conn.Commit(b)
	var refused *nftables.RefusedError
	if !errors.As(err, &refused) {
		return false, errors.Join(errors.New("kernel reported success deleting a chain that does not exist"), err)
	}
	counts, whole := true, false
	for _, fault := range refused.Faults {
		switch {
		case fault.Message == rule.Message && (errors.Is(fault.Err, unix.ENOENT) || errors.Is(fault.Err, unix.EOPNOTSUPP)):
			counts = false
		case fault.Message == never.Message:
			whole = true
		default:
			return false, refused
		}
	}
	if !whole {
		return false, refused
	}
	return counts, nil
}
