// Package fabric defines the fabric: the compiled clusterset that every agent reads. The document
// is a wire contract. An agent ignores unknown fields of a newer reconciler, and refuses an unknown
// apiVersion.
package fabric

import (
	"net/netip"
)

// APIVersion is the only version of the document that this package reads.
const APIVersion = "fabric.hawser.dev/v1alpha1"

// Fabric is the whole clusterset. All lists are sorted by name (exports by namespace/name), so that
// equal clustersets have equal bytes.
type Fabric struct {
	APIVersion   string         `json:"apiVersion"`
	Name         string         `json:"name"`                   // of the clusterset
	Domain       string         `json:"domain"`                 // DNS domain, such as clusterset.local
	ExtraDomains []string       `json:"extraDomains,omitempty"` // with the same answers as Domain
	GlobalPools  []netip.Prefix `json:"globalPools"`            // pools of global blocks, at most one per family
	ServicePools []netip.Prefix `json:"servicePools"`           // pools of clusterset IPs (VIPs), at most one per family
	TunnelPools  []netip.Prefix `json:"tunnelPools"`            // pools of tunnel addresses, at most one per family
	Tunnel       TunnelDefaults `json:"tunnel"`
	Links        []LinkSettings `json:"links,omitempty"` // links that differ from Tunnel, sorted; see Link
	Shape        Shape          `json:"shape,omitzero"`
	Health       Health         `json:"health"`
	Limits       Limits         `json:"limits,omitzero"`
	DNS          DNS            `json:"dns"`
	Epochs       []int          `json:"epochs"` // key epochs in use, ascending
	// Decommission allows agents to remove all of their state. Without it, agents refuse a
	// fabric that would remove all state.
	Decommission bool      `json:"decommission,omitempty"`
	Clusters     []Cluster `json:"clusters"`
	// DynamicExports selects the ServiceExports that need no export in the topology; nil =
	// none.
	DynamicExports *DynamicExports `json:"dynamicExports,omitempty"`
	Exports        []Export        `json:"exports,omitempty"`
}

// TunnelDefaults contains the defaults of all links.
type TunnelDefaults struct {
	Driver    string   `json:"driver"`
	MTU       int      `json:"mtu"` // bytes; 0 = underlay MTU minus the driver's overhead
	Keepalive Duration `json:"keepalive"`
	IPsec     IPsec    `json:"ipsec,omitzero"`
}

// Health configures the probes of links. A gateway sends one probe per Interval. A link is down
// after Misses lost probes.
type Health struct {
	Interval Duration `json:"interval"`
	Misses   int      `json:"misses"`
}

// Limits limits the shared resources that one pod can use.
type Limits struct {
	// Connections is the maximum number of connections of a pod through one gateway; 0 =
	// unlimited.
	Connections int `json:"connections,omitempty"`
}

// DNS configures the agents' name servers.
type DNS struct {
	ClusterNames bool       `json:"clusterNames"` // <cluster>.<svc>.<ns>.svc names exist
	TTL          Duration   `json:"ttl"`
	Address      netip.Addr `json:"address"` // link-scope address of every agent's name server; invalid = IPv6 only
	IPv6Address  netip.Addr `json:"ipv6Address,omitzero"`
}

// Addresses returns the addresses of the agents' name servers, IPv4 first.
func (d DNS) Addresses() []netip.Addr {
	var out []netip.Addr
	for _, a := range []netip.Addr{d.Address, d.IPv6Address} {
		if a.IsValid() {
			out = append(out, a)
		}
	}
	return out
}

// Egress modes of a cluster.
const (
	EgressMapped = "mapped" // every pod has its own global address (same host part)
	EgressShared = "shared" // a fixed function of the pod selects one of EgressIPs
)

