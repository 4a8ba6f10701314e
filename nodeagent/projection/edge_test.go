package projection_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// TestBadInputs checks nodes with missing or wrong input. Each node must report a problem, and only
// the given lines of its state may change.
func TestBadInputs(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		node   string // of globalnet.txtar
		change func(in *projection.Input)
		code   string   // code of a reported problem
		gained []string // lines
		lost   []string // prefixes of lines
	}{
		{
			"no keys", "g1/g1-a", func(in *projection.Input) { in.Keys = nil }, status.KeyMissing,
			[]string{"route 7300/242.2.0.0/24 type=blackhole", "route 7302/242.2.0.0/24 type=blackhole"},
			[]string{
				"sysctl net/ipv4/conf/hw-wg1", "link hw-wg1", "wireguard", "peer", "address hw-wg1",
				"rule ipv4/7301", "route 7300/241.0.0.2", "route 7300/242.2.0.0", "route 7301", "route 7302",
				"rule ipv4/7289", "rule ipv4/7365", "rule ipv4/33", "route 10945", "node_marks4",
			},
		},
		{
			"no path", "g1/g1-w1", func(in *projection.Input) { in.Paths = nil }, status.NoPath,
			[]string{
				"route 7300/242.2.0.0/24 type=blackhole",
				"service sample/whereami-cs headless=false vips=243.0.0.1 ports=http/TCP/80",
				"service sample/whereami-ss headless=true ports=http/TCP/80",
			},
			[]string{"route 7300/242.2.0.0", "services4 243.0.0.1", "slots4 243.0.0.1", "icmp_echo4 243.0.0.1", "service sample/whereami", "zone"},
		},
		{
			"path over a gateway that is gone", "g1/g1-w1",
			func(in *projection.Input) { in.Paths = map[string]model.Path{"g2": {Local: "g1-b", Remote: "g2-a"}} }, status.NoPath,
			[]string{
				"route 7300/242.2.0.0/24 type=blackhole",
				"service sample/whereami-cs headless=false vips=243.0.0.1 ports=http/TCP/80",
				"service sample/whereami-ss headless=true ports=http/TCP/80",
			},
			[]string{"route 7300/242.2.0.0", "services4 243.0.0.1", "slots4 243.0.0.1", "icmp_echo4 243.0.0.1", "service sample/whereami", "zone"},
		},
		{
			"gateway's node gone", "g1/g1-w1",
			func(in *projection.Input) { in.Facts.Nodes = in.Facts.Nodes[1:] }, status.NodeUnknown,
			[]string{"route 7300/242.2.0.0/24 type=blackhole"},
			[]string{"neighbour", "nodes4 192.168.1.1", "self44 192.168.1.1", "vxlan4 192.168.1.1", "route 7300/242.2.0.0"},
		},
		{
			"this node unknown", "g1/g1-w1",
			func(in *projection.Input) { in.Facts.Nodes = in.Facts.Nodes[:1] }, status.NodeUnknown,
			[]string{"route 7300/242.2.0.0/24 type=blackhole"},
			[]string{
				"sysctl net/ipv4/conf/hw-vx0", "link", "address", "neighbour", "nodes4 192.168.1.2", "self44 192.168.1.2", "vxlan4 192.168.1.2", "route 7300/242.2.0.0",
				"route 7300/243",
			},
		},
		{
			"MTU of the file too large", "g1/g1-a", func(in *projection.Input) { in.Local.UnderlayMTU, in.Fabric.Tunnel.MTU = 1400, 1400 },
			status.MTUTooLarge,
			[]string{
				"link hw-vx0 type=vxlan mtu=1350 up=true mac=aa:99:f5:6f:dc:a7 vni=73 port=4803 local=192.168.1.1",
				"link hw-wg1 type=wireguard mtu=1400 up=true", "table hawser mss4=1360 mss6=1340",
			},
			[]string{"link", "table"},
		},
		{
			"another node claims an address of the clusterset", "g1/g1-w1",
			func(in *projection.Input) {
				in.Facts.Nodes[0].Addrs = append(in.Facts.Nodes[0].Addrs, addr("242.2.0.200"), addr("243.0.0.1"), addr("241.0.0.2"))
			},
			status.NodeAddressConflict, nil, nil,
		},
		{
			"another node claims an address of a flat cluster", "g1/g1-w1",
			func(in *projection.Input) {
				flat(in, "g2", "10.9.0.0/16")
				in.Facts.Nodes[0].Addrs = append(in.Facts.Nodes[0].Addrs, addr("10.9.3.4"))
			},
			status.NodeAddressConflict,
			[]string{"remote4 10.9.0.0/16", "route 7300/10.9.0.0/16 type=unicast dev=hw-vx0 via=192.168.1.1 src=192.168.1.2"},
			nil,
		},
		{
			"a node claims another node's IPv4 and its own IPv6", "g1/g1-a",
			func(in *projection.Input) {
				in.Facts.Nodes = append(in.Facts.Nodes, model.Node{Name: "g1-w2", Addrs: []netip.Addr{addr("192.168.1.2"), addr("fd00::2")}})
			},
			status.NodeAddressConflict,
			[]string{"nodes6 fd00::2", "self66 fd00::2 . fd00::2", "vxlan6 fd00::2 . 4803"},
			[]string{
				"nodes4 192.168.1.2", "self44 192.168.1.2", "neighbour hw-vx0/192.168.1.2", "node_marks4", "rule ipv4/33",
				"route 7301/10.7.1.0/24", "route 7301/192.168.1.2/32", "route 10945",
			},
		},
		{
			"another node claims this node's address", "g1/g1-a",
			func(in *projection.Input) {
				in.Facts.Nodes = append(in.Facts.Nodes, model.Node{Name: "g1-w2", Addrs: []netip.Addr{addr("192.168.1.1")}})
			},
			status.NodeAddressConflict, nil, nil,
		},
		{
			"a node whose agent has no rules yet", "g1/g1-a",
			func(in *projection.Input) {
				in.Facts.Nodes = slices.Clone(in.Facts.Nodes)
				in.Facts.Nodes[1].Unprotected = true
			},
			status.NodeUnprotected, nil, []string{"nodes4 192.168.1.2", "self44 192.168.1.2"},
		},
		{
			"this node has no report yet", "g1/g1-a",
			func(in *projection.Input) {
				in.Facts.Nodes = slices.Clone(in.Facts.Nodes)
				in.Facts.Nodes[0].Unprotected = true
			},
			"", nil, nil,
		},
		{
			"a flat cluster's prefix over this node", "g1/g1-w1",
			func(in *projection.Input) { flat(in, "g2", "192.168.1.0/24") }, status.CoversNode, nil, nil,
		},
		{
			"nothing ready in the remote cluster", "g1/g1-w1",
			func(in *projection.Input) { in.ClusterStates = map[string]model.ClusterState{"g2": {Cluster: "g2"}} }, "",
			[]string{
				"service sample/whereami-cs headless=false vips=243.0.0.1 ports=http/TCP/80 clusters=g2[]",
				"service sample/whereami-ss headless=true ports=http/TCP/80 clusters=g2[]",
			},
			[]string{"services4", "slots4", "icmp_echo4", "service sample", "zone"},
		},
		{
			"no state of the remote cluster", "g1/g1-w1", func(in *projection.Input) { in.ClusterStates = nil }, "",
			[]string{"service sample/whereami-ss headless=true ports=http/TCP/80 clusters=g2[]"},
			[]string{"service sample/whereami-ss", "zone"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w, _ := readWorld(t, "testdata/globalnet.txtar")
			in := w.inputs[tt.node]
			before := linesOf(text(w.states[tt.node]))
			tt.change(&in)
			state, problems := projection.Desired(in)
			after := linesOf(text(state))
			hasCode := slices.ContainsFunc(problems, func(p projection.Problem) bool { return p.Code == tt.code })
			if tt.code != "" && !hasCode {
				t.Errorf("problem %s is not reported: %v", tt.code, problems)
			}
			checkLines(t, before, after, tt.gained, tt.lost)
		})
	}
}

