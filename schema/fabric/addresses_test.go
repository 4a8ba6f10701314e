package fabric

import (
	"net/netip"
	"testing"
)

func TestAlternateAddr(t *testing.T) {
	t.Parallel()
	pools := []netip.Prefix{netip.MustParsePrefix("241.0.0.0/16"), netip.MustParsePrefix("10.9.8.64/27"), netip.MustParsePrefix("fd00:41::/64")}
	tests := map[string]string{
		"241.0.0.1": "241.0.255.254", "241.0.255.254": "241.0.0.1", "10.9.8.65": "10.9.8.94",
		"fd00:41::1": "fd00:41::ffff:ffff:ffff:fffe", "192.0.2.1": "192.0.2.1",
	}
	for text, want := range tests {
		if have := AlternateAddr(pools, netip.MustParseAddr(text)); have.String() != want {
			t.Errorf("%s: %s, want %s", text, have, want)
		}
	}
}
