package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
)

func nftByKey(elements []desired.Element) []desired.Element {
	out := slices.Clone(elements)
	slices.SortFunc(out, func(a, b desired.Element) int { return cmp.Compare(a.Key(), b.Key()) })
	return out
}

func nftObserve(t testing.TB, ns *nftNS) []desired.Element {
	t.Helper()
	have, err := NewElements(ns.opts()).Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return nftByKey(have)
}

// nftConverge makes one pass towards want, creates and updates first, like the engine. It
// returns the number of changes.
func nftConverge(t testing.TB, ns *nftNS, want []desired.Element) (int, error) {
	t.Helper()
	changes, err := diff.Compute(want, nftObserve(t, ns))
	if err != nil {
		t.Fatal(err)
	}
	isDelete := func(c diff.Change[desired.Element]) bool { return c.Op == diff.Delete }
	var makes, removes []diff.Change[desired.Element]
	for _, c := range changes {
		if isDelete(c) {
			removes = append(removes, c)
		} else {
			makes = append(makes, c)
		}
	}
	kind := NewElements(ns.opts())
	return len(changes), errors.Join(kind.Apply(t.Context(), makes), kind.Apply(t.Context(), removes))
}

func nftMustConverge(t testing.TB, ns *nftNS, want []desired.Element) {
	t.Helper()
	if _, err := nftConverge(t, ns, want); err != nil {
		t.Fatal(err)
	}
	if n, _ := nftConverge(t, ns, want); n != 0 {
		t.Fatalf("%d changes after the first pass", n)
	}
}

func TestNftElementsAreReadAsWritten(t *testing.T) {
	t.Parallel()
	ns := nftNewNS(t)
	nftApplyTable(t, ns, nftSampleTable())
	want := nftSampleElements()
	nftMustConverge(t, ns, want)
	if d := gocmp.Diff(nftByKey(want), nftObserve(t, ns)); d != "" {
		t.Errorf("elements (-want +got):\n%s", d)
	}
	nftMustConverge(t, ns, nil)
}

// TestNftElementsAreListedAsWritten checks that nft(8) lists our elements like elements that it
// wrote from the same text.
func TestNftElementsAreListedAsWritten(t *testing.T) {
	t.Parallel()
	ours, theirs := nftNewNS(t), nftNewNS(t)
	for _, ns := range []*nftNS{ours, theirs} {
		nftApplyTable(t, ns, nftSampleTable())
	}
	// nft 1.0.6 cannot add a single address to a map of prefixes.
	sample := slices.DeleteFunc(nftSampleElements(), func(e desired.Element) bool { return e.ID == "10.9.0.1" })
	nftMustConverge(t, ours, sample)
	var script strings.Builder
	for _, e := range sample {
		value := ""
		switch {
		case e.Set == desired.SetServices:
			value = " : goto " + e.Value
		case e.Value != "":
			value = " : " + e.Value
		}
		fmt.Fprintf(&script, "add element inet hawser %s%d { %s%s }\n", e.Set, e.Family, e.ID, value)
	}
	theirs.nft(script.String())
	if d := gocmp.Diff(nftObserve(t, theirs), nftObserve(t, ours)); d != "" {
		t.Errorf("as read by us (-nft +kind):\n%s", d)
	}
	sets := func(ns *nftNS) string {
		text, _, _ := strings.Cut(ns.nft("list table inet hawser"), "chain ")
		lines := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(",\n{}", r) })
		for i := range lines {
			lines[i] = strings.TrimSpace(strings.Replace(strings.TrimSpace(lines[i]), "elements =", "", 1))
		}
		slices.Sort(lines) // hash tables have no order
		return strings.Join(slices.DeleteFunc(lines, func(l string) bool { return l == "" }), "\n")
	}
	if d := gocmp.Diff(sets(theirs), sets(ours)); d != "" {
		t.Errorf("as listed by nft (-nft +kind):\n%s", d)
	}
}

func TestNftElementChanges(t *testing.T) {
	t.Parallel()
	element := func(set, id, value string) desired.Element {
		return desired.Element{Set: set, Family: 4, ID: id, Value: value}
	}
	tests := []struct {
		name       string
		have, want []desired.Element
	}{
		{"a backend", []desired.Element{element("slots", "243.0.0.1 . tcp . 80 . 3", "242.2.0.5 . 80")},
			[]desired.Element{element("slots", "243.0.0.1 . tcp . 80 . 3", "242.2.0.6 . 80")}},
		{"a chain", []desired.Element{element("services", "243.0.0.1 . tcp . 80", "pick_one4")},
			[]desired.Element{element("services", "243.0.0.1 . tcp . 80", "pick_many4")}},
		{"the data of a prefix", []desired.Element{element("mapped", "10.7.0.0/16", "242.4.0.0/16")},
			[]desired.Element{element("mapped", "10.7.0.0/16", "242.5.0.0/16")}},
		{"one of two neighbours", []desired.Element{element("keep_source", "10.7.0.0/24", ""), element("keep_source", "10.7.1.0/24", "")},
			[]desired.Element{element("keep_source", "10.7.1.0/24", "")}},
		{"a neighbour on each side", []desired.Element{element("keep_source", "10.7.1.0/24", "")},
			[]desired.Element{element("keep_source", "10.7.0.0/24", ""), element("keep_source", "10.7.1.0/24", ""), element("keep_source", "10.7.2.0/24", "")}},
		{"an allowed source", []desired.Element{element("allowed", "242.1.0.0/24 . 242.2.0.5", "")},
			[]desired.Element{element("allowed", "242.3.0.0/24 . 242.2.0.5", "")}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ns := nftNewNS(t)
			nftApplyTable(t, ns, nftSampleTable())
			nftMustConverge(t, ns, tt.have)
			nftMustConverge(t, ns, tt.want)
		})
	}
}

