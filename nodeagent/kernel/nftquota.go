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
	// nftQuotaSample is the maximum number of connections of a pod that the kernel lists to
	// count them. The kernel checks all listed connections for each new connection that it
	// counts (nf_conncount). So with a larger quota only a random fraction is counted. "The
	// quota of a pod" in docs/datapath.md has the cost and the accuracy.
	nftQuotaSample = 256
	// nftQuotaPause is the time for which a pod is refused without another count: the kernel
	// also lists the refused connections, and removes only some of them at a time.
	nftQuotaPause = 100 * time.Millisecond
	// nftQuotaMemory is the time for which every new connection of a refused pod is counted, if
	// the pod starts no connection.
	nftQuotaMemory = 10 * time.Minute
	// nftDynamicSize is the maximum number of elements of a set that rules fill.
	nftDynamicSize = 1 << 20
)

// nftQuotaRules counts a pod's new flows: with a large quota a random fraction, and all of them
// while the pod is at its quota. The rules are in a NAT chain: later packets of an accepted flow do
// not pass them again.
func nftQuotaRules(f nftFamily, connections int) []*nftRule {
	rate := nftQuotaSamplingRate(connections)
	if rate == 1 {
		return []*nftRule{newRule().family(f).saddr(f).in(desired.SetPods, f).jump("count" + f.digit)}
	}
	sampled := newRule().family(f).random(rate).equal(nftHostOrder(0)...)
	return []*nftRule{
		newRule().family(f).saddr(f).in(desired.SetCountAll, f).jump("count" + f.digit),
		sampled.saddr(f).in(desired.SetPods, f).jump("count" + f.digit),
	}
}

// nftQuotaSamplingRate returns the number of connections that each listed one represents.
func nftQuotaSamplingRate(connections int) int { return max(1, connections/nftQuotaSample) }

// nftCountChain drops the first packet of a flow if its pod is at its quota. After a refusal every
// flow of the pod is counted, until one is accepted. The accepted flow replaces a listed flow that
// ended, and with it all flows that the listed flow represents. A full set accepts no more
// elements, and the rule ends there. So spoofed sources do not block other pods.
func nftCountChain(f nftFamily, connections int) nftChain {
	c := nftChain{name: "count" + f.digit}
	if connections == 0 {
		return c
	}
	rate := nftQuotaSamplingRate(connections)
	add := func(set string, timeout time.Duration, expressions ...expr.Any) *expr.Dynset {
		return &expr.Dynset{
			SrcRegKey: nftReg, SetName: set + f.digit, Operation: unix.NFT_DYNSET_OP_ADD, Timeout: timeout, Exprs: expressions,
		}
	}
	countAll := add(desired.SetCountAll, nftQuotaMemory)
	countAll.Operation = unix.NFT_DYNSET_OP_UPDATE
	overQuota := newRule().family(f).saddr(f).
		add(add(desired.SetQuota, 0, &expr.Connlimit{Count: uint32(connections / rate), Flags: expr.NFT_CONNLIMIT_F_INV})).
		add(add(desired.SetOverQuota, nftQuotaPause)).add(countAll).dropAs(desired.DropQuota)
	overQuota.connections = connections
	c.rules = append(c.rules, newRule().family(f).saddr(f).in(desired.SetOverQuota, f).dropAs(desired.DropQuota), overQuota)
	if rate > 1 {
		c.rules = append(c.rules, newRule().family(f).saddr(f).add(&expr.Dynset{
			SrcRegKey: nftReg, SetName: desired.SetCountAll + f.digit, Operation: nftDynsetDelete,
		}))
	}
	return c
}

// nftDynsetDelete is NFT_DYNSET_OP_DELETE (uapi/linux/netfilter/nf_tables.h, Linux 5.5).
const nftDynsetDelete = 2

// CountsConnections reports whether the kernel can count the connections of a source in
// nftables (CONFIG_NFT_CONNLIMIT) and choose some at random (CONFIG_NFT_NUMGEN). The quota of
// desired.Table needs both. The test is a transaction that the kernel always refuses as a
// whole, so nothing changes.
func (ns *Namespace) CountsConnections(context.Context) (bool, error) {
	var supported bool
	err := ns.nft(func(conn *nftables.Conn) (err error) {
		supported, err = nftCountsConnections(conn)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("check whether nftables can count connections: %w", err)
	}
	return supported, nil
}

func nftCountsConnections(conn *nftables.Conn) (bool, error) {
	trial := nftables.TableName{Family: nftables.FamilyINet, Name: desired.TableName + "-trial"}
	b := nftables.NewBatch(0)
	b.AddTable(nftables.Table{TableName: trial})
	b.AddChain(nftables.Chain{Table: trial, Name: "trial"})
	expressions := newRule().random(2).add(&expr.Connlimit{Count: 1}).exprs.Encoded()
	rule := b.AddRule(nftables.Rule{Table: trial, Chain: "trial", Expressions: expressions})
	missingChain := b.DeleteChain(trial, "never") // so that the kernel refuses the transaction
	err := conn.Commit(b)
	var refused *nftables.RefusedError
	if !errors.As(err, &refused) {
		return false, errors.Join(errors.New("kernel reported success deleting a chain that does not exist"), err)
	}
	supported, refusedAsWhole := true, false
	for _, fault := range refused.Faults {
		switch {
		case fault.Message == rule.Message && (errors.Is(fault.Err, unix.ENOENT) || errors.Is(fault.Err, unix.EOPNOTSUPP)):
			supported = false
		case fault.Message == missingChain.Message:
			refusedAsWhole = true
		default:
			return false, refused
		}
	}
	if !refusedAsWhole {
		return false, refused
	}
	return supported, nil
}
