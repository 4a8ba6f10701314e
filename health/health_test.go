package health_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/health"
	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/nodeagent/status"
)

// healthyState returns the state of a healthy cluster with a gateway and a worker.
func healthyState(name string) health.State {
	return health.State{Cluster: name, Context: name + "-admin", Pods: 2, Running: 2, Nodes: []health.Node{
		{Name: name + "n1", Cluster: name, Role: "gateway", Fabric: "f1", Ready: "True", LinksUp: 2, Links: 2},
		{Name: name + "n2", Cluster: name, Role: "worker", Fabric: "f1", Ready: "True"},
	}, Exports: []health.Export{{Namespace: "shop", Name: "web", Exported: true, Conditions: []health.Condition{
		{Type: "Conflict", Status: "False"}, {Type: "Ready", Status: "True"}, {Type: "Valid", Status: "True"},
	}}}}
}

func addrs(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, text := range texts {
		out = append(out, netip.MustParseAddr(text))
	}
	return out
}

// unconfirmed is the problem that roam causes.
const unconfirmed = "c2/c2n1: no cluster reaches gateway a at its endpoints 172.31.2.91, and node c2n1 has other addresses (172.31.2.11); " +
	"next: hawser show connections --cluster c2, then correct endpoints of the gateway in the topology or the port forwarding"

// roam changes the states: c1 reaches the gateway of c2 at an address that is not its endpoint. The
// link has been up for some time.
func roam(c1, c2 *health.State, up time.Duration) {
	c1.At = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	c2.Gateways = []health.Gateway{{Name: "a", Node: "c2n1", Endpoints: addrs("172.31.2.91"), NodeAddrs: addrs("172.31.2.11")}}
	c1.Nodes[0].Endpoints = map[string][]netip.Addr{"c2/a": addrs("172.31.2.11")}
	c1.Nodes[0].UpSince = map[string]time.Time{"c2/a": c1.At.Add(-up)}
}

// TestBlocks checks for which problems of a healthy rollout hawser status --wait waits.
func TestBlocks(t *testing.T) {
	t.Parallel()
	for severity, want := range map[health.Severity]bool{health.Error: true, health.Unknown: true, health.Warning: false, health.Info: false} {
		if severity.Blocks() != want {
			t.Errorf("%s blocks: %v, want %v", severity, !want, want)
		}
	}
}

