//go:build kube

package objects

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/cluster/apiobjects"
	"hawser.dev/hawser/nodeagent/mcs"
)

// TestManyImports writes a thousand imports with a slice each, and deletes them. It logs the duration.
func TestManyImports(t *testing.T) {
	const count = 1000
	s, want := prepare(t)
	all := want
	all.State.Imports, all.State.Slices = nil, nil
	for i := range count {
		m, c := want.State.Imports[0], want.State.Slices[0]
		m.Name = fmt.Sprintf("many-%04d", i)
		m.IPs = []netip.Addr{netip.AddrFrom4([4]byte{243, 0, 1 + byte(i>>8), byte(i)}), want.State.Imports[0].IPs[1]}
		c.Name, c.Import = m.Name+"-hw-1", m.Name
		all.State.Imports, all.State.Slices = append(all.State.Imports, m), append(all.State.Slices, c)
	}
	listed := func() (imports, slices int) {
		names := strings.Fields(s.K(t, "-n", "sample", "get", "serviceimports,endpointslices", "-o", "jsonpath={.items[*].kind}"))
		for _, kind := range names {
			if kind == "ServiceImport" {
				imports++
			} else {
				slices++
			}
		}
		return imports, slices
	}
	startedAt := time.Now()
	g := start(t, s, all)
	g.settled(t)
	t.Logf("%d imports with a slice each: %s", count, time.Since(startedAt).Round(100*time.Millisecond))
	if imports, slices := listed(); imports != count || slices != count {
		t.Fatalf("%d imports and %d slices", imports, slices)
	}
	startedAt = time.Now()
	g.wants(func(w *apiobjects.Desired) {
		w.State = mcs.DesiredObjects{PeersSynced: true, Property: w.State.Property}
	})
	g.settled(t)
	t.Logf("and away again: %s", time.Since(startedAt).Round(100*time.Millisecond))
	if imports, slices := listed(); imports != 0 || slices != 0 {
		t.Errorf("left: %d imports and %d slices", imports, slices)
	}
}
