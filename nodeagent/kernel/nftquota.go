package kernel

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/desired"
)

const (
	// nftQuotaShare is how many connections one element of the quota counts. At a new one
	// the kernel looks up all of an element's (nf_conncount), once a tick at the most, and
	// takes back only some of those that ended. So a pod's are spread over many elements:
	// "The quota of a pod" in docs/datapath.md has what that costs.
	nftQuotaShare = 128
	// nftDynamicSize is how many elements a set that the rules fill has at most.
	nftDynamicSize = 1 << 20
)

// nftQuota drops the first packet of a flow when its pod has as many flows as it may
// have. It stands in a NAT chain: no packet of a flow that was let through comes here
// again. A set that is full takes no more elements and the rule ends there, so that
// sources which somebody made up keep nobody else out.
func nftQuota(f nftFamily, connections int) *nftRule {
	shares := max(1, connections/nftQuotaShare)
	ports := uint32(nftReg3)
	if f.size == 4 {
		ports = nftRegWord5
	}
	r := nftNew().family(f).saddr(f).in(desired.SetPods, f)
	r.connections = connections
	r.saveMark().network(f.dst, f.size, nftReg2).transport(0, 4, ports)
	r.add(&expr.Hash{
		SourceRegister: nftReg2, DestRegister: nftReg, Length: f.size + 4,
		Modulus: uint32(shares), Seed: nftHashSeed, Type: expr.HashTypeJenkins,
	})
	r.markFrom(nftReg).saddr(f).load(expr.MetaKeyMARK, f.behind).restoreMark()
	return r.add(&expr.Dynset{
		SrcRegKey: nftReg, SetName: desired.SetQuota + f.digit, Operation: unix.NFT_DYNSET_OP_ADD,
		Exprs: []expr.Any{&expr.Connlimit{Count: uint32(connections / shares), Flags: expr.NFT_CONNLIMIT_F_INV}},
	}).dropAs(desired.DropQuota)
}

// nftTrialTable is named in a transaction that is never taken.
const nftTrialTable = desired.TableName + "-trial"

// CountsConnections reports whether the kernel can count the connections of a source in
// nftables (CONFIG_NFT_CONNLIMIT), which the quota of desired.Table needs. It finds out
// with a transaction that the kernel refuses as a whole, whatever it can do, so that
// nothing changes.
func (ns *Namespace) CountsConnections(context.Context) (bool, error) {
	var counts bool
	err := ns.inside(func() error {
		s, err := nftOpen()
		if err != nil {
			return err
		}
		defer func() { _ = s.close() }()
		counts, err = s.countsConnections()
		return err
	})
	if err != nil {
		return false, fmt.Errorf("find out whether nftables counts connections: %w", err)
	}
	return counts, nil
}

func (s *nftSocket) countsConnections() (bool, error) {
	b := nftNewBatch(0)
	b.message(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, func() { b.text(unix.NFTA_TABLE_NAME, nftTrialTable) })
	b.message(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, func() {
		b.text(unix.NFTA_CHAIN_TABLE, nftTrialTable)
		b.text(unix.NFTA_CHAIN_NAME, "trial")
	})
	rule := b.message(unix.NFT_MSG_NEWRULE, nftAppend, func() {
		b.text(unix.NFTA_RULE_TABLE, nftTrialTable)
		b.text(unix.NFTA_RULE_CHAIN, "trial")
		counting := nftNew().add(&expr.Connlimit{Count: 1})
		b.nest(unix.NFTA_RULE_EXPRESSIONS, func() { b.buf = append(b.buf, counting.buf...) })
	})
	never := b.message(unix.NFT_MSG_DELCHAIN, 0, func() {
		b.text(unix.NFTA_CHAIN_TABLE, nftTrialTable)
		b.text(unix.NFTA_CHAIN_NAME, "never")
	})
	err := s.commit(b)
	var refused *nftRefused
	if !errors.As(err, &refused) {
		return false, errors.Join(errors.New("the kernel deleted a chain that there is not"), err)
	}
	counts, whole := true, false
	for _, fault := range refused.faults {
		switch {
		case fault.message == rule && (errors.Is(fault.err, unix.ENOENT) || errors.Is(fault.err, unix.EOPNOTSUPP)):
			counts = false
		case fault.message == never:
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
