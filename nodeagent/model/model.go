// Package model defines the data that the parts of an agent exchange. Facts has the objects of this
// cluster, and HostState the state of this host. Path, RemoteEndpoint and TunnelParams describe the
// paths of traffic. ClusterState has the export state that a cluster publishes. The package has no
// I/O.
package model

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/schema/fabric"
)

// Facts are the objects of this cluster, from the Kubernetes API or from files.
type Facts struct {
	Nodes    []Node
	Pods     []Pod // only pods that an egress rule or a headless export may need
	Services []Service
	// Exports are the ServiceExports of this cluster. Imports are its current ServiceImports.
	// Both are sorted by namespace/name, and empty without a Kubernetes API.
	Exports []mcs.Export `json:",omitempty"`
	Imports []mcs.Import `json:",omitempty"`
	// Namespaces are the namespaces of this cluster that an export names, sorted. An import is
	// created only in an existing namespace.
	Namespaces []string `json:",omitempty"`
	// HasAPI reports whether the facts come from a Kubernetes API. If so, only the allocated
	// addresses that the API stores are used. Otherwise every node computes the same addresses.
	HasAPI bool `json:",omitempty"`
}

// GatewayService returns the Service whose addresses are endpoints of a gateway; nil if absent.
func (f *Facts) GatewayService(gateway *fabric.Gateway) *Service {
	i := slices.IndexFunc(f.Services, func(s Service) bool {
		return s.Namespace == fabric.SystemNamespace && s.Name == fabric.ServiceOf(gateway.Name)
	})
	if i < 0 || !gateway.HasService() {
		return nil
	}
	return &f.Services[i]
}

// Node is one node of this cluster.
type Node struct {
	Name     string
	Addrs    []netip.Addr   // InternalIPs, at most one per family
	External []netip.Addr   `json:",omitempty"` // ExternalIPs, at most one per family
	PodCIDRs []netip.Prefix // Node.spec.podCIDRs; may be empty
	// Unprotected reports whether the agent's rules on this node are unconfirmed: its
	// HawserNode does not report them since the node booted. It is false outside of Kubernetes,
	// where no node reports.
	Unprotected bool `json:",omitempty"`
	// Labels are the node's labels that a node selector of a gateway names. UnavailableReason
	// is the reason why the node cannot be a gateway; empty = it can. Both are set only in
	// clusters with such selectors.
	Labels            map[string]string `json:",omitempty"`
	UnavailableReason string            `json:",omitempty"`
}

// Pod is one pod of this cluster.
type Pod struct {
	Namespace   string
	Name        string
	Node        string
	Labels      map[string]string
	Addrs       []netip.Addr
	HostNetwork bool
}

// Service is a service of this cluster and its endpoints.
type Service struct {
	Namespace  string
	Name       string
	ClusterIPs []netip.Addr // none for headless
	Ports      []ServicePort
	Endpoints  []Endpoint
	// ExternalName reports whether the Service is of type ExternalName. Such a Service has no
	// endpoints.
	ExternalName bool `json:",omitempty"`
	// Unsupported describes the unsupported parts of the Service and its EndpointSlices,
	// sorted.
	Unsupported []string `json:",omitempty"`
	// LoadBalancers are the addresses and names of its load balancer, from its status.
	LoadBalancers []string `json:",omitempty"`
}

// LoadBalancerAddrs returns the addresses of the service's load balancer. resolved has the
// addresses of names (HostState.Resolved).
func (s *Service) LoadBalancerAddrs(resolved map[string][]netip.Addr) []netip.Addr {
	var out []netip.Addr
	for _, text := range s.LoadBalancers {
		if a, err := netip.ParseAddr(text); err == nil {
			out = append(out, a)
			continue
		}
		out = append(out, resolved[fabric.Endpoint{Name: strings.ToLower(text)}.String()]...)
	}
	return out
}

// ServicePort is one port of a service.
type ServicePort struct {
	Name     string
	Protocol string // TCP | UDP
	Port     int
}

// Endpoint is one backend of a service.
type Endpoint struct {
	Addrs    []netip.Addr
	Hostname string // the name of its DNS record; empty if it has none
	Pod      string // pod in the service's namespace; empty if not a pod
	Node     string
	Ready    bool
	// Terminating reports whether the endpoint terminates and still serves, and thus is not
	// ready. It gets connections while no endpoint of the port is ready, as in kube-proxy
	// (KEP-1669).
	Terminating bool `json:",omitempty"`
	// Ports maps the service's port (by protocol and number, as in "TCP/80") to
	// the port on the endpoint.
	Ports map[string]int
}

