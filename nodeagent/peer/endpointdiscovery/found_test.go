package endpointdiscovery

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

// world is cluster g1 that hears g2, whose gateway a may be found by all sources, b is
// written and c may be seen alone.
func world() *fabric.Fabric {
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

// foundOf reads endpoints such as "seen 203.0.113.1:6000, node:ExternalIP 203.0.113.2".
func foundOf(text string) []model.DiscoveredEndpoint {
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
		place := netip.MustParseAddrPort(at)
		out = append(out, model.DiscoveredEndpoint{Source: source, Addr: place.Addr(), Port: int(place.Port())})
	}
	return out
}

func said(cluster, gateway, text string) map[string]model.ClusterState {
	return map[string]model.ClusterState{cluster: {Cluster: cluster, Endpoints: &model.EndpointAdvert{Discovered: map[string][]model.DiscoveredEndpoint{gateway: foundOf(text)}}}}
}

// TestFit: which endpoints count that another cluster announces, and what is said of others.
func TestFit(t *testing.T) {
	t.Parallel()
	const port = "gateway a: a port that is not in the range 1024 to 65471"
	const unicast = "gateway a: an address that is not unicast, or of one link only"
	tests := []struct {
		name, gateway, said, want string
		refused                   []string
	}{
		{name: "in the order of the topology", gateway: "a", said: "seen 203.0.113.1:6000, node:InternalIP 10.9.0.1, node:ExternalIP 203.0.113.2",
			want: "node:ExternalIP 203.0.113.2, node:InternalIP 10.9.0.1, seen 203.0.113.1:6000"},
		{name: "twice the same", gateway: "a", said: "seen 203.0.113.1, seen 203.0.113.1", want: "seen 203.0.113.1"},
		{name: "too many", gateway: "a", said: "seen 203.0.113.1, seen 203.0.113.2, seen 203.0.113.3, seen 203.0.113.4, seen 203.0.113.5, seen 203.0.113.6",
			want:    "seen 203.0.113.1, seen 203.0.113.2, seen 203.0.113.3, seen 203.0.113.4",
			refused: []string{"gateway a: more than 4 endpoints"}},
		{name: "loopback", gateway: "a", said: "seen 127.0.0.1", refused: []string{unicast}},
		{name: "loopback of IPv6", gateway: "a", said: "seen ::1", refused: []string{unicast}},
		{name: "multicast", gateway: "a", said: "seen 224.0.0.251, seen ff02::1", refused: []string{unicast}},
		{name: "link-local", gateway: "a", said: "seen 169.254.169.254, seen fe80::1", refused: []string{unicast}},
		{name: "a zone", gateway: "a", said: "seen 2001:db8::1%eth0", refused: []string{unicast}},
		{name: "IPv4 in IPv6", gateway: "a", said: "seen ::ffff:203.0.113.1", refused: []string{unicast}},
		{name: "nowhere and everywhere", gateway: "a", said: "seen 0.0.0.0, seen 255.255.255.255", refused: []string{unicast}},
		{name: "our pods", gateway: "a", said: "seen 10.7.0.9", refused: []string{"gateway a: an address inside the prefixes of cluster g1"}},
		{name: "our services", gateway: "a", said: "seen 10.77.0.1", refused: []string{"gateway a: an address inside the prefixes of cluster g1"}},
		{name: "pods of a third cluster", gateway: "a", said: "seen 10.3.0.9", refused: []string{"gateway a: an address inside the prefixes of cluster g3"}},
		{name: "global, clusterset and tunnel addresses", gateway: "a", said: "seen 242.0.0.1, seen 243.0.0.1, seen 241.0.0.1",
			refused: []string{"gateway a: an address inside the pools of the clusterset"}},
		{name: "our node", gateway: "a", said: "node:InternalIP 172.18.0.3", refused: []string{"gateway a: an address of a node of this cluster"}},
		{name: "a resolver", gateway: "a", said: "seen 203.0.113.1:53", refused: []string{port}},
		{name: "no room behind it", gateway: "a", said: "seen 203.0.113.1:65500", refused: []string{port}},
		{name: "its own port", gateway: "c", said: "seen 203.0.113.1:800", want: "seen 203.0.113.1:800"},
		{name: "the good among the bad", gateway: "a", said: "seen 127.0.0.1, seen 203.0.113.1", want: "seen 203.0.113.1", refused: []string{unicast}},
		{name: "another source", gateway: "c", said: "node:ExternalIP 203.0.113.1", refused: []string{"gateway c: the topology grants it no such source of endpoints"}},
		{name: "one that is written", gateway: "b", said: "seen 203.0.113.1", refused: []string{"gateway b: the topology lets it find none"}},
		{name: "one that is not there", gateway: "z", said: "seen 203.0.113.1", refused: []string{"a gateway that the topology does not have"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b, _ := Registry{}.Update(world(), "g1", nodes(), said("g2", tt.gateway, tt.said), time.Unix(1000, 0))
			if d := cmp.Diff(foundOf(tt.want), b.Endpoints()["g2/"+tt.gateway], compare); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
			if d := cmp.Diff(tt.refused, b.Refused["g2"]); d != "" {
				t.Errorf("refused (-want +got)\n%s", d)
			}
		})
	}
}

