package render_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// TestFronts checks that a gateway with a Service endpoint has a Service without a selector. The
// Service has exactly the ports on which the gateway listens. Other gateways have no Service.
func TestFronts(t *testing.T) {
	t.Parallel()
	tree := mustRender(t, input(t, picking(`    - {name: fixed, node: n1, endpoints: [203.0.0.1, "service:LoadBalancer"]}
    - {name: edge, nodeSelector: {node-restriction.kubernetes.io/role: edge}, port: 31820, endpoints: ["service:NodePort"]}
    - {name: plain, node: n9, endpoints: ["node:ExternalIP"]}
`)))
	have := map[string]corev1.Service{}
	for key, text := range build(t, tree, "clusters/c0") {
		if strings.HasPrefix(key, "Service ") {
			var s corev1.Service
			if err := yaml.UnmarshalStrict([]byte(text), &s); err != nil {
				t.Fatal(err)
			}
			have[s.Namespace+"/"+s.Name] = s
		}
	}
	if len(have) != 2 {
		t.Fatalf("Services %v", have)
	}
	numbers := func(s corev1.Service) (ports, nodePorts []int32) {
		for _, p := range s.Spec.Ports {
			ports, nodePorts = append(ports, p.Port), append(nodePorts, p.NodePort)
			if p.Protocol != corev1.ProtocolUDP || p.TargetPort.IntVal != p.Port || p.Name == "" {
				t.Errorf("%s: %+v", s.Name, p)
			}
		}
		return ports, nodePorts
	}
	balanced := have["hawser-system/hawser-gateway-fixed"]
	ports, nodePorts := numbers(balanced)
	if balanced.Spec.Type != corev1.ServiceTypeLoadBalancer || balanced.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal ||
		len(balanced.Spec.Selector) > 0 || !slices.Equal(ports, []int32{51820, 51822, 51881, 51883}) || !slices.Equal(nodePorts, []int32{0, 0, 0, 0}) {
		t.Errorf("%+v", balanced.Spec)
	}
	byNode := have["hawser-system/hawser-gateway-edge-1"]
	ports, nodePorts = numbers(byNode)
	if byNode.Spec.Type != corev1.ServiceTypeNodePort || byNode.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyCluster ||
		len(byNode.Spec.Selector) > 0 || !slices.Equal(ports, []int32{31820, 31822, 31881, 31883}) || !slices.Equal(nodePorts, ports) {
		t.Errorf("%+v", byNode.Spec)
	}
	for key := range build(t, tree, "clusters/c1") {
		if strings.HasPrefix(key, "Service ") {
			t.Errorf("c1 has %s", key)
		}
	}
}

// TestFrontWithoutLinks checks that gateways of a single cluster have no Services and no policy for
// them. The API server rejects a Service without ports.
func TestFrontWithoutLinks(t *testing.T) {
	t.Parallel()
	for _, endpoint := range []string{"service:LoadBalancer", "service:NodePort"} {
		text := world(1, 0)
		edited := strings.Replace(text, "endpoints: [203.0.0.1]", `port: 31820, endpoints: ["`+endpoint+`"]`, 1)
		if edited == text {
			t.Fatal("the topology has no gateway to change")
		}
		for key := range build(t, mustRender(t, input(t, edited)), "clusters/c0") {
			if strings.HasPrefix(key, "Service ") || strings.Contains(key, "hawser-gateway-services") {
				t.Errorf("%s: it renders %s", endpoint, key)
			}
		}
	}
}
