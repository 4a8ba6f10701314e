package host

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/nodeagent/kernel/conntrack"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/schema/fabric"
)

// callRecorder is a flowSyncer that records its calls.
type callRecorder struct {
	calls  []string
	routes []netip.Prefix
}

func (t *callRecorder) SetLocalPods(conntrack.LocalPods) {}
func (t *callRecorder) ClusterRemoved(cluster string)    { t.calls = append(t.calls, "gone "+cluster) }
func (t *callRecorder) LinkTakenOver(cluster string, _ []netip.Prefix) {
	t.calls = append(t.calls, "taken over "+cluster)
}
func (t *callRecorder) ClusterAdded(cluster string, _ []netip.Prefix) {
	t.calls = append(t.calls, "added "+cluster)
}
func (t *callRecorder) LinkReleased(cluster string, _ []netip.Prefix) {
	t.calls = append(t.calls, "released "+cluster)
}
func (t *callRecorder) PathMoved(cluster string, _ []netip.Prefix) {
	t.calls = append(t.calls, "moved "+cluster)
}
func (t *callRecorder) LinkAvailable(cluster string, _ []netip.Prefix) {
	t.calls = append(t.calls, "available "+cluster)
}

func (t *callRecorder) RoutesAdded(prefixes, clusterSetIPs []netip.Prefix) {
	t.routes = append(t.routes, prefixes...)
	t.routes = append(t.routes, clusterSetIPs...)
}

// TestAddedRoutes checks that the syncer is notified once of each destination outside the cluster.
func TestAddedRoutes(t *testing.T) {
	t.Parallel()
	prefix := netip.MustParsePrefix
	recorder := &callRecorder{}
	m := pathTracker{syncer: recorder}
	clusters := []fabric.Cluster{
		{Name: "g1", GlobalCIDRs: []netip.Prefix{prefix("242.1.0.0/16")}},
		{Name: "g2", GlobalCIDRs: []netip.Prefix{prefix("242.2.0.0/16")}},
		{Name: "g3", GlobalCIDRs: []netip.Prefix{prefix("242.3.0.0/16")}},
	}
	update := func(number int, want ...string) {
		t.Helper()
		recorder.routes = nil
		f := &fabric.Fabric{ServicePools: []netip.Prefix{prefix("243.0.0.0/16")}, Clusters: clusters[:number]}
		m.update(projection.Input{Fabric: f, Cluster: "g1", Node: "n1"})
		var got []string
		for _, p := range recorder.routes {
			got = append(got, p.String())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("routes (-want +got):\n%s", diff)
		}
	}
	update(2, "242.2.0.0/16", "243.0.0.0/16")
	update(2)
	update(3, "242.3.0.0/16")
	update(1)
	update(2, "242.2.0.0/16")
}

// TestPathTracker checks that the syncer is notified if another node forwards the traffic, even if
// the gateway keeps its name. It is notified of no other change.
func TestPathTracker(t *testing.T) {
	t.Parallel()
	at := func(gateways ...fabric.Gateway) []fabric.Gateway { return gateways }
	on := func(name, node string) fabric.Gateway { return fabric.Gateway{Name: name, Node: node} }
	tests := []struct {
		name, self  string
		before      []fabric.Gateway
		pathBefore  string
		after       []fabric.Gateway
		pathAfter   string
		first, then []string
	}{
		{
			name: "a link of another gateway is better", self: "n1", before: at(on("a", "n1"), on("b", "n2")), pathBefore: "a",
			after: at(on("a", "n1"), on("b", "n2")), pathAfter: "b",
			first: []string{"taken over g2"}, then: []string{"released g2", "moved g2"},
		},
		{
			name: "the gateway moves here", self: "n2", before: at(on("a", "n1")), pathBefore: "a",
			after: at(on("a", "n2")), pathAfter: "a", then: []string{"taken over g2"},
		},
		{
			name: "the gateway moves away from here", self: "n1", before: at(on("a", "n1")), pathBefore: "a",
			after: at(on("a", "n2")), pathAfter: "a",
			first: []string{"taken over g2"}, then: []string{"released g2", "moved g2"},
		},
		{
			name: "the gateway moves elsewhere", self: "n3", before: at(on("a", "n1")), pathBefore: "a",
			after: at(on("a", "n2")), pathAfter: "a", then: []string{"moved g2"},
		},
		{
			name: "the gateway gets another name", self: "n1", before: at(on("a", "n1")), pathBefore: "a",
			after: at(on("z", "n1")), pathAfter: "z", first: []string{"taken over g2"},
		},
		{
			name: "a new gateway that carries no traffic", self: "n1", before: at(on("a", "n1"), on("b", "n2")), pathBefore: "b",
			after: at(on("a", "n1"), on("b", "n2")), pathAfter: "b", first: []string{"released g2"},
		},
		{
			name: "a new cluster", self: "n1", before: at(on("a", "n1")), after: at(on("a", "n1")), pathAfter: "a", then: []string{"added g2"},
		},
		{
			name: "a new cluster that another gateway carries", self: "n1", before: at(on("a", "n1"), on("b", "n2")),
			after: at(on("a", "n1"), on("b", "n2")), pathAfter: "b", then: []string{"released g2"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			recorder := &callRecorder{}
			m := pathTracker{syncer: recorder}
			update := func(gateways []fabric.Gateway, local string, want []string) {
				t.Helper()
				recorder.calls = nil
				paths := map[string]model.Path{}
				if local != "" {
					paths["g2"] = model.Path{Local: local}
				}
				m.update(projection.Input{
					Fabric:  &fabric.Fabric{Clusters: []fabric.Cluster{{Name: "g1", Gateways: gateways}, {Name: "g2"}}},
					Cluster: "g1", Node: tt.self, Paths: paths,
				})
				if diff := cmp.Diff(want, recorder.calls); diff != "" {
					t.Errorf("calls (-want +got):\n%s", diff)
				}
			}
			update(tt.before, tt.pathBefore, tt.first)
			update(tt.after, tt.pathAfter, tt.then)
		})
	}
}
