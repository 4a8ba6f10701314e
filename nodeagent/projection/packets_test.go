package projection_test

import (
	"strconv"
	"strings"
	"testing"
)

// TestPackets checks packets end to end: the destination, the source address there, and that the
// client sees no translation in the reply.
func TestPackets(t *testing.T) {
	t.Parallel()
	tests := map[string][]struct {
		name string
		from string // node
		iif  string // "pod" or "local" (a process of the host)
		src  string
		dst  string
		to   string // protocol:port
		slot int    // hash of the client
		want string
	}{
		"globalnet": {
			{
				"worker to clusterset address", "g1/g1-w1", "pod", "10.7.1.5", "243.0.0.1", "tcp:80", 0,
				"g2/g2-w1 10.7.1.22:8080 from 242.1.0.1",
			},
			{
				"another caller, another backend", "g1/g1-w1", "pod", "10.7.1.5", "243.0.0.1", "tcp:80", 12,
				"g2/g2-a 10.7.0.23:8080 from 242.1.0.1",
			},
			{
				"another caller, another source", "g1/g1-w1", "pod", "10.7.1.5", "243.0.0.1", "tcp:80", 2,
				"g2/g2-w1 10.7.1.21:8080 from 242.1.0.2",
			},
			{"gateway's pod", "g1/g1-a", "pod", "10.7.0.5", "243.0.0.1", "tcp:80", 0, "g2/g2-w1 10.7.1.22:8080 from 242.1.0.1"},
			{"worker's host", "g1/g1-w1", "local", "192.168.1.2", "243.0.0.1", "tcp:80", 0, "g2/g2-w1 10.7.1.22:8080 from 242.1.0.1"},
			{"gateway's host", "g1/g1-a", "local", "192.168.1.1", "243.0.0.1", "tcp:80", 0, "g2/g2-w1 10.7.1.22:8080 from 242.1.0.1"},
			{
				"pod of a selector rule", "g1/g1-w1", "pod", "10.7.1.10", "243.0.0.1", "tcp:80", 0,
				"g2/g2-w1 10.7.1.22:8080 from 242.1.0.18",
			},
			{
				"pod of a namespace rule", "g1/g1-w1", "pod", "10.7.1.11", "243.0.0.1", "tcp:80", 0,
				"g2/g2-w1 10.7.1.22:8080 from 242.1.0.17",
			},
			{
				"ping of the clusterset address", "g1/g1-w1", "pod", "10.7.1.5", "243.0.0.1", "icmp:0", 0,
				"g2/g2-w1 10.7.1.22:0 from 242.1.0.1",
			},
			{"one cluster by name", "g1/g1-w1", "pod", "10.7.1.5", "242.2.0.32", "tcp:80", 0, "g2/g2-w1 10.7.1.22:8080 from 242.1.0.1"},
			{"one headless pod", "g1/g1-w1", "pod", "10.7.1.5", "242.2.0.40", "tcp:80", 0, "g2/g2-w1 10.7.1.30:8080 from 242.1.0.1"},
			{"port that is not exported", "g1/g1-w1", "pod", "10.7.1.5", "243.0.0.1", "tcp:81", 0, "refused"},
			{"other protocol", "g1/g1-w1", "pod", "10.7.1.5", "243.0.0.1", "udp:80", 0, "refused"},
			{"unused clusterset address", "g1/g1-w1", "pod", "10.7.1.5", "243.0.9.9", "tcp:80", 0, "refused"},
			{"unused global address", "g1/g1-w1", "pod", "10.7.1.5", "242.2.0.99", "tcp:80", 0, "blackhole"},
			{"egress address as destination", "g1/g1-w1", "pod", "10.7.1.5", "242.2.0.1", "tcp:80", 0, "blackhole"},
			{"exported address, other port", "g1/g1-w1", "pod", "10.7.1.5", "242.2.0.32", "tcp:81", 0, "not offered"},
			{
				"own pod, not the other cluster's", "g1/g1-a", "pod", "10.7.0.5", "10.7.1.22", "tcp:8080", 0,
				"g1/g1-w1 10.7.1.22:8080 from 10.7.0.5",
			},
			{"exporter's own pod", "g2/g2-a", "pod", "10.7.0.9", "243.0.0.1", "tcp:80", 0, "g2/g2-w1 10.7.1.22:8080 from 10.7.0.9"},
			{
				"exporter's own host", "g2/g2-a", "local", "192.168.2.1", "242.2.0.32", "tcp:80", 0,
				"g2/g2-w1 10.7.1.22:8080 from 192.168.2.1",
			},
			{
				"backend reaches itself", "g2/g2-w1", "pod", "10.7.1.22", "243.0.0.1", "tcp:80", 0,
				"g2/g2-w1 10.7.1.22:8080 from 192.168.2.2",
			},
		},
		"flat": {
			{"pod to pod", "c1/c1-w1", "pod", "10.8.1.5", "10.9.1.21", "tcp:8080", 0, "c2/c2-w1 10.9.1.21:8080 from 10.8.1.5"},
			{"pod to pod on a gateway", "c1/c1-a", "pod", "10.8.0.5", "10.9.0.7", "udp:53", 0, "c2/c2-a 10.9.0.7:53 from 10.8.0.5"},
			{"pod to ClusterIP", "c1/c1-w1", "pod", "10.8.1.5", "10.99.0.5", "tcp:80", 0, "c2/c2-w1 10.9.1.21:8080 from 10.8.1.5"},
			{
				"pod to clusterset address", "c1/c1-w1", "pod", "10.8.1.5", "243.0.0.1", "tcp:80", 0,
				"c2/c2-w1 10.9.1.21:8080 from 10.8.1.5",
			},
			{"own cluster first", "c2/c2-w1", "pod", "10.9.1.5", "243.0.0.1", "tcp:80", 0, "c2/c2-w1 10.9.1.21:8080 from 10.9.1.5"},
			{
				"pod to a fixed host address", "c1/c1-w1", "pod", "10.8.1.5", "242.2.0.40", "tcp:5432", 0,
				"c2/c2-w1 10.9.1.30:5432 from 10.8.1.5",
			},
			{
				"host with an address in the pods' prefix", "c1/c1-w1", "local", "10.8.1.1", "10.9.1.21", "tcp:8080", 0,
				"c2/c2-w1 10.9.1.21:8080 from 10.8.1.1",
			},
			{"host without one", "c1/c1-a", "local", "192.168.1.1", "10.9.1.21", "tcp:8080", 0, "c2/c2-w1 10.9.1.21:8080 from 242.1.0.1"},
			{
				"through the sibling gateway", "c2/c2-b", "pod", "10.9.2.5", "10.8.1.21", "tcp:8080", 0,
				"c1/c1-w1 10.8.1.21:8080 from 10.9.2.5",
			},
			{"node address of the other cluster", "c1/c1-w1", "pod", "10.8.1.5", "192.168.2.3", "tcp:22", 0, "left by the default route"},
			{"no ready endpoint", "c2/c2-w1", "pod", "10.9.1.5", "242.1.0.32", "tcp:80", 0, "blackhole"},
		},
		"mapped": {
			{"allowed cluster", "g1/g1-w1", "pod", "10.7.1.5", "243.0.0.1", "tcp:80", 0, "g3/g3-w1 10.7.1.22:8080 from 242.1.0.1"},
			{"allowed cluster, UDP", "g1/g1-w1", "pod", "10.7.1.5", "243.0.0.1", "udp:53", 0, "g3/g3-w1 10.7.1.22:5353 from 242.1.0.1"},
			{"other cluster has no backend", "g2/g2-a", "pod", "10.7.0.5", "243.0.0.1", "tcp:80", 0, "refused"},
			{"other cluster knows the address", "g2/g2-a", "pod", "10.7.0.5", "242.3.0.1", "tcp:80", 0, "not allowed"},
			{"exporter itself", "g3/g3-a", "pod", "10.7.0.5", "243.0.0.1", "tcp:80", 0, "g3/g3-w1 10.7.1.22:8080 from 10.7.0.5"},
			{
				"headless pod by its mapped address", "g1/g1-w1", "pod", "10.7.1.5", "242.2.1.31", "tcp:7000", 0,
				"g3/g3-w1 10.7.1.31:7000 from 242.1.0.1",
			},
			{"any other pod by its mapped address", "g1/g1-w1", "pod", "10.7.1.5", "242.2.1.99", "tcp:80", 0, "answers only"},
		},
		"mixed": {
			{"flat to flat", "c2/c2-w1", "pod", "10.9.1.5", "10.10.0.30", "tcp:5433", 0, "c4/c4-a 10.10.0.30:5433 from 10.9.1.5"},
			{"flat to global", "c2/c2-w1", "pod", "10.9.1.5", "242.1.0.32", "tcp:80", 0, "c1/c1-w1 10.8.1.21:8080 from 10.9.1.5"},
			{"global to flat", "c1/c1-w1", "pod", "10.8.1.5", "10.9.1.21", "tcp:8080", 0, "c2/c2-w1 10.9.1.21:8080 from 242.1.0.1"},
			{"global to flat by name", "c1/c1-w1", "pod", "10.8.1.5", "242.2.0.32", "tcp:80", 0, "c2/c2-w1 10.9.1.21:8080 from 242.1.0.1"},
			{"global to global", "c3/c3-w1", "pod", "10.10.1.5", "242.1.0.32", "tcp:80", 0, "c1/c1-w1 10.8.1.21:8080 from 242.3.0.1"},
			{
				"flat that overlaps a global one, to it", "c4/c4-a", "pod", "10.10.0.5", "242.1.0.32", "tcp:80", 0,
				"c1/c1-w1 10.8.1.21:8080 from 242.4.0.1",
			},
			{
				"global to the flat one that it overlaps", "c3/c3-w1", "pod", "10.10.1.5", "242.4.0.40", "tcp:5432", 0,
				"c4/c4-a 10.10.0.30:5433 from 242.3.0.1",
			},
			{
				"global to overlapping prefix stays in the cluster", "c3/c3-a", "pod", "10.8.0.5", "10.10.1.7", "tcp:80", 0,
				"c3/c3-w1 10.10.1.7:80 from 10.8.0.5",
			},
		},
	}
	for file, cases := range tests {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			w, _ := readWorld(t, "testdata/"+file+".txtar")
			for _, tt := range cases {
				t.Run(tt.name, func(t *testing.T) {
					proto, text, _ := strings.Cut(tt.to, ":")
					port, err := strconv.Atoi(text)
					if err != nil {
						t.Fatal(err)
					}
					first := packet{proto: proto, src: addr(tt.src), dst: addr(tt.dst), dport: port}
					if proto != "icmp" {
						first.sport = 40000
					}
					checkFlow(t, newTracer(w, tt.slot), hop{node: tt.from, iif: tt.iif, packet: first}, tt.want)
					// Hawser does not deliver packets between pods of one
					// cluster.
					if from, _, _ := strings.Cut(tt.from, "/"); strings.HasPrefix(tt.want, from+"/") {
						return
					}
					hidden, _ := readWorld(t, "testdata/"+file+".txtar")
					tr := newTracer(hidden, tt.slot)
					tr.hidePrefixes()
					checkFlow(t, tr, hop{node: tt.from, iif: tt.iif, packet: first}, tt.want)
				})
			}
		})
	}
}

