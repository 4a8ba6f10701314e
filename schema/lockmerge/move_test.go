package lockmerge_test

import (
	"strings"
	"testing"

	"hawser.dev/hawser/schema/allocate"
	"hawser.dev/hawser/schema/lockmerge"
)

// TestMove checks that a moved allocation has new addresses, and that the old ones stay reserved.
// The published lock does not undo the move.
func TestMove(t *testing.T) {
	t.Parallel()
	top := newTopology(t, nil, "a", "x")
	published, list := allocate.Allocate(top, nil)
	if list.HasErrors() {
		t.Fatal(list.Err())
	}
	for _, item := range []string{"clusters[g1].blocks", "clusters[g1].gateways[a]", "clusters[g2].egressIPs", "exports[ns/x].vips", "exports[ns/x].clusters[g1].ips"} {
		moved, list := allocate.Move(published, top, item)
		if list.HasErrors() {
			t.Fatalf("%s: %v", item, list.Err())
		}
		text := marshalLock(t, moved)
		if !strings.Contains(text, "released:\n  "+item+": ") {
			t.Errorf("%s is not released:\n%s", item, text)
		}
		over, list := lockmerge.OntoPublished(moved, top, published)
		if len(list) > 0 {
			t.Errorf("%s: %v", item, list)
		}
		settled, list := allocate.Allocate(top, over)
		if len(list) > 0 && list[0].Code != "moves" || marshalLock(t, settled) != text {
			t.Errorf("%s: %v\n%s\nwant\n%s", item, list, marshalLock(t, settled), text)
		}
		if after := marshalLock(t, moved.PruneReleased(moved)); strings.Contains(after, "released") {
			t.Errorf("%s is still released after it was published:\n%s", item, after)
		}
	}
	for item, code := range map[string]string{"exports[ns/gone].vips": "unknown-item", "clusters[g1].gateways[a].ordinal": "unknown-item"} {
		if _, list := allocate.Move(published, top, item); len(list) != 1 || list[0].Code != code {
			t.Errorf("%s: %v", item, list)
		}
	}
	pinned := newTopology(t, func(text string) string {
		return strings.Replace(text, "{name: g1,", "{name: g1, globalCIDR: 242.9.0.0/24,", 1)
	}, "a")
	if _, list := allocate.Move(published, pinned, "clusters[g1].blocks"); len(list) != 1 || list[0].Code != "pinned" {
		t.Errorf("a pin: %v", list)
	}
}