// TestOwnWords: a cluster speaks of its own gateways alone.
func TestOwnWords(t *testing.T) {
	t.Parallel()
	b, _ := Registry{}.Update(world(), "g1", nodes(), said("g3", "a", "seen 203.0.113.1"), time.Unix(1000, 0))
	if len(b.Endpoints()) != 0 || len(b.Refused["g3"]) != 1 {
		t.Errorf("%+v", b)
	}
}

// TestLast: what was announced last stays: without a feed, while nobody holds the gateway,
// and over a restart; it goes with the gateway, and where nothing is found for it any more.
func TestLast(t *testing.T) {
	t.Parallel()
	f, now := world(), time.Unix(1000, 0)
	want := foundOf("seen 203.0.113.1")
	b, _ := Registry{}.Update(f, "g1", nodes(), said("g2", "a", "seen 203.0.113.1"), now)
	for _, live := range []map[string]model.ClusterState{nil, {"g2": {Cluster: "g2"}}, said("g2", "a", ""), said("g2", "a", "seen 127.0.0.1")} {
		if b, _ = b.Update(f, "g1", nodes(), live, now); !cmp.Equal(b.Endpoints()["g2/a"], want, compare) {
			t.Errorf("after %v: %+v", live, b)
		}
	}
	if b = Restore(b.Saved()); !cmp.Equal(b.Endpoints()["g2/a"], want, compare) {
		t.Errorf("after a restart: %+v", b)
	}
	f.Clusters[1].Gateways[0].Endpoints = []string{"192.0.2.9"}
	if b, _ = b.Update(f, "g1", nodes(), nil, now); len(b.Endpoints()) != 0 {
		t.Errorf("found for a gateway that is written: %+v", b)
	}
}

// TestHaste: however often a cluster announces another address, few of them are asked.
func TestHaste(t *testing.T) {
	t.Parallel()
	f, now, b := world(), time.Unix(1000, 0), Registry{}
	changes, last := 0, ""
	for i := range 600 { // ten minutes, a new address each second
		var again time.Duration
		b, again = b.Update(f, "g1", nodes(), said("g2", "a", "seen "+netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)}).String()), now)
		at := b.Endpoints()["g2/a"][0].Addr.String()
		if at != last {
			changes++
		} else if again <= 0 || again > refill {
			t.Fatalf("after %d s it waits %s", i, again)
		}
		last = at
		now = now.Add(time.Second)
	}
	if most := burst + int(10*time.Minute/refill); changes > most || changes < most-1 {
		t.Errorf("%d changes in ten minutes, want %d", changes, most)
	}
	// Once it is calm for long, changes count at once again.
	now = now.Add(burst * refill)
	b, again := b.Update(f, "g1", nodes(), said("g2", "a", "seen 203.0.113.200"), now)
	if b.Endpoints()["g2/a"][0].Addr.String() != "203.0.113.200" || again != 0 {
		t.Errorf("after a calm: %+v, %s", b, again)
	}
}