// Cluster is one member of the clusterset.
type Cluster struct {
	Name         string         `json:"name"`
	PodCIDRs     []netip.Prefix `json:"podCIDRs"`
	ServiceCIDRs []netip.Prefix `json:"serviceCIDRs"`
	// Globalnet hides the cluster's own prefixes. Other clusters use only addresses of its
	// global block, and the packets of its pods have egress addresses.
	Globalnet bool `json:"globalnet"`
	// FlatFamilies contains the families (4, 6) in which a cluster with globalnet does not hide
	// its prefixes, because the prefixes are unique.
	FlatFamilies []int `json:"flatFamilies,omitempty"`
	// GlobalCIDRs contains the cluster's block of each of GlobalPools. The extension blocks of
	// a block follow it. More pods are mapped to them.
	GlobalCIDRs []netip.Prefix `json:"globalCIDRs"`
	EgressMode  string         `json:"egressMode"`
	EgressIPs   []netip.Addr   `json:"egressIPs"`             // cluster-wide egress addresses
	Mappings    []Mapping      `json:"mappings,omitempty"`    // EgressMapped: pod prefix to global prefix
	EgressRules []EgressRule   `json:"egressRules,omitempty"` // precedence: pod selector before namespace
	// Dynamic contains the prefixes of GlobalCIDRs from which the cluster allocates addresses
	// of its dynamic exports, at most one per family. They contain no other addresses, except
	// addresses that were allocated before the prefix was reserved.
	Dynamic []netip.Prefix `json:"dynamic,omitempty"`
	// ClusterDNS selects how the cluster's DNS forwards the domain: DNSNone, DNSCoreDNS,
	// DNSNodeLocal, DNSImport or DNSStubZone. Empty = DNSNone.
	ClusterDNS string `json:"clusterDNS,omitempty"`
	// PreferCustomDNS makes gateways use DNSImport instead of DNSCoreDNS if the cluster's
	// Corefile imports that ConfigMap.
	PreferCustomDNS bool `json:"preferCustomDNS,omitempty"`
	// NodeNetwork selects how nodes exchange packets of other clusters with gateways: NodeAuto
	// or NodeDirect. Empty = NodeTunnel.
	NodeNetwork string    `json:"nodeNetwork,omitempty"`
	Gateways    []Gateway `json:"gateways"`
}

// Values of Cluster.NodeNetwork.
const (
	NodeTunnel = "tunnel" // in VXLAN; only in the topology
	NodeAuto   = "auto"   // without VXLAN between nodes where packets pass without it
	NodeDirect = "direct" // like NodeAuto; a pair of nodes that needs VXLAN is a problem
)

// Mapping maps the addresses of Pods 1:1 to Global, with the same host part.
type Mapping struct {
	Pods   netip.Prefix `json:"pods"`
	Global netip.Prefix `json:"global"` // as long as Pods
}

// EgressRule assigns egress addresses to pods of a namespace.
type EgressRule struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace"`
	MatchLabels map[string]string `json:"matchLabels,omitempty"` // empty: every pod of the namespace
	IPs         []netip.Addr      `json:"ips"`
}

// MaxGateways is the maximum number of gateways per cluster.
const MaxGateways = 32

// TestsDirect reports whether the nodes of the cluster test which packets pass without VXLAN.
func (c *Cluster) TestsDirect() bool { return c.NodeNetwork == NodeAuto || c.NodeNetwork == NodeDirect }

// Gateway is a node with tunnels.
type Gateway struct {
	Name string `json:"name"`
	// Node is the name of the gateway's node. With NodeSelector it is empty in the document.
	// Agents set it to the current holder for gateways of their own cluster.
	Node string `json:"node"`
	// NodeSelector contains the labels of the nodes that can become the gateway. It is empty if
	// the gateway is always on Node.
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	Endpoints    []string          `json:"endpoints,omitempty"` // in order of preference; see ParseEndpoint
	Port         int               `json:"port"`                // UDP, the first of WireguardPorts; VXLAN has the next one
	// Ordinal is the unique number of the gateway in its cluster, from 0 to MaxGateways-1. A
	// gateway has one tunnel device for each ordinal of other clusters' gateways.
	Ordinal   int          `json:"ordinal,omitempty"`
	Addresses []netip.Addr `json:"addresses"` // inside the tunnels, one per family
	Keys      []Key        `json:"keys"`      // one per epoch, ascending
}

// Key is the public half of a gateway's tunnel key.
type Key struct {
	Epoch  int    `json:"epoch"`
	Public string `json:"public"` // X25519, base64
	// Ed25519 is the public key that authenticates the gateway in IKE, 32 bytes in base64. It
	// is empty if the user supplied Public but no IKE key.
	Ed25519 string `json:"ed25519,omitempty"`
}

