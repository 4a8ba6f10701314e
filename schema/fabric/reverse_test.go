package fabric_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/schema/fabric"
)

// TestReverseZones checks prefixes that end at a label boundary, and others.
func TestReverseZones(t *testing.T) {
	t.Parallel()
	tests := map[string][]string{
		"243.0.0.0/16":         {"0.243.in-addr.arpa"},
		"10.0.0.0/8":           {"10.in-addr.arpa"},
		"10.128.0.0/10":        {"128.10.in-addr.arpa", "129.10.in-addr.arpa", "130.10.in-addr.arpa", "191.10.in-addr.arpa"},
		"192.0.2.254/31":       {"254.2.0.192.in-addr.arpa", "255.2.0.192.in-addr.arpa"},
		"fd00:243::/32":        {"3.4.2.0.0.0.d.f.ip6.arpa"},
		"2001:db8:8000::/35":   {"8.8.b.d.0.1.0.0.2.ip6.arpa", "9.8.b.d.0.1.0.0.2.ip6.arpa"},
		"2001:db8:0:fffe::/63": {"e.f.f.f.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa", "f.f.f.f.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa"},
	}
	for text, want := range tests {
		have := fabric.ReverseZones(netip.MustParsePrefix(text))
		if text == "10.128.0.0/10" {
			if len(have) != 64 {
				t.Errorf("%s: %d zones", text, len(have))
			}
			have = []string{have[0], have[1], have[2], have[63]}
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("%s (-want +have)\n%s", text, diff)
		}
	}
}
