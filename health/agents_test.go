package health_test

import (
	"slices"
	"testing"

	"hawser.dev/hawser/health"
	"hawser.dev/hawser/nodeagent/status"
)

// TestAssessAgents checks the problems that follow from the statuses of agents alone.
func TestAssessAgents(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(gateway, worker, remote *status.Status)
		want   []string
	}{
		{"no fault", func(_, _, _ *status.Status) {}, nil},
		{"links down", func(gateway, _, _ *status.Status) {
			gateway.Connections[0].Status, gateway.Connections[0].Reason = status.Disconnected, "no answer"
		}, []string{"links-down c1/n1: 0 of 1 links are up, not to c2/a (no answer); next: hawser show connections --cluster c1"}},
		{"not ready without a problem", func(_, worker, _ *status.Status) {
			worker.Ready, worker.LastRound.Blocked = false, []string{"route waits"}
		},
			[]string{"agent-not-ready c1/n2: the agent is not ready: route waits; next: hawser show all --cluster c1"}},
		{"a problem of one agent", func(_, worker, _ *status.Status) {
			worker.Ready = false
			worker.Problems = []status.Problem{{Code: status.PodsOutsideCIDRs, Severity: status.Error, Text: "pods are outside", Next: "hawser discover"}}
		}, []string{"pods-outside-cidrs c1/n2: pods are outside; next: hawser discover"}},
		{"a problem that all agents report", func(gateway, worker, _ *status.Status) {
			gateway.Problems = []status.Problem{{Code: status.ServiceMissing, Severity: status.Error, Text: "no Service"}}
			worker.Problems = gateway.Problems
		}, []string{"service-missing c1: no Service"}},
		{"an invalid ServiceExport", func(gateway, _, _ *status.Status) {
			gateway.Problems = []status.Problem{{Code: status.ExportInvalid, Severity: status.Error, Text: "no Service"}}
		}, []string{"export-invalid c1: no Service"}},
		{"different fabrics", func(_, _, remote *status.Status) { remote.Digest = "f2" },
			[]string{"fabrics-differ clusters have different fabrics: f1 in c1; f2 in c2; next: wait for Flux or Argo CD, or run hawser apply --repo URL"}},
		{"drained", func(gateway, _, _ *status.Status) { gateway.Drained = true }, []string{"drained c1/n1: the gateway is drained; next: hawser-agent undrain on n1"}},
	} {
		gatewayStatus := func(cluster, node, to string) status.Status {
			return status.Status{Cluster: cluster, Node: node, Gateway: "a", Digest: "f1", Ready: true,
				Connections: []status.Connection{{Gateway: "a", RemoteCluster: to, RemoteGateway: "a", Status: status.Connected}}}
		}
		agents := []status.Status{gatewayStatus("c1", "n1", "c2"), {Cluster: "c1", Node: "n2", Digest: "f1", Ready: true}, gatewayStatus("c2", "m1", "c1")}
		tt.change(&agents[0], &agents[1], &agents[2])
		var have []string
		for _, p := range health.Assess(health.StatesOf(agents)) {
			have = append(have, p.Code+" "+p.String())
		}
		if !slices.Equal(have, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, have, tt.want)
		}
	}
}

// TestMerge: problems of agents that an API reports, too, appear once.
func TestMerge(t *testing.T) {
	t.Parallel()
	apis := []health.Problem{{Code: "a", Cluster: "c1", Node: "n1", Text: "older text"}, {Code: "dns", Cluster: "c1"}}
	agents := []health.Problem{{Code: "a", Cluster: "c1", Node: "n1", Text: "newer text"}, {Code: "a", Cluster: "c1", Node: "n2"}, {Code: "b", Cluster: "c1", Node: "n1"}}
	if have, want := health.Merge(apis, agents), []health.Problem{apis[0], apis[1], agents[1], agents[2]}; !slices.Equal(have, want) {
		t.Errorf("%+v, want %+v", have, want)
	}
}