// TestBalancerClosed checks that packets to the load balancer of an own gateway are not forwarded
// untranslated. Addresses of nodes are the exception, because kube-proxy translates packets to
// them.
func TestBalancerClosed(t *testing.T) {
	t.Parallel()
	w, _ := readWorld(t, "testdata/globalnet.txtar")
	for _, node := range []string{"g1/g1-a", "g1/g1-w1"} {
		in := w.inputs[node]
		before := linesOf(text(w.states[node]))
		f := *in.Fabric
		f.Clusters = slices.Clone(f.Clusters)
		own := f.Cluster("g1")
		own.Gateways = slices.Clone(own.Gateways)
		own.Gateways[0].Endpoints = append(slices.Clone(own.Gateways[0].Endpoints), fabric.SourceLoadBalancer)
		in.Fabric = &f
		in.Facts.Services = append(slices.Clone(in.Facts.Services), model.Service{
			Namespace: fabric.SystemNamespace, Name: fabric.ServiceOf(own.Gateways[0].Name),
			Ports:         []model.ServicePort{{Protocol: "UDP", Port: 51820}, {Protocol: "TCP", Port: 443}},
			LoadBalancers: []string{"198.51.100.80", "LB.example.net", "192.168.1.2"},
		})
		in.Local.Resolved = map[string][]netip.Addr{fabric.Endpoint{Name: "lb.example.net"}.String(): {addr("2001:db8::80")}}
		state, _ := projection.Desired(in)
		checkLines(t, before, linesOf(text(state)), []string{"vxlan4 198.51.100.80 . 51820", "vxlan6 2001:db8::80 . 51820"}, nil)
	}
}

