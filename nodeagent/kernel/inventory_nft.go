package kernel

import (
	"context"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/kernel/inventory"
	"hawser.dev/hawser/nodeagent/kernel/nftables"
)

// readRuleset reads tables and chains of all programs, and the rules, sets and elements of
// our table.
func (ns *Namespace) readRuleset(ctx context.Context, k *inventory.Kernel) error {
	var conn nftConn
	defer func() { _ = conn.close() }()
	return ns.inside(func() error {
		return conn.retryInterrupted(ctx, func(c *nftables.Conn) (err error) {
			k.NFTables, err = inventoryRuleset(c)
			return err
		})
	})
}

// inventoryRuleset returns each table, followed by its sets, chains and rules. nft -j 1.0 lists them in
// this order.
func inventoryRuleset(conn *nftables.Conn) ([]inventory.NFTObject, error) {
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
	counts := map[chainName]int{}
	var rules []inventory.NFTObject
	err = conn.Rules(nftables.TableName{}, func(r nftables.Rule) error {
		counts[chainName{r.Table, r.Chain}]++
		if r.Table == nftTable() {
			rules = append(rules, inventory.NFTObject{Rule: &inventory.NFTRule{
				Family: r.Table.Family.String(), Table: r.Table.Name, Chain: r.Chain, Handle: r.Handle,
				Digest: hex.EncodeToString(nftUserEntry(r.UserData, nftUserTag)),
			}})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	out := []inventory.NFTObject{{Metainfo: &inventory.NFTMetainfo{SchemaVersion: 1}}}
	for _, t := range tables {
		out = append(out, inventory.NFTObject{Table: &inventory.NFTTable{Family: t.Family.String(), Name: t.Name, Handle: t.Handle}})
		if t.TableName == nftTable() {
			sets, err := inventorySets(conn)
			if err != nil {
				return nil, err
			}
			out = append(out, sets...)
		}
		for _, c := range chains {
			if c.Table == t.TableName {
				chain := inventoryChain(c)
				chain.Rules = counts[chainName{c.Table, c.Name}]
				out = append(out, inventory.NFTObject{Chain: &chain})
			}
		}
		if t.TableName == nftTable() {
			out = append(out, rules...)
		}
	}
	return out, nil
}

func inventoryChain(c nftables.Chain) inventory.NFTChain {
	out := inventory.NFTChain{Family: c.Table.Family.String(), Table: c.Table.Name, Name: c.Name, Handle: c.Handle}
	if c.Hook == nil {
		return out
	}
	prio := int(c.Hook.Priority)
	out.Type, out.Hook, out.Prio, out.Dev = c.Hook.Type, nftHookName(c.Table.Family, c.Hook.Number), &prio, c.Hook.Device
	out.Policy = "drop"
	if c.Policy == nftables.PolicyAccept {
		out.Policy = "accept"
	}
	return out
}

// nftHookName returns the name of a hook in nft(8). Families arp and netdev number their hooks
// differently.
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

// inventorySets returns our sets with their elements. It omits anonymous sets, and sets of other
// programs in our table.
func inventorySets(conn *nftables.Conn) ([]inventory.NFTObject, error) {
	observed, err := conn.Sets(nftTable())
	if err != nil {
		return nil, err
	}
	known := map[string]nftSet{}
	for _, s := range nftSets() {
		known[s.Name] = s
	}
	var out []inventory.NFTObject
	for _, o := range observed {
		s, ok := known[o.Name]
		if !ok {
			continue
		}
		set := inventory.NFTSet{
			Family: o.Table.Family.String(), Name: o.Name, Table: o.Table.Name, Type: nftTypeNames(s.Key, s.Family), Handle: o.Handle,
			Size: o.Size, Flags: nftFlagNames(o.Flags),
		}
		if o.ElemExpr == nftCounter {
			set.Stmt = []inventory.NFTStatement{{Counter: true}}
		}
		if !s.Dynamic {
			if set.Elem, err = inventoryElements(conn, s); err != nil {
				return nil, err
			}
		}
		if !s.isMap() {
			out = append(out, inventory.NFTObject{Set: &set})
			continue
		}
		set.Map = strings.Join(nftTypeNames(s.Data, s.Family), nftConcatSeparator)
		out = append(out, inventory.NFTObject{Map: &set})
	}
	return out, nil
}

func nftTypeNames(parts []desired.Type, family int) []string {
	var out []string
	for _, part := range parts {
		out = append(out, nftTypeOf(part, family).Name)
	}
	return out
}

func nftFlagNames(flags uint32) []string {
	var out []string
	for _, f := range []struct {
		bit  uint32
		name string
	}{
		{unix.NFT_SET_CONSTANT, "constant"}, {unix.NFT_SET_INTERVAL, "interval"}, {unix.NFT_SET_TIMEOUT, "timeout"}, {unix.NFT_SET_EVAL, "dynamic"},
	} {
		if flags&f.bit != 0 {
			out = append(out, f.name)
		}
	}
	return out
}

// inventoryElements returns the elements of a set, sorted: the kernel lists them in hash order.
func inventoryElements(conn *nftables.Conn, s nftSet) ([]inventory.NFTValue, error) {
	type element struct {
		text  string
		value inventory.NFTValue
	}
	var list []element
	err := s.read(conn, func(e nftElement, counter *nftables.Counter) {
		key := s.keyText(e)
		value := nftValue(s.Key, key, false)
		switch {
		case s.isVerdict():
			value = inventory.NFTValue{Pair: []inventory.NFTValue{value, {Goto: &inventory.NFTGoto{Target: e.chain}}}}
		case s.isMap():
			value = inventory.NFTValue{Pair: []inventory.NFTValue{value, nftValue(s.Data, s.valueText(e), s.Prefixes)}}
		case counter != nil:
			value = inventory.NFTValue{Elem: &inventory.NFTElement{
				Val: value, Counter: &inventory.NFTCounter{Packets: counter.Packets, Bytes: counter.Bytes},
			}}
		}
		list = append(list, element{key, value})
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b element) int { return strings.Compare(a.text, b.text) })
	var out []inventory.NFTValue
	for _, e := range list {
		out = append(out, e.value)
	}
	return out, nil
}

// nftValue converts the text of a key or of data. If prefixes is set, it converts addresses to
// prefixes of full length.
func nftValue(parts []desired.Type, text string, prefixes bool) inventory.NFTValue {
	var out []inventory.NFTValue
	words := strings.Split(text, nftConcatSeparator)
	for i, word := range words {
		if len(words) != len(parts) { // written by another program in an unknown format
			return inventory.NFTValue{Text: text}
		}
		out = append(out, nftPartValue(parts[i], word, prefixes))
	}
	if len(out) == 1 {
		return out[0]
	}
	return inventory.NFTValue{Concat: out}
}

func nftPartValue(part desired.Type, word string, prefixes bool) inventory.NFTValue {
	switch part {
	case desired.TypePort, desired.TypeMark, desired.TypeProto:
		if n, err := strconv.ParseUint(word, 10, 32); err == nil {
			return inventory.NFTValue{Number: &n}
		}
	}
	if part == desired.TypeIfname { // an interface name may contain a dash, like a range
		return inventory.NFTValue{Text: word}
	}
	addr, length, isPrefix := strings.Cut(word, "/")
	if !isPrefix && prefixes {
		isPrefix, length = true, "32"
		if strings.Contains(addr, ":") {
			length = "128"
		}
	}
	if bits, err := strconv.Atoi(length); isPrefix && err == nil {
		return inventory.NFTValue{Prefix: &inventory.NFTPrefix{Addr: addr, Len: bits}}
	}
	if first, last, isRange := strings.Cut(word, "-"); isRange {
		return inventory.NFTValue{Range: []inventory.NFTValue{nftPartValue(part, first, false), nftPartValue(part, last, false)}}
	}
	return inventory.NFTValue{Text: word}
}
