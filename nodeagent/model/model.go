// Package model has the plain data that the parts of an agent hand to each other: what only
// this cluster knows (Facts), what is seen on this host (Local), where links lead (Path,
// RemoteEndpoint, Tunnel), and what clusters tell each other of their exports (Live). It decides
// nothing.
package model

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/schema/fabric"
)

// Facts is what only this cluster knows: from the Kubernetes API or from files.
type Facts struct {
	Nodes    []Node    `json:"Nodes"`
	Pods     []Pod     `json:"Pods"` // only those that an egress rule or a headless export may need
	Services []Service `json:"Services"`
	// Exports are the ServiceExports of this cluster, Imports the ServiceImports as
	// they are, both sorted by namespace/name; none without a Kubernetes API.
	Exports []mcs.Export `json:"Exports,omitempty"`
	Imports []mcs.Import `json:"Imports,omitempty"`
	// Namespaces are all of this cluster, sorted: an import stands where its namespace
	// exists. Only those that some export names.
	Namespaces []string `json:"Namespaces,omitempty"`
	// HasAPI says that Exports, Imports and Namespaces are those of a Kubernetes
	// API, which keeps the addresses that were given: only those are used. Without it
	// nothing can be written down, and every node gives the same addresses by itself.
	HasAPI bool `json:"Recorded,omitempty"`
}

// GatewayService gives the Service by which a gateway is found; nil = there is none.
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
	Name     string         `json:"Name"`
	Addrs    []netip.Addr   `json:"Addrs"`              // InternalIPs, at most one a family
	External []netip.Addr   `json:"External,omitempty"` // ExternalIPs, at most one a family
	PodCIDRs []netip.Prefix `json:"PodCIDRs"`           // of this node; empty when the CNI does not say
	// Unprotected reports that the cluster has HawserNodes, and this node has no
	// report that the agent's rules are in place since the node booted.
	Unprotected bool `json:"Unprotected,omitempty"`
	// Labels and Away are told of clusters only that pick the nodes of gateways by labels:
	// the labels that such a pick names, and why the node takes no gateway now; empty = it may.
	Labels            map[string]string `json:"Labels,omitempty"`
	UnavailableReason string            `json:"Away,omitempty"`
}

// Pod is one pod of this cluster.
type Pod struct {
	Namespace   string            `json:"Namespace"`
	Name        string            `json:"Name"`
	Node        string            `json:"Node"`
	Labels      map[string]string `json:"Labels"`
	Addrs       []netip.Addr      `json:"Addrs"`
	HostNetwork bool              `json:"HostNetwork"`
}

// Service is a service of this cluster and its endpoints.
type Service struct {
	Namespace  string        `json:"Namespace"`
	Name       string        `json:"Name"`
	ClusterIPs []netip.Addr  `json:"ClusterIPs"` // none for headless
	Ports      []ServicePort `json:"Ports"`
	Endpoints  []Endpoint    `json:"Endpoints"`
	// ExternalName means that the Service is of that type: it has no endpoints.
	ExternalName bool `json:"ExternalName,omitempty"`
	// Unsupported describes the unsupported parts of the Service and its EndpointSlices, sorted.
	Unsupported []string `json:"Unsupported,omitempty"`
	// LoadBalancers are the addresses and names that a load balancer gave to it, as they stand
	// in its status.
	LoadBalancers []string `json:"Balancers,omitempty"`
}

// LoadBalancerAddrs gives the addresses of the service's load balancer; resolved are those of names
// (Local.Resolved).
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
	Name     string `json:"Name"`
	Protocol string `json:"Protocol"` // TCP | UDP
	Port     int    `json:"Port"`
}

// Endpoint is one backend of a service.
type Endpoint struct {
	Addrs    []netip.Addr `json:"Addrs"`
	Hostname string       `json:"Hostname"` // the name of its DNS record; empty when it has none
	Pod      string       `json:"Pod"`      // pod name in the service's namespace; empty when it is no pod
	Node     string       `json:"Node"`
	Ready    bool         `json:"Ready"`
	// Terminating means that the endpoint is not ready, terminates and still serves. It gets
	// connections while no endpoint of the port is ready, as in kube-proxy (KEP-1669).
	Terminating bool `json:"Terminating,omitempty"`
	// Ports maps the service's port (by protocol and number, as in "TCP/80") to
	// the port on the endpoint.
	Ports map[string]int `json:"Ports"`
}

