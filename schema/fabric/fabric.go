// Package fabric defines the compiled clusterset, the document that every agent
// reads. It is a wire contract: an agent accepts unknown fields (from a newer
// reconciler) and refuses an unknown apiVersion.
package fabric

import (
	"net/netip"
)

// APIVersion is the only version of the document that this package reads.
const APIVersion = "fabric.hawser.dev/v1alpha1"

// Fabric is the whole clusterset. All lists are sorted by name (exports by
// namespace/name), so that equal clustersets have equal bytes.
type Fabric struct {
	APIVersion   string         `json:"apiVersion"`
	Name         string         `json:"name"`                   // of the clusterset
	Domain       string         `json:"domain"`                 // DNS domain, such as clusterset.local
	ExtraDomains []string       `json:"extraDomains,omitempty"` // with the same answers as Domain
	GlobalPools  []netip.Prefix `json:"globalPools"`            // the pools of clusters' blocks, at most one per family
	ServicePools []netip.Prefix `json:"servicePools"`           // the pools of clusterset IPs (VIPs), at most one per family
	TunnelPools  []netip.Prefix `json:"tunnelPools"`            // the pools of gateway addresses inside the tunnels
	Tunnel       TunnelDefaults `json:"tunnel"`
	Links        []LinkSettings `json:"links,omitempty"` // links that differ from Tunnel, sorted; see Link
	Shape        Shape          `json:"shape,omitzero"`
	Health       Health         `json:"health"`
	Limits       Limits         `json:"limits,omitzero"`
	DNS          DNS            `json:"dns"`
	Epochs       []int          `json:"epochs"` // key epochs in use, ascending
	// Decommission allows agents to remove all of their state. Without it, agents
	// refuse a fabric that would do so.
	Decommission bool      `json:"decommission,omitempty"`
	Clusters     []Cluster `json:"clusters"`
	// DynamicExports selects the ServiceExports of clusters that count without an export
	// in the topology; nil if none.
	DynamicExports *DynamicExports `json:"dynamicExports,omitempty"`
	Exports        []Export        `json:"exports,omitempty"`
}

// TunnelDefaults holds the defaults of every link.
type TunnelDefaults struct {
	Driver    string   `json:"driver"`
	MTU       int      `json:"mtu"` // bytes; 0 = underlay MTU less the driver's overhead
	Keepalive Duration `json:"keepalive"`
	IPsec     IPsec    `json:"ipsec,omitzero"`
}

// Health configures the probes of links: one per Interval; a link is down after Misses.
type Health struct {
	Interval Duration `json:"interval"`
	Misses   int      `json:"misses"`
}

// Limits bounds the shared resources that one pod may use.
type Limits struct {
	// Connections is the maximum number of a pod through one gateway; 0 is unlimited.
	Connections int `json:"connections,omitempty"`
}

// DNS configures the agents' name servers.
type DNS struct {
	ClusterNames bool       `json:"clusterNames"` // <cluster>.<svc>.<ns>.svc names exist
	TTL          Duration   `json:"ttl"`
	Address      netip.Addr `json:"address"` // link-scope address on every node where its agent answers; invalid = IPv6 only
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
	// Globalnet hides the cluster's own prefixes: other clusters see only its global
	// block, and the packets of its pods have egress addresses.
	Globalnet bool `json:"globalnet"`
	// FlatFamilies are the families (4, 6) in which a cluster with globalnet hides no
	// prefixes, because they are unique.
	FlatFamilies []int `json:"flatFamilies,omitempty"`
	// GlobalCIDRs are the cluster's block of each of GlobalPools. Extensions of a
	// block, to which more pods are mapped, follow it.
	GlobalCIDRs []netip.Prefix `json:"globalCIDRs"`
	EgressMode  string         `json:"egressMode"`
	EgressIPs   []netip.Addr   `json:"egressIPs"`             // the cluster-wide egress addresses
	Mappings    []Mapping      `json:"mappings,omitempty"`    // EgressMapped: pod prefix to global prefix
	EgressRules []EgressRule   `json:"egressRules,omitempty"` // precedence: pod selector before namespace
	// Dynamic are the prefixes of GlobalCIDRs from which the cluster allocates addresses
	// of its dynamic exports, at most one per family. They have no other addresses,
	// except for addresses allocated before the prefix was reserved.
	Dynamic []netip.Prefix `json:"dynamic,omitempty"`
	// ClusterDNS selects how the cluster's DNS forwards the domain: DNSNone, DNSCoreDNS,
	// DNSNodeLocal, DNSImport or DNSStubZone; empty is DNSNone.
	ClusterDNS string `json:"clusterDNS,omitempty"`
	// PreferCustomDNS makes gateways use DNSImport instead of DNSCoreDNS if the cluster's
	// Corefile imports that ConfigMap.
	PreferCustomDNS bool `json:"preferCustomDNS,omitempty"`
	// NodeNetwork selects how nodes exchange packets of other clusters with gateways: NodeAuto or
	// NodeDirect; empty is NodeTunnel.
	NodeNetwork string    `json:"nodeNetwork,omitempty"`
	Gateways    []Gateway `json:"gateways"`
}

