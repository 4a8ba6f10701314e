package kernel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/kernel/nftables"
)

// Tables reads and writes table inet hawser: chains, rules and the declarations of sets. The
// whole table is ours. No other table is read or written.
//
// A change of rules replaces all rules in one transaction. Existing sets keep their elements,
// except the sets that rules fill. The table is recreated if a set's declaration differs, or if the
// kernel refuses the transaction, for example because a foreign element refers to a chain to
// delete. Then its elements are missing until the stage of Elements has run.
type Tables struct {
	conn    nftConn
	tracker *nftChangeTracker
}

var (
	_ converge.Kind[desired.Table]       = (*Tables)(nil)
	_ converge.Normalizer[desired.Table] = (*Tables)(nil)
	_ converge.Versioned                 = (*Tables)(nil)
)

// NewTables returns the converge.Kind of table inet hawser.
func NewTables(opts NFTOptions) *Tables {
	return &Tables{conn: nftConn{opts: opts}, tracker: &nftChangeTracker{opts: opts}}
}

// Name returns "nft table".
func (k *Tables) Name() string { return "nft table" }

// Normalize returns want with the digest of its chains, sets and rules.
func (k *Tables) Normalize(want, _ desired.Table) desired.Table {
	want.Digest = nftDesiredDigest(want)
	return want
}

// Version returns the latest generation that changed our table, except the changes by Elements. It
// is a generation of the ruleset in this network namespace.
func (k *Tables) Version(context.Context) (string, error) {
	_, touched, err := k.conn.poll(k.tracker)
	return nftVersion(touched, err)
}

// Observe returns the table, if it exists, with the digest of its chains, sets and rules.
func (k *Tables) Observe(ctx context.Context) ([]desired.Table, error) {
	var have *nftObserved
	err := k.conn.retryInterrupted(ctx, func(conn *nftables.Conn) (err error) {
		have, err = nftObserveTable(conn)
		return err
	})
	if errors.Is(err, errNftNoTable) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read table inet %s: %w", desired.TableName, err)
	}
	lines := append([]string{have.table}, have.rules...)
	for _, line := range have.sets {
		lines = append(lines, line)
	}
	for _, line := range have.chains {
		lines = append(lines, line)
	}
	return []desired.Table{{Name: desired.TableName, MSS4: have.mss[0], MSS6: have.mss[1], Connections: have.connections, Digest: nftDigest(lines)}}, nil
}

// Apply writes or deletes the table, each in one transaction.
func (k *Tables) Apply(ctx context.Context, changes []diff.Change[desired.Table]) error {
	return converge.Each(ctx, changes, func(c diff.Change[desired.Table]) error {
		if c.Op == diff.Delete {
			return k.conn.use(func(conn *nftables.Conn) error {
				b := nftables.NewBatch(0)
				b.DeleteTable(nftTable())
				if err := conn.Commit(b); err != nil && !errors.Is(err, unix.ENOENT) {
					return fmt.Errorf("delete table: %w", err)
				}
				return nil
			})
		}
		for _, mss := range []int{c.Want.MSS4, c.Want.MSS6} {
			if mss < 1 || mss > math.MaxUint16 {
				return fmt.Errorf("segment size %d is not between 1 and %d", mss, math.MaxUint16)
			}
		}
		if n := c.Want.Connections; n < 0 || n > math.MaxInt32 {
			return fmt.Errorf("quota of %d connections is not between 0 and %d", n, math.MaxInt32)
		}
		if c.Want.Name != desired.TableName {
			return fmt.Errorf("table %q is not ours to write, only %q is", c.Want.Name, desired.TableName)
		}
		return k.conn.retryInterrupted(ctx, func(conn *nftables.Conn) error { return nftWriteTable(conn, c.Want) })
	})
}

