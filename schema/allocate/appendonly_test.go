package allocate

import (
	"strings"
	"testing"

	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/load"
	"hawser.dev/hawser/schema/lockfile"
)

// appendOnlyTopology is the topology of the first lock in TestIsAppendOnly.
const appendOnlyTopology = `apiVersion: hawser.dev/v1alpha1
kind: ClusterSet
metadata: {name: demo}
spec:
  clusters:
  - name: g1
    podCIDRs: [10.1.0.0/16]
    serviceCIDRs: [10.101.0.0/16]
    recipient: age1lr68929mj5ruklx8rh9mlp6z4cjtesjcqcdpfm6wwmhm8g20ndcqv40250
    gateways:
    - {name: a, node: n1, endpoints: [192.0.2.1]}
  - name: g2
    podCIDRs: [10.2.0.0/16]
    serviceCIDRs: [10.102.0.0/16]
    recipient: age1n4s70tp2m67uhryhg8ax4fzrt32nvcy5undwsrsvmcu2t0p7tvyqtjxy2n
    gateways:
    - {name: a, node: n1, endpoints: [192.0.2.2]}
  dynamicExports: {namespaces: [team-a, play]}
  exports:
  - {name: web, namespace: shop, clusters: [g1], ports: [{port: 80}]}
  - {name: db, namespace: bank, clusters: [g1, g2], ports: [{port: 5432}]}
`

// TestIsAppendOnly checks that a lock from Allocate is append-only, and that an edited lock is not.
func TestIsAppendOnly(t *testing.T) {
	t.Parallel()
	read := func(text string) *schema.ClusterSet {
		set, _, list := load.Decode("clusterset.yaml", []byte(text))
		if list.HasErrors() {
			t.Fatal(list)
		}
		return set
	}
	before, list := Allocate(read(appendOnlyTopology), nil)
	if list.HasErrors() {
		t.Fatal(list)
	}
	more := strings.Replace(appendOnlyTopology, "  exports:\n", "  exports:\n  - {name: web, namespace: team-b, clusters: [g2], ports: [{port: 1}]}\n", 1)
	after := read(more)
	allocated, _ := Allocate(after, before)
	raw, err := allocated.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	at := func(key string) string {
		_, rest, _ := strings.Cut(string(raw), "  "+key+": ")
		value, _, _ := strings.Cut(rest, "\n")
		return value
	}
	web, db := "exports[shop/web].vips", "exports[bank/db].vips"
	for name, tt := range map[string]struct {
		text string
		want bool
	}{
		"allocated":                 {string(raw), true},
		"with other comments":       {strings.ReplaceAll(string(raw), "# ", "# and "), true},
		"an address is another":     {strings.Replace(string(raw), at(web), "[243.0.0.99]", 1), false},
		"two are swapped":           {strings.NewReplacer(at(web), at(db), at(db), at(web)).Replace(string(raw)), false},
		"one is gone":               {strings.Replace(string(raw), "  "+db+": "+at(db)+"\n", "", 1), false},
		"one stands twice":          {string(raw) + "  " + db + ": [243.0.0.99]\n", false},
		"reserved without an owner": {string(raw) + "  exports[a/b].vips: [243.0.0.99]\n", false},
	} {
		lock, list := lockfile.Read("lock", []byte(tt.text))
		if list.HasErrors() {
			t.Fatal(name, list)
		}
		if got := IsAppendOnly(lock, before, after); got != tt.want {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
	if !IsAppendOnly(before, before, after) {
		t.Error("an older lock is not append-only to itself")
	}
}
