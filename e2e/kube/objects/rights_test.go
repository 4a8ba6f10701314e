//go:build kube

package objects

import (
	"strconv"
	"strings"
	"testing"

	"hawser.dev/hawser/nodeagent/cluster/apiobjects"
	"hawser.dev/hawser/nodeagent/mcs"
)

// serviceGateway is a topology with a gateway behind a Service.
const serviceGateway = `apiVersion: hawser.dev/v1alpha1
kind: ClusterSet
metadata: {name: demo}
spec:
  dynamicExports: {namespaces: ["*"]}
  clusters:
  - name: c1
    podCIDRs: [10.7.0.0/16]
    serviceCIDRs: [10.77.0.0/16]
    recipient: age1n4s70tp2m67uhryhg8ax4fzrt32nvcy5undwsrsvmcu2t0p7tvyqtjxy2n
    gateways: [{name: a, node: n1, endpoints: [203.0.113.1, "service:LoadBalancer"]}]
  - name: c2
    podCIDRs: [10.8.0.0/16]
    serviceCIDRs: [10.78.0.0/16]
    recipient: age1c4qh3aws6qp9yjn53gugn2gpfurpcw2rj65zquuj0jmj87zmwcjs3mhndp
    gateways: [{name: b, node: n9, endpoints: [203.0.113.9]}]
`

// TestGatewayHasItsRights tests that a gateway can write, change and remove all of its objects with
// the rendered rights and admission policies.
func TestGatewayHasItsRights(t *testing.T) {
	s, want := prepare(t)
	s.Install(t, serviceGateway)
	s.Apply(t, "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n")
	s.K(t, "patch", "node", "n1", "--subresource=status", "--type=merge", "-p", `{"status":{"addresses":[{"type":"InternalIP","address":"172.31.1.11"}]}}`)
	front := apiobjects.GatewaySlice{Service: "hawser-gateway-a", Type: "IPv4", Node: "n1", Address: "172.31.1.11"}
	for _, text := range strings.Fields(s.K(t, "-n", "hawser-system", "get", "service", "hawser-gateway-a", "-o", "jsonpath={.spec.ports[*].port}")) {
		port, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		front.Ports = append(front.Ports, mcs.Port{Name: "udp-" + text, Protocol: "UDP", Port: port})
	}
	want.GatewaySlices = []apiobjects.GatewaySlice{front}
	bare := s.K(t, "-n", "kube-system", "get", "configmap", "coredns", "-o", "jsonpath={.data.Corefile}")
	eventually(t, "the policy of the cluster's DNS is not enforced", func() bool {
		out, err := s.Try("--kubeconfig="+s.As(t, "hawser-gateway", "n1"), "-n", "kube-system", "patch", "configmap", "coredns", "--dry-run=server",
			"--type=merge", "-p", `{"data":{"Corefile":"x"}}`)
		return err != nil && strings.Contains(out, "a gateway changes a Corefile between")
	})
	g := startAs(t, s.As(t, "hawser-gateway", "n1"), want)
	g.settled(t)
	all := s.K(t, "get", "serviceimports,endpointslices,clusterproperties", "-A", "-o", "name")
	for _, name := range []string{"serviceimport.multicluster.x-k8s.io/web", "endpointslice.discovery.k8s.io/web-hw-1", "endpointslice.discovery.k8s.io/hawser-gateway-a-4", "clusterproperty.about.k8s.io/"} {
		if !strings.Contains(all, name) {
			t.Errorf("%s is not in\n%s", name, all)
		}
	}
	// The gateway takes back an import that another controller has taken over, and writes
	// changes.
	s.K(t, "-n", "sample", "patch", "serviceimport", "web", "--field-manager=lighthouse", "--type=json", "-p",
		`[{"op":"remove","path":"/metadata/labels/app.kubernetes.io~1managed-by"}]`)
	g.wants(func(w *apiobjects.Desired) {
		changed := w.State.Imports[0]
		changed.Labels, changed.Clusters = map[string]string{"other": "z"}, []string{"g2"}
		w.State.Imports = []mcs.Import{changed}
	})
	eventually(t, "the import does not change", func() bool {
		return s.K(t, "-n", "sample", "get", "serviceimport", "web", "-o", `jsonpath={.metadata.labels.other} {.metadata.labels.app\.kubernetes\.io/managed-by}`) == "z hawser"
	})
	g.settled(t)
	g.wants(func(w *apiobjects.Desired) {
		w.State, w.DNS, w.GatewaySlices, w.Decommission = mcs.DesiredObjects{}, "", nil, true
	})
	g.settled(t)
	if have := s.K(t, "-n", "kube-system", "get", "configmap", "coredns", "-o", "jsonpath={.data.Corefile}"); have != bare {
		t.Errorf("Corefile:\n%s\nwant:\n%s", have, bare)
	}
	if have := s.K(t, "get", "serviceimports,clusterproperties", "-A", "-o", "name"); have != "" {
		t.Errorf("left: %s", have)
	}
	if have := s.K(t, "get", "serviceexport", "web", "-n", "sample", "-o", "jsonpath={.metadata.annotations}{.status.conditions}"); strings.Contains(have, "242.1.0.7") {
		t.Errorf("the export has %s", have)
	}
}
