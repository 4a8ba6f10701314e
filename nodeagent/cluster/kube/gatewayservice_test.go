package kube

import (
	"slices"
	"testing"

	"hawser.dev/hawser/nodeagent/cluster/facts"
	"hawser.dev/hawser/nodeagent/cluster/kube/kubetest"
	"hawser.dev/hawser/schema/fabric"
)

// TestServiceOfGateway checks that facts have the load balancer addresses of the Service of a
// gateway, and their changes. It ignores the Service of gateway b, which has no source
// loadBalancer.
func TestServiceOfGateway(t *testing.T) {
	t.Parallel()
	server := kubetest.New(t)
	gatewayService := func(name, ingress string) string {
		return "apiVersion: v1\nkind: Service\nmetadata: {namespace: hawser-system, name: " + name + "}\n" +
			"spec: {clusterIP: 10.96.0.9, ports: [{name: udp-51820, protocol: UDP, port: 51820}]}\nstatus: {loadBalancer: {ingress: [" + ingress + "]}}"
	}
	server.Put(t, gatewayService("hawser-gateway-a", "{ip: 198.51.100.1}"))
	server.Put(t, gatewayService("hawser-gateway-b", "{ip: 198.51.100.2}"))
	r := start(t, server, nil)
	r.SetFabric(testFabric(func(f *fabric.Fabric) {
		f.Clusters[0].Gateways[0].Endpoints = []string{"192.0.2.1", fabric.SourceLoadBalancer}
		f.Clusters[0].Gateways = append(f.Clusters[0].Gateways, fabric.Gateway{Name: "b", Node: "other", Endpoints: []string{"192.0.2.2"}})
	}))
	has := func(want ...string) func(facts.State) bool {
		return func(s facts.State) bool {
			return len(s.Facts.Services) == 1 && s.Facts.Services[0].Name == "hawser-gateway-a" && slices.Equal(s.Facts.Services[0].LoadBalancers, want)
		}
	}
	r.await(t, "an address", has("198.51.100.1"))
	server.Put(t, gatewayService("hawser-gateway-a", "{ip: 198.51.100.7}, {hostname: lb.example.com}"))
	r.await(t, "another address", has("198.51.100.7", "lb.example.com"))
}