// Values of Cluster.NodeNetwork.
const (
	NodeTunnel = "tunnel" // in VXLAN; in the topology alone
	NodeAuto   = "auto"   // without VXLAN where packets pass
	NodeDirect = "direct" // like NodeAuto; pairs of nodes that need VXLAN are problems
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
	// Node is the name of the gateway's node. For a gateway with NodeSelector it is empty
	// in the document; agents fill in the current holder for gateways of their own cluster.
	Node string `json:"node"`
	// NodeSelector selects the nodes that may become the gateway by their labels; empty if
	// the gateway is always on Node.
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	Endpoints    []string          `json:"endpoints,omitempty"` // in order of preference; see ParseEndpoint
	Port         int               `json:"port"`                // UDP, the first of WireguardPorts; VXLAN has the next one
	// Ordinal numbers the gateways of a cluster, unique, from 0 to MaxGateways-1. A gateway
	// has one tunnel device for each ordinal of other clusters' gateways.
	Ordinal   int          `json:"ordinal,omitempty"`
	Addresses []netip.Addr `json:"addresses"` // inside the tunnels, one per family
	Keys      []Key        `json:"keys"`      // one per epoch, ascending
}

// Key is the public half of a gateway's tunnel key.
type Key struct {
	Epoch  int    `json:"epoch"`
	Public string `json:"public"` // X25519, base64
	// Ed25519 is the public key that authenticates the gateway in IKE, 32 bytes in
	// base64; empty if the user supplied Public but no IKE key.
	Ed25519 string `json:"ed25519,omitempty"`
}

// DynamicExports configures exports by ServiceExports without an export in the topology.
type DynamicExports struct {
	// Namespaces are patterns in which * stands for any characters. A ServiceExport
	// counts if one of them matches its namespace.
	Namespaces []string `json:"namespaces"`
	// Restrictions restricts some of these namespaces to some clusters. Agents that do not
	// know the field apply Namespaces alone.
	Restrictions []DynamicRestriction `json:"restrictions,omitempty"`
	// VIPs are the prefixes of ServicePools from which each cluster allocates the
	// clusterset IPs of dynamic exports, at most one per family. Declared exports have none.
	VIPs []netip.Prefix `json:"vips,omitempty"`
}

// DynamicRestriction lists the only clusters that may export from some namespaces.
type DynamicRestriction struct {
	Namespaces []string `json:"namespaces"` // patterns, as in DynamicExports
	Clusters   []string `json:"clusters"`   // by name
}

// Integrations of the clusterset domain with a cluster's own DNS.
const (
	DNSAuto      = "auto"           // in the topology alone: DNSCoreDNS with PreferCustomDNS
	DNSNone      = "none"           // the administrator configures forwarding
	DNSCoreDNS   = "coredns"        // a marked block in ConfigMap kube-system/coredns
	DNSImport    = "coredns-custom" // a key in ConfigMap kube-system/coredns-custom
	DNSNodeLocal = "node-local"     // like DNSCoreDNS, with the same block in ConfigMap kube-system/node-local-dns
	DNSStubZone  = "kube-dns"       // stubDomains of ConfigMap kube-system/kube-dns
)

// Types of an export (MCS API, KEP-1645).
const (
	ClusterSetIP = "ClusterSetIP"
	Headless     = "Headless"
)

// Export is a service that clusters offer to each other.
type Export struct {
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	Type      string       `json:"type"`
	VIPs      []netip.Addr `json:"vips,omitempty"` // clusterset IPs; none for Headless
	Ports     []Port       `json:"ports"`
	Affinity  string       `json:"affinity,omitempty"` // ClientIP or empty
	// Allow lists the clusters that may reach the export; nil means all.
	// An exporting cluster may always reach itself.
	Allow    []string        `json:"allow,omitempty"`
	Balance  Balance         `json:"balance"`
	Clusters []ExportCluster `json:"clusters"`
	// Dynamic is set for dynamic exports, which agents add. No document has it.
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
	IPs   []netip.Addr `json:"ips,omitempty"`   // ClusterSetIP: the export's global address(es) there
	Hosts []Host       `json:"hosts,omitempty"` // Headless: fixed global addresses
	// Ports are the ports of the export that this cluster serves; nil is all. Only
	// dynamic exports have it.
	Ports []Port `json:"ports,omitempty"`
}

// Host is a fixed global address of one pod of a headless export.
type Host struct {
	// Name is a pod's hostname, or "*-N" for any hostname that ends in the
	// StatefulSet ordinal N.
	Name string       `json:"name"`
	IPs  []netip.Addr `json:"ips"`
}
