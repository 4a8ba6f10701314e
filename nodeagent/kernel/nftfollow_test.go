package kernel

import (
	"testing"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
)

// TestNftElementsVersion checks that the version does not change while no other program changes our
// table. It changes in every other case.
func TestNftElementsVersion(t *testing.T) {
	t.Parallel()
	backend := func(id, value string) desired.Element {
		return desired.Element{Set: desired.SetICMPEcho, Family: 4, ID: id, Value: value}
	}
	one, other := backend("243.0.0.1", "242.2.0.5"), backend("243.0.0.1", "242.2.0.6")
	update := diff.Change[desired.Element]{Op: diff.Update, Key: one.Key(), Want: other, Have: one}
	create := diff.Change[desired.Element]{Op: diff.Create, Key: other.Key(), Want: backend("243.0.0.2", "242.2.0.6")}
	var many []diff.Change[desired.Element]
	for _, e := range nftManySlots(nftPerTransaction + 1) {
		many = append(many, diff.Change[desired.Element]{Op: diff.Create, Key: e.Key(), Want: e})
	}
	tests := []struct {
		name            string
		before, between string // commands of another program before and after the stamp
		after           string // and after the write
		changes         []diff.Change[desired.Element]
		follows         bool
	}{
		{name: "an update", changes: []diff.Change[desired.Element]{update}, follows: true},
		{name: "two at once", changes: []diff.Change[desired.Element]{update, create}, follows: true},
		{name: "nothing", follows: true},
		{name: "another before", before: "add table ip other", changes: []diff.Change[desired.Element]{update}, follows: true},
		{name: "another between", between: "add table ip other", changes: []diff.Change[desired.Element]{update}, follows: true},
		{name: "another after", after: "add table ip other", changes: []diff.Change[desired.Element]{update}, follows: true},
		{name: "our name in another family", after: "add table ip hawser; add chain ip hawser forward", changes: []diff.Change[desired.Element]{update}, follows: true},
		{name: "an element after", after: "add element inet hawser icmp_echo4 { 243.0.0.9 : 242.2.0.6 }", changes: []diff.Change[desired.Element]{update}},
		{name: "a rule after", after: "insert rule inet hawser forward accept", changes: []diff.Change[desired.Element]{update}},
		{name: "no table after", after: "delete table inet hawser", changes: []diff.Change[desired.Element]{update}},
		{name: "thousands", changes: many, follows: true},
		{
			name: "the same by another", between: "delete element inet hawser icmp_echo4 { 243.0.0.1 }; add element inet hawser icmp_echo4 { 243.0.0.1 : 242.2.0.6 }",
			changes: []diff.Change[desired.Element]{update},
		},
		{
			name: "what exists already", between: "add element inet hawser icmp_echo4 { 243.0.0.2 : 242.2.0.6 }",
			changes: []diff.Change[desired.Element]{create},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ns := nftNewNS(t)
			nftApplyTable(t, ns, nftSampleTable())
			nftMustConverge(t, ns, []desired.Element{one})
			foreign := func(script string) {
				if script != "" {
					ns.nft(script)
				}
			}
			table, kind := NewRuleset(ns.opts(), nil).Kinds()
			stamp := func() string {
				t.Helper()
				both := make([]string, 2)
				for i, k := range []converge.Versioned{kind, table} {
					var err error
					if both[i], err = k.Version(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if both[0] != both[1] {
					t.Errorf("stamps %v of elements and table", both)
				}
				return both[0]
			}
			foreign(tt.before)
			before := stamp()
			foreign(tt.between)
			for range 2 { // Each write builds on the previous one.
				if err := kind.Apply(t.Context(), tt.changes); err != nil {
					t.Fatal(err)
				}
				tt.changes = inverse(tt.changes)
			}
			foreign(tt.after)
			if after := stamp(); (after == before) != tt.follows {
				t.Errorf("stamp %s before and %s after, want the same: %t", before, after, tt.follows)
			}
		})
	}
}

// TestNftTrackOverrun checks that the version changes after more events than the socket buffer
// holds.
func TestNftTrackOverrun(t *testing.T) {
	t.Parallel()
	ns := nftNewNS(t)
	nftApplyTable(t, ns, nftSampleTable())
	kind := NewElements(ns.opts())
	stamp := func() string {
		t.Helper()
		s, err := kind.Version(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	before := stamp()
	if err := kind.tracker.listener.SetReadBuffer(1); err != nil {
		t.Fatal(err)
	}
	nftMustConverge(t, ns, nftManySlots(5000))
	after := stamp()
	if after == before {
		t.Error("the stamp did not change after thousands of elements")
	}
	ns.nft("add table ip other")
	if later := stamp(); later == before {
		t.Errorf("stamp %s", later)
	}
	before = stamp()
	ns.nft("add table ip another")
	if later := stamp(); later != before {
		t.Errorf("stamp %s after another's table, %s before", later, before)
	}
}

// inverse returns the changes that revert the given ones.
func inverse(changes []diff.Change[desired.Element]) []diff.Change[desired.Element] {
	var out []diff.Change[desired.Element]
	for _, c := range changes {
		switch c.Op {
		case diff.Create:
			c.Op, c.Have, c.Want = diff.Delete, c.Want, c.Have
		default:
			c.Have, c.Want = c.Want, c.Have
		}
		out = append(out, c)
	}
	return out
}
