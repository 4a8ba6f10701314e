package nftrace

import "testing"

// TestFiltered: the counter is found where the kernel has it.
func TestFiltered(t *testing.T) {
	t.Parallel()
	if n, err := ReversePathDrops(); err != nil || n < 0 {
		t.Errorf("%d, %v", n, err)
	}
}
