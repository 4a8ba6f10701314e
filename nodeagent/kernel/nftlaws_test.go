package kernel

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/converge/convergetest"
	"hawser.dev/hawser/nodeagent/desired"
)

const nftForeign = `
table ip foo {
	set s { type ipv4_addr; elements = { 1.2.3.4 }; }
	chain c { type nat hook postrouting priority 100; masquerade; }
}
table inet hawser2 {
	chain forward { accept; }
}
table ip hawser {
	set keep_source4 { type ipv4_addr; elements = { 1.2.3.4 }; }
	chain forward { accept; }
}
`

// nftCreateForeign creates tables similar to ours. The returned function reports whether they are
// unchanged.
func nftCreateForeign(ns *nftNS) func() error {
	ns.nft(nftForeign)
	list := func() string {
		// One command per call: nft 1.0.6 reads only the objects that the last command
		// needs.
		return ns.nft("list table ip foo") + ns.nft("list table inet hawser2") + ns.nft("list table ip hawser")
	}
	before := list()
	return func() error {
		if after := list(); after != before {
			return fmt.Errorf("foreign tables were\n%s\nand are\n%s", before, after)
		}
		return nil
	}
}

func nftTamperCases(ns *nftNS, scripts map[string]string) map[string]func(*testing.T) {
	tampers := map[string]func(*testing.T){}
	for name, script := range scripts {
		tampers[name] = func(*testing.T) { ns.nft(script) }
	}
	return tampers
}

func TestNftTableLaws(t *testing.T) {
	t.Parallel()
	ns := nftNewNS(t)
	newKind := func(*testing.T) converge.Kind[desired.Table] { return NewTables(ns.opts()) }
	convergetest.Laws(t, newKind, convergetest.Samples[desired.Table]{
		Want: []desired.Table{nftSampleTable()},
		Vary: func(t desired.Table) []desired.Table {
			small4, small6 := t, t
			small4.MSS4, small6.MSS6 = 1200, 1200
			none, few := t, t
			none.Connections, few.Connections = 0, 20
			return []desired.Table{small4, small6, none, few}
		},
		Tamper: nftTamperCases(ns, map[string]string{
			"rule deleted":  "flush chain inet hawser return_only",
			"rule inserted": "insert rule inet hawser inbound accept",
			"table deleted": "delete table inet hawser",
		}),
		Foreign: func(*testing.T) func() error { return nftCreateForeign(ns) },
	})
}

func TestNftElementLaws(t *testing.T) {
	t.Parallel()
	ns := nftNewNS(t)
	nftApplyTable(t, ns, nftSampleTable())
	newKind := func(*testing.T) converge.Kind[desired.Element] { return NewElements(ns.opts()) }
	convergetest.Laws(t, newKind, convergetest.Samples[desired.Element]{
		Want: nftSampleElements(),
		Vary: nftVariants,
		Tamper: nftTamperCases(ns, map[string]string{
			"element deleted": "delete element inet hawser tunnels4 { 241.0.0.1 }",
			"element changed": "delete element inet hawser icmp_echo4 { 243.0.0.1 }; add element inet hawser icmp_echo4 { 243.0.0.1 : 6.6.6.6 }",
			"verdict changed": "delete element inet hawser services4 { 243.0.0.1 . tcp . 80 };" +
				"add element inet hawser services4 { 243.0.0.1 . tcp . 80 : accept }",
			"element added":               "add element inet hawser keep_source4 { 10.66.0.3-10.66.0.9 }; add element inet hawser nodes6 { fd66::1 }",
			"concatenated range added":    "add element inet hawser allowed4 { 10.66.0.3-10.66.0.9 . 242.2.0.1-242.2.0.3 }",
			"ranges flushed":              "flush set inet hawser keep_source4",
			"concatenated ranges flushed": "flush set inet hawser allowed6",
			"set flushed":                 "flush map inet hawser slots4",
		}),
		Foreign: func(*testing.T) func() error { return nftCreateForeign(ns) },
	})
}

// nftVariants returns an element of a map with another value; nil for a set.
func nftVariants(e desired.Element) []desired.Element {
	if e.Value == "" {
		return nil
	}
	e.Value = strings.NewReplacer(
		"pick_one", "pick_many", "pick_many", "pick_one",
		"242.2.0.", "242.2.1.", "242.4.0.0", "242.8.0.0", "242.9", "242.8", "10.7.", "10.11.", "10.8.", "10.12.",
		"242.1.0", "242.1.7", "fd00:", "fd11:", "_client", "", "1879048193", "1879048194", "2130702351", "2130702350",
	).Replace(e.Value)
	return []desired.Element{e}
}

// TestNftSampleIsComplete checks that the sample has elements in every set, so the laws cover every
// set.
func TestNftSampleIsComplete(t *testing.T) {
	t.Parallel()
	var missing []error
	for _, s := range nftSets() {
		in := func(e desired.Element) bool { return e.Set == s.Set.Name && e.Family == s.Family }
		if !s.Dynamic && !slices.ContainsFunc(nftSampleElements(), in) {
			missing = append(missing, fmt.Errorf("no sample for %s", s.Name))
		}
	}
	if err := errors.Join(missing...); err != nil {
		t.Error(err)
	}
}