// flat makes a cluster flat, with the given podCIDRs.
func flat(in *projection.Input, name, pods string) {
	f := *in.Fabric
	f.Clusters = slices.Clone(f.Clusters)
	c := f.Cluster(name)
	c.Globalnet, c.PodCIDRs, c.ServiceCIDRs = false, []netip.Prefix{netip.MustParsePrefix(pods)}, nil
	in.Fabric = &f
}

func checkLines(t *testing.T, before, after map[string]bool, gained, lost []string) {
	t.Helper()
	var have []string
	for line := range after {
		if !before[line] && !strings.HasPrefix(line, "zone ") {
			have = append(have, line)
		}
	}
	slices.Sort(have)
	slices.Sort(gained)
	if diff := cmp.Diff(gained, have); diff != "" {
		t.Errorf("gained (-want +got):\n%s", diff)
	}
	used := map[string]bool{}
	for line := range before {
		at := slices.IndexFunc(lost, func(start string) bool { return strings.HasPrefix(line, start) })
		if at >= 0 && !after[line] {
			used[lost[at]] = true
		} else if !after[line] {
			t.Errorf("lost: %s", line)
		}
	}
	for _, start := range lost {
		if !used[start] {
			t.Errorf("not lost: %s", start)
		}
	}
}

func TestUnknownCluster(t *testing.T) {
	t.Parallel()
	_, problems := projection.Desired(projection.Input{Fabric: &fabric.Fabric{}, Cluster: "g9", Node: "n"})
	if len(problems) != 1 || problems[0].Code != status.ClusterUnknown {
		t.Errorf("have %v", problems)
	}
}