// HostState is the observed state of the host.
type HostState struct {
	UnderlayMTU int // bytes, of the interface with the node's address
	// Underlay has the node's addresses with their devices; empty if direct packets are
	// disabled.
	Underlay []UnderlayAddr `json:",omitempty"`
	// NoIPv6 reports whether IPv6 is disabled on this host.
	NoIPv6    bool
	KernelESP bool // the kernel encrypts ESP
	// NoConnLimit reports whether nftables of this kernel cannot count connections.
	NoConnLimit bool
	// HostSource are addresses of this host inside the cluster's podCIDRs, at most one per
	// family. They are the source of the host's own packets in a flat cluster.
	HostSource []netip.Addr
	// PodRoutes are the on-link routes inside this node's Node.spec.podCIDRs, if these are
	// outside the cluster's podCIDRs. Such a route proves that the CNI assigns pod addresses
	// there.
	PodRoutes []netip.Prefix `json:",omitempty"`
	// Networks are the connected networks of the node that overlap prefixes of other clusters,
	// sorted by prefix and link.
	Networks []Network `json:",omitempty"`
	// ForeignRules describe routing rules of other programs that match packets to other
	// clusters before Hawser's rules.
	ForeignRules []string `json:",omitempty"`
	// Resolved maps endpoints of the form dns:<name> to addresses.
	Resolved map[string][]netip.Addr
	// Discovered are the discovered endpoints of remote gateways, by cluster/gateway.
	Discovered map[string][]DiscoveredEndpoint `json:",omitempty"`
	// RemoteEndpoints are the endpoints in use of gateways with several candidates, by
	// cluster/gateway. Other gateways are dialled at their first candidate.
	RemoteEndpoints map[string]RemoteEndpoint
}

// UnderlayAddr is an address of the node.
type UnderlayAddr struct {
	Addr     netip.Addr
	Device   string
	MAC      string
	Networks []netip.Prefix // that Device reaches without a router
	// Unsuitable is the reason why Device cannot send packets of pods without VXLAN; empty = it
	// can.
	Unsuitable string `json:",omitempty"`
}

// DirectNode is another node of the cluster, with the decision whether packets to it need VXLAN.
// Exactly one of the two nodes is a gateway. Device is empty if packets always need VXLAN.
type DirectNode struct {
	Node   string
	Addr   netip.Addr // of the other node
	Device string     // of this node, to Addr
	// MAC is the hardware address from which the other node sends; empty while it is unknown.
	MAC string
	// Active reports whether this node sends to the other node without VXLAN. Reason is the
	// reason why not.
	Active bool
	Reason string `json:",omitempty"`
}

// Network is a network that a node is connected to.
type Network struct {
	Prefix netip.Prefix `json:"prefix"`
	Link   string       `json:"link"` // name of the interface
}

// RemoteEndpoint is the candidate at which a remote gateway is dialled.
type RemoteEndpoint struct {
	Addr netip.AddrPort // as in Candidate; invalid = unknown
	// DialCount counts the decisions to dial Addr. Until it changes, an address that the driver
	// learned since the last decision has precedence.
	DialCount int
	// Pending is a better candidate that a secondary tunnel must verify first; invalid if
	// absent.
	Pending netip.AddrPort
}

// Path is the active link between this cluster and a remote cluster.
type Path struct {
	Local  string // gateway of this cluster
	Remote string // gateway of the remote cluster, or of Via
	// Via is the next cluster on the path, which forwards the traffic; empty = the link leads
	// to the remote cluster itself.
	Via string
	// Down reports whether all links to the cluster lose their probes, or the path is in
	// hold-down after that. Traffic to the cluster still uses this link, but clusterset IPs use
	// other clusters if there are any.
	Down bool
	// MTU is the path MTU of the link in bytes, if it is less than the MTU of the device;
	// 0 = MTU of the device.
	MTU int
}

// TunnelParams are the parameters that may differ between two tunnels of one pair of gateways. The
// fabric has all other parameters.
type TunnelParams struct {
	Driver string
	// LocalPort and RemotePort are the base ports of both ends; 0 = the ports in the fabric.
	LocalPort  int
	RemotePort int
	Alternate  bool // see driver.Remote
	Epoch      int  // of the keys; 0 = the current one, or the driver has no keys
}

// ClusterState is a remote cluster's live export state, as its agents publish it.
type ClusterState struct {
	Cluster string        `json:"cluster"`
	Exports []ExportState `json:"exports"` // sorted by namespace/name
	// Shape is the projection.ShapeDigest of the shape that the cluster uses; empty while it
	// still uses a path of the former shape.
	Shape string `json:"shape,omitempty"`
	// Transit describes the cluster's links for transit traffic. If it is nil, the cluster
	// neither forwards nor accepts transit traffic.
	Transit *TransitAdvert `json:"transit,omitempty"`
	// Endpoints has discovered and observed endpoints; nil = none.
	Endpoints *EndpointAdvert `json:"endpoints,omitempty"`
}

