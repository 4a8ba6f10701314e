package schema_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/schema"
)

func TestInherit(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: hawser.dev/v1alpha1\nkind: ClusterSetLock\n"
	tests := []struct{ name, lock, from, want string }{
		{"into an empty lock", "", "allocated:\n  clusters[g1].blocks: [242.0.0.0/24]\n  clusters[g1].egressIPs: [242.0.0.1]\n",
			"allocated:\n  clusters[g1].blocks: [242.0.0.0/24]\n  clusters[g1].egressIPs: [242.0.0.1]\n"},
		{"adds what is missing", "allocated:\n  clusters[g1].blocks: [242.0.0.0/24]\n  clusters[g1].egressIPs: [242.0.0.1]\n",
			"allocated:\n  clusters[g1].blocks: [242.0.0.0/24]\n  clusters[g1].gateways[a]: [241.0.0.1]\n  clusters[g1].egressIPs: [242.0.0.9]\n  clusters[g2].blocks: [242.0.1.0/24]\n",
			"allocated:\n  clusters[g1].blocks: [242.0.0.0/24]\n  clusters[g1].gateways[a]: [241.0.0.1]\n  clusters[g1].egressIPs: [242.0.0.1]\n  clusters[g2].blocks: [242.0.1.0/24]\n"},
		{"another's address is left out", "allocated:\n  exports[a/x].vips: [243.0.0.1]\n",
			"allocated:\n  exports[a/y].vips: [243.0.0.1]\n  exports[a/z].vips: [243.0.0.2]\n",
			"allocated:\n  exports[a/x].vips: [243.0.0.1]\n  exports[a/z].vips: [243.0.0.2]\n"},
		{"another's block is left out with what is in it", "allocated:\n  clusters[g1].blocks: [242.0.0.0/24]\n",
			"allocated:\n  clusters[g2].blocks: [242.0.0.0/25]\n  clusters[g2].gateways[a]: [241.0.0.2]\n  clusters[g2].egressIPs: [242.0.0.1]\n",
			"allocated:\n  clusters[g1].blocks: [242.0.0.0/24]\n  clusters[g2].gateways[a]: [241.0.0.2]\n"},
		{"a block that moved stays where it is", "allocated:\n  clusters[g1].blocks: [242.0.0.0/24]\n",
			"allocated:\n  clusters[g1].blocks: [242.0.9.0/24]\n  clusters[g1].egressIPs: [242.0.9.1]\n", "allocated:\n  clusters[g1].blocks: [242.0.0.0/24]\n"},
		{"mappings", "allocated:\n  clusters[g1].blocks: [242.0.0.0/15]\n  clusters[g1].mappings[10.1.0.0/24]: [242.1.1.0/24]\n",
			"allocated:\n  clusters[g1].blocks: [242.0.0.0/15]\n  clusters[g1].mappings[10.1.0.0/24]: [242.1.9.0/24]\n  clusters[g1].mappings[10.2.0.0/24]: [242.1.1.0/24]\n  clusters[g1].mappings[10.3.0.0/24]: [242.1.3.0/24]\n",
			"allocated:\n  clusters[g1].blocks: [242.0.0.0/15]\n  clusters[g1].mappings[10.1.0.0/24]: [242.1.1.0/24]\n  clusters[g1].mappings[10.3.0.0/24]: [242.1.3.0/24]\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			have := readLock(t, head+tt.lock).Inherit(readLock(t, head+tt.from))
			if diff := cmp.Diff(marshalLock(t, readLock(t, head+tt.want)), marshalLock(t, have)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func readLock(t *testing.T, text string) *schema.Lock {
	t.Helper()
	lock, list := schema.ReadLock("lock", []byte(text))
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	return lock
}

func marshalLock(t *testing.T, l *schema.Lock) string {
	t.Helper()
	raw, err := l.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
