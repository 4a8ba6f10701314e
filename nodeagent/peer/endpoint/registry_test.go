package endpoint

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/schema/fabric"
)

var compare = cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})}

// testFabric returns a fabric of three clusters. In g2, gateway a has all sources, b has a
// configured endpoint, and c has the observed address only.
func testFabric() *fabric.Fabric {
	prefixes := func(texts ...string) []netip.Prefix {
		var out []netip.Prefix
		for _, text := range texts {
			out = append(out, netip.MustParsePrefix(text))
		}
		return out
	}
	return &fabric.Fabric{
		GlobalPools: prefixes("242.0.0.0/8"), ServicePools: prefixes("243.0.0.0/16"), TunnelPools: prefixes("241.0.0.0/16"),
		Clusters: []fabric.Cluster{
			{
				Name: "g1", PodCIDRs: prefixes("10.7.0.0/16"), ServiceCIDRs: prefixes("10.77.0.0/16"), Globalnet: true,
				Gateways: []fabric.Gateway{{Name: "x", Node: "n1", Port: 51820, Endpoints: []string{"192.0.2.1", "node:ExternalIP", "node:InternalIP", "seen"}}},
			},
			{Name: "g2", PodCIDRs: prefixes("10.7.0.0/16"), ServiceCIDRs: prefixes("10.77.0.0/16"), Globalnet: true, Gateways: []fabric.Gateway{
				{Name: "a", Port: 51820, Endpoints: fabric.Sources()},
				{Name: "b", Port: 51820, Endpoints: []string{"192.0.2.2"}},
				{Name: "c", Port: 800, Endpoints: []string{"seen"}},
			}},
			{Name: "g3", PodCIDRs: prefixes("10.3.0.0/16"), ServiceCIDRs: prefixes("10.103.0.0/16"), Gateways: []fabric.Gateway{{Name: "a"}}},
		},
	}
}

func nodes() []model.Node {
	return []model.Node{{Name: "n1", Addrs: addrs("172.18.0.2"), External: addrs("203.0.113.9 2001:db8::9")}, {Name: "n2", Addrs: addrs("172.18.0.3")}}
}

func addrs(text string) []netip.Addr {
	var out []netip.Addr
	for _, one := range strings.Fields(text) {
		out = append(out, netip.MustParseAddr(one))
	}
	return out
}

// discovered parses endpoints such as "seen 203.0.113.1:6000, node:ExternalIP 203.0.113.2".
func discovered(text string) []model.DiscoveredEndpoint {
	var out []model.DiscoveredEndpoint
	for one := range strings.SplitSeq(text, ", ") {
		source, at, _ := strings.Cut(one, " ")
		if at == "" {
			continue
		}
		if a, err := netip.ParseAddr(at); err == nil {
			out = append(out, model.DiscoveredEndpoint{Source: source, Addr: a})
			continue
		}
		addrPort := netip.MustParseAddrPort(at)
		out = append(out, model.DiscoveredEndpoint{Source: source, Addr: addrPort.Addr(), Port: int(addrPort.Port())})
	}
	return out
}

func announce(cluster, gateway, text string) map[string]model.ClusterState {
	return map[string]model.ClusterState{cluster: {Cluster: cluster, Endpoints: &model.EndpointAdvert{Discovered: map[string][]model.DiscoveredEndpoint{gateway: discovered(text)}}}}
}

