package round

import (
	"encoding/json"
	"errors"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/schema/fabric"
)

func offering(cluster, addr string) model.ClusterState {
	return model.ClusterState{Cluster: cluster, Exports: []model.ExportState{
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
	now, stale := time.Unix(1000, 0), 30*time.Second
	restarted := func(h restoredLive, at time.Time) restoredLive {
		raw, err := json.Marshal(h.kept())
		next := restoredLive{Began: at}
		if err = errors.Join(err, json.Unmarshal(raw, &next.Kept)); err != nil {
			t.Fatal(err)
		}
		return next
	}
	g2, g3 := offering("g2", "242.2.192.9"), offering("g3", "242.3.192.9")
	first, settled := restoredLive{Began: now}.update(2, map[string]model.ClusterState{"g2": g2, "g3": g3}, stale, now)
	if len(first.Kept) != 0 || !settled {
		t.Fatalf("kept %v, settled %t with everybody heard", first.Kept, settled)
	}

	second, settled := restarted(first, now).update(2, nil, stale, now.Add(time.Second))
	if kept := second.Kept; len(kept) != 2 || settled || len(kept["g2"].Exports) != 1 || !reflect.DeepEqual(kept["g2"].Exports[0], g2.Exports[0]) {
		t.Fatalf("after the restart %+v, settled %t", kept, settled)
	}
	// What was kept survives another restart that hears nothing in between.
	if again := second.kept(); len(again) != 2 {
		t.Fatalf("for the next start %+v", again)
	}
	second, settled = second.update(2, map[string]model.ClusterState{"g2": g2}, stale, now.Add(2*time.Second))
	if kept := second.Kept; len(kept) != 1 || kept["g3"].Cluster != "g3" || settled {
		t.Fatalf("with g2 heard %+v, settled %t", kept, settled)
	}
	if second, settled = second.update(2, map[string]model.ClusterState{"g2": g2}, stale, now.Add(30*time.Second)); len(second.Kept) != 0 || !settled {
		t.Fatalf("long after %+v, settled %t", second.Kept, settled)
	}
	third, _ := restarted(second, now).update(2, nil, stale, now)
	if len(third.Kept) != 1 || third.Kept["g2"].Cluster != "g2" {
		t.Errorf("a cluster that was lost comes back: %+v", third.Kept)
	}
}

// TestEffectiveFabricStays is one pointer while nothing changes, as all that follows
// from it is made anew when it does.
func TestEffectiveFabricStays(t *testing.T) {
	t.Parallel()
	plain := &fabric.Fabric{Clusters: []fabric.Cluster{{Name: "g1"}}}
	in := projection.Input{Fabric: plain, Cluster: "g1"}
	var e effective
	if have, _ := e.update(in); have != plain {
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
	in.Live = map[string]model.ClusterState{"g2": offering("g2", "242.2.192.9")}
	one, decided := e.update(in)
	in.Live = map[string]model.ClusterState{"g2": offering("g2", "242.2.192.9")}
	if len(one.Exports) != 1 || !one.Exports[0].Dynamic || len(one.Exports[0].VIPs) != 1 || len(decided.Services) != 1 {
		t.Errorf("there is %+v of %+v", one.Exports, decided)
	}
	if same, again := e.update(in); same != one || again != decided {
		t.Errorf("the same offers make another fabric: %+v", one.Exports)
	}
	in.Live, in.RestoredLive = nil, in.Live
	if same, _ := e.update(in); same != one {
		t.Error("what is kept makes another fabric")
	}
	in.RestoredLive = nil
	if two, _ := e.update(in); two == one || len(two.Exports) != 0 {
		t.Errorf("without offers there is %+v", two.Exports)
	}
	if len(in.Fabric.Exports) != 0 {
		t.Error("the document was changed")
	}
}
