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

// Tables is the kind of table inet hawser: chains, rules and the declarations
// of sets. The table is ours as a whole; no other is read or written.
//
// A change of rules replaces all rules in one transaction and leaves sets and
// elements as they are. Only when a set's declaration differs, or an element of
// other people's making holds a chain that has to go, the table is made anew and
// its elements are lost until the stage of Elements ran.
type Tables struct {
	conn  nftConn
	track *nftChangeTracker
}

var (
	_ converge.Kind[desired.Table]       = (*Tables)(nil)
	_ converge.Normalizer[desired.Table] = (*Tables)(nil)
	_ converge.Versioned                 = (*Tables)(nil)
)

// NewTables gives the kind of table inet hawser.
func NewTables(opts NFTOptions) *Tables {
	return &Tables{conn: nftConn{opts: opts}, track: &nftChangeTracker{opts: opts}}
}

// Name is "nft table".
func (k *Tables) Name() string { return "nft table" }

// Normalize fills in the digest of the rules that want leads to.
func (k *Tables) Normalize(want, _ desired.Table) desired.Table {
	want.Skeleton = nftWanted(want)
	return want
}

// Version is the generation of the ruleset in this network namespace that last changed
// our table, without those that the kind of the elements made.
func (k *Tables) Version(context.Context) (string, error) {
	_, touched, err := k.conn.poll(k.track)
	return nftStamp(touched, err)
}

// Observe gives the table, when it exists, with the digest of what it holds.
func (k *Tables) Observe(ctx context.Context) ([]desired.Table, error) {
	var have *nftObserved
	err := k.conn.retryRead(ctx, func(conn *nftables.Conn) (err error) {
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
	return []desired.Table{{Name: desired.TableName, MSS4: have.mss[0], MSS6: have.mss[1], Connections: have.connections, Skeleton: nftDigest(lines)}}, nil
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
		return k.conn.retryRead(ctx, func(conn *nftables.Conn) error { return nftWriteTable(conn, c.Want) })
	})
}

// nftWriteTable makes the table what t asks for.
func nftWriteTable(conn *nftables.Conn, t desired.Table) error {
	have, err := nftObserveTable(conn)
	exists := err == nil
	if err != nil && !errors.Is(err, errNftNoTable) {
		return err
	}
	if exists && have.setsFit() {
		// A chain of somebody else's making may be in use by an element and
		// then stays undeletable: what does not go in place goes from new.
		if conn.Commit(nftRefresh(t, have)) == nil {
			return nil
		}
	}
	if err := conn.Commit(nftRebuild(t, exists)); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

// nftRebuild deletes the table and makes it from nothing.
func nftRebuild(t desired.Table, exists bool) *nftables.Batch {
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

// nftRefresh replaces the rules and what chains and sets differ; packets see
// the rules of before or those of after.
func nftRefresh(t desired.Table, have *nftObserved) *nftables.Batch {
	b := nftables.NewBatch(0)
	b.AddTable(nftables.Table{TableName: nftTable()})
	b.DeleteRules(nftTable())
	for i, s := range nftSets() {
		_, exists := have.sets[s.Name]
		if !exists {
			b.AddSet(s.declaration(uint32(i + 1)))
		}
		if exists && s.Dynamic {
			// What is in there was counted by the rules that go.
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

// nftObserved is the skeleton in the kernel. Sets and chains are told in lines
// for the digest, by name.
type nftObserved struct {
	table  string
	sets   map[string]string
	chains map[string]string
	rules  []string
	mss    [2]int
	// connections is what the rules say a pod may have; 0 = there is no such rule.
	connections int
}

// setsFit reports whether no set of ours has another declaration.
func (o *nftObserved) setsFit() bool {
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
		// Anonymous sets belong to their rule and have no line of their own.
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

// ruleReader numbers the rules of each chain in the order in which they run.
func (o *nftObserved) ruleReader() func(nftables.Rule) error {
	places := map[string]int{}
	return func(r nftables.Rule) error {
		place := places[r.Chain]
		places[r.Chain]++
		o.rules = append(o.rules, nftRuleLine(r.Chain, place, nftUserEntry(r.UserData, nftUserTag)))
		if mss := nftUserEntry(r.UserData, nftUserMSS); r.Chain == "clamp" && len(mss) == 2 && place < len(o.mss) {
			o.mss[place] = int(binary.BigEndian.Uint16(mss))
		}
		if quota := nftUserEntry(r.UserData, nftUserQuota); len(quota) == 4 {
			o.connections = int(binary.BigEndian.Uint32(quota))
		}
		return nil
	}
}

// nftUserEntry finds an entry of user data, which others may have written.
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