// TestFilter checks which announced endpoints of another cluster's gateway are accepted.
func TestFilter(t *testing.T) {
	t.Parallel()
	const port = "gateway a: a port outside 1024 to 65470"
	const unicast = "gateway a: an address that is not unicast, or link-local"
	tests := []struct {
		name, gateway, announced, want string
		refused                        []string
	}{
		{name: "in the order of the topology", gateway: "a", announced: "seen 203.0.113.1:6000, node:InternalIP 10.9.0.1, node:ExternalIP 203.0.113.2",
			want: "node:ExternalIP 203.0.113.2, node:InternalIP 10.9.0.1, seen 203.0.113.1:6000"},
		{name: "twice the same", gateway: "a", announced: "seen 203.0.113.1, seen 203.0.113.1", want: "seen 203.0.113.1"},
		{name: "too many", gateway: "a", announced: "seen 203.0.113.1, seen 203.0.113.2, seen 203.0.113.3, seen 203.0.113.4, seen 203.0.113.5, seen 203.0.113.6",
			want:    "seen 203.0.113.1, seen 203.0.113.2, seen 203.0.113.3, seen 203.0.113.4",
			refused: []string{"gateway a: more than 4 endpoints"}},
		{name: "loopback", gateway: "a", announced: "seen 127.0.0.1", refused: []string{unicast}},
		{name: "loopback of IPv6", gateway: "a", announced: "seen ::1", refused: []string{unicast}},
		{name: "multicast", gateway: "a", announced: "seen 224.0.0.251, seen ff02::1", refused: []string{unicast}},
		{name: "link-local", gateway: "a", announced: "seen 169.254.169.254, seen fe80::1", refused: []string{unicast}},
		{name: "a zone", gateway: "a", announced: "seen 2001:db8::1%eth0", refused: []string{unicast}},
		{name: "IPv4 in IPv6", gateway: "a", announced: "seen ::ffff:203.0.113.1", refused: []string{unicast}},
		{name: "unspecified and broadcast", gateway: "a", announced: "seen 0.0.0.0, seen 255.255.255.255", refused: []string{unicast}},
		{name: "own pods", gateway: "a", announced: "seen 10.7.0.9", refused: []string{"gateway a: an address inside the prefixes of cluster g1"}},
		{name: "own Services", gateway: "a", announced: "seen 10.77.0.1", refused: []string{"gateway a: an address inside the prefixes of cluster g1"}},
		{name: "pods of a third cluster", gateway: "a", announced: "seen 10.3.0.9", refused: []string{"gateway a: an address inside the prefixes of cluster g3"}},
		{name: "global, clusterset and tunnel addresses", gateway: "a", announced: "seen 242.0.0.1, seen 243.0.0.1, seen 241.0.0.1",
			refused: []string{"gateway a: an address inside the pools of the clusterset"}},
		{name: "own node", gateway: "a", announced: "node:InternalIP 172.18.0.3", refused: []string{"gateway a: an address of a node of this cluster"}},
		{name: "port of a name server", gateway: "a", announced: "seen 203.0.113.1:53", refused: []string{port}},
		{name: "no room for the following ports", gateway: "a", announced: "seen 203.0.113.1:65471", refused: []string{port}},
		{name: "its own port", gateway: "c", announced: "seen 203.0.113.1:800", want: "seen 203.0.113.1:800"},
		{name: "accepted and refused", gateway: "a", announced: "seen 127.0.0.1, seen 203.0.113.1", want: "seen 203.0.113.1", refused: []string{unicast}},
		{name: "another source", gateway: "c", announced: "node:ExternalIP 203.0.113.1", refused: []string{"gateway c: the topology does not allow it this source of endpoints"}},
		{name: "a gateway with configured endpoints", gateway: "b", announced: "seen 203.0.113.1", refused: []string{"gateway b: the topology allows it no discovered endpoints"}},
		{name: "an unknown gateway", gateway: "z", announced: "seen 203.0.113.1", refused: []string{"a gateway that is not in the topology"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b, _ := Registry{}.Update(testFabric(), "g1", nodes(), announce("g2", tt.gateway, tt.announced), time.Unix(1000, 0))
			if d := cmp.Diff(discovered(tt.want), b.Endpoints()["g2/"+tt.gateway], compare); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
			if d := cmp.Diff(tt.refused, b.Refused["g2"]); d != "" {
				t.Errorf("refused (-want +got)\n%s", d)
			}
		})
	}
}

