package nftables

import (
	"fmt"
	"iter"
	"strconv"

	"golang.org/x/sys/unix"
)

// Family is the address family of a table.
type Family byte

// Families of tables.
const (
	FamilyUnspecified Family = unix.NFPROTO_UNSPEC
	FamilyIPv4        Family = unix.NFPROTO_IPV4
	FamilyIPv6        Family = unix.NFPROTO_IPV6
	FamilyINet        Family = unix.NFPROTO_INET
	FamilyARP         Family = unix.NFPROTO_ARP
	FamilyBridge      Family = unix.NFPROTO_BRIDGE
	FamilyNetdev      Family = unix.NFPROTO_NETDEV
)

// String returns the name that nft(8) uses.
func (f Family) String() string {
	switch f {
	case FamilyIPv4:
		return "ip"
	case FamilyIPv6:
		return "ip6"
	case FamilyINet:
		return "inet"
	case FamilyARP:
		return "arp"
	case FamilyBridge:
		return "bridge"
	case FamilyNetdev:
		return "netdev"
	}
	return strconv.Itoa(int(f))
}

// TableName names a table.
type TableName struct {
	Family Family
	Name   string
}

// TableOwned is a flag of tables: the kernel deletes the table when the socket that created
// it is closed (NFT_TABLE_F_OWNER, Linux 5.12).
const TableOwned = 0x2

// tableHandle is NFTA_TABLE_HANDLE (nf_tables.h).
const tableHandle = 4

// Table is a table.
type Table struct {
	TableName
	Flags  uint32
	Handle uint64 // read only
}

// Hook attaches a base chain to the path of packets.
type Hook struct {
	Type     string // filter, nat or route
	Number   uint32 // such as NF_INET_FORWARD
	Priority int32
	Device   string // read only
}

// PolicyAccept is the policy of a base chain that accepts (NF_ACCEPT).
const PolicyAccept = 1

// Chain is a chain.
type Chain struct {
	Table  TableName
	Name   string
	Hook   *Hook  // nil = not a base chain
	Policy uint32 // of a base chain: NF_DROP or NF_ACCEPT
	Handle uint64 // read only
}

// Rule is a rule.
type Rule struct {
	Table       TableName
	Chain       string
	Handle      uint64 // read only
	Expressions []byte // encoded, each as one NFTA_LIST_ELEM
	UserData    []byte
}

// Expression is one expression of a rule or an element, encoded.
type Expression struct {
	Name string
	Data []byte
}

// ListExpressions iterates over the expressions of a Rule.
func (r Rule) ListExpressions() iter.Seq[Expression] {
	return func(yield func(Expression) bool) {
		stopped := false
		_ = each(r.Expressions, func(_ uint16, b []byte) error {
			if !stopped && !yield(parseExpression(b)) {
				stopped = true
			}
			return nil
		})
	}
}

func parseExpression(b []byte) Expression {
	return Expression{Name: toString(find(b, unix.NFTA_EXPR_NAME)), Data: find(b, unix.NFTA_EXPR_DATA)}
}

// Counter is the value of a counter.
type Counter struct{ Packets, Bytes uint64 }

// counterName is the expression that counts packets and bytes.
const counterName = "counter"

// Counter returns the value of a counter expression, and false for other expressions.
func (e Expression) Counter() (Counter, bool) {
	if e.Name != counterName {
		return Counter{}, false
	}
	return Counter{
		Packets: toUint64(find(e.Data, unix.NFTA_COUNTER_PACKETS)), Bytes: toUint64(find(e.Data, unix.NFTA_COUNTER_BYTES)),
	}, true
}

// AddTable adds a table; an existing table stays.
func (b *Batch) AddTable(t Table) { b.addTable(t, 0) }

// CreateTable adds a table that must not exist.
func (b *Batch) CreateTable(t Table) { b.addTable(t, unix.NLM_F_EXCL) }

func (b *Batch) addTable(t Table, flags uint16) {
	b.message(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE|flags, t.Family, func() {
		b.attrs.String(unix.NFTA_TABLE_NAME, t.Name)
		b.attrs.Uint32(unix.NFTA_TABLE_FLAGS, t.Flags)
	})
}

// DeleteTable deletes a table with its contents.
func (b *Batch) DeleteTable(t TableName) {
	b.message(unix.NFT_MSG_DELTABLE, 0, t.Family, func() { b.attrs.String(unix.NFTA_TABLE_NAME, t.Name) })
}

// AddChain adds a chain.
func (b *Batch) AddChain(c Chain) {
	b.message(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, c.Table.Family, func() {
		b.attrs.String(unix.NFTA_CHAIN_TABLE, c.Table.Name)
		b.attrs.String(unix.NFTA_CHAIN_NAME, c.Name)
		if c.Hook == nil {
			return
		}
		b.attrs.Nest(unix.NFTA_CHAIN_HOOK, func() {
			b.attrs.Uint32(unix.NFTA_HOOK_HOOKNUM, c.Hook.Number)
			b.attrs.Uint32(unix.NFTA_HOOK_PRIORITY, uint32(c.Hook.Priority))
		})
		b.attrs.Uint32(unix.NFTA_CHAIN_POLICY, c.Policy)
		b.attrs.String(unix.NFTA_CHAIN_TYPE, c.Hook.Type)
	})
}