// TestSameBook: what changes nothing gives the same Book, which no round is made anew for.
func TestSameBook(t *testing.T) {
	t.Parallel()
	f, now, live := world(), time.Unix(1000, 0), said("g2", "a", "seen 203.0.113.1, seen 127.0.0.1")
	first, _ := Registry{}.Update(f, "g1", nodes(), live, now)
	second, _ := first.Update(f, "g1", nodes(), live, now.Add(time.Hour))
	if d := cmp.Diff(first, second, compare); d != "" {
		t.Error(d)
	}
}

// TestAnnounce: what a cluster reports about its own gateways, and of others that want to know.
func TestAnnounce(t *testing.T) {
	t.Parallel()
	see := func(at ...string) map[string]model.ClusterState {
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
		{name: "its node", node: "n1", want: &model.EndpointAdvert{Discovered: map[string][]model.DiscoveredEndpoint{
			"x": foundOf("node:ExternalIP 203.0.113.9, node:ExternalIP 2001:db8::9, node:InternalIP 172.18.0.2")}}},
		{name: "another node", node: "n2", want: &model.EndpointAdvert{Discovered: map[string][]model.DiscoveredEndpoint{"x": foundOf("node:InternalIP 172.18.0.3")}}},
		{name: "nobody holds it"},
		{name: "most see it there", live: see("198.51.100.1:4000", "198.51.100.7:5000", "198.51.100.7:5000", "198.51.100.3:4000"),
			want: &model.EndpointAdvert{Discovered: map[string][]model.DiscoveredEndpoint{"x": foundOf("seen 198.51.100.7:5000, seen 198.51.100.1:4000")}}},
		{name: "a load balancer", endpoints: []string{"service:LoadBalancer"}, services: service("198.51.100.80", "LB.example.com", "other.example.com"),
			resolved: map[string][]netip.Addr{"dns:lb.example.com": addrs("198.51.100.81 198.51.100.82")},
			want: &model.EndpointAdvert{Discovered: map[string][]model.DiscoveredEndpoint{
				"x": foundOf("service:LoadBalancer 198.51.100.80, service:LoadBalancer 198.51.100.81, service:LoadBalancer 198.51.100.82")}}},
		{name: "a load balancer that is not there yet", endpoints: []string{"service:LoadBalancer"}, services: service()},
		{name: "ports of all nodes", node: "n2", endpoints: []string{"service:NodePort"}, services: service(),
			want: &model.EndpointAdvert{Discovered: map[string][]model.DiscoveredEndpoint{
				"x": foundOf("service:NodePort 172.18.0.3, service:NodePort 203.0.113.9, service:NodePort 2001:db8::9")}}},
		{name: "ports without a Service", node: "n2", endpoints: []string{"service:NodePort"}},
		{name: "who wants to know", seen: ObservedAddrs{"g2/a": netip.MustParseAddrPort("198.51.100.1:4000"), "g2/b": netip.MustParseAddrPort("198.51.100.2:4000")},
			want: &model.EndpointAdvert{Observed: map[string]netip.AddrPort{"g2/a": netip.MustParseAddrPort("198.51.100.1:4000")}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := world()
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
	if got := BuildAdvert(world(), "elsewhere", model.Facts{}, nil, nil, nil); got != nil {
		t.Errorf("of no cluster: %+v", got)
	}
}

func service(balancers ...string) []model.Service {
	return []model.Service{{Namespace: "shop", Name: "hawser-gateway-x", LoadBalancers: []string{"192.0.2.66"}},
		{Namespace: "hawser-system", Name: "hawser-gateway-x", LoadBalancers: balancers}}
}