func checkFlow(t *testing.T, tr *tracer, first hop, want string) {
	t.Helper()
	at, end := tr.send(first)
	have := end
	if end == "delivered" {
		have = at.node + " " + at.packet.String()
	}
	if have != want {
		t.Fatalf("packet: have %q, want %q", have, want)
	}
	if end != "delivered" {
		return
	}
	reply, end := tr.send(hop{node: at.node, iif: first.iif, packet: at.turned()})
	if end != "delivered" || reply.node != first.node || reply.packet != first.turned() {
		t.Errorf("answer: %s at %s %v, want delivered at %s %v", end, reply.node, reply.packet, first.node, first.turned())
	}
}

// TestFailover removes the conntrack entries of gateways in the middle of connections. The server
// then sends first, through gateways that do not know the connection.
func TestFailover(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		file string
		from string
		src  string
		dst  string
		lost []string // gateways
		want string   // result of the server's packet
	}{
		{"shared egress, exporter's gateway", "globalnet", "g1/g1-w1", "10.7.1.5", "243.0.0.1", []string{"g2/g2-a"}, "delivered"},
		{"shared egress, caller's gateway", "globalnet", "g1/g1-w1", "10.7.1.5", "243.0.0.1", []string{"g1/g1-a"}, "blackhole"},
		{"headless, exporter's gateway", "globalnet", "g1/g1-w1", "10.7.1.5", "242.2.0.40", []string{"g2/g2-a"}, "delivered"},
		{"mapped egress, both gateways", "mapped", "g3/g3-w1", "10.7.1.50", "243.0.0.2", []string{"g1/g1-a", "g3/g3-a"}, "delivered"},
		{"flat, both gateways, by name", "flat", "c1/c1-w1", "10.8.1.5", "243.0.0.1", []string{"c1/c1-a", "c2/c2-a"}, "delivered"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w, _ := readWorld(t, "testdata/"+tt.file+".txtar")
			tr := newTracer(w, 0)
			first := hop{node: tt.from, iif: "pod", packet: packet{proto: "tcp", src: addr(tt.src), dst: addr(tt.dst), sport: 40000, dport: 80}}
			at, end := tr.send(first)
			if end != "delivered" {
				t.Fatalf("first packet: %s", end)
			}
			for _, name := range tt.lost {
				delete(tr.flows, name)
			}
			reply, end := tr.send(hop{node: at.node, iif: "pod", packet: at.turned(), mid: true})
			if end != tt.want {
				t.Fatalf("server's packet: have %s, want %s", end, tt.want)
			}
			if end == "delivered" && (reply.node != first.node || reply.packet != first.turned()) {
				t.Errorf("server's packet arrived at %s as %v, want %s %v", reply.node, reply.packet, first.node, first.turned())
			}
		})
	}
}
