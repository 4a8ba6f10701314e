package lockmerge_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/load"
	"hawser.dev/hawser/schema/lockfile"
	"hawser.dev/hawser/schema/lockmerge"
)

// newTopology returns a topology with the clusters g1 and g2, and exports with the given names.
func newTopology(t *testing.T, alter func(string) string, exports ...string) *schema.ClusterSet {
	t.Helper()
	text := "apiVersion: hawser.dev/v1alpha1\nkind: ClusterSet\nmetadata: {name: demo}\nspec:\n  globalnet: {egressIPs: 1}\n  clusters:\n"
	for i, c := range []string{"g1", "g2"} {
		text += fmt.Sprintf("  - {name: %s, podCIDRs: [10.7.0.0/24], serviceCIDRs: [10.77.0.0/16], recipient: "+
			"age1n4s70tp2m67uhryhg8ax4fzrt32nvcy5undwsrsvmcu2t0p7tvyqtjxy2n, gateways: [{name: a, node: w, endpoints: [203.0.113.%d]}]}\n", c, i+1)
	}
	text += "  exports:\n"
	for _, e := range exports {
		text += fmt.Sprintf("  - {name: %s, namespace: ns, clusters: [g1], ports: [{port: 80}]}\n", e)
	}
	if alter != nil {
		text = alter(text)
	}
	top, _, list := load.Topology("clusterset.yaml", []byte(text))
	if list.HasErrors() {
		t.Fatal(list.Err())
	}
	return top
}

