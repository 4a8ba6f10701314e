package kernel

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/desired"
)

func nftSampleTable() desired.Table {
	return desired.Table{Name: desired.TableName, MSS4: 1380, MSS6: 1360, Connections: 2048}
}

// nftApplyTable makes one pass towards want, like the engine.
func nftApplyTable(t testing.TB, ns *nftNS, want ...desired.Table) []diff.Change[desired.Table] {
	t.Helper()
	kind := NewTables(ns.opts())
	changes := nftTableChanges(t, ns, want...)
	if err := kind.Apply(t.Context(), changes); err != nil {
		t.Fatal(err)
	}
	return changes
}

func nftTableChanges(t testing.TB, ns *nftNS, want ...desired.Table) []diff.Change[desired.Table] {
	t.Helper()
	kind := NewTables(ns.opts())
	have, err := kind.Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		want[i] = kind.Normalize(want[i], desired.Table{})
	}
	changes, err := diff.Compute(want, have)
	if err != nil {
		t.Fatal(err)
	}
	return changes
}

func TestNftSkeletonIsListedAsWritten(t *testing.T) {
	t.Parallel()
	ours, theirs := nftNewNS(t), nftNewNS(t)
	skeleton, err := os.ReadFile("testdata/skeleton.nft")
	if err != nil {
		t.Fatal(err)
	}
	theirs.nft(string(skeleton))
	nftApplyTable(t, ours, nftSampleTable())
	want, have := theirs.nft("list ruleset"), ours.nft("list ruleset")
	// Our rule restores the packet's mark before the slot lookup. nft(8) lists the rule as this
	// text, which it cannot parse.
	have = strings.ReplaceAll(have, " meta nfproto ipv4 meta mark set meta mark ", " ")
	have = strings.ReplaceAll(have, " meta nfproto ipv6 meta mark set meta mark ", " ")
	have = strings.ReplaceAll(have, " meta mark set meta mark ", " ")
	have = nftWithoutInner(t, have)
	if d := cmp.Diff(want, have); d != "" {
		t.Errorf("ruleset (-want +got):\n%s", d)
	}
}

// nftWithoutInner removes the rules that match raw bytes of headers, which nft 1.0.6 lists but
// cannot parse, and compares them.
func nftWithoutInner(t *testing.T, listing string) string {
	t.Helper()
	var inner []string
	var rest strings.Builder
	for line := range strings.Lines(listing) {
		if strings.Contains(line, "@sources") || strings.Contains(line, "@split_horizon") || strings.Contains(line, "@self") || strings.Contains(line, "@senders") {
			inner = append(inner, strings.TrimSpace(line))
		} else {
			rest.WriteString(line)
		}
	}
	want := []string{
		"ip daddr @remote4 ct mark set @ll,64,32 . iifname map @senders4 accept",
		"ip6 daddr @remote6 ct mark set @ll,64,32 . iifname map @senders6 accept",
		"@th,224,16 0x800 @nh,96,32 . @th,368,32 @split_horizon4in4 drop",
		"@th,224,16 0x86dd @nh,96,32 . @th,432,128 @split_horizon6in4 drop",
		"@th,224,24 & 0xfffff0 == 0x80040 @nh,96,32 . th dport . @th,336,32 @sources4in4 accept",
		"@th,224,24 & 0xfffff0 == 0x86dd60 @nh,96,32 . th dport . @th,304,128 @sources6in4 accept",
		"@th,224,16 0x800 @nh,64,128 . @th,368,32 @split_horizon4in6 drop",
		"@th,224,16 0x86dd @nh,64,128 . @th,432,128 @split_horizon6in6 drop",
		"@th,224,24 & 0xfffff0 == 0x80040 @nh,64,128 . th dport . @th,336,32 @sources4in6 accept",
		"@th,224,24 & 0xfffff0 == 0x86dd60 @nh,64,128 . th dport . @th,304,128 @sources6in6 accept",
		"@th,224,24 & 0xfffff0 == 0x80040 @th,336,32 @nodes4 ip saddr . @th,336,32 != @self44 goto drop_vxlan",
		"@th,224,24 & 0xfffff0 == 0x86dd60 @th,304,128 @nodes6 ip saddr . @th,304,128 != @self64 goto drop_vxlan",
		"@th,224,24 & 0xfffff0 == 0x80040 @th,336,32 @nodes4 ip6 saddr . @th,336,32 != @self46 goto drop_vxlan",
		"@th,224,24 & 0xfffff0 == 0x86dd60 @th,304,128 @nodes6 ip6 saddr . @th,304,128 != @self66 goto drop_vxlan",
	}
	if d := cmp.Diff(want, inner); d != "" {
		t.Errorf("rules that look into VXLAN (-want +got):\n%s", d)
	}
	return rest.String()
}

func nftExpectUnchangedTable(t *testing.T, ns *nftNS, want desired.Table) {
	t.Helper()
	if changes := nftTableChanges(t, ns, want); len(changes) != 0 {
		t.Errorf("changes after apply: %v", changes)
	}
}

