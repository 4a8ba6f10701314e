//go:build linux

package ui

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hawser.dev/hawser/health"
	"hawser.dev/hawser/kubeclient/clusterstatus"
	"hawser.dev/hawser/nodeagent/cluster/kube"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// TestStatusOf checks that a HawserNode converts to an agent's status, also with missing fields.
func TestStatusOf(t *testing.T) {
	t.Parallel()
	own := &fabric.Cluster{Name: "g1", Gateways: []fabric.Gateway{{Name: "a", Node: "n1"}, {Name: "edge-1"}}}
	for _, tt := range []struct {
		name, node string
		current    kube.NodeStatus
		cluster    *fabric.Cluster
		want       string
	}{
		{"a gateway by its node", "n1", kube.NodeStatus{Role: kube.Gateway}, own, "gateway a"},
		{"a gateway that its node holds", "n7", kube.NodeStatus{Role: kube.Gateway, Gateway: "edge-1"}, own, "gateway edge-1"},
		{"a node that could be a gateway", "n7", kube.NodeStatus{Role: kube.Gateway}, own, "gateway "},
		{"another node", "n7", kube.NodeStatus{Role: kube.Worker}, own, "gateway "},
		{"drained", "n1", kube.NodeStatus{Role: kube.Gateway, Conditions: []metav1.Condition{{Type: status.ConditionDrainRequested, Status: metav1.ConditionTrue, Message: "soon"}}}, own, "gateway a; drained"},
		{"problems", "n1", kube.NodeStatus{Role: kube.Gateway, Problems: []status.Problem{{Code: status.PodsOutsideCIDRs, Text: "pods"}}}, own, "gateway a; pods-outside-cidrs: pods"},
		{"more links than it lists", "n1", kube.NodeStatus{Role: kube.Gateway, Links: &kube.LinkCount{Total: 600}, LinkStates: make([]kube.LinkState, 512)}, own,
			"gateway a; omitted: its HawserNode lists 512 of 600 links: those that are down or in use first"},
		{"an agent that does not list links yet", "n1", kube.NodeStatus{Role: kube.Gateway, Links: &kube.LinkCount{Total: 1}}, own,
			"gateway a; omitted: its HawserNode lists 0 of 1 links: those that are down or in use first"},
		{"a cluster that left", "n1", kube.NodeStatus{Role: kube.Gateway}, nil, "gateway "},
	} {
		got := statusOf(tt.node, tt.current, tt.cluster)
		have := "gateway " + got.Gateway
		if got.Drained {
			have += "; drained"
		}
		for _, p := range got.Problems {
			have += "; " + p.Code + ": " + p.Text
		}
		if have != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, have, tt.want)
		}
	}
}

// TestReportsOf checks that the page ignores a report if the agent's pod does not work, like hawser
// status, and shows the reason.
func TestReportsOf(t *testing.T) {
	t.Parallel()
	own := &fabric.Cluster{Name: "g1", Gateways: []fabric.Gateway{{Name: "a", Node: "n1"}}}
	ready := func(node string, is metav1.ConditionStatus) map[string]kube.NodeStatus {
		return map[string]kube.NodeStatus{node: {Cluster: "g1", Role: kube.Gateway, Conditions: []metav1.Condition{{Type: status.ConditionReady, Status: is}}}}
	}
	pod := func(node, reason string, change func(*clusterstatus.AgentPod)) clusterstatus.AgentPod {
		p := clusterstatus.AgentPod{Pod: health.Pod{Name: "agent-" + node, Node: node, Reason: reason}, Ready: true}
		if change != nil {
			change(&p)
		}
		return p
	}
	notReady := func(p *clusterstatus.AgentPod) { p.Ready = false }
	stopped := func(p *clusterstatus.AgentPod) { p.Ready, p.Stopped = false, true }
	for _, tt := range []struct {
		name    string
		reports map[string]kube.NodeStatus
		pods    []clusterstatus.AgentPod
		err     error
		want    string
	}{
		{"works", ready("n1", "True"), []clusterstatus.AgentPod{pod("n1", "", nil)}, nil, "current n1"},
		{"reports a problem", ready("n1", "False"), []clusterstatus.AgentPod{pod("n1", "since 10:41", notReady)}, nil, "current n1; agent-not-ready"},
		{"hangs", ready("n1", "True"), []clusterstatus.AgentPod{pod("n1", "since 10:41", notReady)}, nil,
			"old n1; g1/n1: pod agent-n1 is not ready; agent-unresponsive"},
		{"does not run", ready("n1", "True"), []clusterstatus.AgentPod{pod("n1", "CrashLoopBackOff", stopped)}, nil,
			"old n1; g1/n1: pod agent-n1 does not run; agent-stopped"},
		{"no pod", ready("n1", "True"), nil, nil, "old n1; g1/n1: no pod of the agent is on this node"},
		{"a ready pod and a stopped pod", ready("n1", "True"), []clusterstatus.AgentPod{pod("n1", "", nil), pod("n1", "Evicted", stopped)}, nil, "current n1"},
		{"pods cannot be read", ready("n1", "True"), nil, errors.New("forbidden"), "current n1"},
		{"no report", nil, []clusterstatus.AgentPod{pod("n1", "since 10:41", notReady)}, nil,
			"g1/a: no HawserNode reports this gateway; agent-unresponsive; no-reports"},
		{"a report of another clusterset", map[string]kube.NodeStatus{"n1": {Cluster: "other"}}, nil, errors.New("not all pods were read yet"), ""},
	} {
		got := reportsOf("g1", own, "HawserNodes of g1", tt.reports, tt.pods, tt.err)
		var have []string
		for _, s := range got.Agents {
			have = append(have, "current "+s.Node)
		}
		for _, s := range got.Old {
			have = append(have, "old "+s.Node)
		}
		for _, u := range got.Unreachable {
			have = append(have, u.Agent+": "+u.Error)
		}
		for _, p := range got.Problems {
			have = append(have, p.Code)
		}
		if joined := strings.Join(have, "; "); joined != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, joined, tt.want)
		}
	}
}
