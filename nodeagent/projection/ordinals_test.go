package projection_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/nodeagent/status"
)

// TestMoveChangesRoutesOnly moves the path between two clusters to other gateways on both sides,
// and checks that only routes change.
func TestMoveChangesRoutesOnly(t *testing.T) {
	t.Parallel()
	w, _ := readWorld(t, "testdata/ordinals.txtar")
	for _, name := range w.names {
		in := w.inputs[name]
		before := linesOf(text(w.states[name]))
		to := model.Path{Local: "g1-b", Remote: "g2-c", MTU: 1300}
		if in.Cluster == "g2" {
			to = model.Path{Local: "g2-c", Remote: "g1-b", MTU: 1300}
		}
		remote := map[string]string{"g1": "g2", "g2": "g1"}[in.Cluster]
		in.Paths = map[string]model.Path{remote: to}
		state, _ := projection.Desired(in)
		after := linesOf(text(state))
		moved := 0
		for line := range after {
			if before[line] {
				continue
			}
			moved++
			if !strings.HasPrefix(line, "route 7300/242.") || !strings.HasSuffix(line, " mtu=1300") {
				t.Errorf("%s: gained %s", name, line)
			}
		}
		for line := range before {
			if !after[line] && !strings.HasPrefix(line, "route 7300/242.") {
				t.Errorf("%s: lost %s", name, line)
			}
		}
		if moved == 0 {
			t.Errorf("%s: nothing moved", name)
		}
	}
}

// TestOneOwnerOfEachPrefix checks that only one peer of each device has a prefix in its allowed
// IPs. WireGuard assigns a prefix to the last peer that claims it.
func TestOneOwnerOfEachPrefix(t *testing.T) {
	t.Parallel()
	for file, w := range worlds(t) {
		for name, s := range w.states {
			owners := map[string]string{}
			for _, p := range s.Peers {
				for _, prefix := range p.AllowedIPs {
					key := p.Device + " " + prefix.String()
					if other, taken := owners[key]; taken {
						t.Errorf("%s %s: %s belongs to %s and %s", file, name, key, other, p.PublicKey)
					}
					owners[key] = p.PublicKey
				}
			}
		}
	}
}

// TestEqualOrdinals checks a fabric without ordinals: all peers are on one device, and only the
// selected gateway has the prefixes in its allowed IPs.
func TestEqualOrdinals(t *testing.T) {
	t.Parallel()
	w, _ := readWorld(t, "testdata/ordinals.txtar")
	for i := range w.fabric.Clusters {
		for j := range w.fabric.Clusters[i].Gateways {
			w.fabric.Clusters[i].Gateways[j].Ordinal = 0
		}
	}
	state, problems := projection.Desired(w.inputs["g1/g1-a"])
	var holders []string
	for _, p := range state.Peers {
		if p.Device != "hw-wg1" {
			t.Errorf("peer on %s", p.Device)
		}
		if slices.Contains(p.AllowedIPs, prefixes("242.2.0.0/24")[0]) {
			holders = append(holders, p.PublicKey)
		}
	}
	if !slices.Equal(holders, []string{"pub-g2-a"}) {
		t.Errorf("prefixes with %v", holders)
	}
	reported := slices.ContainsFunc(problems, func(p projection.Problem) bool {
		return p.Code == status.DuplicateOrdinal && p.Path == "clusters[g2].gateways[g2-c]"
	})
	if !reported {
		t.Errorf("problem not reported: %v", problems)
	}
}

// TestDisagreement sends packets of a connection while the nodes of a cluster use different
// gateways for g2, in all combinations. A gateway sends handed-over packets over its own link, so
// no packet is lost or loops.
func TestDisagreement(t *testing.T) {
	t.Parallel()
	views := []model.Path{{Local: "g1-a", Remote: "g2-a"}, {Local: "g1-a", Remote: "g2-c"}, {Local: "g1-b", Remote: "g2-a"}, {Local: "g1-b", Remote: "g2-c"}}
	for _, atWorker := range views {
		for _, atA := range views {
			for _, atB := range views {
				w, _ := readWorld(t, "testdata/ordinals.txtar")
				for node, path := range map[string]model.Path{"g1/g1-w1": atWorker, "g1/g1-a": atA, "g1/g1-b": atB} {
					in := w.inputs[node]
					in.Paths = map[string]model.Path{"g2": path}
					w.inputs[node] = in
				}
				w.project()
				tr := newTracer(w, 0)
				first := packet{proto: "tcp", src: addr("10.7.2.5"), dst: addr("243.0.0.1"), sport: 40000, dport: 80}
				at, end := tr.send(hop{node: "g1/g1-w1", iif: "pod", packet: first, mid: true})
				if end != "delivered" || at.node != "g2/g2-a" {
					t.Fatalf("worker %v, a %v, b %v: %s at %s", atWorker, atA, atB, end, at.node)
				}
				used := slices.Collect(maps.Keys(tr.flows))
				if slices.Contains(used, "g1/g1-a") == slices.Contains(used, "g1/g1-b") {
					t.Errorf("worker %v, a %v, b %v: used %v", atWorker, atA, atB, used)
				}
				reply, end := tr.send(hop{node: at.node, iif: "pod", packet: at.turned(), mid: true})
				if end != "delivered" || reply.node != "g1/g1-w1" || reply.packet != first.turned() {
					t.Errorf("worker %v, a %v, b %v: answer %s at %s", atWorker, atA, atB, end, reply.node)
				}
			}
		}
	}
}

// TestNoOwnLink checks that a gateway without an own link hands nothing over, even if TableOut
// (7300) leads to a sibling. A sibling without a link would return the packet, and conntrack would
// keep the flow without its translation. The gateway still accepts flows if TableOut leads to its
// own tunnel.
func TestNoOwnLink(t *testing.T) {
	t.Parallel()
	first := packet{proto: "tcp", src: addr("10.7.2.5"), dst: addr("243.0.0.1"), sport: 40000, dport: 80}
	for carrier, want := range map[string]string{"g1-a": "blackhole", "g1-b": "delivered"} {
		w, _ := readWorld(t, "testdata/ordinals.txtar")
		in := w.inputs["g1/g1-w1"]
		in.Paths = map[string]model.Path{"g2": {Local: "g1-b", Remote: "g2-a"}}
		w.inputs["g1/g1-w1"] = in
		in = w.inputs["g1/g1-b"]
		in.GatewayPaths = nil
		in.Paths = map[string]model.Path{"g2": {Local: carrier, Remote: "g2-a"}}
		w.inputs["g1/g1-b"] = in
		w.project()
		at, end := newTracer(w, 0).send(hop{node: "g1/g1-w1", iif: "pod", packet: first})
		if end != want {
			t.Errorf("active gateway %s: %s at %s, want %s", carrier, end, at.node, want)
		}
	}
}