func TestNftTableFixedPoint(t *testing.T) {
	t.Parallel()
	ns := nftNewNS(t)
	want := nftSampleTable()
	if changes := nftApplyTable(t, ns, want); len(changes) != 1 || changes[0].Op != diff.Create {
		t.Errorf("first changes: %v", changes)
	}
	nftExpectUnchangedTable(t, ns, want)
	want.MSS4, want.MSS6 = 1300, 1280
	changes := nftApplyTable(t, ns, want)
	if len(changes) != 1 || changes[0].Op != diff.Update {
		t.Errorf("changes of the segment size: %v", changes)
	}
	nftExpectUnchangedTable(t, ns, want)
	nftApplyTable(t, ns)
	nftApplyTable(t, ns)
	if out := ns.nft("list tables"); out != "" {
		t.Errorf("tables after the delete: %s", out)
	}
	gone := []diff.Change[desired.Table]{{Op: diff.Delete, Key: desired.TableName, Have: want}}
	if err := NewTables(ns.opts()).Apply(t.Context(), gone); err != nil {
		t.Errorf("delete of a missing table: %v", err)
	}
}

// TestNftTableTampered checks that each manual change is detected and repaired. Elements survive
// unless the case says otherwise.
func TestNftTableTampered(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, script string
		lost         bool // elements are lost with the change or its repair
	}{
		{"rule deleted", "flush chain inet hawser mss", false},
		{"rule added in front", "insert rule inet hawser forward accept", false},
		{"rule added behind", "add rule inet hawser prerouting accept", false},
		{"all rules deleted", "flush table inet hawser", false},
		{"rule replaced", "replace rule inet hawser prerouting handle HANDLE accept", false},
		{"chain added", "add chain inet hawser own_work { type filter hook input priority 0; policy drop; }", false},
		{"chain in use added", "add chain inet hawser mine; add element inet hawser services4 { 1.1.1.1 . tcp . 1 : goto mine }", true},
		{"policy changed", "add chain inet hawser forward { policy drop; }", false},
		{"chain deleted", "flush chain inet hawser output; delete chain inet hawser output", false},
		{"base chain moved", "flush chain inet hawser input; delete chain inet hawser input;" +
			"add chain inet hawser input { type filter hook input priority 7; }", false},
		{"set added", "add set inet hawser mine { type ipv4_addr; }", false},
		{"set deleted", "flush table inet hawser; delete set inet hawser nodes4", true},
		{"set with another declaration", "flush table inet hawser; delete set inet hawser nodes4;" +
			"add set inet hawser nodes4 { type ipv4_addr; flags interval; }", true},
		{"made dormant", "add table inet hawser { flags dormant; }", false},
		{"table deleted", "delete table inet hawser", true},
		{"ruleset flushed", "flush ruleset", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ns := nftNewNS(t)
			want := nftSampleTable()
			nftApplyTable(t, ns, want)
			nftMustConverge(t, ns, nftSampleElements())
			before := ns.nft("list table inet hawser")
			ns.nft(strings.ReplaceAll(tt.script, "HANDLE", nftFirstHandle(t, ns, "prerouting")))
			if changes := nftApplyTable(t, ns, want); len(changes) != 1 {
				t.Fatalf("changes after the tampering: %v", changes)
			}
			nftExpectUnchangedTable(t, ns, want)
			if n, err := nftConverge(t, ns, nftSampleElements()); err != nil || (n > 0) != tt.lost {
				t.Errorf("%d elements were lost, error %v; want lost: %v", n, err, tt.lost)
			}
			if d := cmp.Diff(nftSortedBlocks(before), nftSortedBlocks(ns.nft("list table inet hawser"))); d != "" {
				t.Errorf("table (-before +after):\n%s", d)
			}
		})
	}
}

// nftSortedBlocks splits a listing into its chains and sets, sorted: recreated ones are listed
// last, and elements have no order.
func nftSortedBlocks(listing string) []string {
	blocks := strings.Split(listing, "\n\n")
	for i, block := range blocks {
		block = strings.TrimSuffix(strings.TrimSpace(block), "\n}")
		block = strings.TrimPrefix(block, "table inet hawser {\n\t")
		if strings.HasPrefix(block, "map") || strings.HasPrefix(block, "set") {
			words := strings.FieldsFunc(block, func(r rune) bool { return strings.ContainsRune(", \n\t", r) })
			slices.Sort(words)
			block = strings.Join(words, " ")
		}
		blocks[i] = block
	}
	slices.Sort(blocks)
	return blocks
}

func nftFirstHandle(t *testing.T, ns *nftNS, chain string) string {
	t.Helper()
	var out []byte
	var err error
	ns.inside(func() { out, err = exec.Command("nft", "-a", "list", "chain", "inet", "hawser", chain).Output() })
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if rule, handle, ok := strings.Cut(line, "# handle "); ok && !strings.Contains(rule, "{") {
			return strings.TrimSpace(handle)
		}
	}
	t.Fatalf("no handle in %s", out)
	return ""
}

func TestNftForeignTablesSurvive(t *testing.T) {
	t.Parallel()
	ns := nftNewNS(t)
	unharmed := nftCreateForeign(ns)
	want := nftSampleTable()
	nftApplyTable(t, ns, want)
	nftMustConverge(t, ns, nftSampleElements())
	ns.nft("flush chain inet hawser mss")
	nftApplyTable(t, ns, want)
	nftMustConverge(t, ns, nil)
	nftApplyTable(t, ns)
	if err := unharmed(); err != nil {
		t.Error(err)
	}
}
