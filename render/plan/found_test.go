package plan

import (
	"testing"

	"hawser.dev/hawser/internal/diff"
)

// TestFoundBy checks the text about changed endpoint sources of a gateway.
func TestFoundBy(t *testing.T) {
	t.Parallel()
	const balancer, node = "service:LoadBalancer", "node:ExternalIP"
	for _, tt := range []struct{ have, want, note string }{
		{"192.0.2.1", "192.0.2.2", ""},
		{"192.0.2.1", "192.0.2.1, " + node, "others find it by node:ExternalIP from now on"},
		{"", node + ", seen", "others find it by node:ExternalIP and seen from now on"},
		{node, node + ", seen", "others find it by seen, too"},
		{node, balancer, "others find it by service:LoadBalancer from now on, and no longer by node:ExternalIP"},
		{node + ", seen", node, "others no longer find it by seen"},
		{"192.0.2.1, " + node, "192.0.2.1", "others no longer find it by node:ExternalIP: only the written addresses count"},
		{"seen", "", "others no longer find it by seen: it only dials out"},
		{node + ", seen", "seen, " + node, "others try its addresses in another order"},
	} {
		e := &Entry{Kind: kindGateway, Op: diff.Update, Fields: []Field{{Name: "endpoints", Have: tt.have, Want: tt.want}}}
		setDisruption(e, "", nil, nil)
		if e.Remark != tt.note {
			t.Errorf("%q to %q: %q, want %q", tt.have, tt.want, e.Remark, tt.note)
		}
	}
}
