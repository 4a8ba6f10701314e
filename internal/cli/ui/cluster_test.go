//go:build linux

package ui

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hawser.dev/hawser/nodeagent/cluster/kube"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// TestStatusOf: a HawserNode converts to an agent's status, also with missing fields.
func TestStatusOf(t *testing.T) {
	t.Parallel()
	own := &fabric.Cluster{Name: "g1", Gateways: []fabric.Gateway{{Name: "a", Node: "n1"}, {Name: "edge-1"}}}
	for _, tt := range []struct {
		name, node string
		told       kube.NodeStatus
		cluster    *fabric.Cluster
		want       string
	}{
		{"a gateway by its node", "n1", kube.NodeStatus{Role: kube.Gateway}, own, "gateway a"},
		{"a gateway that its node holds", "n7", kube.NodeStatus{Role: kube.Gateway, Gateway: "edge-1"}, own, "gateway edge-1"},
		{"a node that could be a gateway", "n7", kube.NodeStatus{Role: kube.Gateway}, own, "gateway "},
		{"another node", "n7", kube.NodeStatus{Role: kube.Worker}, own, "gateway "},
		{"drained", "n1", kube.NodeStatus{Role: kube.Gateway, Conditions: []metav1.Condition{{Type: status.ConditionDrained, Status: metav1.ConditionTrue, Message: "soon"}}}, own, "gateway a; drained"},
		{"problems", "n1", kube.NodeStatus{Role: kube.Gateway, Problems: []status.Problem{{Code: status.PodsOutside, Text: "pods"}}}, own, "gateway a; pods-outside: pods"},
		{"more links than it lists", "n1", kube.NodeStatus{Role: kube.Gateway, Links: &kube.LinkCount{Total: 600}, LinkStates: make([]kube.LinkState, 512)}, own,
			"gateway a; omitted: its HawserNode lists 512 of 600 links: those that are down or in use first"},
		{"an agent that does not list links yet", "n1", kube.NodeStatus{Role: kube.Gateway, Links: &kube.LinkCount{Total: 1}}, own,
			"gateway a; omitted: its HawserNode lists 0 of 1 links: those that are down or in use first"},
		{"a cluster that left", "n1", kube.NodeStatus{Role: kube.Gateway}, nil, "gateway "},
	} {
		got := statusOf(tt.node, tt.told, tt.cluster)
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
