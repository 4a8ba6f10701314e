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
	track *nftTrack
}

var (
	_ converge.Kind[desired.Table]    = (*Tables)(nil)
	_ converge.Adopter[desired.Table] = (*Tables)(nil)
	_ converge.Stamper                = (*Tables)(nil)
)

// NewTables gives the kind of table inet hawser.
func NewTables(opts NFTOptions) *Tables {
	return &Tables{conn: nftConn{opts: opts}, track: &nftTrack{opts: opts}}
}

// Name is "nft table".
func (k *Tables) Name() string { return "nft table" }

// Adopt fills in the digest of the rules that want leads to.
func (k *Tables) Adopt(want, _ desired.Table) desired.Table {
	want.Skeleton = nftWanted(want)
	return want
}

// Stamp is the generation of the ruleset in this network namespace that last changed
// our table, without those that the kind of the elements made.
func (k *Tables) Stamp(context.Context) (string, error) {
	_, touched, err := k.conn.look(k.track)
	return nftStamp(touched, err)
}

// Observe gives the table, when it exists, with the digest of what it holds.
func (k *Tables) Observe(ctx context.Context) ([]desired.Table, error) {
	var have *nftObserved
	err := k.conn.settled(ctx, func(s *nftSocket) (err error) {
		have, err = s.observeTable()
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
			return k.conn.use(func(s *nftSocket) error {
				b := nftNewBatch(0)
				b.deleteTable(desired.TableName)
				if err := s.commit(b); err != nil && !errors.Is(err, unix.ENOENT) {
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
		return k.conn.settled(ctx, func(s *nftSocket) error { return s.writeTable(c.Want) })
	})
}

// writeTable brings the table to what t asks for.
func (s *nftSocket) writeTable(t desired.Table) error {
	have, err := s.observeTable()
	exists := err == nil
	if err != nil && !errors.Is(err, errNftNoTable) {
		return err
	}
	if exists && have.setsFit() {
		// A chain of somebody else's making may be in use by an element and
		// then stays undeletable: what does not go in place goes from new.
		if s.commit(nftRefresh(t, have)) == nil {
			return nil
		}
	}
	if err := s.commit(nftRebuild(t, exists)); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

// nftRebuild deletes the table and makes it from nothing.
func nftRebuild(t desired.Table, exists bool) *nftBatch {
	b := nftNewBatch(0)
	if exists {
		b.deleteTable(desired.TableName)
	}
	b.newTable(desired.TableName)
	for i, s := range nftSets() {
		b.newSet(s, uint32(i+1))
	}
	chains := nftChains(t)
	for _, c := range chains {
		b.newChain(desired.TableName, c)
	}
	b.newRules(chains)
	return b
}

// nftRefresh replaces the rules and what chains and sets differ; packets see
// the rules of before or those of after.
func nftRefresh(t desired.Table, have *nftObserved) *nftBatch {
	b := nftNewBatch(0)
	b.newTable(desired.TableName)
	b.message(unix.NFT_MSG_DELRULE, 0, func() { b.text(unix.NFTA_RULE_TABLE, desired.TableName) }) // of all chains
	for i, s := range nftSets() {
		_, exists := have.sets[s.Name]
		if !exists {
			b.newSet(s, uint32(i+1))
		}
		if exists && s.Dynamic {
			// What is in there was counted by the rules that go.
			b.message(unix.NFT_MSG_DELSETELEM, 0, func() {
				b.text(unix.NFTA_SET_ELEM_LIST_TABLE, desired.TableName)
				b.text(unix.NFTA_SET_ELEM_LIST_SET, s.Name)
			})
		}
		delete(have.sets, s.Name)
	}
	chains := nftChains(t)
	for _, c := range chains {
		line, exists := have.chains[c.name]
		if exists && line != nftChainLine(c.name, c.base, nftPolicyAccept) {
			b.deleteChain(desired.TableName, c.name)
			exists = false
		}
		if !exists {
			b.newChain(desired.TableName, c)
		}
		delete(have.chains, c.name)
	}
	for name := range have.chains {
		b.deleteChain(desired.TableName, name)
	}
	for name := range have.sets {
		b.message(unix.NFT_MSG_DELSET, 0, func() {
			b.text(unix.NFTA_SET_TABLE, desired.TableName)
			b.text(unix.NFTA_SET_NAME, name)
		})
	}
	b.newRules(chains)
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

func (s *nftSocket) observeTable() (*nftObserved, error) {
	o := &nftObserved{sets: map[string]string{}, chains: map[string]string{}}
	named := func(a *nftAttrs) { a.text(unix.NFTA_TABLE_NAME, desired.TableName) }
	err := s.request(nftGet(unix.NFT_MSG_GETTABLE, false, named), func(body []byte) error {
		o.table = nftTableLine(nftUint32(nftFind(body, unix.NFTA_TABLE_FLAGS)))
		return nil
	})
	if errors.Is(err, unix.ENOENT) {
		return nil, errNftNoTable
	}
	if err != nil {
		return nil, fmt.Errorf("read table: %w", err)
	}
	// The table's name is attribute 1 of all these messages.
	if err := s.request(nftGet(unix.NFT_MSG_GETSET, true, named), o.addSet); err != nil {
		return nil, fmt.Errorf("read sets: %w", err)
	}
	if err := s.request(nftGet(unix.NFT_MSG_GETCHAIN, true, named), o.addChain); err != nil {
		return nil, fmt.Errorf("read chains: %w", err)
	}
	if err := s.request(nftGet(unix.NFT_MSG_GETRULE, true, named), o.ruleReader()); err != nil {
		return nil, fmt.Errorf("read rules: %w", err)
	}
	return o, nil
}

func (o *nftObserved) addSet(body []byte) error {
	if name, line := nftObservedSet(body); name != "" {
		o.sets[name] = line
	}
	return nil
}

func (o *nftObserved) addChain(body []byte) error {
	if nftText(nftFind(body, unix.NFTA_CHAIN_TABLE)) != desired.TableName {
		return nil // kernels before 6.1 list the chains of all tables
	}
	name := nftText(nftFind(body, unix.NFTA_CHAIN_NAME))
	hook := nftFind(body, unix.NFTA_CHAIN_HOOK)
	var base *nftHook
	if hook != nil {
		base = &nftHook{
			kind:     nftText(nftFind(body, unix.NFTA_CHAIN_TYPE)),
			hook:     nftUint32(nftFind(hook, unix.NFTA_HOOK_HOOKNUM)),
			priority: int32(nftUint32(nftFind(hook, unix.NFTA_HOOK_PRIORITY))),
		}
	}
	o.chains[name] = nftChainLine(name, base, nftUint32(nftFind(body, unix.NFTA_CHAIN_POLICY)))
	return nil
}

// ruleReader numbers the rules of each chain in the order of the dump, which is
// the order in which they run.
func (o *nftObserved) ruleReader() func(body []byte) error {
	places := map[string]int{}
	return func(body []byte) error {
		chain := nftText(nftFind(body, unix.NFTA_RULE_CHAIN))
		place := places[chain]
		places[chain]++
		udata := nftFind(body, unix.NFTA_RULE_USERDATA)
		o.rules = append(o.rules, nftRuleLine(chain, place, nftUserEntry(udata, nftUserTag)))
		if mss := nftUserEntry(udata, nftUserMSS); chain == "clamp" && len(mss) == 2 && place < len(o.mss) {
			o.mss[place] = int(binary.BigEndian.Uint16(mss))
		}
		if quota := nftUserEntry(udata, nftUserQuota); len(quota) == 4 {
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
