package fabric

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// dnsPrefix is the prefix of an endpoint that is a DNS name.
const dnsPrefix = "dns:"

// ErrEndpoint is the error for an invalid endpoint.
var ErrEndpoint = errors.New("not an endpoint: want an address or dns:<name>, with or without :<port>")

// Endpoint is an address or name at which a gateway may be reached.
type Endpoint struct {
	Addr netip.Addr // not valid for a name
	Name string     // in lower case; empty for an address
	// Port replaces the gateway's Port if a router forwards from other ports; 0 is
	// the gateway's own.
	Port int
}

// ParseEndpoint reads 203.0.113.1, 203.0.113.1:61820, 2001:db8::1,
// [2001:db8::1]:61820, dns:gw.example.com or dns:gw.example.com:61820.
func ParseEndpoint(text string) (Endpoint, error) {
	if name, ok := strings.CutPrefix(text, dnsPrefix); ok {
		host, port, found := strings.Cut(name, ":")
		e := Endpoint{Name: strings.ToLower(host)}
		if host == "" || found && !e.setPort(port) {
			return Endpoint{}, ErrEndpoint
		}
		return e, nil
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return Endpoint{Addr: a}, nil
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return Endpoint{}, ErrEndpoint
	}
	a, err := netip.ParseAddr(host)
	e := Endpoint{Addr: a}
	if err != nil || a.Is6() != strings.HasPrefix(text, "[") || !e.setPort(port) {
		return Endpoint{}, ErrEndpoint
	}
	return e, nil
}

func (e *Endpoint) setPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	e.Port = int(n)
	return err == nil && n > 0 && strconv.FormatUint(n, 10) == text
}

// Host returns the address or the name, without the port.
func (e Endpoint) Host() string {
	if e.Name != "" {
		return dnsPrefix + e.Name
	}
	return e.Addr.String()
}

// String returns the canonical form of the endpoint.
func (e Endpoint) String() string {
	host := e.Host()
	if e.Port == 0 {
		return host
	}
	if e.Addr.Is6() {
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(e.Port)
}

// Sources of discovered endpoints. A topology has a source instead of an address; the gateway's own
// cluster or its peers discover the address.
const (
	SourceExternalIP = "node:ExternalIP" // addresses of that type of the gateway's Node
	SourceInternalIP = "node:InternalIP" // likewise
	// SourceLoadBalancer is the address that a cloud assigns to the gateway's Service.
	// SourceNodePort is the address of any node of the cluster, with the Service's node port.
	SourceLoadBalancer = "service:LoadBalancer"
	SourceNodePort     = "service:NodePort"
	SourceObserved     = "seen" // the address from which the gateway's packets arrive at peers
)

// Sources returns all sources of discovered endpoints.
func Sources() []string {
	return []string{SourceExternalIP, SourceInternalIP, SourceLoadBalancer, SourceNodePort, SourceObserved}
}

// IsEndpointSource reports whether an entry of a gateway's endpoints is a source of discovered
// endpoints.
func IsEndpointSource(text string) bool { return slices.Contains(Sources(), text) }

// HasStaticEndpoint reports whether the topology has an endpoint of the gateway, so that it is
// known before any agent reports one.
func (g *Gateway) HasStaticEndpoint() bool {
	return slices.ContainsFunc(g.Endpoints, func(text string) bool { return !IsEndpointSource(text) })
}

// HasDiscoveredEndpoint reports whether the gateway has a source of discovered endpoints.
func (g *Gateway) HasDiscoveredEndpoint() bool {
	return slices.ContainsFunc(g.Endpoints, IsEndpointSource)
}

// HasService reports whether the gateway has a Service as a source of discovered endpoints.
func (g *Gateway) HasService() bool {
	return slices.Contains(g.Endpoints, SourceLoadBalancer) || slices.Contains(g.Endpoints, SourceNodePort)
}

// The default port range of Services of type NodePort (--service-node-port-range of
// kube-apiserver).
const (
	FirstNodePort = 30000
	LastNodePort  = 32767
)

// ServiceOf returns the name of a gateway's Service.
func ServiceOf(gateway string) string { return "hawser-gateway-" + gateway }