// DynamicExports configures exports by ServiceExports that have no export in the topology.
type DynamicExports struct {
	// Namespaces contains patterns in which * matches any characters. A ServiceExport is
	// exported if one of them matches its namespace.
	Namespaces []string `json:"namespaces"`
	// Restrictions restricts some of these namespaces to some clusters. Agents that do not know
	// the field apply only Namespaces.
	Restrictions []DynamicRestriction `json:"restrictions,omitempty"`
	// VIPs contains the prefixes of ServicePools from which each cluster allocates the
	// clusterset IPs of dynamic exports, at most one per family. Declared exports have no
	// address in them.
	VIPs []netip.Prefix `json:"vips,omitempty"`
}

// DynamicRestriction lists the only clusters that may export from some namespaces.
type DynamicRestriction struct {
	Namespaces []string `json:"namespaces"` // patterns, as in DynamicExports
	Clusters   []string `json:"clusters"`   // by name
}

// Integrations of the clusterset domain with a cluster's own DNS.
const (
	DNSAuto      = "auto"           // only in the topology: DNSCoreDNS with PreferCustomDNS
	DNSNone      = "none"           // the administrator configures forwarding
	DNSCoreDNS   = "coredns"        // a marked block in ConfigMap kube-system/coredns
	DNSImport    = "coredns-custom" // a key in ConfigMap kube-system/coredns-custom
	DNSNodeLocal = "node-local"     // like DNSCoreDNS, and the same block in ConfigMap kube-system/node-local-dns
	DNSStubZone  = "kube-dns"       // stubDomains of ConfigMap kube-system/kube-dns
)

// Types of an export (MCS API, KEP-1645).
const (
	ClusterSetIP = "ClusterSetIP"
	Headless     = "Headless"
)

// Export is a Service that clusters export to each other.
type Export struct {
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	Type      string       `json:"type"`
	VIPs      []netip.Addr `json:"vips,omitempty"` // clusterset IPs; none for Headless
	Ports     []Port       `json:"ports"`
	Affinity  string       `json:"affinity,omitempty"` // ClientIP or empty
	// Allow contains the clusters that may reach the export; nil = all. An exporting cluster
	// can always reach itself.
	Allow    []string        `json:"allow,omitempty"`
	Balance  Balance         `json:"balance"`
	Clusters []ExportCluster `json:"clusters"`
	// Dynamic is set for dynamic exports, which agents add. It is never set in the document.
	Dynamic bool `json:"dynamic,omitempty"`
}

// Port is one port of an export.
type Port struct {
	Name        string `json:"name,omitempty"`
	Protocol    string `json:"protocol"` // TCP | UDP
	Port        int    `json:"port"`
	AppProtocol string `json:"appProtocol,omitempty"`
}

// Balance policies.
const (
	LocalFirst = "local-first" // the caller's own cluster while it is ready, then all others equally
	Spread     = "spread"      // every ready cluster equally
	Weighted   = "weighted"    // ready clusters in proportion to Weights
	Failover   = "failover"    // the first ready cluster of Order
)

// Balance selects the clusters whose backends serve callers of the VIP.
type Balance struct {
	Policy  string         `json:"policy"`
	Weights map[string]int `json:"weights,omitempty"` // Weighted: by cluster, 1 or more
	Order   []string       `json:"order,omitempty"`   // Failover: clusters, first choice first
}

// ExportCluster is one cluster's part of an export.
type ExportCluster struct {
	Name  string       `json:"name"`
	IPs   []netip.Addr `json:"ips,omitempty"`   // ClusterSetIP: the export's global addresses there
	Hosts []Host       `json:"hosts,omitempty"` // Headless: fixed global addresses
	// Ports contains the ports of the export that this cluster serves; nil = all. Only dynamic
	// exports have it.
	Ports []Port `json:"ports,omitempty"`
}

// Host is a fixed global address of one pod of a headless export.
type Host struct {
	// Name is a pod's hostname, or "*-N" for any hostname that ends in the StatefulSet ordinal
	// N.
	Name string       `json:"name"`
	IPs  []netip.Addr `json:"ips"`
}
