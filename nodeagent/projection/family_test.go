package projection_test

import (
	"slices"
	"strings"
	"testing"

	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// TestNoIPv6 checks that a host without IPv6 gets no IPv6 objects. It has a problem only if the
// cluster has IPv6.
func TestNoIPv6(t *testing.T) {
	t.Parallel()
	w, _ := readWorld(t, "testdata/families.txtar")
	for name, want := range map[string]bool{"a/a-a": false, "c/c-a": true, "c/c-w1": true} {
		in := w.inputs[name]
		in.Local.NoIPv6 = true
		s, problems := projection.Desired(in)
		for line := range linesOf(text(s)) {
			kind, _, _ := strings.Cut(line, " ")
			kernel := slices.Contains([]string{"sysctl", "address", "neighbour", "rule", "route"}, kind)
			if kernel && (strings.Contains(line, "ipv6") || strings.Contains(line, "::")) {
				t.Errorf("%s: %s", name, line)
			}
		}
		reported := slices.ContainsFunc(problems, func(p projection.Problem) bool { return p.Code == status.IPv6Disabled })
		if reported != want {
			t.Errorf("%s: ipv6-disabled is reported: %v, want %v", name, reported, want)
		}
	}
}

// TestMinMTU checks that links with IPv6 have its minimum MTU, and that a smaller underlay is
// reported.
func TestMinMTU(t *testing.T) {
	t.Parallel()
	w, _ := readWorld(t, "testdata/families.txtar")
	for name, minMTU := range map[string]int{"a/a-a": 1120, "c/c-a": 1280} {
		in := w.inputs[name]
		in.Local.UnderlayMTU = 1200
		s, problems := projection.Desired(in)
		for _, l := range s.Devices {
			if l.MTU != minMTU {
				t.Errorf("%s: %s has an MTU of %d, want %d", name, l.Name, l.MTU, minMTU)
			}
		}
		reported := slices.ContainsFunc(problems, func(p projection.Problem) bool { return p.Code == status.MTUTooSmall })
		if reported != (minMTU == 1280) {
			t.Errorf("%s: mtu-too-small is reported: %v", name, reported)
		}
	}
}

// TestRestoredFamilies checks that a restarted agent keeps to the families of other clusters'
// Services until their states arrive.
func TestRestoredFamilies(t *testing.T) {
	t.Parallel()
	w, _ := readWorld(t, "testdata/families.txtar")
	limited := 0
	for name, in := range w.inputs {
		for _, live := range in.ClusterStates {
			for _, e := range live.Exports {
				limited += len(e.Families)
			}
		}
		in.ClusterStates, in.RestoredClusterStates = nil, in.ClusterStates
		s, _ := projection.Desired(in)
		before, restarted := linesOf(text(w.states[name])), linesOf(text(s))
		if lost, added := minus(before, restarted), minus(restarted, before); len(lost)+len(added) > 0 {
			t.Errorf("%s: the restart removed %v and added %v", name, lost, added)
		}
	}
	if limited == 0 {
		t.Error("no Service is limited to a family")
	}
}

// TestSerial checks that the zone's serial changes with each setting that changes answers.
func TestSerial(t *testing.T) {
	t.Parallel()
	serial := func(change func(*fabric.Fabric)) uint32 {
		w, _ := readWorld(t, "testdata/families.txtar")
		in := w.inputs["a/a-a"]
		for i := range in.Fabric.Exports {
			e := &in.Fabric.Exports[i]
			e.VIPs = nil
			for j := range e.Clusters {
				e.Clusters[j].IPs, e.Clusters[j].Hosts = nil, nil
			}
		}
		change(in.Fabric)
		s, _ := projection.Desired(in)
		return s.Zones[0].Serial
	}
	before := serial(func(*fabric.Fabric) {})
	for name, change := range map[string]func(*fabric.Fabric){
		"cluster names":                 func(f *fabric.Fabric) { f.DNS.ClusterNames = !f.DNS.ClusterNames },
		"TTL":                           func(f *fabric.Fabric) { f.DNS.TTL++ },
		"headless, without any address": func(f *fabric.Fabric) { f.Exports[0].Type = fabric.Headless },
	} {
		if serial(change) == before {
			t.Errorf("%s: the serial did not change", name)
		}
	}
}