// TestOntoPublished checks that published addresses have precedence over the committed lock, except
// after explicit moves, pins and releases.
func TestOntoPublished(t *testing.T) {
	t.Parallel()
	const b1, b2 = "  clusters[g1].blocks: [242.1.0.0/24]\n", "  clusters[g2].blocks: [242.2.0.0/24]\n"
	pin := func(text string) string {
		return strings.Replace(text, "{name: g1,", "{name: g1, globalCIDR: 242.9.0.0/24,", 1)
	}
	tests := []struct {
		name            string
		alter           func(string) string
		committed, pub  string
		want            string
		refused, warned string // prefix of the only finding; both empty: no finding
	}{
		{name: "nothing is committed", pub: b1 + "  exports[ns/x].vips: [243.0.0.1]\n", want: b1 + "  exports[ns/x].vips: [243.0.0.1]\n"},
		{name: "nothing is published", committed: b1, want: b1},
		{name: "what one lacks the other has", committed: b1 + "  clusters[g1].egressIPs: [242.1.0.1]\n", pub: b1 + b2,
			want: b1 + "  clusters[g1].egressIPs: [242.1.0.1]\n" + b2},
		{name: "two hold an address", committed: "  exports[ns/a].vips: [243.0.0.1]\n  exports[ns/x].vips: [243.0.0.1]\n",
			pub: "  exports[ns/x].vips: [243.0.0.1]\n", want: "  exports[ns/x].vips: [243.0.0.1]\n",
			warned: "lock:4:3: warning: exports[ns/a].vips: has 243.0.0.1, which is published for exports[ns/x].vips; it gets another"},
		{name: "another takes an address", committed: "  exports[ns/a].vips: [243.0.0.1]\n", pub: "  exports[ns/x].vips: [243.0.0.1]\n",
			want:    "  exports[ns/x].vips: [243.0.0.1]\n",
			refused: "lock:4:3: error: exports[ns/a].vips: has 243.0.0.1, which is published for exports[ns/x].vips"},
		{name: "an address is another", committed: "  exports[ns/x].vips: [243.0.0.9]\n", pub: "  exports[ns/x].vips: [243.0.0.1]\n",
			want:    "  exports[ns/x].vips: [243.0.0.1]\n",
			refused: "lock:4:3: error: exports[ns/x].vips: would change from the published 243.0.0.1 to 243.0.0.9"},
		{name: "an address is another by name", committed: "  exports[ns/x].vips: [243.0.0.9, 243.0.0.1]\nreleased:\n  exports[ns/x].vips: [243.0.0.1]\n",
			pub:  "  exports[ns/x].vips: [243.0.0.1]\n",
			want: "  exports[ns/x].vips: [243.0.0.9, 243.0.0.1]\nreleased:\n  exports[ns/x].vips: [243.0.0.1]\n"},
		{name: "an address was freed and given again", committed: "  exports[ns/x].vips: [243.0.0.9]\nreleased:\n  exports[ns/x].vips: [243.0.0.1]\n",
			pub:     "  exports[ns/x].vips: [243.0.0.1]\n",
			want:    "  exports[ns/x].vips: [243.0.0.1]\nreleased:\n  exports[ns/x].vips: [243.0.0.1]\n",
			refused: "lock:4:3: error: exports[ns/x].vips: would change from the published 243.0.0.1 to 243.0.0.9"},
		{name: "an address stands before the published one", committed: "  exports[ns/x].vips: [243.0.0.9, 243.0.0.1]\n",
			pub: "  exports[ns/x].vips: [243.0.0.1]\n", want: "  exports[ns/x].vips: [243.0.0.1]\n",
			refused: "lock:4:3: error: exports[ns/x].vips: would change from the published 243.0.0.1 to 243.0.0.9"},
		{name: "a line stands twice", committed: "  exports[ns/x].vips: [243.0.0.1]\n  exports[ns/x].vips: [243.0.0.9]\n",
			pub: "  exports[ns/x].vips: [243.0.0.9]\n", want: "  exports[ns/x].vips: [243.0.0.9]\n"},
		{name: "removed exports stay reserved", committed: "  exports[ns/x].vips: [243.0.0.2]\n",
			pub:  "  exports[ns/gone].vips: [243.0.0.1]\n  exports[ns/x].vips: [243.0.0.2]\n",
			want: "  exports[ns/gone].vips: [243.0.0.1]\n  exports[ns/x].vips: [243.0.0.2]\n"},
		{name: "until it is released", committed: "  exports[ns/a].vips: [243.0.0.1]\nreleased:\n  exports[ns/gone].vips: [243.0.0.1]\n",
			pub:  "  exports[ns/gone].vips: [243.0.0.1]\n",
			want: "  exports[ns/a].vips: [243.0.0.1]\nreleased:\n  exports[ns/gone].vips: [243.0.0.1]\n"},
		{name: "what the topology has again is not released", committed: "released:\n  exports[ns/x].vips: [243.0.0.1]\n",
			pub: "  exports[ns/x].vips: [243.0.0.1]\n", want: "  exports[ns/x].vips: [243.0.0.1]\nreleased:\n  exports[ns/x].vips: [243.0.0.1]\n"},
		{name: "two hold a block", committed: "  clusters[g1].blocks: [242.2.0.0/24]\n  clusters[g1].egressIPs: [242.2.0.1]\n" + b2 + "  clusters[g2].egressIPs: [242.2.0.1]\n",
			pub: b2 + "  clusters[g2].egressIPs: [242.2.0.1]\n", want: b2 + "  clusters[g2].egressIPs: [242.2.0.1]\n",
			warned: "lock:4:25: warning: clusters[g1].blocks: has the block 242.2.0.0/24, which is published for clusters[g2].blocks"},
		{name: "another takes a block", committed: "  clusters[g1].blocks: [242.2.0.0/23]\n", pub: b2, want: b2,
			refused: "lock:4:25: error: clusters[g1].blocks: has the block 242.2.0.0/23, which is published for clusters[g2].blocks"},
		{name: "a block is another", committed: "  clusters[g1].blocks: [242.9.0.0/24]\n  clusters[g1].egressIPs: [242.9.0.1]\n",
			pub: b1 + "  clusters[g1].egressIPs: [242.1.0.1]\n", want: b1 + "  clusters[g1].egressIPs: [242.1.0.1]\n",
			refused: "lock:4:25: error: clusters[g1].blocks: would change from the published 242.1.0.0/24 to 242.9.0.0/24"},
		{name: "a block is another by name", committed: "  clusters[g1].blocks: [242.9.0.0/24]\n  clusters[g1].former: [242.1.0.0/24]\nreleased:\n" + b1, pub: b1,
			want: "  clusters[g1].blocks: [242.9.0.0/24]\n  clusters[g1].former: [242.1.0.0/24]\nreleased:\n" + b1},
		{name: "a block is another as a pin was given up", committed: "  clusters[g1].blocks: [242.9.0.0/24]\n  clusters[g1].former: [242.1.0.0/24]\n",
			pub: b1, want: b1, refused: "lock:4:25: error: clusters[g1].blocks: would change from the published 242.1.0.0/24 to 242.9.0.0/24"},
		{name: "a block is another by a pin", alter: pin, committed: "  clusters[g1].blocks: [242.9.0.0/24]\n", pub: b1,
			want: "  clusters[g1].blocks: [242.9.0.0/24]\n  clusters[g1].former: [242.1.0.0/24]\n"},
		{name: "a mapping is another", committed: "  clusters[g1].blocks: [242.0.0.0/16]\n  clusters[g1].mappings[10.7.0.0/24]: [242.0.129.0/24]\n",
			pub:     "  clusters[g1].blocks: [242.0.0.0/16]\n  clusters[g1].mappings[10.7.0.0/24]: [242.0.128.0/24]\n",
			want:    "  clusters[g1].blocks: [242.0.0.0/16]\n  clusters[g1].mappings[10.7.0.0/24]: [242.0.128.0/24]\n",
			refused: "lock:5:3: error: clusters[g1].mappings[10.7.0.0/24]: would change from the published 242.0.128.0/24"},
		{name: "an ordinal is another", committed: "  clusters[g1].gateways[a].ordinal: 1\n", pub: "  clusters[g1].gateways[a].ordinal: 0\n",
			want: "  clusters[g1].gateways[a].ordinal: 0\n", refused: "lock:4:3: error: clusters[g1].gateways[a].ordinal: would change from the published ordinal 0"},
		{name: "two hold an ordinal", committed: "  clusters[g1].gateways[a].ordinal: 0\n  clusters[g1].gateways[b].ordinal: 0\n",
			pub: "  clusters[g1].gateways[b].ordinal: 0\n", want: "  clusters[g1].gateways[b].ordinal: 0\n",
			warned: "lock:4:3: warning: clusters[g1].gateways[a].ordinal: has ordinal 0, which is published for clusters[g1].gateways[b]; it gets another"},
		{name: "more egress addresses", alter: func(s string) string { return strings.Replace(s, "egressIPs: 1", "egressIPs: 3", 1) },
			committed: b1 + "  clusters[g1].egressIPs: [242.1.0.1-242.1.0.3]\n", pub: b1 + "  clusters[g1].egressIPs: [242.1.0.1]\n",
			want: b1 + "  clusters[g1].egressIPs: [242.1.0.1-242.1.0.3]\n"},
		{name: "fewer egress addresses, released", committed: b1 + "  clusters[g1].egressIPs: [242.1.0.1]\nreleased:\n  clusters[g1].egressIPs: [242.1.0.1-242.1.0.3]\n",
			pub:  b1 + "  clusters[g1].egressIPs: [242.1.0.1-242.1.0.3]\n",
			want: b1 + "  clusters[g1].egressIPs: [242.1.0.1]\nreleased:\n  clusters[g1].egressIPs: [242.1.0.1-242.1.0.3]\n"},
		{name: "an address in a published mapping", committed: "  clusters[g1].blocks: [242.0.0.0/16]\n  clusters[g1].egressIPs: [242.0.128.1]\n",
			pub:     "  clusters[g1].blocks: [242.0.0.0/16]\n  clusters[g1].mappings[10.7.0.0/24]: [242.0.128.0/24]\n",
			want:    "  clusters[g1].blocks: [242.0.0.0/16]\n  clusters[g1].mappings[10.7.0.0/24]: [242.0.128.0/24]\n",
			refused: "lock:5:3: error: clusters[g1].egressIPs: has 242.0.128.1, which is published for clusters[g1].mappings[10.7.0.0/24]"},
		{name: "a mapping over a published address", pub: "  clusters[g1].blocks: [242.0.0.0/16]\n  clusters[g1].egressIPs: [242.0.128.1]\n",
			committed: "  clusters[g1].blocks: [242.0.0.0/16]\n  clusters[g1].mappings[10.7.0.0/24]: [242.0.128.0/24]\n  clusters[g1].egressIPs: [242.0.128.1]\n",
			want:      "  clusters[g1].blocks: [242.0.0.0/16]\n  clusters[g1].egressIPs: [242.0.128.1]\n",
			warned:    "lock:5:3: warning: clusters[g1].mappings[10.7.0.0/24]: has 242.0.128.1, which is published for clusters[g1].egressIPs"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			have, list := lockmerge.OntoPublished(readLock(t, lockOf(tt.committed)), newTopology(t, tt.alter, "a", "x"), readLock(t, lockOf(tt.pub)))
			if diff := cmp.Diff(marshalLock(t, readLock(t, lockOf(tt.want))), marshalLock(t, have)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			want := tt.refused + tt.warned
			if want == "" && len(list) > 0 || want != "" && (len(list) != 1 || !strings.HasPrefix(list[0].Error(), want)) {
				t.Errorf("findings %v, want %q", list, want)
			}
			if tt.refused != "" && (list[0].Code != lockmerge.CodeWouldMove || !strings.Contains(list[0].Hint, "hawser allocate") ||
				len(list[0].Related) != 1 || !list[0].Related[0].Pos.IsValid()) {
				t.Errorf("finding %+v", list[0])
			}
		})
	}
}

// lockOf returns a lock with these lines. They are under allocated up to a line "released:".
func lockOf(lines string) string {
	text := "apiVersion: hawser.dev/v1alpha1\nkind: ClusterSetLock\n"
	if lines == "" {
		return text
	}
	if strings.HasPrefix(lines, "released:") {
		return text + lines
	}
	return text + "allocated:\n" + lines
}

func readLock(t *testing.T, text string) *lockfile.Lock {
	t.Helper()
	lock, list := lockfile.Read("lock", []byte(text))
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	return lock
}

func marshalLock(t *testing.T, l *lockfile.Lock) string {
	t.Helper()
	raw, err := l.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