// TestAssess checks the problems of each fault, causes first, and whether the clusterset is healthy.
func TestAssess(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name           string
		change         func(c1, c2 *health.State)
		healthy, known bool
		want           []string
	}{
		{"no fault", func(_, _ *health.State) {}, true, true, nil},
		{"gateway node off", func(c1, c2 *health.State) {
			c2.Nodes[0].NodeNotReady, c2.Running = "NotReady since 2026-11-27T10:41:12Z", 1
			c1.Nodes[0].LinksUp, c1.Nodes[0].LinksDown = 0, []string{"c2/a", "c2/b"}
		}, false, true, []string{
			"c2/c2n1: the node is NotReady since 2026-11-27T10:41:12Z, its agent (gateway) does not run; next: kubectl --context c2-admin describe node c2n1",
			"c1/c1n1: 0 of 2 links are up, not to c2/a, c2/b; next: hawser show connections --cluster c1",
		}},
		{"wrong image", func(c1, _ *health.State) {
			c1.Running, c1.Outdated = 1, 1
			c1.Stopped = []health.Pod{{Name: "hawser-agent-x", Node: "c1n2", Reason: "ErrImagePull hawser-agent:v9.9.9"}}
		}, false, true, []string{
			"c1/c1n2: the agent does not run: ErrImagePull hawser-agent:v9.9.9; next: kubectl --context c1-admin -n hawser-system describe pod hawser-agent-x",
		}},
		{"rollout", func(c1, _ *health.State) { c1.Outdated = 2 }, false, true, []string{
			"c1: 2 of 2 agents wait for the rollout of the newest DaemonSet; next: kubectl --context c1-admin -n hawser-system rollout status daemonset",
		}},
		{"frozen agent", func(c1, _ *health.State) {
			c1.Running = 1
			c1.NotReady = []health.Pod{{Name: "hawser-agent-x", Node: "c1n2", Reason: "since 2026-11-28T07:00:00Z"}}
		}, false, true, []string{
			"c1/c1n2: the agent has failed the kubelet's readiness probe since 2026-11-28T07:00:00Z, but its last report says ready: it hangs, is starting or cannot write its HawserNode; " +
				"next: kubectl --context c1-admin -n hawser-system describe pod hawser-agent-x",
		}},
		{"frozen agent with problems in its old report", func(c1, _ *health.State) {
			c1.Running, c1.Nodes[0].LinksUp = 1, 0
			c1.Nodes[0].Problems = []status.Problem{{Code: status.ConntrackFull, Severity: status.Warning, Text: "full"}}
			c1.NotReady = []health.Pod{{Name: "hawser-agent-x", Node: "c1n1", Reason: "since 2026-11-28T07:00:00Z"}}
		}, false, true, []string{
			"c1/c1n1: the agent has failed the kubelet's readiness probe since 2026-11-28T07:00:00Z, but its last report says ready: it hangs, is starting or cannot write its HawserNode; " +
				"next: kubectl --context c1-admin -n hawser-system describe pod hawser-agent-x",
		}},
		{"agent that has never reported", func(c1, _ *health.State) {
			c1.Running, c1.Nodes = 1, c1.Nodes[:1]
			c1.NotReady = []health.Pod{{Name: "hawser-agent-x", Node: "c1n2", Reason: "since 2026-11-28T07:00:00Z"}}
		}, false, true, []string{
			"c1/c1n2: the agent has failed the kubelet's readiness probe since 2026-11-28T07:00:00Z, and has not reported; " +
				"next: kubectl --context c1-admin -n hawser-system describe pod hawser-agent-x",
		}},
		{"agent that reports why it is not ready", func(c1, _ *health.State) {
			c1.Running, c1.Nodes[1].Ready = 1, "False"
			c1.Nodes[1].Problems = []status.Problem{{Code: status.ChangesFailed, Severity: status.Error, Text: "route x: refused", Next: "hawser show all"}}
			c1.NotReady = []health.Pod{{Name: "hawser-agent-x", Node: "c1n2", Reason: "since 2026-11-28T07:00:00Z"}}
		}, false, true, []string{"c1/c1n2: route x: refused; next: hawser show all"}},
		{"agent on a node that is off", func(c1, _ *health.State) {
			c1.Running, c1.Nodes[1].NodeNotReady = 1, "NotReady since 2026-11-28T07:00:00Z"
			c1.NotReady = []health.Pod{{Name: "hawser-agent-x", Node: "c1n2", Reason: "since 2026-11-28T07:00:00Z"}}
		}, false, true, []string{
			"c1/c1n2: the node is NotReady since 2026-11-28T07:00:00Z, its agent (worker) does not run; next: kubectl --context c1-admin describe node c1n2",
		}},
		{"pod that cannot be listed", func(c1, _ *health.State) { c1.Running = 1 }, false, true, []string{
			"c1: 1 of 2 agents run; next: kubectl --context c1-admin -n hawser-system get pods -o wide",
		}},
		{"problems of agents", func(_, c2 *health.State) {
			shared := status.Problem{Code: status.ExportWithoutEndpoints, Severity: status.Warning, Text: "no endpoint", Next: "kubectl get pods"}
			c2.Nodes[0].Ready = "False"
			c2.Nodes[0].Problems = []status.Problem{
				{Code: status.ChangesFailed, Severity: status.Error, Text: "route x: refused", Next: "hawser show all"}, shared,
				{Code: status.QuotaUnsupported, Severity: status.Info, Text: "no quota"},
			}
			c2.Nodes[1].Problems = []status.Problem{{Code: status.PodsOutsideCIDRs, Severity: status.Error, Text: "pods are outside", Next: "hawser discover"}, shared}
			c2.Exports[0].Conditions[1] = health.Condition{Type: "Ready", Status: "False", Reason: "Pending"}
		}, false, true, []string{
			"c2/c2n1: route x: refused; next: hawser show all",
			"c2/c2n2: pods are outside; next: hawser discover",
			"c2: export shop/web: Ready=False Pending; next: kubectl --context c2-admin -n shop get service,endpointslices",
			"c2: no endpoint; next: kubectl get pods",
			"c2/c2n1: no quota",
		}},
		{"a warning", func(c1, _ *health.State) {
			c1.Nodes[0].Problems = []status.Problem{{Code: status.ConntrackFull, Severity: status.Warning, Text: "full"}}
		}, false, true, []string{"c1/c1n1: full"}},
		{"an information", func(c1, _ *health.State) {
			c1.Nodes[0].Problems = []status.Problem{{Code: status.QuotaUnsupported, Severity: status.Info, Text: "no quota"}}
		}, true, true, []string{"c1/c1n1: no quota"}},
		{"agent not ready", func(_, c2 *health.State) { c2.Nodes[1].Ready = "False" }, false, true, []string{
			"c2/c2n2: the agent is not ready: it reports no reason; next: hawser show all --cluster c2",
		}},
		{"DNS", func(c1, _ *health.State) { c1.DNSProblem = "the cache does not forward" }, false, true, []string{"c1: the cache does not forward"}},
		{"export without a Service", func(c1, _ *health.State) {
			c1.Exports[0].Conditions[1] = health.Condition{Type: "Ready", Status: "False", Reason: "Pending", Message: "it is not valid"}
			c1.Exports[0].Conditions[2] = health.Condition{Type: "Valid", Status: "False", Reason: "NoService", Message: "there is no Service shop/web"}
		}, false, true, []string{
			"c1: export shop/web: Valid=False NoService: there is no Service shop/web; next: kubectl --context c1-admin -n shop get service,endpointslices",
		}},
		{"export without a Service that the agents report, too", func(c1, _ *health.State) {
			c1.Exports[0].Conditions[2] = health.Condition{Type: "Valid", Status: "False", Reason: "NoService", Message: mcs.MissingService("shop/web")}
			c1.Nodes[0].Problems = []status.Problem{
				{Code: status.ServiceMissing, Severity: status.Error, Text: mcs.MissingService("shop/web")},
				{Code: status.ExportInvalid, Severity: status.Error, Text: mcs.MissingService("shop/web")},
			}
		}, false, true, []string{
			"c1: export shop/web: Valid=False NoService: there is no Service shop/web; next: kubectl --context c1-admin -n shop get service,endpointslices",
		}},
		{"two exports without a Service, one without a ServiceExport", func(c1, _ *health.State) {
			c1.Exports[0].Conditions[2] = health.Condition{Type: "Valid", Status: "False", Reason: "NoService", Message: mcs.MissingService("shop/web")}
			c1.Nodes[0].Problems = []status.Problem{
				{Code: status.ServiceMissing, Severity: status.Error, Text: mcs.MissingService("none/db") + "; " + mcs.MissingService("shop/web")},
			}
		}, false, true, []string{
			"c1: export shop/web: Valid=False NoService: there is no Service shop/web; next: kubectl --context c1-admin -n shop get service,endpointslices",
			"c1: there is no Service none/db; there is no Service shop/web",
		}},
		{"export of a newer fabric", func(c1, _ *health.State) {
			c1.Exports[0].Conditions[1] = health.Condition{Type: "Ready", Status: "Unknown", Reason: "Pending", Message: "it is not known to be valid"}
			c1.Exports[0].Conditions[2] = health.Condition{Type: "Valid", Status: "Unknown", Reason: "Pending", Message: "they wait"}
		}, false, true, []string{
			"c1: export shop/web: Valid=Unknown Pending: they wait; next: wait for Flux or Argo CD, or run hawser apply --repo URL",
		}},
		{"export that the topology does not allow", func(c1, _ *health.State) {
			c1.Exports[0].Conditions[2] = health.Condition{Type: "Valid", Status: "False", Reason: "NotAllowed", Message: "no"}
		}, false, true, []string{
			"c1: export shop/web: Valid=False NotAllowed: no; next: change the topology, or kubectl --context c1-admin -n shop delete serviceexport web",
		}},
		{"condition of another program", func(c1, _ *health.State) {
			c1.Exports[0].Conditions = append(c1.Exports[0].Conditions, health.Condition{Type: "example.org/Audited", Status: "False"})
		}, true, true, nil},
		{"different fabrics", func(_, c2 *health.State) { c2.Nodes[0].Fabric, c2.Nodes[1].Fabric = "f2", "f2" }, false, true, []string{
			"clusters have different fabrics: f1 in c1; f2 in c2; next: wait for Flux or Argo CD, or run hawser apply --repo URL",
		}},
		{"endpoint of no node, link up by roaming", func(c1, c2 *health.State) { roam(c1, c2, time.Minute) }, false, true, []string{unconfirmed}},
		{"endpoint of no node, link up just now", func(c1, c2 *health.State) { roam(c1, c2, 59*time.Second) }, false, false, []string{unconfirmed}},
		{"endpoint of no node, no link up", func(c1, c2 *health.State) {
			roam(c1, c2, time.Minute)
			c1.Nodes[0].UpSince = nil
		}, false, false, []string{unconfirmed}},
		{"endpoint behind NAT, confirmed by a peer", func(c1, c2 *health.State) {
			c2.Gateways = []health.Gateway{{Name: "a", Node: "c2n1", Endpoints: addrs("203.0.113.9"), NodeAddrs: addrs("172.31.2.11")}}
			c1.Nodes[0].Endpoints = map[string][]netip.Addr{"c2/a": addrs("203.0.113.9")}
		}, true, true, nil},
		{"endpoint of the node, links down", func(c1, c2 *health.State) {
			c2.Gateways = []health.Gateway{{Name: "a", Node: "c2n1", Endpoints: addrs("172.31.2.11"), NodeAddrs: addrs("172.31.2.11")}}
		}, true, true, nil},
		{"API away", func(c1, _ *health.State) {
			*c1 = health.State{Cluster: "c1", Error: "connection refused"}
		}, false, false, []string{
			"c1: connection refused",
		}},
		{"no reports", func(c1, _ *health.State) { c1.Nodes = nil }, false, false, []string{
			"c1: no agent has reported: there is no HawserNode; next: kubectl --context c1-admin -n hawser-system get daemonsets,pods",
		}},
		{"not installed", func(c1, _ *health.State) { c1.Nodes, c1.Pods, c1.Running = nil, 0, 0 }, false, false, []string{
			"c1: no agent has reported: Hawser is not installed; next: hawser bootstrap",
		}},
		{"API away and a fault", func(c1, c2 *health.State) {
			*c1 = health.State{Cluster: "c1", Error: "connection refused"}
			c2.Nodes[0].LinksUp = 0
		}, false, true, []string{
			"c1: connection refused",
			"c2/c2n1: 0 of 2 links are up; next: hawser show connections --cluster c2",
		}},
	} {
		c1, c2 := healthyState("c1"), healthyState("c2")
		tt.change(&c1, &c2)
		problems := health.Assess([]health.State{c1, c2})
		var have []string
		for _, p := range problems {
			have = append(have, p.String())
			if p.Code == "" || strings.Contains(p.Next, "hawser status") {
				t.Errorf("%s: %s has no code, or leads back to hawser status", tt.name, p)
			}
		}
		if !slices.Equal(have, tt.want) {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, strings.Join(have, "\n"), strings.Join(tt.want, "\n"))
		}
		if healthy, known := health.Healthy(problems); healthy != tt.healthy || known != tt.known {
			t.Errorf("%s: healthy %v, known %v", tt.name, healthy, known)
		}
	}
}