func TestNftElementTexts(t *testing.T) {
	t.Parallel()
	tests := []struct{ set, id, value, want string }{
		{"services", "243.0.0.1 . tcp", "pick_one4", "has 2 parts, not 3"},
		{"services", "243.0.0.1 . tpc . 80", "pick_one4", `unknown protocol "tpc"`},
		{"services", "243.0.0.1 . tcp . 65536", "pick_one4", `port "65536" is not a number`},
		{"services", "243.0.0.1 . tcp . 080", "pick_one4", `must be written "243.0.0.1 . tcp . 80"`},
		{"services", "243.0.0.1 . 6 . 80", "pick_one4", `must be written "243.0.0.1 . tcp . 80"`},
		{"services", "243.0.0.1 . tcp . 80", "pick_one6", "is not a chain that picks"},
		{"services", "243.0.0.1 . tcp . 80", "egress", "is not a chain that picks"},
		{"slots", "243.0.0.1 . tcp . 80 . 4294967296", "242.2.0.5 . 80", "not a 32-bit number"},
		{"slots", "243.0.0.1 . tcp . 80 . 1", "242.2.0.5", "has 1 parts, not 2"},
		{"icmp_echo", "fd00::1", "242.2.0.5", "is no IPv4 address"},
		{"icmp_echo", "243.0.0.0/24", "242.2.0.5", "243.0.0.0/24"},
		{"icmp_echo", "243.0.0.1", "", "unable to parse"},
		{"keep_source", "10.7.1.0/16", "", "has host bits set"},
		{"keep_source", "10.7.1.0/32", "", `must be written "10.7.1.0"`},
		{"keep_source", "10.7.0.0-10.7.255.255", "", `must be written "10.7.0.0/16"`},
		{"keep_source", "10.7.0.0/16", "x", "a set has no values"},
		{"keep_source", "10.7.0.0/33", "", "prefix length"},
		{"mapped", "10.7.0.0/16", "242.4.1.0/16", "has host bits set"},
		{"nothing", "10.7.0.0/16", "", "no set nothing for IPv4"},
	}
	for _, tt := range tests {
		t.Run(tt.set+" "+tt.id, func(t *testing.T) {
			t.Parallel()
			e := desired.Element{Set: tt.set, Family: 4, ID: tt.id, Value: tt.value}
			_, err := NewElements(NFTOptions{}).encodeChange(diff.Change[desired.Element]{Op: diff.Create, Key: e.Key(), Want: e})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

func TestNftElementFaultsStandAlone(t *testing.T) {
	t.Parallel()
	ns := nftNewNS(t)
	nftApplyTable(t, ns, nftSampleTable())
	outer := desired.Element{Set: "keep_source", Family: 4, ID: "10.0.0.0/8"}
	nftMustConverge(t, ns, []desired.Element{outer})
	inner := desired.Element{Set: "keep_source", Family: 4, ID: "10.7.0.0/16"}
	wrong := desired.Element{Set: "keep_source", Family: 4, ID: "10.7.0.1/16"}
	var want []desired.Element
	for i := range 600 {
		id := netip.AddrFrom4([4]byte{172, 16, byte(i / 250), byte(i % 250)}).String()
		want = append(want, desired.Element{Set: "keep_source", Family: 4, ID: id}, desired.Element{Set: "nodes", Family: 4, ID: id})
	}
	_, err := nftConverge(t, ns, append([]desired.Element{outer, inner, wrong}, want...))
	for _, part := range []string{"keep_source4 10.7.0.0/16: overlaps another element of keep_source4", "keep_source4 10.7.0.1/16: set keep_source4: key", "host bits"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error %v, want one with %q", err, part)
		}
	}
	if d := gocmp.Diff(nftByKey(append(want, outer)), nftObserve(t, ns)); d != "" {
		t.Errorf("elements (-want +got):\n%s", d)
	}
}

func TestNftElementsGoneAlready(t *testing.T) {
	t.Parallel()
	ns := nftNewNS(t)
	nftApplyTable(t, ns, nftSampleTable())
	want := nftSampleElements()
	nftMustConverge(t, ns, want)
	kind := NewElements(ns.opts())
	removes, err := diff.Compute(nil, want)
	if err != nil {
		t.Fatal(err)
	}
	// Every second element is missing, and one update has no element to replace.
	var half []diff.Change[desired.Element]
	for i := 0; i < len(removes); i += 2 {
		half = append(half, removes[i])
	}
	for _, changes := range [][]diff.Change[desired.Element]{half, removes} {
		if err := kind.Apply(t.Context(), changes); err != nil {
			t.Fatal(err)
		}
	}
	update := diff.Change[desired.Element]{Op: diff.Update, Key: want[0].Key(), Want: want[0], Have: want[0]}
	if err := kind.Apply(t.Context(), []diff.Change[desired.Element]{update}); err != nil {
		t.Fatal(err)
	}
	if d := gocmp.Diff(want[:1], nftObserve(t, ns)); d != "" {
		t.Errorf("elements (-want +got):\n%s", d)
	}
}

func TestNftElementsWaitForTheTable(t *testing.T) {
	t.Parallel()
	ns := nftNewNS(t)
	want := nftSampleElements()
	kind := NewElements(ns.opts())
	creates, err := diff.Compute(want, nftObserve(t, ns))
	if err != nil {
		t.Fatal(err)
	}
	var blocked converge.ErrBlocked
	if err := kind.Apply(t.Context(), creates); !errors.As(err, &blocked) || blocked.On != "table inet hawser" {
		t.Errorf("error %v, want ErrBlocked on table inet hawser", err)
	}
	removes, err := diff.Compute(nil, want)
	if err != nil {
		t.Fatal(err)
	}
	if err := kind.Apply(t.Context(), removes); err != nil {
		t.Errorf("deletes without a table: %v", err)
	}
}

// TestElementBatches checks that elements other than slots are in the first batch. No service uses
// missing slots, or the first slot while its backend is wrong.
func TestElementBatches(t *testing.T) {
	t.Parallel()
	change := func(op diff.Op, set, id, value string) diff.Change[desired.Element] {
		e := desired.Element{Set: set, Family: 4, ID: id, Value: value}
		return diff.Change[desired.Element]{Op: op, Key: e.Key(), Want: e, Have: e}
	}
	slots := func(op diff.Op, service string) (out []diff.Change[desired.Element]) {
		for i := range 1024 {
			out = append(out, change(op, desired.SetSlots, service+" . "+strconv.Itoa(i), ""))
		}
		return out
	}
	service := func(op diff.Op, service string, slots int, affinity bool) diff.Change[desired.Element] {
		return change(op, desired.SetServices, service, desired.PickChain(slots, affinity)+"4")
	}
	writes := slices.Concat(
		[]diff.Change[desired.Element]{
			service(diff.Update, "one to two", desired.SlotsMany, true),
			service(diff.Update, "two to one", desired.SlotsOne, false),
		},
		slots(diff.Create, "one to two"),
		[]diff.Change[desired.Element]{change(diff.Update, desired.SetSlots, "two to one . 0", "")},
		slots(diff.Update, "others of two"),
		[]diff.Change[desired.Element]{change(diff.Update, desired.SetPods, "pod", "")},
	)
	deletes := slices.Concat(slots(diff.Delete, "gone"), []diff.Change[desired.Element]{
		service(diff.Delete, "gone", desired.SlotsMany, false), change(diff.Delete, desired.SetPods, "pod", ""),
	})
	k := NewElements(NFTOptions{})
	for name, tc := range map[string]struct {
		changes []diff.Change[desired.Element]
		sizes   []int
		batch   map[string]int // batch of some keys
	}{
		"writes": {writes, []int{5, 512, 511, 1, 512, 511}, map[string]int{
			"services4 two to one": 0, "slots4 two to one . 0": 0, "slots4 one to two . 0": 0, "pods4 pod": 0,
			"slots4 one to two . 1023": 2, "services4 one to two": 3, "slots4 others of two . 1023": 5,
		}},
		"deletes": {deletes, []int{2, 1, 512, 511}, map[string]int{
			"pods4 pod": 0, "services4 gone": 1, "slots4 gone . 1023": 3,
		}},
		"few": {writes[:512], []int{512}, nil},
	} {
		var sizes []int
		at := map[string]int{}
		for i, batch := range k.Batches(tc.changes) {
			sizes = append(sizes, len(batch))
			for _, c := range batch {
				at[c.Key] = i
			}
		}
		if !slices.Equal(sizes, tc.sizes) {
			t.Errorf("%s: batches of %v, want %v", name, sizes, tc.sizes)
		}
		for key, want := range tc.batch {
			if at[key] != want {
				t.Errorf("%s: %q is in batch %d, want %d", name, key, at[key], want)
			}
		}
	}
}