// DeleteChain deletes a chain, which must have no rules.
func (b *Batch) DeleteChain(t TableName, name string) Position {
	return Position{Message: b.message(unix.NFT_MSG_DELCHAIN, 0, t.Family, func() {
		b.attrs.String(unix.NFTA_CHAIN_TABLE, t.Name)
		b.attrs.String(unix.NFTA_CHAIN_NAME, name)
	})}
}

// AddRule appends a rule to its chain.
func (b *Batch) AddRule(r Rule) Position {
	return Position{Message: b.message(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, r.Table.Family, func() {
		b.attrs.String(unix.NFTA_RULE_TABLE, r.Table.Name)
		b.attrs.String(unix.NFTA_RULE_CHAIN, r.Chain)
		b.attrs.Nest(unix.NFTA_RULE_EXPRESSIONS, func() { b.attrs.buf = append(b.attrs.buf, r.Expressions...) })
		if r.UserData != nil {
			b.attrs.Bytes(unix.NFTA_RULE_USERDATA, r.UserData)
		}
	})}
}

// DeleteRules deletes the rules of all chains of a table.
func (b *Batch) DeleteRules(t TableName) {
	b.message(unix.NFT_MSG_DELRULE, 0, t.Family, func() { b.attrs.String(unix.NFTA_RULE_TABLE, t.Name) })
}

// named returns the attribute that contains the table's name: attribute 1 of every message
// about a table or its contents.
func named(t TableName) func(*Attributes) {
	if t.Name == "" {
		return nil
	}
	return func(a *Attributes) { a.String(unix.NFTA_TABLE_NAME, t.Name) }
}

// Table returns one table. The error is unix.ENOENT, wrapped, if it does not exist.
func (c *Conn) Table(name TableName) (Table, error) {
	var out Table
	err := c.request(newRequest(unix.NFT_MSG_GETTABLE, 0, name.Family, named(name)), func(family Family, attrs []byte) error {
		out = parseTable(family, attrs)
		return nil
	})
	if err != nil {
		return Table{}, fmt.Errorf("read table %s %s: %w", name.Family, name.Name, err)
	}
	return out, nil
}

// Tables returns the tables of all families.
func (c *Conn) Tables() ([]Table, error) {
	var out []Table
	err := c.request(newRequest(unix.NFT_MSG_GETTABLE, unix.NLM_F_DUMP, FamilyUnspecified, nil), func(family Family, attrs []byte) error {
		out = append(out, parseTable(family, attrs))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read tables: %w", err)
	}
	return out, nil
}

func parseTable(family Family, attrs []byte) Table {
	return Table{
		TableName: TableName{family, toString(find(attrs, unix.NFTA_TABLE_NAME))},
		Flags:     toUint32(find(attrs, unix.NFTA_TABLE_FLAGS)), Handle: toUint64(find(attrs, tableHandle)),
	}
}

// Chains returns the chains of a table; of all tables without a name.
func (c *Conn) Chains(t TableName) ([]Chain, error) {
	var out []Chain
	err := c.request(newRequest(unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP, t.Family, named(t)), func(family Family, attrs []byte) error {
		// Kernels before 6.1 list the chains of all tables.
		if chain := parseChain(family, attrs); t.Name == "" || chain.Table == t {
			out = append(out, chain)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read chains: %w", err)
	}
	return out, nil
}

func parseChain(family Family, attrs []byte) Chain {
	chain := Chain{
		Table: TableName{family, toString(find(attrs, unix.NFTA_CHAIN_TABLE))}, Name: toString(find(attrs, unix.NFTA_CHAIN_NAME)),
		Policy: toUint32(find(attrs, unix.NFTA_CHAIN_POLICY)), Handle: toUint64(find(attrs, unix.NFTA_CHAIN_HANDLE)),
	}
	if hook := find(attrs, unix.NFTA_CHAIN_HOOK); hook != nil {
		chain.Hook = &Hook{
			Type: toString(find(attrs, unix.NFTA_CHAIN_TYPE)), Number: toUint32(find(hook, unix.NFTA_HOOK_HOOKNUM)),
			Priority: int32(toUint32(find(hook, unix.NFTA_HOOK_PRIORITY))), Device: toString(find(hook, unix.NFTA_HOOK_DEV)),
		}
	}
	return chain
}

// Rules calls visit for each rule of a table, chain by chain in their order; of all tables
// without a name. The bytes of a rule are only valid during the call.
func (c *Conn) Rules(t TableName, visit func(Rule) error) error {
	err := c.request(newRequest(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, t.Family, named(t)), func(family Family, attrs []byte) error {
		return visit(Rule{
			Table: TableName{family, toString(find(attrs, unix.NFTA_RULE_TABLE))}, Chain: toString(find(attrs, unix.NFTA_RULE_CHAIN)),
			Handle:      toUint64(find(attrs, unix.NFTA_RULE_HANDLE)),
			Expressions: find(attrs, unix.NFTA_RULE_EXPRESSIONS), UserData: find(attrs, unix.NFTA_RULE_USERDATA),
		})
	})
	if err != nil {
		return fmt.Errorf("read rules: %w", err)
	}
	return nil
}
