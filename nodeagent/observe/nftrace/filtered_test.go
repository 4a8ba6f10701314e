package nftrace

import "testing"

// TestFiltered checks that the kernel has the counter of rp_filter.
func TestFiltered(t *testing.T) {
	t.Parallel()
	if n, err := ReversePathDrops(); err != nil || n < 0 {
		t.Errorf("%d, %v", n, err)
	}
}
