package kernel

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/kernel/nftables"
)

// Types of our entries in a rule's user data. nft(8) prints the comment (0) and skips unknown
// types.
const (
	nftUserTag userdata.Type = 0x68 // digest of the rule and its position
	nftUserMSS userdata.Type = 0x6d // segment size of a clamping rule, bytes
	// nftUserQuota is the quota of a pod in a quota rule.
	nftUserQuota userdata.Type = 0x71
)

// The name pattern that nf_tables requires for the anonymous set of protocols, and the ID of the
// set within a transaction. The ID is above the IDs of the named sets.
const (
	nftAnonymous   = "__set%d"
	nftAnonymousID = 1000
)

// nftRuleLine describes a rule at its position for the digest of the table. The kernel does
// not return the same bytes that it received, so the rule's user data contain a digest of them.
// A rule replaced by hand lacks it.
func nftRuleLine(chain string, position int, tag []byte) string {
	return fmt.Sprintf("rule %s %d %x", chain, position, tag)
}

// nftChainLine describes a chain for the digest of the table.
func nftChainLine(c nftables.Chain) string {
	if c.Hook == nil {
		return "chain " + c.Name
	}
	return fmt.Sprintf("chain %s type %s hook %d priority %d policy %d", c.Name, c.Hook.Type, c.Hook.Number, c.Hook.Priority, c.Policy)
}

// nftDesiredDigest returns the digest of the desired table.
func nftDesiredDigest(t desired.Table) string {
	lines := []string{nftTableLine(0)}
	for _, s := range nftSets() {
		lines = append(lines, s.line())
	}
	for _, c := range nftChains(t) {
		lines = append(lines, nftChainLine(c.declaration(nftTable())))
		for i, r := range c.rules {
			lines = append(lines, nftRuleLine(c.name, i, r.tag(c.name, i)))
		}
	}
	return nftDigest(lines)
}

func nftTableLine(flags uint32) string { return fmt.Sprintf("table flags %#x", flags) }

func (r *nftRule) tag(chain string, position int) []byte {
	h := sha256.New()
	fmt.Fprintf(h, "%s %d %x\n", chain, position, r.members)
	h.Write(r.exprs.Encoded())
	return h.Sum(nil)[:16]
}

func (r *nftRule) userData(chain string, position int) []byte {
	udata := userdata.Append(nil, nftUserTag, r.tag(chain, position))
	if r.mss != 0 {
		udata = userdata.Append(udata, nftUserMSS, binary.BigEndian.AppendUint16(nil, uint16(r.mss)))
	}
	if r.connections != 0 {
		udata = userdata.Append(udata, nftUserQuota, binary.BigEndian.AppendUint32(nil, uint32(r.connections)))
	}
	return udata
}

// declaration returns the chain in a table. The policy of base chains is accept.
func (c nftChain) declaration(table nftables.TableName) nftables.Chain {
	return nftables.Chain{Table: table, Name: c.name, Hook: c.base, Policy: nftables.PolicyAccept}
}

// nftAddRules adds the rules of table inet hawser.
func nftAddRules(b *nftables.Batch, chains []nftChain) {
	for _, c := range chains {
		for i, r := range c.rules {
			if len(r.members) > 0 {
				nftAddProtocols(b, r.members)
			}
			b.AddRule(nftables.Rule{Table: nftTable(), Chain: c.name, Expressions: r.exprs.Encoded(), UserData: r.userData(c.name, i)})
		}
	}
}

// nftAddProtocols adds the anonymous set of the next rule.
func nftAddProtocols(b *nftables.Batch, members []byte) {
	protocols := nftSet{Set: desired.Set{Key: []desired.Type{desired.TypeProto}}, Name: nftAnonymous}
	set := protocols.declaration(nftAnonymousID)
	set.Flags, set.Size = unix.NFT_SET_ANONYMOUS|unix.NFT_SET_CONSTANT, uint32(len(members))
	b.AddSet(set)
	var elements []nftables.Element
	for _, m := range members {
		elements = append(elements, nftables.Element{Key: []byte{m}})
	}
	b.AddElements(set.SetName, nftAnonymousID, elements)
}
