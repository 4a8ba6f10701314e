package install

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/nodeagent/portcheck"
	"hawser.dev/hawser/schema/fabric"
)

// TestPortsInUse checks that a port of the node's own agent does not count as used by another
// program.
func TestPortsInUse(t *testing.T) {
	t.Parallel()
	agent := func(node string) []unstructured.Unstructured {
		return []unstructured.Unstructured{{Object: map[string]any{"spec": map[string]any{"nodeName": node}}}}
	}
	for name, test := range map[string]struct {
		agents  []unstructured.Unstructured
		gateway fabric.Gateway
		want    string
	}{
		"another program":      {nil, fabric.Gateway{Node: "n1"}, "port-in-use port-in-use"},
		"agent elsewhere":      {agent("n2"), fabric.Gateway{Node: "n1"}, "port-in-use port-in-use"},
		"agent of the node":    {agent("n1"), fabric.Gateway{Node: "n1"}, "ports-not-tested"},
		"any node may have it": {agent("n2"), fabric.Gateway{NodeSelector: map[string]string{"a": "b"}}, "ports-not-tested"},
	} {
		p := &probePod{gateway: &test.gateway, cluster: "c1", report: &portcheck.Report{Ports: []portcheck.Port{
			{Port: 51820, Error: "listen udp4 :51820: bind: address already in use; listen udp6 [::]:51820: bind: address already in use"},
			{Port: 51883, Error: "listen udp4 :51883: bind: address already in use"}}}}
		p.agentRuns = p.hasAgent(test.agents)
		have := ""
		for _, d := range p.findings(nil) {
			have += " " + d.Code
		}
		if have != " "+test.want {
			t.Errorf("%s: %q, want %q", name, have, test.want)
		}
	}
}