// TestPolicies checks the targets of a clusterset IP's slots on a node of c1 in mixed.txtar.
// Cluster c1 has two endpoints.
func TestPolicies(t *testing.T) {
	t.Parallel()
	weights := func(w map[string]int) fabric.Balance { return fabric.Balance{Policy: fabric.Weighted, Weights: w} }
	failover := func(order ...string) fabric.Balance { return fabric.Balance{Policy: fabric.Failover, Order: order} }
	const l1, l2, c2, c3 = "10.8.0.22 . 8080", "10.8.1.21 . 8080", "242.2.0.32 . 80", "242.3.0.32 . 80"
	tests := []struct {
		name     string
		balance  fabric.Balance
		ready    string // ready clusters; c1 is this one
		affinity string
		chain    string
		want     map[string]int
	}{
		{"local first", fabric.Balance{Policy: fabric.LocalFirst}, "c1 c2 c3", "", "pick_many4", map[string]int{l1: 512, l2: 512}},
		{"local first, not ready here", fabric.Balance{Policy: fabric.LocalFirst}, "c2 c3", "", "pick_many4", map[string]int{c2: 512, c3: 512}},
		{"local first, one left", fabric.Balance{Policy: fabric.LocalFirst}, "c3", "", "pick_one4", map[string]int{c3: 1}},
		{"spread", fabric.Balance{Policy: fabric.Spread}, "c1 c2", "", "pick_many4", map[string]int{l1: 256, l2: 256, c2: 512}},
		{"weighted", weights(map[string]int{"c1": 2, "c2": 1, "c3": 1}), "c1 c2 c3", "", "pick_many4",
			map[string]int{l1: 256, l2: 256, c2: 256, c3: 256}},
		{"weighted, steep", weights(map[string]int{"c2": 255, "c3": 1}), "c2 c3", "", "pick_many4", map[string]int{c2: 1020, c3: 4}},
		{"weighted, one not named", weights(map[string]int{"c2": 3}), "c2 c3", "", "pick_one4", map[string]int{c2: 1}},
		{"weighted, no named one is ready", weights(map[string]int{"c2": 3}), "c3", "", "pick_one4", map[string]int{c3: 1}},
		{"failover", failover("c3", "c1"), "c1 c2 c3", "", "pick_one4", map[string]int{c3: 1}},
		{"failover to here", failover("c3", "c1"), "c1 c2", "", "pick_many4", map[string]int{l1: 512, l2: 512}},
		{"failover past the order", failover("c3"), "c2", "", "pick_one4", map[string]int{c2: 1}},
		{"session affinity", fabric.Balance{Policy: fabric.Spread}, "c2 c3", "ClientIP", "pick_many_client4", map[string]int{c2: 512, c3: 512}},
		{"none ready", fabric.Balance{Policy: fabric.Spread}, "", "", "", map[string]int{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w, _ := readWorld(t, "testdata/mixed.txtar")
			in := w.inputs["c1/c1-w1"]
			export := &in.Fabric.Exports[1]
			export.Balance, export.Affinity = tt.balance, tt.affinity
			for _, name := range []string{"c2", "c3"} {
				in.ClusterStates[name] = model.ClusterState{Cluster: name, Exports: []model.ExportState{
					{Namespace: "sample", Name: "web", Ready: strings.Contains(tt.ready, name)},
				}}
			}
			if !strings.Contains(tt.ready, "c1") {
				in.Facts.Services = nil
			}
			state, _ := projection.Desired(in)
			chain, have := "", map[string]int{}
			for _, e := range state.Elements {
				if e.Set == desired.SetSlots && strings.HasPrefix(e.ID, "243.0.0.1 ") {
					have[e.Value]++
				} else if e.Set == desired.SetServices && strings.HasPrefix(e.ID, "243.0.0.1 ") {
					chain = e.Value
				}
			}
			if diff := cmp.Diff(tt.want, have); diff != "" || chain != tt.chain {
				t.Errorf("chain %q, want %q; slots (-want +got):\n%s", chain, tt.chain, diff)
			}
		})
	}
}

