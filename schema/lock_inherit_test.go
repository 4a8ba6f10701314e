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
		{"into an empty lock", "", "clusters:\n  g1:\n    blocks: [242.0.0.0/24]\n    egressIPs: [242.0.0.1]\n",
			"clusters:\n  g1:\n    blocks: [242.0.0.0/24]\n    egressIPs: [242.0.0.1]\n"},
		{"adds what is missing", "clusters:\n  g1:\n    blocks: [242.0.0.0/24]\n    egressIPs: [242.0.0.1]\n",
			"clusters:\n  g1:\n    blocks: [242.0.0.0/24]\n    egressIPs: [242.0.0.9]\n    gateways:\n      a: [241.0.0.1]\n  g2:\n    blocks: [242.0.1.0/24]\n",
			"clusters:\n  g1:\n    blocks: [242.0.0.0/24]\n    gateways:\n      a: [241.0.0.1]\n    egressIPs: [242.0.0.1]\n  g2:\n    blocks: [242.0.1.0/24]\n"},
		{"another's address is left out", "exports:\n  a/x:\n    vips: [243.0.0.1]\n",
			"exports:\n  a/y:\n    vips: [243.0.0.1]\n  a/z:\n    vips: [243.0.0.2]\n",
			"exports:\n  a/x:\n    vips: [243.0.0.1]\n  a/z:\n    vips: [243.0.0.2]\n"},
		{"another's block is left out with what is in it", "clusters:\n  g1:\n    blocks: [242.0.0.0/24]\n",
			"clusters:\n  g2:\n    blocks: [242.0.0.0/25]\n    egressIPs: [242.0.0.1]\n    gateways:\n      a: [241.0.0.2]\n",
			"clusters:\n  g1:\n    blocks: [242.0.0.0/24]\n  g2:\n    gateways:\n      a: [241.0.0.2]\n"},
		{"a block that moved stays where it is", "clusters:\n  g1:\n    blocks: [242.0.0.0/24]\n",
			"clusters:\n  g1:\n    blocks: [242.0.9.0/24]\n    egressIPs: [242.0.9.1]\n", "clusters:\n  g1:\n    blocks: [242.0.0.0/24]\n"},
		{"mappings", "clusters:\n  g1:\n    blocks: [242.0.0.0/15]\n    mappings:\n      10.1.0.0/24: 242.1.1.0/24\n",
			"clusters:\n  g1:\n    blocks: [242.0.0.0/15]\n    mappings:\n      10.1.0.0/24: 242.1.9.0/24\n      10.2.0.0/24: 242.1.1.0/24\n      10.3.0.0/24: 242.1.3.0/24\n",
			"clusters:\n  g1:\n    blocks: [242.0.0.0/15]\n    mappings:\n      10.1.0.0/24: 242.1.1.0/24\n      10.3.0.0/24: 242.1.3.0/24\n"},
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
