package nftables

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// need skips a test that this machine cannot run. With REQUIRE_KERNEL=1 the test fails.
func need(t testing.TB, what string, ok bool) {
	t.Helper()
	switch {
	case ok:
	case os.Getenv("REQUIRE_KERNEL") == "1":
		t.Fatalf("needs %s", what)
	default:
		t.Skip("needs " + what)
	}
}

// newNetNS makes a network namespace, which the kernel deletes with its last descriptor.
func newNetNS(t testing.TB) int {
	t.Helper()
	need(t, "root", os.Geteuid() == 0)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	handle, err := netns.New()
	need(t, fmt.Sprintf("network namespaces (%v)", err), err == nil)
	t.Cleanup(func() { handle.Close() })
	if err := netns.Set(before); err != nil {
		panic(fmt.Sprintf("return to the first network namespace: %v", err))
	}
	return int(handle)
}

func dial(t testing.TB, netns int) *Conn {
	t.Helper()
	conn, err := Dial(netns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_, err = conn.Generation()
	need(t, fmt.Sprintf("nf_tables (%v)", err), err == nil)
	return conn
}

func commit(t testing.TB, conn *Conn, add func(*Batch)) {
	t.Helper()
	b := NewBatch(0)
	add(b)
	if err := conn.Commit(b); err != nil {
		t.Fatal(err)
	}
}

func testTable() TableName { return TableName{FamilyINet, "test"} }

// testSet is a map of addresses to verdicts or, with intervals, a set of addresses.
func testSet(name string, flags uint32) Set {
	s := Set{
		SetName: SetName{testTable(), name}, ID: 1, Flags: flags, Key: Type{7, 4}, // ipv4_addr
		UserData: userdata.AppendUint32(nil, userdata.NFTNL_UDATA_SET_KEYBYTEORDER, 2),
	}
	if flags&unix.NFT_SET_MAP != 0 {
		s.Data = Type{Number: unix.NFT_DATA_VERDICT}
	}
	return s
}

// address returns the n-th IPv4 address from 10.0.0.0.
func address(n int) []byte { return binary.BigEndian.AppendUint32(nil, 10<<24+uint32(n)) }

// TestObjects: all kinds of objects are read back unchanged.
func TestObjects(t *testing.T) {
	t.Parallel()
	conn := dial(t, newNetNS(t))
	set, verdicts := testSet("set", unix.NFT_SET_TIMEOUT), testSet("verdicts", unix.NFT_SET_MAP)
	set.ElemExpr, verdicts.ID = "counter", 2
	chain := Chain{Table: testTable(), Name: "in", Hook: &Hook{Type: "filter", Number: unix.NF_INET_LOCAL_IN, Priority: -7}, Policy: PolicyAccept}
	plain := Chain{Table: testTable(), Name: "plain"}
	var code Attributes
	code.Expression(&expr.Counter{Packets: 3, Bytes: 4})
	commit(t, conn, func(b *Batch) {
		b.CreateTable(Table{TableName: testTable()})
		b.AddTable(Table{TableName: TableName{FamilyARP, "other"}})
		b.AddChain(chain)
		b.AddChain(plain)
		b.AddSet(set)
		b.AddSet(verdicts)
		b.AddElements(set.SetName, 0, []Element{{Key: address(1), Timeout: time.Hour}})
		b.AddElements(verdicts.SetName, 0, []Element{{Key: address(2), Verdict: &Verdict{Code: unix.NFT_GOTO, Chain: "plain"}}})
		b.AddRule(Rule{Table: testTable(), Chain: "in", Expressions: code.Encoded(), UserData: userdata.AppendString(nil, userdata.TypeComment, "a comment")})
	})
	tables, err := conn.Tables()
	if err != nil || len(tables) != 2 || tables[1].TableName != (TableName{FamilyARP, "other"}) || tables[0].Handle == 0 {
		t.Error("tables", tables, err)
	}
	if table, err := conn.Table(testTable()); err != nil || table != tables[0] {
		t.Error("table", table, err)
	}
	if _, err := conn.Table(TableName{FamilyIPv4, "test"}); !errors.Is(err, unix.ENOENT) {
		t.Error("table that does not exist:", err)
	}
	chains, err := conn.Chains(testTable())
	if err != nil || len(chains) != 2 {
		t.Fatal("chains", chains, err)
	}
	for i, want := range []Chain{chain, plain} {
		want.Handle = chains[i].Handle
		if want.Hook == nil {
			want.Policy = chains[i].Policy // of base chains only
		}
		if d := cmp.Diff(want, chains[i]); d != "" {
			t.Errorf("chain (-want +have):\n%s", d)
		}
	}
	sets, err := conn.Sets(testTable())
	if err != nil || len(sets) != 2 || sets[0].ElemExpr != "counter" || sets[0].Key != set.Key || sets[1].Data.Number != unix.NFT_DATA_VERDICT || !bytes.Equal(sets[0].UserData, set.UserData) {
		t.Error("sets", sets, err)
	}
	read := func(s SetName) (e Element) {
		if err := conn.Elements(s, func(have Element) error { e = have; return nil }); err != nil {
			t.Error(err)
		}
		return e
	}
	if e := read(set.SetName); e.Timeout != time.Hour || e.Expires <= 0 || e.Expires > time.Hour || e.Counter == nil {
		t.Errorf("element %+v", e)
	}
	if e := read(verdicts.SetName); e.Verdict == nil || *e.Verdict != (Verdict{unix.NFT_GOTO, "plain"}) {
		t.Errorf("element %+v", e)
	}
	rules := 0
	err = conn.Rules(testTable(), func(r Rule) error {
		rules++
		if comment, _ := userdata.GetString(r.UserData, userdata.TypeComment); r.Chain != "in" || r.Handle == 0 || comment != "a comment" {
			t.Errorf("rule %+v", r)
		}
		for e := range r.ListExpressions() {
			if c, ok := e.Counter(); !ok || c != (Counter{3, 4}) {
				t.Errorf("expression %+v: counter %v, %v", e, c, ok)
			}
		}
		return nil
	})
	if err != nil || rules != 1 {
		t.Errorf("%d rules, %v", rules, err)
	}
	// Added objects can be deleted, the referenced objects last.
	commit(t, conn, func(b *Batch) {
		b.DeleteRules(testTable())
		b.DeleteAllElements(verdicts.SetName)
		b.DeleteElements(set.SetName, []Element{{Key: address(1)}})
		b.DeleteSet(set.SetName)
		b.DeleteSet(verdicts.SetName)
		b.DeleteChain(testTable(), "in")
		b.DeleteChain(testTable(), "plain")
		b.DeleteTable(testTable())
	})
}

// TestRefused: the error of a transaction names each refused element by its position, also in
// sets with several messages. No part of the transaction is applied.
func TestRefused(t *testing.T) {
	t.Parallel()
	conn := dial(t, newNetNS(t))
	verdicts := testSet("verdicts", unix.NFT_SET_MAP)
	commit(t, conn, func(b *Batch) {
		b.AddTable(Table{TableName: testTable()})
		b.AddChain(Chain{Table: testTable(), Name: "there"})
		b.AddSet(verdicts)
	})
	const many = 3000
	elements := make([]Element, many)
	for i := range elements {
		elements[i] = Element{Key: address(i), Verdict: &Verdict{Code: unix.NFT_GOTO, Chain: "there"}}
	}
	bad := []int{1, 1500, many - 1}
	for _, i := range bad {
		elements[i].Verdict = &Verdict{Code: unix.NFT_GOTO, Chain: "missing"}
	}
	b := NewBatch(0)
	positions := b.AddElements(verdicts.SetName, 0, elements)
	if len(positions) != many || positions[many-1].Message < 3 {
		t.Fatalf("%d positions, the last one is %+v", len(positions), positions[len(positions)-1])
	}
	err := conn.Commit(b)
	var refused *RefusedError
	if !errors.As(err, &refused) || !errors.Is(err, unix.ENOENT) || refused.Stale() {
		t.Fatalf("error %v", err)
	}
	var have []int
	for _, f := range refused.Faults {
		have = append(have, slices.Index(positions, f.Position))
	}
	if !slices.Equal(have, bad) {
		t.Errorf("refused elements %v, want %v", have, bad)
	}
	if !strings.Contains(err.Error(), "and 2 more") {
		t.Errorf("error %q does not count the faults", err)
	}
	if err := conn.Elements(verdicts.SetName, func(e Element) error { return fmt.Errorf("element %x", e.Key) }); err != nil {
		t.Error("after a refused transaction:", err)
	}
	if conn.Broken() {
		t.Error("the connection is broken after a refused transaction")
	}
	// The same connection commits the rest.
	for _, i := range bad {
		elements[i].Verdict.Chain = "there"
	}
	commit(t, conn, func(b *Batch) { b.AddElements(verdicts.SetName, 0, elements) })
	n := 0
	if err := conn.Elements(verdicts.SetName, func(Element) error { n++; return nil }); err != nil || n != many {
		t.Errorf("%d elements, %v", n, err)
	}
}

// TestStale: a transaction for a generation that is over is refused as a whole.
func TestStale(t *testing.T) {
	t.Parallel()
	conn := dial(t, newNetNS(t))
	generation, err := conn.Generation()
	if err != nil {
		t.Fatal(err)
	}
	commit(t, conn, func(b *Batch) { b.AddTable(Table{TableName: testTable()}) })
	b := NewBatch(generation)
	b.DeleteTable(testTable())
	var refused *RefusedError
	if err := conn.Commit(b); !errors.As(err, &refused) || !refused.Stale() {
		t.Errorf("error %v", err)
	}
	b = NewBatch(generation + 1)
	b.DeleteTable(testTable())
	if err := conn.Commit(b); err != nil {
		t.Error(err)
	}
}

// TestIntervalsStayTogether: a message never ends between the two elements of an interval.
func TestIntervalsStayTogether(t *testing.T) {
	t.Parallel()
	var elements []Element
	for i := range 4000 {
		elements = append(elements, Element{Key: address(2 * i)}, Element{Key: address(2*i + 1), IntervalEnd: true})
	}
	positions := NewBatch(0).AddElements(SetName{testTable(), "set"}, 0, elements)
	for i := 0; i < len(positions); i += 2 {
		if positions[i].Message != positions[i+1].Message {
			t.Fatalf("interval %d: positions %v and %v", i/2, positions[i], positions[i+1])
		}
	}
	if last := positions[len(positions)-1]; last.Message < 5 || last.Offset > 1<<16-100 {
		t.Errorf("last position %+v", last)
	}
}

// TestListener: events name the table, and end with the generation; Wait ends with its
// context, and with Close.
func TestListener(t *testing.T) {
	t.Parallel()
	ns := newNetNS(t)
	conn := dial(t, ns)
	l, err := Listen(ns)
	if err != nil {
		t.Fatal(err)
	}
	var events []Event
	record := func(e Event) { events = append(events, e) }
	if err := l.Poll(record); err != nil || len(events) > 0 {
		t.Fatal(events, err)
	}
	commit(t, conn, func(b *Batch) {
		b.AddTable(Table{TableName: testTable()})
		b.AddChain(Chain{Table: testTable(), Name: "chain"})
	})
	if err := l.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.Poll(record); err != nil {
		t.Fatal(err)
	}
	generation, err := conn.Generation()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]Event{{Table: testTable()}, {Table: testTable()}, {Generation: generation}}, events); d != "" {
		t.Errorf("events (-want +have):\n%s", d)
	}
	ctx, cancel := context.WithCancel(t.Context())
	for _, stop := range []func(){cancel, func() { l.Close() }} {
		ended := make(chan error)
		go func() { ended <- l.Wait(ctx) }()
		stop()
		if err := <-ended; err == nil {
			t.Error("Wait returned without events and without an error")
		}
		ctx = t.Context()
	}
}