// EndpointAdvert has the endpoints that a cluster announces.
type EndpointAdvert struct {
	// Discovered are the discovered endpoints of the cluster's own gateways, by gateway.
	Discovered map[string][]DiscoveredEndpoint `json:"discovered,omitempty"`
	// Observed are the addresses from which packets of remote gateways arrive, by
	// cluster/gateway. The port is the base port.
	Observed map[string]netip.AddrPort `json:"observed,omitempty"`
}

// DiscoveredEndpoint is an endpoint that is not in the topology.
type DiscoveredEndpoint struct {
	Source string     `json:"source"` // one of fabric.Sources
	Addr   netip.Addr `json:"addr"`
	Port   int        `json:"port,omitempty"` // the base port; 0 = the port of the gateway
}

// TransitAdvert describes the links of a cluster for transit traffic.
type TransitAdvert struct {
	Edges []TransitEdge `json:"edges,omitempty"` // links below the best rank or MTU, by cluster
}

// TransitEdge is the link to one neighbouring cluster.
type TransitEdge struct {
	Cluster string `json:"cluster"`
	Rank    int    `json:"rank"`          // a health.Rank; 0 = no transit
	MTU     int    `json:"mtu,omitempty"` // bytes, if less than the MTU of the link
}

// Next returns the first cluster on the path to remote.
func (p Path) Next(remote string) string {
	if p.Via != "" {
		return p.Via
	}
	return remote
}

// ExportState is the state of one export in one cluster.
type ExportState struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Ready     bool   `json:"ready"` // an endpoint gets connections
	// Terminating reports whether all endpoints that get connections terminate. Other clusters
	// use them only while no cluster has a ready endpoint.
	Terminating bool `json:"terminating,omitempty"`
	// Families are the IP families (4, 6) of the service; empty = all of the cluster.
	Families []int        `json:"families,omitempty"`
	Hosts    []ExportHost `json:"hosts,omitempty"` // Headless: the ready endpoints
	// Offer is the ServiceExport of the cluster; nil = it is invalid, or the cluster has no
	// Kubernetes API.
	Offer *mcs.Offer `json:"offer,omitempty"`
}

// ExportHost is one ready endpoint of a headless export, with the addresses by which other clusters
// reach it.
type ExportHost struct {
	Name string `json:"name,omitempty"`
	// Label replaces an empty Name in the DNS. It is the endpoint's own address, as in
	// 10-7-1-31. In a cluster with Globalnet, IPs have a different address.
	Label string       `json:"label,omitempty"`
	IPs   []netip.Addr `json:"ips"`
	// Ports are the ports of the endpoint that differ from the export's ports, as in
	// Endpoint.Ports; empty if IPs are translated.
	Ports map[string]int `json:"ports,omitempty"`
}

// Candidate is an address at which a gateway may be reached.
type Candidate struct {
	Text string         // for users: the endpoint in the topology, or the address and its source
	Addr netip.AddrPort // the port is the base port, from which the ports of tunnels follow
}

// Intersect returns the state that is valid both for a node that applied l and for a node that
// applied next.
func (l ClusterState) Intersect(next ClusterState) ClusterState {
	applied := make(map[string]*ExportState, len(l.Exports))
	for i := range l.Exports {
		applied[l.Exports[i].Namespace+"/"+l.Exports[i].Name] = &l.Exports[i]
	}
	exports := next.Exports
	next.Exports = nil
	for _, e := range exports {
		now := applied[e.Namespace+"/"+e.Name]
		if now == nil {
			continue
		}
		e.Ready = e.Ready && now.Ready
		e.Terminating = e.Ready && (e.Terminating || now.Terminating)
		if e.Offer != nil && !reflect.DeepEqual(e.Offer, now.Offer) {
			e.Offer = now.Offer
		}
		e.Hosts = slices.DeleteFunc(slices.Clone(e.Hosts), func(h ExportHost) bool {
			return !slices.ContainsFunc(now.Hosts, func(n ExportHost) bool { return reflect.DeepEqual(h, n) })
		})
		if len(e.Hosts) == 0 {
			e.Hosts = nil
		}
		if len(now.Hosts) > 0 {
			e.Ready = len(e.Hosts) > 0
		}
		next.Exports = append(next.Exports, e)
	}
	return next
}