// TestOwnGatewaysOnly checks that an announcement counts only for gateways of its own cluster.
func TestOwnGatewaysOnly(t *testing.T) {
	t.Parallel()
	b, _ := Registry{}.Update(testFabric(), "g1", nodes(), announce("g3", "a", "seen 203.0.113.1"), time.Unix(1000, 0))
	if len(b.Endpoints()) != 0 || len(b.Refused["g3"]) != 1 {
		t.Errorf("%+v", b)
	}
}

// TestLastAnnouncementStays checks that an announcement stays without a feed, while no node holds
// the gateway, and after a restart. It is removed when the topology removes the sources of the
// gateway.
func TestLastAnnouncementStays(t *testing.T) {
	t.Parallel()
	f, now := testFabric(), time.Unix(1000, 0)
	want := discovered("seen 203.0.113.1")
	b, _ := Registry{}.Update(f, "g1", nodes(), announce("g2", "a", "seen 203.0.113.1"), now)
	for _, live := range []map[string]model.ClusterState{nil, {"g2": {Cluster: "g2"}}, announce("g2", "a", ""), announce("g2", "a", "seen 127.0.0.1")} {
		if b, _ = b.Update(f, "g1", nodes(), live, now); !cmp.Equal(b.Endpoints()["g2/a"], want, compare) {
			t.Errorf("after %v: %+v", live, b)
		}
	}
	if b = Restore(b.Saved()); !cmp.Equal(b.Endpoints()["g2/a"], want, compare) {
		t.Errorf("after a restart: %+v", b)
	}
	f.Clusters[1].Gateways[0].Endpoints = []string{"192.0.2.9"}
	if b, _ = b.Update(f, "g1", nodes(), nil, now); len(b.Endpoints()) != 0 {
		t.Errorf("a gateway with configured endpoints has discovered ones: %+v", b)
	}
}

// TestChangesAreBounded checks that a cluster that announces another address each second makes
// others probe only a few.
func TestChangesAreBounded(t *testing.T) {
	t.Parallel()
	f, now, b := testFabric(), time.Unix(1000, 0), Registry{}
	changes, last := 0, ""
	for i := range 600 { // ten minutes, a new address each second
		var requeue time.Duration
		b, requeue = b.Update(f, "g1", nodes(), announce("g2", "a", "seen "+netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)}).String()), now)
		at := b.Endpoints()["g2/a"][0].Addr.String()
		if at != last {
			changes++
		} else if requeue <= 0 || requeue > changeInterval {
			t.Fatalf("after %d s it has to wait %s", i, requeue)
		}
		last = at
		now = now.Add(time.Second)
	}
	if most := changeBurst + int(10*time.Minute/changeInterval); changes > most || changes < most-1 {
		t.Errorf("%d changes in ten minutes, want %d", changes, most)
	}
	// After a pause changes count at once again.
	now = now.Add(changeBurst * changeInterval)
	b, requeue := b.Update(f, "g1", nodes(), announce("g2", "a", "seen 203.0.113.200"), now)
	if b.Endpoints()["g2/a"][0].Addr.String() != "203.0.113.200" || requeue != 0 {
		t.Errorf("after a pause: %+v, %s", b, requeue)
	}
}

// TestSameRegistry checks that an update without a change returns an equal registry, so that no
// round runs for it.
func TestSameRegistry(t *testing.T) {
	t.Parallel()
	f, now, live := testFabric(), time.Unix(1000, 0), announce("g2", "a", "seen 203.0.113.1, seen 127.0.0.1")
	first, _ := Registry{}.Update(f, "g1", nodes(), live, now)
	second, _ := first.Update(f, "g1", nodes(), live, now.Add(time.Hour))
	if d := cmp.Diff(first, second, compare); d != "" {
		t.Error(d)
	}
}

