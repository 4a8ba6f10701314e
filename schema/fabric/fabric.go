// Package fabric is the compiled clusterset: the one document that every agent
// reads. It is a wire contract: an agent accepts unknown fields (they come from
// a newer reconciler) and refuses an unknown apiVersion.
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
	ExtraDomains []string       `json:"extraDomains,omitempty"` // answered exactly like Domain
	GlobalPools  []netip.Prefix `json:"globalPools"`            // the pools that clusters' blocks come from, at most one a family
	ServicePools []netip.Prefix `json:"servicePools"`           // the pools of clusterset IPs (VIPs), at most one a family
	TunnelPools  []netip.Prefix `json:"tunnelPools"`            // the pools of gateway addresses inside the tunnels
	Tunnel       TunnelDefaults `json:"tunnel"`
	Links        []LinkSettings `json:"links,omitempty"` // those that differ from Tunnel, sorted; see Link
	Shape        Shape          `json:"shape,omitzero"`
	Health       Health         `json:"health"`
	Limits       Limits         `json:"limits,omitzero"`
	DNS          DNS            `json:"dns"`
	Epochs       []int          `json:"epochs"` // key epochs in force, ascending
	// Decommission allows agents to take down everything; without it a fabric
	// that removes all of a node's state is refused.
	Decommission bool      `json:"decommission,omitempty"`
	Clusters     []Cluster `json:"clusters"`
	// DynamicExports says which ServiceExports count that are made in a cluster and
	// not in the topology; nil = none.
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

// Health says how links are probed: one probe every Interval, dead after Misses.
type Health struct {
	Interval Duration `json:"interval"`
	Misses   int      `json:"misses"`
}

// Limits say what one pod may take of what others need too.
type Limits struct {
	// Connections is how many one pod may have at a time through one gateway; 0 = any number.
	Connections int `json:"connections,omitempty"`
}

// DNS is how the agents' name servers answer.
type DNS struct {
	ClusterNames bool       `json:"clusterNames"` // <cluster>.<svc>.<ns>.svc names exist
	TTL          Duration   `json:"ttl"`
	Address      netip.Addr `json:"address"` // link-scope address on every node where its agent answers; invalid = IPv6 only
	IPv6Address  netip.Addr `json:"ipv6Address,omitzero"`
}

// Addresses gives the addresses where agents answer, IPv4 first.
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
	EgressShared = "shared" // a fixed function of the pod picks one of EgressIPs
)

// Cluster is one member of the clusterset.
type Cluster struct {
	Name         string         `json:"name"`
	PodCIDRs     []netip.Prefix `json:"podCIDRs"`
	ServiceCIDRs []netip.Prefix `json:"serviceCIDRs"`
	// Globalnet hides the cluster's own prefixes: others see only its global
	// block, and its pods go out with egress addresses.
	Globalnet bool `json:"globalnet"`
	// FlatFamilies are those (4, 6) in which a cluster with globalnet hides nothing,
	// as its own prefixes are unique there.
	FlatFamilies []int `json:"flatFamilies,omitempty"`
	// GlobalCIDRs are the cluster's block of each of GlobalPools and, behind the one
	// of their family, what pods are mapped to beside it.
	GlobalCIDRs []netip.Prefix `json:"globalCIDRs"`
	EgressMode  string         `json:"egressMode"`
	EgressIPs   []netip.Addr   `json:"egressIPs"`             // the cluster-wide egress addresses
	Mappings    []Mapping      `json:"mappings,omitempty"`    // EgressMapped: pod prefix to global prefix
	EgressRules []EgressRule   `json:"egressRules,omitempty"` // precedence: pod selector before namespace
	// Dynamic are the prefixes of GlobalCIDRs from which the cluster gives addresses
	// to its dynamic exports, at most one a family. No other address is in there,
	// apart from those that were given before there was such a prefix.
	Dynamic []netip.Prefix `json:"dynamic,omitempty"`
	// ClusterDNS is how the cluster's pods come to resolve the domain: one of DNSNone,
	// DNSCoreDNS, DNSNodeLocal, DNSImport, DNSStubZone; empty = DNSNone.
	ClusterDNS string `json:"clusterDNS,omitempty"`
	// PreferCustomDNS has gateways do as with DNSImport instead of DNSCoreDNS where the
	// cluster's Corefile imports what stands in that ConfigMap.
	PreferCustomDNS bool      `json:"preferCustomDNS,omitempty"`
	Gateways        []Gateway `json:"gateways"`
}

