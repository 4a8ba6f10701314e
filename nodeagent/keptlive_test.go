package nodeagent

import (
	"log/slog"
	"net/netip"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/nodeagent/project"
	"hawser.dev/hawser/schema/fabric"
)

func offering(cluster, addr string) project.Live {
	return project.Live{Cluster: cluster, Exports: []project.LiveExport{
		{Namespace: "team-a", Name: "api", Ready: true, Offer: &mcs.Offer{
			Created: time.Unix(100, 0).UTC(), Ports: []mcs.Port{{Name: "http", Protocol: "TCP", Port: 80}}, Families: []int{4},
			Addrs: []netip.Addr{netip.MustParseAddr(addr)},
		}},
		{Namespace: "shop", Name: "web", Ready: true},
	}}
}

// TestExportsOutliveARestart: an agent that starts goes on with what the one before
// heard, until the cluster is heard anew or long enough was not.
func TestExportsOutliveARestart(t *testing.T) {
	t.Parallel()
	path, log, now := filepath.Join(t.TempDir(), "heard.json"), slog.New(slog.DiscardHandler), time.Unix(1000, 0)
	first := &keptLive{path: path, stale: 30 * time.Second, wake: make(chan struct{}, 1)}
	first.restore(now, log)
	g2, g3 := offering("g2", "242.2.192.9"), offering("g3", "242.3.192.9")
	if kept, settled := first.follow(2, map[string]project.Live{"g2": g2, "g3": g3}, now); len(kept) != 0 || !settled {
		t.Fatalf("kept %v, settled %t with everybody heard", kept, settled)
	}
	if err := first.save(); err != nil {
		t.Fatal(err)
	}

	second := &keptLive{path: path, stale: 30 * time.Second, wake: make(chan struct{}, 1)}
	second.restore(now, log)
	kept, settled := second.follow(2, nil, now.Add(time.Second))
	if len(kept) != 2 || settled || len(kept["g2"].Exports) != 1 || !reflect.DeepEqual(kept["g2"].Exports[0], g2.Exports[0]) {
		t.Fatalf("after the restart %+v, settled %t", kept, settled)
	}
	// What was kept survives another restart that hears nothing in between.
	if err := second.save(); err != nil {
		t.Fatal(err)
	}
	kept, settled = second.follow(2, map[string]project.Live{"g2": g2}, now.Add(2*time.Second))
	if len(kept) != 1 || kept["g3"].Cluster != "g3" || settled {
		t.Fatalf("with g2 heard %+v, settled %t", kept, settled)
	}
	if kept, settled = second.follow(2, map[string]project.Live{"g2": g2}, now.Add(30*time.Second)); len(kept) != 0 || !settled {
		t.Fatalf("long after %+v, settled %t", kept, settled)
	}
	if err := second.save(); err != nil {
		t.Fatal(err)
	}
	third := &keptLive{path: path, stale: 30 * time.Second, wake: make(chan struct{}, 1)}
	third.restore(now, log)
	if kept, _ = third.follow(2, nil, now); len(kept) != 1 || kept["g2"].Cluster != "g2" {
		t.Errorf("a cluster that was lost comes back: %+v", kept)
	}
}

// TestEffectiveFabricStays is one pointer while nothing changes, as all that follows
// from it is made anew when it does.
func TestEffectiveFabricStays(t *testing.T) {
	t.Parallel()
	plain := &fabric.Fabric{Clusters: []fabric.Cluster{{Name: "g1"}}}
	in := project.Input{Fabric: plain, Cluster: "g1"}
	var e effective
	if have, _ := e.follow(in); have != plain {
		t.Error("without dynamic exports the fabric is another one")
	}
	in.Fabric = &fabric.Fabric{
		Clusters: []fabric.Cluster{
			{Name: "g1"}, {Name: "g2", Dynamic: []netip.Prefix{netip.MustParsePrefix("242.2.192.0/18")}},
		},
		DynamicExports: &fabric.DynamicExports{
			Namespaces: []string{"team-*"}, VIPs: []netip.Prefix{netip.MustParsePrefix("243.0.128.0/17")},
		},
	}
	in.Live = map[string]project.Live{"g2": offering("g2", "242.2.192.9")}
	one, decided := e.follow(in)
	in.Live = map[string]project.Live{"g2": offering("g2", "242.2.192.9")}
	if len(one.Exports) != 1 || !one.Exports[0].Dynamic || len(one.Exports[0].VIPs) != 1 || len(decided.Services) != 1 {
		t.Errorf("there is %+v of %+v", one.Exports, decided)
	}
	if same, again := e.follow(in); same != one || again != decided {
		t.Errorf("the same offers make another fabric: %+v", one.Exports)
	}
	in.Live, in.Kept = nil, in.Live
	if same, _ := e.follow(in); same != one {
		t.Error("what is kept makes another fabric")
	}
	in.Kept = nil
	if two, _ := e.follow(in); two == one || len(two.Exports) != 0 {
		t.Errorf("without offers there is %+v", two.Exports)
	}
	if len(in.Fabric.Exports) != 0 {
		t.Error("the document was changed")
	}
}
