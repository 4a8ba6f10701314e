package kernel

import (
	"context"
	"encoding/hex"
	"slices"
	"strconv"

	"hawser.dev/hawser/nodeagent/inventory"
	"hawser.dev/hawser/nodeagent/kernel/nftables"
)

// takeTables reads tables, chains and numbers of rules of all owners, and the elements
// of ours. What a rule of somebody else's says is not read.
func (ns *Namespace) takeTables(ctx context.Context, k *inventory.Kernel) error {
	var conn nftConn
	defer func() { _ = conn.close() }()
	return ns.inside(func() error {
		return conn.retryRead(ctx, func(c *nftables.Conn) (err error) {
			if k.Tables, err = nftInventoryTables(c); err != nil {
				return err
			}
			k.Sets, err = nftInventorySets(c)
			return err
		})
	})
}

// nftInventoryTables reads tables, chains and rules.
func nftInventoryTables(conn *nftables.Conn) ([]inventory.Table, error) {
	tables, err := conn.Tables()
	if err != nil {
		return nil, err
	}
	chains, err := conn.Chains(nftables.TableName{})
	if err != nil {
		return nil, err
	}
	type chainName struct {
		table nftables.TableName
		chain string
	}
	rules, digests := map[chainName]int{}, map[string][]string{}
	err = conn.Rules(nftables.TableName{}, func(r nftables.Rule) error {
		rules[chainName{r.Table, r.Chain}]++
		if r.Table == nftTable() {
			digests[r.Chain] = append(digests[r.Chain], hex.EncodeToString(nftUserEntry(r.UserData, nftUserTag)))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var out []inventory.Table
	for _, t := range tables {
		table := inventory.Table{Family: t.Family.String(), Name: t.Name}
		for _, c := range chains {
			if c.Table != t.TableName {
				continue
			}
			chain := nftChainOf(c)
			chain.Rules = rules[chainName{c.Table, c.Name}]
			if t.TableName == nftTable() {
				chain.Digests = digests[c.Name]
			}
			table.Chains = append(table.Chains, chain)
		}
		out = append(out, table)
	}
	return out, nil
}

func nftChainOf(c nftables.Chain) inventory.Chain {
	out := inventory.Chain{Name: c.Name}
	if c.Hook == nil {
		return out
	}
	out.Type, out.Hook, out.Priority, out.Device = c.Hook.Type, nftHookName(c.Table.Family, c.Hook.Number), int(c.Hook.Priority), c.Hook.Device
	out.Policy = "drop"
	if c.Policy == nftables.PolicyAccept {
		out.Policy = "accept"
	}
	return out
}

// nftHookName names a hook as nft(8) does; each family counts its own.
func nftHookName(family nftables.Family, number uint32) string {
	names := []string{"prerouting", "input", "forward", "output", "postrouting", "ingress"}
	switch family {
	case nftables.FamilyNetdev:
		names = []string{"ingress", "egress"}
	case nftables.FamilyARP:
		names = []string{"input", "output"}
	}
	if int(number) < len(names) {
		return names[number]
	}
	return strconv.FormatUint(uint64(number), 10)
}

// nftInventorySets reads the sets of our table that have elements.
func nftInventorySets(conn *nftables.Conn) ([]inventory.Set, error) {
	all, err := nftObserveElements(conn)
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
