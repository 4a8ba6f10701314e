package projection_test

import (
	"slices"
	"testing"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// TestLinksOfSeveralKinds checks that each pair has its own driver, port and MTU. A route has its
// own MTU if it is smaller than the MTU of the device, which other links share. The worker has the
// same MTUs.
func TestLinksOfSeveralKinds(t *testing.T) {
	t.Parallel()
	w, _ := readWorld(t, "testdata/mixed.txtar")
	keepalive := w.fabric.Tunnel.Keepalive
	w.fabric.Links = []fabric.LinkSettings{
		{Between: [2]string{"c1", "c2"}, Driver: fabric.DriverVXLAN, Keepalive: keepalive},
		{Between: [2]string{"c1", "c3"}, Driver: fabric.DriverVXLAN, MTU: 1300, Keepalive: keepalive},
		{Between: [2]string{"c1", "c4"}, Driver: fabric.DriverWireguard, Port: 54820, MTU: 1400, Keepalive: keepalive},
	}
	w.project()
	gateway, worker := w.states["c1/c1-a"], w.states["c1/c1-w1"]
	tests := []struct {
		cluster, device string // device of the route to the cluster's block
		port, mtu       int    // port of the tunnel; MTU of the route
		atWorker        int
	}{
		{"c2", "hw-vt4-51884", 51884, 0, 0},
		{"c3", "hw-vt4-51884", 51884, 1300, 1300},
		{"c4", "hw-wg1-p54820", 54820, 0, 1400},
	}
	for _, tt := range tests {
		block := w.fabric.Cluster(tt.cluster).GlobalCIDRs[0]
		find := func(s desired.State) desired.Route {
			i := slices.IndexFunc(s.Routes, func(r desired.Route) bool { return r.Table == desired.TableOut && r.Dst == block })
			if i < 0 {
				t.Fatalf("no route to %s", block)
			}
			return s.Routes[i]
		}
		if r := find(gateway); r.Device != tt.device || r.MTU != tt.mtu || r.Via.IsValid() != (tt.device == "hw-vt4-51884") {
			t.Errorf("gateway's route to %s: %+v", tt.cluster, r)
		}
		if r := find(worker); r.Device != desired.NodeDevice || r.MTU != tt.atWorker {
			t.Errorf("worker's route to %s: %+v", tt.cluster, r)
		}
		i := slices.IndexFunc(gateway.Tunnels, func(c desired.Tunnel) bool { return c.Cluster == tt.cluster })
		if i < 0 || gateway.Tunnels[i].Port != tt.port || gateway.Tunnels[i].Device != tt.device {
			t.Errorf("tunnel to %s: %+v", tt.cluster, gateway.Tunnels)
		}
	}
	for _, l := range gateway.Devices {
		want := map[string]int{"hw-vx0": 1450, "hw-vt4-51884": 1450, "hw-wg1-p54820": 1400}[l.Name]
		if l.MTU != want {
			t.Errorf("%s has MTU %d, want %d", l.Name, l.MTU, want)
		}
	}
}

// TestInvalidLinks checks that a link that cannot be built is reported, and that its prefixes
// are blackholes.
func TestInvalidLinks(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, code, path string
		change           func(*fabric.Fabric)
	}{
		{"driver of a newer version", status.DriverUnknown, "clusters[c2]", func(f *fabric.Fabric) {
			f.Links = []fabric.LinkSettings{{Between: [2]string{"c1", "c2"}, Driver: "newer"}}
		}},
		{"VXLAN to nowhere", status.NoEndpoint, "clusters[c2].gateways[c2-a]", func(f *fabric.Fabric) {
			f.Links = []fabric.LinkSettings{{Between: [2]string{"c1", "c2"}, Driver: fabric.DriverVXLAN}}
			f.Cluster("c2").Gateways[0].Endpoints = nil
		}},
		{"link too wide", status.MTUTooLarge, "links[c1-c2].mtu", func(f *fabric.Fabric) {
			f.Links = []fabric.LinkSettings{{Between: [2]string{"c1", "c2"}, Driver: fabric.DriverVXLAN, MTU: 1451}}
		}},
	}
	for _, tt := range tests {
		w, _ := readWorld(t, "testdata/mixed.txtar")
		tt.change(w.fabric)
		w.project()
		reported := slices.ContainsFunc(w.faults["c1/c1-a"], func(p projection.Problem) bool { return p.Code == tt.code && p.Path == tt.path })
		if !reported {
			t.Errorf("%s: problem not reported: %v", tt.name, w.faults["c1/c1-a"])
		}
		block := w.fabric.Cluster("c2").GlobalCIDRs[0]
		for _, r := range w.states["c1/c1-a"].Routes {
			if r.Dst == block && r.Table == desired.TableOut && (r.Type == desired.RouteBlackhole) != (tt.code != status.MTUTooLarge) {
				t.Errorf("%s: %+v", tt.name, r)
			}
		}
	}
}
