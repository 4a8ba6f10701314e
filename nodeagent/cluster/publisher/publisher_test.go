package publisher

import (
	"net/netip"
	"testing"

	"hawser.dev/hawser/nodeagent/cluster/apiobjects"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/peer/health"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/nodeagent/round"
	"hawser.dev/hawser/schema/fabric"
)

func TestRankOfWriters(t *testing.T) {
	t.Parallel()
	own := &fabric.Cluster{Name: "g1", Gateways: []fabric.Gateway{{Name: "a", Node: "n1"}, {Name: "b", Node: "n2"}, {Name: "c", Node: "n3"}}}
	link := func(gateway string, live health.Liveness) health.Link {
		return health.Link{Target: health.Target{Peer: health.GatewayID{Cluster: "g1", Gateway: gateway}, Device: desired.NodeDevice}, Liveness: live}
	}
	tests := []struct {
		name    string
		node    string
		leaving bool
		links   []health.Link
		want    int
	}{
		{"the first", "n1", false, []health.Link{link("b", health.Proven), link("c", health.Proven)}, 0},
		{"the second", "n2", false, []health.Link{link("a", health.Proven), link("c", health.Proven)}, 1},
		{"the last", "n3", false, []health.Link{link("a", health.Proven), link("b", health.Proven)}, 2},
		{"the first is dead", "n3", false, []health.Link{link("a", health.Dead), link("b", health.Proven)}, 1},
		{"alone", "n3", false, nil, 0},
		{"the first drains", "n1", true, []health.Link{link("b", health.Proven), link("c", health.Proven)}, 2},
		{"another cluster's gateway of that name", "n2", false,
			[]health.Link{{Target: health.Target{Peer: health.GatewayID{Cluster: "g2", Gateway: "a"}}, Liveness: health.Proven}}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if have := rankOf(own, tt.node, tt.leaving, health.NewSnapshot(health.GatewayID{}, tt.links)); have != tt.want {
				t.Errorf("rank %d, want %d", have, tt.want)
			}
		})
	}
}

// TestDecommissionedGateway checks that a gateway removes its objects at decommission. DNSCleanedUp
// then returns true once the cluster's DNS has its original text.
func TestDecommissionedGateway(t *testing.T) {
	t.Parallel()
	whole := &fabric.Fabric{
		Name: "demo", Domain: "clusterset.local", DNS: fabric.DNS{Address: netip.MustParseAddr("169.254.73.53")},
		Clusters: []fabric.Cluster{{
			Name: "g1", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.7.0.0/16")}, ClusterDNS: fabric.DNSCoreDNS,
			Gateways: []fabric.Gateway{{Name: "a", Node: "n1"}},
		}},
	}
	v := Observed{Outcome: round.Outcome{Projection: round.Projection{Node: &round.DesiredNode{}, Input: projection.Input{Fabric: whole, Digest: "1", Cluster: "g1", Node: "n1"}}}}
	p := &Publisher{node: "n1", seen: func() Observed { return v }}
	before, _, ok := p.desired(t.Context())
	if !ok || !p.isGateway() || before.DNS != fabric.DNSCoreDNS || !before.Forward.Valid() || before.Decommission || !p.DNSCleanedUp(v.Input) {
		t.Fatalf("before: %+v, %t", before, ok)
	}
	v.Projection = round.Projection{Node: &round.DesiredNode{}, Input: projection.Input{Fabric: &fabric.Fabric{Name: "demo", Decommission: true}, Digest: "2", Cluster: "g1", Node: "n1"}}
	if p.isGateway() {
		t.Error("a node that wrote nothing removes objects")
	}
	p.publisher.Store(apiobjects.New(apiobjects.Config{}))
	after, digest, ok := p.desired(t.Context())
	if !ok || !p.isGateway() || after.DNS != "" || !after.Decommission || len(after.Forward.Zones) != len(before.Forward.Zones) {
		t.Errorf("after: %+v, %t", after, ok)
	}
	for _, tt := range []struct {
		report *converge.Report
		want   bool
	}{
		{nil, false},
		{&converge.Report{Digest: "1-1"}, false},
		{&converge.Report{Digest: digest, Deferred: []converge.Problem{{Kind: apiobjects.KindDNS}}}, false},
		{&converge.Report{Digest: digest, Blocked: []converge.Problem{{Kind: "serviceimport"}}}, true},
	} {
		if p.report.Store(tt.report); p.DNSCleanedUp(v.Input) != tt.want {
			t.Errorf("cleared with %+v: %t", tt.report, !tt.want)
		}
	}
}