// Mapping maps addresses of Pods 1:1 to those of Global, same host part.
type Mapping struct {
	Pods   netip.Prefix `json:"pods"`
	Global netip.Prefix `json:"global"` // as long as Pods
}

// EgressRule gives pods of a namespace their own egress addresses.
type EgressRule struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace"`
	MatchLabels map[string]string `json:"matchLabels,omitempty"` // empty: every pod of the namespace
	IPs         []netip.Addr      `json:"ips"`
}

// MaxGateways is how many gateways one cluster can have.
const MaxGateways = 32

// Gateway is a node that holds tunnels.
type Gateway struct {
	Name string `json:"name"`
	// Node is the one that it runs on. For a gateway with NodeSelector it is empty in the
	// document: an agent puts in which node of its own cluster holds the gateway now.
	Node string `json:"node"`
	// NodeSelector picks the nodes that may hold the gateway by their labels; empty for one
	// that is always on Node.
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	Endpoints    []string          `json:"endpoints,omitempty"` // in order of preference; see ParseEndpoint
	Port         int               `json:"port"`                // UDP, the first of WireguardPorts; VXLAN has the one behind
	// Ordinal numbers the gateways of a cluster from 0, below MaxLanes, each once. A
	// gateway has one tunnel device for each lane of other clusters' gateways.
	Ordinal   int          `json:"lane,omitempty"`
	Addresses []netip.Addr `json:"addresses"` // inside the tunnels, one a family
	Keys      []Key        `json:"keys"`      // one an epoch, ascending
}

// Key is the public half of a gateway's tunnel key.
type Key struct {
	Epoch  int    `json:"epoch"`
	Public string `json:"public"` // X25519, base64
	// Ed25519 is the public key that the gateway proves itself with in IKE, 32
	// bytes in base64; empty when it brought its own key and none for IKE.
	Ed25519 string `json:"ed25519,omitempty"`
}

// DynamicExports is what a ServiceExport that is made in a cluster needs.
type DynamicExports struct {
	// Namespaces are patterns in which * stands for any characters; a ServiceExport
	// counts where one of them matches its namespace.
	Namespaces []string `json:"namespaces"`
	// Restrictions restricts some of these namespaces to some clusters. What agents that do
	// not know of it let in is what Namespaces says.
	Restrictions []DynamicRestriction `json:"only,omitempty"`
	// VIPs are the prefixes of ServicePools from which each cluster gives its own
	// clusterset IPs to them, at most one a family. No declared export has its in there.
	VIPs []netip.Prefix `json:"vips,omitempty"`
}

// DynamicRestriction says which clusters alone may export from some namespaces.
type DynamicRestriction struct {
	Namespaces []string `json:"namespaces"` // patterns, as in DynamicExports
	Clusters   []string `json:"clusters"`   // by name
}

// Integrations of the clusterset domain with a cluster's own DNS.
const (
	DNSAuto      = "auto"           // in the topology alone: DNSCoreDNS with PreferCustomDNS
	DNSNone      = "none"           // somebody else forwards the domain
	DNSCoreDNS   = "coredns"        // a marked block in ConfigMap kube-system/coredns
	DNSImport    = "coredns-custom" // a key of its own in ConfigMap kube-system/coredns-custom
	DNSNodeLocal = "node-local"     // as DNSCoreDNS, and the same block in ConfigMap kube-system/node-local-dns
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
	// Dynamic says that the export was made in clusters. It is in no document: agents
	// add such exports.
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
	LocalFirst = "local-first" // the caller's own cluster while it is ready, then all others alike
	Spread     = "spread"      // every ready cluster alike
	Weighted   = "weighted"    // ready clusters in proportion to Weights
	Failover   = "failover"    // the first ready cluster of Order
)

// Balance says which clusters' backends a caller of the VIP reaches.
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
	// Ports are those of the export that this cluster serves; nil = all. Only exports
	// that were made in clusters differ in it.
	Ports []Port `json:"ports,omitempty"`
}

// Host is a fixed global address of one pod of a headless export.
type Host struct {
	// Name is a pod's hostname, or "*-N" for any hostname that ends in the
	// StatefulSet ordinal N.
	Name string       `json:"name"`
	IPs  []netip.Addr `json:"ips"`
}