// HostState is what the agent sees on its own host.
type HostState struct {
	UnderlayMTU int `json:"UnderlayMTU"` // bytes, of the interface that holds the node's address
	// NoIPv6 says that IPv6 is switched off on this host.
	NoIPv6    bool `json:"NoIPv6"`
	KernelESP bool `json:"KernelESP"` // the kernel encrypts ESP
	// NoConnLimit says that nftables of this kernel cannot count connections.
	NoConnLimit bool `json:"NoConnLimit"`
	// HostSource are addresses of this host inside the cluster's pod CIDRs, at
	// most one a family: the source of the host's own packets in a flat cluster.
	HostSource []netip.Addr `json:"HostSource"`
	// PodRoutes are prefixes of this node's Node.spec.podCIDRs to which the kernel has routes on
	// a link, and which the cluster's podCIDRs do not hold: the CNI puts pods there.
	PodRoutes []netip.Prefix `json:"PodRoutes,omitempty"`
	// Networks are those that the node is connected to and that overlap prefixes of other
	// clusters, sorted by prefix and link.
	Networks []Network `json:"Networks,omitempty"`
	// ForeignRules describe routing rules of other programs that take packets for other
	// clusters before Hawser's rules.
	ForeignRules []string `json:"ForeignRules,omitempty"`
	// Resolved maps endpoints of the form dns:<name> to addresses.
	Resolved map[string][]netip.Addr `json:"Resolved"`
	// Discovered are the discovered endpoints of remote gateways, by cluster/gateway.
	Discovered map[string][]DiscoveredEndpoint `json:"Found,omitempty"`
	// RemoteEndpoints has where gateways with several candidates are dialled, by
	// cluster/gateway. Other gateways are dialled at their first candidate.
	RemoteEndpoints map[string]RemoteEndpoint `json:"Ways"` // as records of rounds name it
}

// Network is a network that a node is connected to.
type Network struct {
	Prefix netip.Prefix `json:"prefix"`
	Link   string       `json:"link"` // name of the interface
}

// RemoteEndpoint is the candidate at which a remote gateway is dialled.
type RemoteEndpoint struct {
	Addr netip.AddrPort `json:"Addr"` // as in Candidate; invalid = unknown
	// DialCount counts the decisions to dial Addr. Until it changes, an address that the
	// driver observed since has precedence.
	DialCount int `json:"Dial"`
	// Pending is a better candidate, at which a secondary tunnel is verified first; invalid if
	// absent.
	Pending netip.AddrPort `json:"Next"`
}

// Path is the link that carries the traffic between this cluster and a remote one.
type Path struct {
	Local  string `json:"Local"`  // gateway of this cluster
	Remote string `json:"Remote"` // gateway of the remote cluster, or of Via
	// Via is the cluster that passes the traffic on, which is the next one on the
	// way; empty = the link leads to the remote cluster itself.
	Via string `json:"Via"`
	// Down says that no probe gets through on any link to the cluster, or none did a
	// moment ago: traffic for it still takes this one, but clusterset addresses use
	// other clusters as long as there are any.
	Down bool `json:"Down"`
	// MTU is what the link carries, in bytes, where that is less than its device
	// does; 0 = as much as the device.
	MTU int `json:"MTU"`
}

// TunnelParams is what two tunnels of one pair of gateways differ in. All else is as the
// fabric says now.
type TunnelParams struct {
	Driver string `json:"Driver"`
	// LocalPort and Remote are the base ports of both ends; 0 = those of the fabric.
	LocalPort  int  `json:"Own"`
	RemotePort int  `json:"Remote"`
	Alternate  bool `json:"Alt"`   // see driver.Remote
	Epoch      int  `json:"Epoch"` // of the keys; 0 = as the fabric says, or the driver has none
}

