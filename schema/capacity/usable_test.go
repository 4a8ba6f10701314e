package capacity

import (
	"net/netip"
	"testing"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/schema"
)

// TestAsUsable checks that a block of the size that Check requires has room for the declared
// addresses. A block of half that size has not.
func TestAsUsable(t *testing.T) {
	t.Parallel()
	top := &schema.ClusterSet{Spec: schema.Spec{DynamicExports: &schema.DynamicExports{Rules: []schema.DynamicRule{{Namespaces: []string{"*"}}}}}}
	for n := 1; n < 5000; n++ {
		bits := prefixLength(requiredUsable(top, n), 32)
		block := netip.PrefixFrom(netip.MustParseAddr("242.0.0.0"), bits)
		if have := declaredCapacity(top, block); have < n {
			t.Fatalf("a /%d leaves %d addresses, want %d", bits, have, n)
		}
		smaller := netip.PrefixFrom(block.Addr(), bits+1)
		if have := declaredCapacity(top, smaller); have >= n && cidr.HostBits(smaller) >= schema.MinDynamicBits {
			t.Fatalf("a /%d is asked for where a /%d would do for %d", bits, bits+1, n)
		}
	}
}
