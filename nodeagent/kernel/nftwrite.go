package kernel

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/desired"
)

// Types of our entries in a rule's user data. nft(8) prints the comment (0) and
// skips the types that it does not know.
const (
	nftUserTag userdata.Type = 0x68 // digest of the rule and its place
	nftUserMSS userdata.Type = 0x6d // segment size of a clamping rule, bytes
	// nftUserQuota is how many connections a rule of the quota leaves to a pod.
	nftUserQuota userdata.Type = 0x71
)

// The anonymous set of protocols, as nf_tables wants it named, and its id
// within a transaction, beyond those of the named sets.
const (
	nftAnonymous   = "__set%d"
	nftAnonymousID = 1000
)

const nftAppend = unix.NLM_F_CREATE | unix.NLM_F_APPEND

// nftRuleLine describes a rule at its place for the digest of the skeleton.
// The kernel does not give back the bytes that it was given, so a rule carries
// a digest of them; a rule that was replaced by hand has lost it.
func nftRuleLine(chain string, place int, tag []byte) string {
	return fmt.Sprintf("rule %s %d %x", chain, place, tag)
}

func nftChainLine(name string, base *nftHook, policy uint32) string {
	if base == nil {
		return "chain " + name
	}
	return fmt.Sprintf("chain %s type %s hook %d priority %d policy %d", name, base.kind, base.hook, base.priority, policy)
}

const nftPolicyAccept = 1 // NF_ACCEPT

// nftWanted gives the digest of the skeleton as it should be.
func nftWanted(t desired.Table) string {
	lines := []string{nftTableLine(0)}
	for _, s := range nftSets() {
		lines = append(lines, s.line())
	}
	for _, c := range nftChains(t) {
		lines = append(lines, nftChainLine(c.name, c.base, nftPolicyAccept))
		for i, r := range c.rules {
			lines = append(lines, nftRuleLine(c.name, i, r.tag(c.name, i)))
		}
	}
	return nftDigest(lines)
}

func nftTableLine(flags uint32) string { return fmt.Sprintf("table flags %#x", flags) }

func (r *nftRule) tag(chain string, place int) []byte {
	h := sha256.New()
	fmt.Fprintf(h, "%s %d %x\n", chain, place, r.members)
	h.Write(r.buf)
	return h.Sum(nil)[:16]
}

func (r *nftRule) userData(chain string, place int) []byte {
	udata := userdata.Append(nil, nftUserTag, r.tag(chain, place))
	if r.mss != 0 {
		udata = userdata.Append(udata, nftUserMSS, binary.BigEndian.AppendUint16(nil, uint16(r.mss)))
	}
	if r.connections != 0 {
		udata = userdata.Append(udata, nftUserQuota, binary.BigEndian.AppendUint32(nil, uint32(r.connections)))
	}
	return udata
}

func (b *nftBatch) newTable(name string) {
	b.message(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, func() {
		b.text(unix.NFTA_TABLE_NAME, name)
		b.u32(unix.NFTA_TABLE_FLAGS, 0)
	})
}

func (b *nftBatch) deleteTable(name string) {
	b.message(unix.NFT_MSG_DELTABLE, 0, func() { b.text(unix.NFTA_TABLE_NAME, name) })
}

func (b *nftBatch) newSet(s nftSet, id uint32) {
	b.message(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, func() { s.declare(&b.nftAttrs, id) })
}

func (b *nftBatch) newChain(table string, c nftChain) {
	b.message(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, func() {
		b.text(unix.NFTA_CHAIN_TABLE, table)
		b.text(unix.NFTA_CHAIN_NAME, c.name)
		if c.base == nil {
			return
		}
		b.nest(unix.NFTA_CHAIN_HOOK, func() {
			b.u32(unix.NFTA_HOOK_HOOKNUM, c.base.hook)
			b.u32(unix.NFTA_HOOK_PRIORITY, uint32(c.base.priority))
		})
		b.u32(unix.NFTA_CHAIN_POLICY, nftPolicyAccept)
		b.text(unix.NFTA_CHAIN_TYPE, c.base.kind)
	})
}

func (b *nftBatch) deleteChain(table, name string) (number int) {
	return b.message(unix.NFT_MSG_DELCHAIN, 0, func() {
		b.text(unix.NFTA_CHAIN_TABLE, table)
		b.text(unix.NFTA_CHAIN_NAME, name)
	})
}

// newRule appends a rule to a chain; udata may be nil.
func (b *nftBatch) newRule(table, chain string, r *nftRule, udata []byte) (number int) {
	return b.message(unix.NFT_MSG_NEWRULE, nftAppend, func() {
		b.text(unix.NFTA_RULE_TABLE, table)
		b.text(unix.NFTA_RULE_CHAIN, chain)
		b.nest(unix.NFTA_RULE_EXPRESSIONS, func() { b.buf = append(b.buf, r.buf...) })
		if udata != nil {
			b.bytes(unix.NFTA_RULE_USERDATA, udata)
		}
	})
}

func (b *nftBatch) newRules(chains []nftChain) {
	for _, c := range chains {
		for i, r := range c.rules {
			if len(r.members) > 0 {
				b.newProtocols(r.members)
			}
			b.newRule(desired.TableName, c.name, r, r.userData(c.name, i))
		}
	}
}

// newProtocols adds the anonymous set of the rule that follows.
func (b *nftBatch) newProtocols(members []byte) {
	protocols := nftSet{Set: desired.Set{Key: []desired.Type{desired.TypeProto}}}
	magic, size := protocols.types(protocols.Key)
	b.message(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, func() {
		b.text(unix.NFTA_SET_TABLE, desired.TableName)
		b.text(unix.NFTA_SET_NAME, nftAnonymous)
		b.u32(unix.NFTA_SET_FLAGS, unix.NFT_SET_ANONYMOUS|unix.NFT_SET_CONSTANT)
		b.u32(unix.NFTA_SET_KEY_TYPE, magic)
		b.u32(unix.NFTA_SET_KEY_LEN, size)
		b.u32(unix.NFTA_SET_ID, nftAnonymousID)
		b.nest(unix.NFTA_SET_DESC, func() { b.u32(unix.NFTA_SET_DESC_SIZE, uint32(len(members))) })
		b.bytes(unix.NFTA_SET_USERDATA, protocols.userData())
	})
	b.message(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, func() {
		b.text(unix.NFTA_SET_ELEM_LIST_TABLE, desired.TableName)
		b.text(unix.NFTA_SET_ELEM_LIST_SET, nftAnonymous)
		b.u32(unix.NFTA_SET_ELEM_LIST_SET_ID, nftAnonymousID)
		b.nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS, func() {
			for _, m := range members {
				b.nest(unix.NFTA_LIST_ELEM, func() { b.data(unix.NFTA_SET_ELEM_KEY, []byte{m}) })
			}
		})
	})
}