// FuzzDecode: no message makes the decoders panic.
func FuzzDecode(f *testing.F) {
	b := NewBatch(7)
	b.AddElements(SetName{testTable(), "set"}, 1, []Element{
		{Key: address(1), KeyEnd: address(2), Data: address(3), Timeout: time.Second},
		{Key: address(4), Verdict: &Verdict{Code: unix.NFT_GOTO, Chain: "chain"}}, {Key: address(5), IntervalEnd: true},
	})
	f.Add(b.attrs.Encoded())
	f.Add(b.attrs.Encoded()[headerSize+genHeaderSize:])
	f.Add([]byte("0"))
	f.Fuzz(func(_ *testing.T, b []byte) {
		parseEvents(b, func(Event) {})
		_, _ = parseFault(b, 0)
		_, _, _ = parseTable(0, b), parseChain(0, b), parseSet(0, b)
		_ = each(b, func(_ uint16, value []byte) error {
			_, _ = parseElement(value)
			return nil
		})
		for e := range (Rule{Expressions: b}).ListExpressions() {
			_, _ = e.Counter()
		}
		conn := &Conn{}
		_, _ = conn.parseResponses(b, true, func(Family, []byte) error { return nil })
	})
}

// TestInterrupted: a dump that the kernel reports as inconsistent is an error, also if only
// its last message has the flag.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	done := make([]byte, headerSize+4)
	binary.NativeEndian.PutUint32(done, uint32(len(done)))
	binary.NativeEndian.PutUint16(done[4:], unix.NLMSG_DONE)
	conn := &Conn{}
	if more, err := conn.parseResponses(done, true, nil); more || err != nil {
		t.Error(more, err)
	}
	binary.NativeEndian.PutUint16(done[6:], unix.NLM_F_MULTI|unix.NLM_F_DUMP_INTR)
	if _, err := conn.parseResponses(done, true, nil); !errors.Is(err, ErrInterrupted) {
		t.Error(err)
	}
}
