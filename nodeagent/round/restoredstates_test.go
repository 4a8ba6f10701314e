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
		{Namespace: "shop", Name: "ipv4", Ready: true, Families: []int{4}},
	}}
}

// TestExportsOutliveARestart checks that a restarted agent uses the saved exports until the cluster
// sends new ones or they expire.
func TestExportsOutliveARestart(t *testing.T) {
	t.Parallel()
	now, stale := time.Unix(1000, 0), 30*time.Second
	restarted := func(h restoredClusterStates, at time.Time) restoredClusterStates {
		raw, err := json.Marshal(h.saved())
		next := restoredClusterStates{StartedAt: at}
		if err = errors.Join(err, json.Unmarshal(raw, &next.Saved)); err != nil {
			t.Fatal(err)
		}
		return next
	}
	g2, g3 := offering("g2", "242.2.192.9"), offering("g3", "242.3.192.9")
	first, synced := restoredClusterStates{StartedAt: now}.update(2, map[string]model.ClusterState{"g2": g2, "g3": g3}, stale, now)
	if len(first.Saved) != 0 || !synced {
		t.Fatalf("saved %v, synced %t with all states received", first.Saved, synced)
	}

	second, synced := restarted(first, now).update(2, nil, stale, now.Add(time.Second))
	if saved := second.Saved; len(saved) != 2 || synced || len(saved["g2"].Exports) != 2 || !reflect.DeepEqual(saved["g2"].Exports[0], g2.Exports[0]) ||
		!reflect.DeepEqual(saved["g2"].Exports[1], g2.Exports[2]) {
		t.Fatalf("after the restart %+v, synced %t", saved, synced)
	}
	// Saved states survive another restart without a received state.
	if again := second.saved(); len(again) != 2 {
		t.Fatalf("for the next start %+v", again)
	}
	second, synced = second.update(2, map[string]model.ClusterState{"g2": g2}, stale, now.Add(2*time.Second))
	if saved := second.Saved; len(saved) != 1 || saved["g3"].Cluster != "g3" || synced {
		t.Fatalf("with the state of g2 %+v, synced %t", saved, synced)
	}
	if second, synced = second.update(2, map[string]model.ClusterState{"g2": g2}, stale, now.Add(30*time.Second)); len(second.Saved) != 0 || !synced {
		t.Fatalf("after expiry %+v, synced %t", second.Saved, synced)
	}
	third, _ := restarted(second, now).update(2, nil, stale, now)
	if len(third.Saved) != 1 || third.Saved["g2"].Cluster != "g2" {
		t.Errorf("an expired state is back: %+v", third.Saved)
	}
}

// TestEffectiveFabricStays checks that the pointer is constant while nothing changes. A new pointer
// makes the agent compute everything again that depends on it.
func TestEffectiveFabricStays(t *testing.T) {
	t.Parallel()
	plain := &fabric.Fabric{Clusters: []fabric.Cluster{{Name: "g1"}}}
	in := projection.Input{Fabric: plain, Cluster: "g1"}
	var e effectiveFabric
	if have, _ := e.update(in); have != plain {
		t.Error("the fabric without dynamic exports is a new pointer")
	}
	in.Fabric = &fabric.Fabric{
		Clusters: []fabric.Cluster{
			{Name: "g1"}, {Name: "g2", Dynamic: []netip.Prefix{netip.MustParsePrefix("242.2.192.0/18")}},
		},
		DynamicExports: &fabric.DynamicExports{
			Namespaces: []string{"team-*"}, VIPs: []netip.Prefix{netip.MustParsePrefix("243.0.128.0/17")},
		},
	}
	in.ClusterStates = map[string]model.ClusterState{"g2": offering("g2", "242.2.192.9")}
	one, decided := e.update(in)
	in.ClusterStates = map[string]model.ClusterState{"g2": offering("g2", "242.2.192.9")}
	if len(one.Exports) != 1 || !one.Exports[0].Dynamic || len(one.Exports[0].VIPs) != 1 || len(decided.Services) != 1 {
		t.Errorf("exports %+v of %+v", one.Exports, decided)
	}
	if same, again := e.update(in); same != one || again != decided {
		t.Errorf("the same offers yield a new fabric: %+v", one.Exports)
	}
	in.ClusterStates, in.RestoredClusterStates = nil, in.ClusterStates
	if same, _ := e.update(in); same != one {
		t.Error("saved states yield a new fabric")
	}
	in.RestoredClusterStates = nil
	if two, _ := e.update(in); two == one || len(two.Exports) != 0 {
		t.Errorf("exports without offers: %+v", two.Exports)
	}
	if len(in.Fabric.Exports) != 0 {
		t.Error("the original fabric was changed")
	}
}
