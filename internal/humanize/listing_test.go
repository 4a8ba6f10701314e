package humanize_test

import (
	"net/netip"
	"testing"

	"hawser.dev/hawser/internal/humanize"
)

func TestListing(t *testing.T) {
	t.Parallel()
	if got := humanize.Join([]netip.Addr(nil), ", "); got != "" {
		t.Errorf("no item: %q", got)
	}
	if got := humanize.Join([]netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}, ","); got != "10.0.0.1,fd00::1" {
		t.Errorf("two items: %q", got)
	}
	for want, names := range map[string][]string{"": nil, "a, b": {"a", "b"}, "a, b and 2 more": {"a", "b", "c", "d"}} {
		if got := humanize.FirstN(names, 2); got != want {
			t.Errorf("some of %v: %q, want %q", names, got, want)
		}
	}
}