// TestLinkDown takes down the link to c2, and then the link to c3. Clusterset IPs use the clusters
// whose links are up, or all clusters if no link is up.
func TestLinkDown(t *testing.T) {
	t.Parallel()
	const c2, c3 = "242.2.0.32 . 80", "242.3.0.32 . 80"
	tests := []struct {
		down []string
		want map[string]int
	}{
		{nil, map[string]int{c2: 512, c3: 512}},
		{[]string{"c2"}, map[string]int{c3: 1}},
		{[]string{"c2", "c3"}, map[string]int{c2: 512, c3: 512}},
	}
	for _, tt := range tests {
		w, _ := readWorld(t, "testdata/mixed.txtar")
		in := w.inputs["c4/c4-a"]
		in.Fabric.Exports[1].Balance = fabric.Balance{Policy: fabric.Spread}
		in.Fabric.Exports[1].Clusters = in.Fabric.Exports[1].Clusters[1:]
		in.ClusterStates = nil
		for _, name := range tt.down {
			path := in.Paths[name]
			path.Down = true
			in.Paths[name] = path
		}
		state, _ := projection.Desired(in)
		have := map[string]int{}
		for _, e := range state.Elements {
			if e.Set == desired.SetSlots && strings.HasPrefix(e.ID, "243.0.0.1 ") {
				have[e.Value]++
			}
		}
		if diff := cmp.Diff(tt.want, have); diff != "" {
			t.Errorf("down %v (-want +got):\n%s", tt.down, diff)
		}
	}
}

// TestEpochs checks that a link has a device for the newest epoch whose keys both gateways have.
// During a rotation it has one device per epoch, with separate ports. The first epoch is in use.
func TestEpochs(t *testing.T) {
	t.Parallel()
	tests := []struct {
		epochs       []int
		tunnelEpochs []int // epochs of Input.Tunnels; none = epochs of the fabric
		ordinal      int   // of the remote gateway
		ports        map[string]int
		carrier      string
		code         string
	}{
		{[]int{1}, nil, 0, map[string]int{"hw-wg1": 51820}, "hw-wg1", ""},
		{[]int{1, 2}, nil, 0, map[string]int{"hw-wg2": 51821}, "hw-wg2", ""},
		{[]int{1, 2}, []int{1, 2}, 0, map[string]int{"hw-wg1": 51820, "hw-wg2": 51821}, "hw-wg1", ""},
		{[]int{1, 2}, []int{2, 1}, 0, map[string]int{"hw-wg1": 51820, "hw-wg2": 51821}, "hw-wg2", ""},
		{[]int{1, 2}, []int{1, 2}, 3, map[string]int{"hw-wg1-3": 51826, "hw-wg2-3": 51827}, "hw-wg1-3", ""},
		{[]int{2}, nil, 31, map[string]int{"hw-wg2-31": 51883}, "hw-wg2-31", ""},
		{[]int{2, 3}, []int{2, 3}, 0, map[string]int{"hw-wg2": 51821, "hw-wg3": 51820}, "hw-wg2", ""},
		{[]int{3, 4}, nil, 0, map[string]int{"hw-wg3": 51820}, "hw-wg3", ""},
		{[]int{4}, nil, 0, map[string]int{}, "", status.KeyMissing},
	}
	for _, tt := range tests {
		w, _ := readWorld(t, "testdata/globalnet.txtar")
		in := w.inputs["g1/g1-a"]
		in.Fabric.Epochs = tt.epochs
		peer := &in.Fabric.Clusters[1].Gateways[0]
		peer.Keys, peer.Ordinal = nil, tt.ordinal
		for epoch := 1; epoch <= 3; epoch++ {
			keys := in.Keys.Epochs[0]
			keys.Epoch = epoch
			if epoch > 1 {
				in.Keys.Epochs = append(in.Keys.Epochs, keys)
			}
			peer.Keys = append(peer.Keys, fabric.Key{Epoch: epoch, Public: "pub"})
		}
		for _, epoch := range tt.tunnelEpochs {
			name := in.Fabric.Clusters[1].Name + "/" + peer.Name
			in.Tunnels = map[string][]model.TunnelParams{name: append(in.Tunnels[name], model.TunnelParams{Driver: fabric.DriverWireguard, Epoch: epoch})}
		}
		state, problems := projection.Desired(in)
		ports := map[string]int{}
		for _, d := range state.Wireguards {
			ports[d.Device] = d.ListenPort
		}
		carrier := ""
		for _, r := range state.Routes {
			if r.Dst == netip.MustParsePrefix("242.2.0.0/24") {
				carrier = r.Device
			}
		}
		if diff := cmp.Diff(tt.ports, ports); diff != "" || carrier != tt.carrier {
			t.Errorf("epochs %v: path over %q, want %q; ports (-want +got):\n%s", tt.epochs, carrier, tt.carrier, diff)
		}
		if hasCode := slices.ContainsFunc(problems, func(p projection.Problem) bool { return p.Code == tt.code }); tt.code != "" && !hasCode {
			t.Errorf("epochs %v: no problem %s: %v", tt.epochs, tt.code, problems)
		}
		rules := slices.DeleteFunc(state.Rules, func(r desired.Rule) bool {
			return r.Priority >= desired.RuleReturnPath || r.Priority != desired.RuleGateway && r.IIF == desired.NodeDevice
		})
		if len(rules) != 2*len(ports)+2 {
			t.Errorf("epochs %v: rules %v", tt.epochs, rules)
		}
	}
}