// nftWriteTable writes the table as t describes it.
func nftWriteTable(conn *nftables.Conn, t desired.Table) error {
	have, err := nftObserveTable(conn)
	exists := err == nil
	if err != nil && !errors.Is(err, errNftNoTable) {
		return err
	}
	if exists && have.setsMatch() {
		// The kernel may refuse to replace the rules: it does not delete a chain to which an
		// element refers. Then the table is recreated.
		if conn.Commit(nftReplaceRules(t, have)) == nil {
			return nil
		}
	}
	if err := conn.Commit(nftRecreateTable(t, exists)); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

// nftRecreateTable deletes the table and creates it again.
func nftRecreateTable(t desired.Table, exists bool) *nftables.Batch {
	b := nftables.NewBatch(0)
	if exists {
		b.DeleteTable(nftTable())
	}
	b.AddTable(nftables.Table{TableName: nftTable()})
	for i, s := range nftSets() {
		b.AddSet(s.declaration(uint32(i + 1)))
	}
	chains := nftChains(t)
	for _, c := range chains {
		b.AddChain(c.declaration(nftTable()))
	}
	nftAddRules(b, chains)
	return b
}

// nftReplaceRules replaces all rules and the changed chains, and adds or deletes chains and sets.
// Packets match either the old or the new rules.
func nftReplaceRules(t desired.Table, have *nftObserved) *nftables.Batch {
	b := nftables.NewBatch(0)
	b.AddTable(nftables.Table{TableName: nftTable()})
	b.DeleteRules(nftTable())
	for i, s := range nftSets() {
		_, exists := have.sets[s.Name]
		if !exists {
			b.AddSet(s.declaration(uint32(i + 1)))
		}
		if exists && s.Dynamic {
			// The elements have the ct count state of the replaced rules.
			b.DeleteAllElements(s.name())
		}
		delete(have.sets, s.Name)
	}
	chains := nftChains(t)
	for _, c := range chains {
		line, exists := have.chains[c.name]
		if exists && line != nftChainLine(c.declaration(nftTable())) {
			b.DeleteChain(nftTable(), c.name)
			exists = false
		}
		if !exists {
			b.AddChain(c.declaration(nftTable()))
		}
		delete(have.chains, c.name)
	}
	for name := range have.chains {
		b.DeleteChain(nftTable(), name)
	}
	for name := range have.sets {
		b.DeleteSet(nftables.SetName{Table: nftTable(), Name: name})
	}
	nftAddRules(b, chains)
	return b
}

// nftObserved is the table in the kernel. The table and each set, chain and rule are one line of the
// digest's input; lines of sets and chains are by name.
type nftObserved struct {
	table  string
	sets   map[string]string
	chains map[string]string
	rules  []string
	mss    [2]int
	// connections is the quota of a pod in the rules; 0 if there is no quota rule.
	connections int
}

// setsMatch reports whether all existing sets of ours have the desired declaration.
func (o *nftObserved) setsMatch() bool {
	for _, s := range nftSets() {
		if line, exists := o.sets[s.Name]; exists && line != s.line() {
			return false
		}
	}
	return true
}

func nftObserveTable(conn *nftables.Conn) (*nftObserved, error) {
	o := &nftObserved{sets: map[string]string{}, chains: map[string]string{}}
	table, err := conn.Table(nftTable())
	if errors.Is(err, unix.ENOENT) {
		return nil, errNftNoTable
	}
	if err != nil {
		return nil, err
	}
	o.table = nftTableLine(table.Flags)
	sets, err := conn.Sets(nftTable())
	if err != nil {
		return nil, err
	}
	for _, s := range sets {
		// Anonymous sets belong to their rule and have no separate line.
		if s.Flags&unix.NFT_SET_ANONYMOUS == 0 {
			o.sets[s.Name] = nftSetLine(s)
		}
	}
	chains, err := conn.Chains(nftTable())
	if err != nil {
		return nil, err
	}
	for _, c := range chains {
		o.chains[c.Name] = nftChainLine(c)
	}
	if err := conn.Rules(nftTable(), o.ruleReader()); err != nil {
		return nil, err
	}
	return o, nil
}

// ruleReader returns a function that records each rule with its position in the chain.
func (o *nftObserved) ruleReader() func(nftables.Rule) error {
	positions := map[string]int{}
	return func(r nftables.Rule) error {
		position := positions[r.Chain]
		positions[r.Chain]++
		o.rules = append(o.rules, nftRuleLine(r.Chain, position, nftUserEntry(r.UserData, nftUserTag)))
		if mss := nftUserEntry(r.UserData, nftUserMSS); r.Chain == "clamp" && len(mss) == 2 && position < len(o.mss) {
			o.mss[position] = int(binary.BigEndian.Uint16(mss))
		}
		if quota := nftUserEntry(r.UserData, nftUserQuota); len(quota) == 4 {
			o.connections = int(binary.BigEndian.Uint32(quota))
		}
		return nil
	}
}

// nftUserEntry returns an entry of user data, which another program may have written.
func nftUserEntry(udata []byte, typ userdata.Type) []byte {
	for len(udata) >= 2 && len(udata) >= 2+int(udata[1]) {
		value := udata[2 : 2+int(udata[1])]
		if userdata.Type(udata[0]) == typ {
			return value
		}
		udata = udata[2+len(value):]
	}
	return nil
}