// ClusterState is a remote cluster's live export state, as its agents publish it.
type ClusterState struct {
	Cluster string        `json:"cluster"`
	Exports []ExportState `json:"exports"` // sorted by namespace/name
	// Shape is the ShapeDigest of the shape that the cluster has gone over to:
	// empty while it uses a way of another one.
	Shape string `json:"shape,omitempty"`
	// Transit is what it says of its links for what clusters pass on to each
	// other; nil = it neither passes anything on nor takes what was.
	Transit *TransitAdvert `json:"passing,omitempty"`
	// Endpoints is what it says of where gateways are; nil = nothing.
	Endpoints *EndpointAdvert `json:"places,omitempty"`
}

// EndpointAdvert is what a cluster announces about endpoints.
type EndpointAdvert struct {
	// Discovered are the discovered endpoints of its own gateways, by gateway.
	Discovered map[string][]DiscoveredEndpoint `json:"found,omitempty"`
	// Observed are the addresses from which packets of remote gateways arrive, by
	// cluster/gateway. The port is the base port.
	Observed map[string]netip.AddrPort `json:"seen,omitempty"`
}

// DiscoveredEndpoint is an endpoint that is not in the topology.
type DiscoveredEndpoint struct {
	Source string     `json:"source"` // of fabric.Sources
	Addr   netip.Addr `json:"addr"`
	Port   int        `json:"port,omitempty"` // the base port; 0 = that of the gateway
}

// TransitAdvert is what a cluster says of its links for what is passed on over them.
type TransitAdvert struct {
	Edges []TransitEdge `json:"edges,omitempty"` // those that are not as good as can be, by cluster
}

// TransitEdge is one link, to a neighbour.
type TransitEdge struct {
	Cluster string `json:"cluster"`
	Rank    int    `json:"rank"`          // of health.Rank; 0 = nothing is passed on
	MTU     int    `json:"mtu,omitempty"` // bytes, where less fits than the link should carry
}

// Next is the cluster to which a path to remote leads first.
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
	Ready     bool   `json:"ready"` // some endpoint gets connections
	// Terminating means that all these endpoints terminate: other clusters use them only
	// while no cluster has a ready one.
	Terminating bool `json:"terminating,omitempty"`
	// Families are those (4, 6) that the service has; missing = all that the cluster has.
	Families []int        `json:"families,omitempty"`
	Hosts    []ExportHost `json:"hosts,omitempty"` // Headless: the ready endpoints
	// Offer is what the cluster says of its ServiceExport; nil = it has none, as it
	// has no Kubernetes API, or it is not valid.
	Offer *mcs.Offer `json:"offer,omitempty"`
}

// ExportHost is one ready endpoint of a headless export, at the address by which
// other clusters reach it.
type ExportHost struct {
	Name string `json:"name,omitempty"`
	// Label is what stands for Name in the DNS where there is none: the endpoint's own
	// address, which is another one than IPs where that is hidden.
	Label string       `json:"label,omitempty"`
	IPs   []netip.Addr `json:"ips"`
	// Ports are the numbers on the endpoint where they are not those of the export, as
	// in Endpoint.Ports; none where IPs are translated to it.
	Ports map[string]int `json:"ports,omitempty"`
}

// Candidate is an address at which a gateway may be reached.
type Candidate struct {
	Text string         `json:"Text"` // for users: the endpoint in the topology, or the address and its source
	Addr netip.AddrPort `json:"Addr"` // the port is the base port, from which those of tunnels follow
}

// Intersect gives what may be said as long as a node carries what l says, and is about to
// carry next: what both have.
func (l ClusterState) Intersect(next ClusterState) ClusterState {
	carried := make(map[string]*ExportState, len(l.Exports))
	for i := range l.Exports {
		carried[l.Exports[i].Namespace+"/"+l.Exports[i].Name] = &l.Exports[i]
	}
	exports := next.Exports
	next.Exports = nil
	for _, e := range exports {
		now := carried[e.Namespace+"/"+e.Name]
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
