package fabric

import "slices"

// Sources of endpoints, as a topology names them in place of an address: where a gateway's
// own cluster, or the far ends of its tunnels, say that it is reached.
const (
	SourceExternalIP = "node:ExternalIP" // addresses of that type of the gateway's Node
	SourceInternalIP = "node:InternalIP" // the same
	// SourceLoadBalancer is the address that a cloud gives to the gateway's Service, and
	// SourceNodePort that of any node of the cluster, whose port leads to the gateway.
	SourceLoadBalancer = "service:LoadBalancer"
	SourceNodePort     = "service:NodePort"
	SourceSeen         = "seen" // where gateways of other clusters receive from
)

// Sources gives all sources of endpoints.
func Sources() []string {
	return []string{SourceExternalIP, SourceInternalIP, SourceLoadBalancer, SourceNodePort, SourceSeen}
}

// IsSource reports whether an entry of a gateway's endpoints is a source: what it stands for
// is found, and not written.
func IsSource(text string) bool { return slices.Contains(Sources(), text) }

// Written reports whether the gateway has an endpoint that is written, and not found: one
// that is known before anybody was heard.
func (g *Gateway) Written() bool {
	return slices.ContainsFunc(g.Endpoints, func(text string) bool { return !IsSource(text) })
}

// Finds reports whether endpoints of the gateway are found.
func (g *Gateway) Finds() bool { return slices.ContainsFunc(g.Endpoints, IsSource) }

// Fronted reports whether a Service leads to the gateway, by which it is found.
func (g *Gateway) Fronted() bool {
	return slices.Contains(g.Endpoints, SourceLoadBalancer) || slices.Contains(g.Endpoints, SourceNodePort)
}

// The ports that a cluster gives to Services of type NodePort, unless it is told otherwise:
// --service-node-port-range of kube-apiserver.
const (
	FirstNodePort = 30000
	LastNodePort  = 32767
)

// ServiceNamespace is where the Services of gateways are.
const ServiceNamespace = "hawser-system"

// ServiceOf names the Service of a gateway.
func ServiceOf(gateway string) string { return "hawser-gateway-" + gateway }