func TestEndpoints(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		endpoints []string
		resolved  []netip.Addr // of dns:gw.example.com
		want      string
	}{
		{"first address", []string{"203.0.113.1", "203.0.113.2"}, nil, "203.0.113.1:51820"},
		{"name that resolves", []string{"dns:gw.example.com", "203.0.113.2"}, []netip.Addr{addr("203.0.113.9")}, "203.0.113.9:51820"},
		{"name that does not", []string{"dns:gw.example.com", "203.0.113.2"}, nil, "203.0.113.2:51820"},
		{"family that this node does not have", []string{"2001:db8::1", "203.0.113.2"}, nil, "203.0.113.2:51820"},
		{"name with both families", []string{"dns:gw.example.com"}, []netip.Addr{addr("2001:db8::1"), addr("203.0.113.9")}, "203.0.113.9:51820"},
		{"dials in", nil, nil, "invalid AddrPort"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w, _ := readWorld(t, "testdata/globalnet.txtar")
			in := w.inputs["g1/g1-a"]
			in.Fabric.Clusters[1].Gateways[0].Endpoints = tt.endpoints
			in.Local.Resolved = map[string][]netip.Addr{"dns:gw.example.com": tt.resolved}
			state, _ := projection.Desired(in)
			if have := state.Peers[0].Endpoint.String(); have != tt.want {
				t.Errorf("have %s, want %s", have, tt.want)
			}
		})
	}
}

// TestLiveState checks the state that each cluster announces.
func TestLiveState(t *testing.T) {
	t.Parallel()
	host := func(name, ip string) model.ExportHost {
		return model.ExportHost{Name: name, IPs: []netip.Addr{addr(ip)}}
	}
	tests := []struct {
		file, node string
		want       []model.ExportState
	}{
		{"globalnet", "g2/g2-a", []model.ExportState{
			{Namespace: "sample", Name: "whereami-cs", Ready: true},
			{Namespace: "sample", Name: "whereami-ss", Ready: true, Hosts: []model.ExportHost{host("whereami-0", "242.2.0.40")}},
		}},
		{"flat", "c2/c2-a", []model.ExportState{
			{Namespace: "sample", Name: "db", Ready: true, Hosts: []model.ExportHost{host("db-0", "10.9.1.30")}},
			{Namespace: "sample", Name: "web", Ready: true},
		}},
		{"flat", "c1/c1-a", []model.ExportState{{Namespace: "sample", Name: "web"}}},
		{"mapped", "g3/g3-a", []model.ExportState{
			{Namespace: "sample", Name: "api", Ready: true},
			{Namespace: "sample", Name: "peers", Ready: true, Hosts: []model.ExportHost{{Label: "10-7-1-31", IPs: addrs("242.2.1.31")}}},
		}},
		{"mapped", "g2/g2-a", []model.ExportState{{Namespace: "sample", Name: "site"}}},
	}
	for _, tt := range tests {
		w, _ := readWorld(t, "testdata/"+tt.file+".txtar")
		have := projection.ClusterState(w.inputs[tt.node])
		want := model.ClusterState{Cluster: w.inputs[tt.node].Cluster, Exports: tt.want}
		if diff := cmp.Diff(want, have, cmp.Comparer(sameAddr)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.node, diff)
		}
	}
}