// TestBuildAdvert checks that a cluster announces discovered endpoints of its own gateways, and
// observed addresses of remote gateways with that source.
func TestBuildAdvert(t *testing.T) {
	t.Parallel()
	observed := func(at ...string) map[string]model.ClusterState {
		out := map[string]model.ClusterState{}
		for i, text := range at {
			name := "g" + string(rune('2'+i))
			out[name] = model.ClusterState{Cluster: name, Endpoints: &model.EndpointAdvert{Observed: map[string]netip.AddrPort{"g1/x": netip.MustParseAddrPort(text)}}}
		}
		return out
	}
	tests := []struct {
		name, node string
		live       map[string]model.ClusterState
		seen       ObservedAddrs
		endpoints  []string
		services   []model.Service
		resolved   map[string][]netip.Addr
		want       *model.EndpointAdvert
	}{
		{name: "node of the gateway", node: "n1", want: &model.EndpointAdvert{Discovered: map[string][]model.DiscoveredEndpoint{
			"x": discovered("node:ExternalIP 203.0.113.9, node:ExternalIP 2001:db8::9, node:InternalIP 172.18.0.2")}}},
		{name: "another node", node: "n2", want: &model.EndpointAdvert{Discovered: map[string][]model.DiscoveredEndpoint{"x": discovered("node:InternalIP 172.18.0.3")}}},
		{name: "no node holds it"},
		{name: "most clusters observe it there", live: observed("198.51.100.1:4000", "198.51.100.7:5000", "198.51.100.7:5000", "198.51.100.3:4000"),
			want: &model.EndpointAdvert{Discovered: map[string][]model.DiscoveredEndpoint{"x": discovered("seen 198.51.100.7:5000, seen 198.51.100.1:4000")}}},
		{name: "a load balancer", endpoints: []string{"service:LoadBalancer"}, services: service("198.51.100.80", "LB.example.com", "other.example.com"),
			resolved: map[string][]netip.Addr{"dns:lb.example.com": addrs("198.51.100.81 198.51.100.82")},
			want: &model.EndpointAdvert{Discovered: map[string][]model.DiscoveredEndpoint{
				"x": discovered("service:LoadBalancer 198.51.100.80, service:LoadBalancer 198.51.100.81, service:LoadBalancer 198.51.100.82")}}},
		{name: "a load balancer without an address", endpoints: []string{"service:LoadBalancer"}, services: service()},
		{name: "NodePort of all nodes", node: "n2", endpoints: []string{"service:NodePort"}, services: service(),
			want: &model.EndpointAdvert{Discovered: map[string][]model.DiscoveredEndpoint{
				"x": discovered("service:NodePort 172.18.0.3, service:NodePort 203.0.113.9, service:NodePort 2001:db8::9")}}},
		{name: "NodePort without a Service", node: "n2", endpoints: []string{"service:NodePort"}},
		{name: "observed address of a gateway with that source", seen: ObservedAddrs{"g2/a": netip.MustParseAddrPort("198.51.100.1:4000"), "g2/b": netip.MustParseAddrPort("198.51.100.2:4000")},
			want: &model.EndpointAdvert{Observed: map[string]netip.AddrPort{"g2/a": netip.MustParseAddrPort("198.51.100.1:4000")}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := testFabric()
			f.Clusters[0].Gateways[0].Node = tt.node
			if tt.endpoints != nil {
				f.Clusters[0].Gateways[0].Endpoints = tt.endpoints
			}
			got := BuildAdvert(f, "g1", model.Facts{Nodes: nodes(), Services: tt.services}, tt.resolved, tt.live, tt.seen)
			if d := cmp.Diff(tt.want, got, compare); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
	if got := BuildAdvert(testFabric(), "elsewhere", model.Facts{}, nil, nil, nil); got != nil {
		t.Errorf("advert of an unknown cluster: %+v", got)
	}
}

func service(balancers ...string) []model.Service {
	return []model.Service{{Namespace: "shop", Name: "hawser-gateway-x", LoadBalancers: []string{"192.0.2.66"}},
		{Namespace: "hawser-system", Name: "hawser-gateway-x", LoadBalancers: balancers}}
}
