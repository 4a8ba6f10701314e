package kernel

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/inventory"
)

// nftGetAll asks for all objects of a kind of the tables of a family.
func nftGetAll(family byte, typ uint16) *nftBatch {
	b := nftGet(typ, true, nil)
	b.buf[nftHeader] = family // the first of struct nfgenmsg
	return b
}

// takeTables reads tables, chains and numbers of rules of all owners, and the elements
// of ours. What a rule of somebody else's says is not read.
func (ns *Namespace) takeTables(ctx context.Context, k *inventory.Kernel) error {
	var conn nftConn
	defer func() { _ = conn.close() }()
	return ns.inside(func() error {
		return conn.settled(ctx, func(s *nftSocket) (err error) {
			k.Tables, k.Sets = nil, nil
			// In the words of nft(8).
			for _, family := range []struct {
				number byte
				name   string
			}{
				{unix.NFPROTO_IPV4, "ip"}, {unix.NFPROTO_IPV6, "ip6"}, {unix.NFPROTO_INET, "inet"},
				{unix.NFPROTO_ARP, "arp"}, {unix.NFPROTO_BRIDGE, "bridge"}, {unix.NFPROTO_NETDEV, "netdev"},
			} {
				tables, err := s.tables(family.number, family.name)
				if err != nil {
					return fmt.Errorf("read tables of family %s: %w", family.name, err)
				}
				k.Tables = append(k.Tables, tables...)
			}
			k.Sets, err = s.sets()
			return err
		})
	})
}

// tables reads those of one family. What is made meanwhile may be left out.
func (s *nftSocket) tables(family byte, name string) ([]inventory.Table, error) {
	var out []inventory.Table
	places := map[string]int{} // in out
	err := s.request(nftGetAll(family, unix.NFT_MSG_GETTABLE), func(body []byte) error {
		t := inventory.Table{Family: name, Name: nftText(nftFind(body, unix.NFTA_TABLE_NAME))}
		places[t.Name] = len(out)
		out = append(out, t)
		return nil
	})
	if err != nil || len(out) == 0 {
		return nil, err
	}
	err = s.request(nftGetAll(family, unix.NFT_MSG_GETCHAIN), func(body []byte) error {
		if at, known := places[nftText(nftFind(body, unix.NFTA_CHAIN_TABLE))]; known {
			out[at].Chains = append(out[at].Chains, nftChainOf(family, body))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	chains := map[[2]string]*inventory.Chain{}
	for i := range out {
		for j := range out[i].Chains {
			c := &out[i].Chains[j]
			chains[[2]string{out[i].Name, c.Name}] = c
		}
	}
	return out, s.request(nftGetAll(family, unix.NFT_MSG_GETRULE), func(body []byte) error {
		table := nftText(nftFind(body, unix.NFTA_RULE_TABLE))
		c := chains[[2]string{table, nftText(nftFind(body, unix.NFTA_RULE_CHAIN))}]
		if c == nil {
			return nil
		}
		c.Rules++
		if family == unix.NFPROTO_INET && table == desired.TableName {
			c.Digests = append(c.Digests, hex.EncodeToString(nftUserEntry(nftFind(body, unix.NFTA_RULE_USERDATA), nftUserTag)))
		}
		return nil
	})
}

func nftChainOf(family byte, body []byte) inventory.Chain {
	c := inventory.Chain{Name: nftText(nftFind(body, unix.NFTA_CHAIN_NAME))}
	hook := nftFind(body, unix.NFTA_CHAIN_HOOK)
	if hook == nil {
		return c
	}
	c.Type = nftText(nftFind(body, unix.NFTA_CHAIN_TYPE))
	c.Hook = nftHookName(family, nftUint32(nftFind(hook, unix.NFTA_HOOK_HOOKNUM)))
	c.Priority = int(int32(nftUint32(nftFind(hook, unix.NFTA_HOOK_PRIORITY))))
	c.Device = nftText(nftFind(hook, unix.NFTA_HOOK_DEV))
	c.Policy = "drop"
	if nftUint32(nftFind(body, unix.NFTA_CHAIN_POLICY)) == nftPolicyAccept {
		c.Policy = "accept"
	}
	return c
}

// nftHookName names a hook as nft(8) does; each family counts its own.
func nftHookName(family byte, number uint32) string {
	names := []string{"prerouting", "input", "forward", "output", "postrouting", "ingress"}
	switch family {
	case unix.NFPROTO_NETDEV:
		names = []string{"ingress", "egress"}
	case unix.NFPROTO_ARP:
		names = []string{"input", "output"}
	}
	if int(number) < len(names) {
		return names[number]
	}
	return strconv.FormatUint(uint64(number), 10)
}

// sets gives those of our table that hold something.
func (s *nftSocket) sets() ([]inventory.Set, error) {
	all, err := s.observeElements()
	if err != nil {
		return nil, err
	}
	var out []inventory.Set
	for _, e := range all { // set by set
		name := e.Set + strconv.Itoa(e.Family)
		if len(out) == 0 || out[len(out)-1].Name != name {
			out = append(out, inventory.Set{Name: name})
		}
		text := e.ID
		if e.Value != "" {
			text += " : " + e.Value
		}
		last := &out[len(out)-1]
		last.Count, last.Elements = last.Count+1, append(last.Elements, text)
	}
	for i := range out {
		slices.Sort(out[i].Elements) // the kernel has them in the order of their hashes
	}
	return out, nil
}
