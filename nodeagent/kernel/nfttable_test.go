package kernel

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/desired"
)

func nftSampleTable() desired.Table {
	return desired.Table{Name: desired.TableName, MSS4: 1380, MSS6: 1360}
}

// nftApply brings want to the kernel as the engine would, once.
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
		want[i] = kind.Adopt(want[i], desired.Table{})
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
	// Ours gives the packet its mark back before the slot is looked up, which
	// nft lists as this (and cannot write itself).
	have = strings.ReplaceAll(have, " meta nfproto ipv4 meta mark set meta mark ", " ")
	have = strings.ReplaceAll(have, " meta nfproto ipv6 meta mark set meta mark ", " ")
	have = strings.ReplaceAll(have, " meta mark set meta mark ", " ")
	if d := cmp.Diff(want, have); d != "" {
		t.Errorf("ruleset (-want +got):\n%s", d)
	}
}
