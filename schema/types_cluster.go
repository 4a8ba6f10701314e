package schema

import (
	"net/netip"

	"hawser.dev/hawser/schema/fabric"
)

// Values of Cluster.Globalnet.
const (
	GlobalnetAuto   = "auto"   // if the cluster's CIDRs overlap another cluster's
	GlobalnetAlways = "always" // even without an overlap
	GlobalnetNever  = "never"  // an overlap is an error
)

// Values of Globalnet.Egress; the other two are fabric.EgressMapped and
// fabric.EgressShared.
const EgressAuto = "auto"

// KeepCRDs is the value of Cluster.CRDs with which Hawser does not write the definitions.
const KeepCRDs = "keep"

// Values of Connectivity.Mode.
const (
	ModeMesh  = fabric.ModeMesh
	ModeHub   = fabric.ModeHub
	ModeLinks = fabric.ModeExplicit
)

// Cluster is one member of the clusterset: a Kubernetes cluster or a group of hosts.
type Cluster struct {
	_ struct{} `name:"name"`
	// Name of the cluster, a DNS label; unique in the clusterset.
	Name string `json:"name" required:"true"`
	// Additional owners of this cluster, next to trust.owners. They may change the fields
	// that affect only this cluster: recipient, dns, crds, nodeNetwork, gateways, egress, and
	// tunnel except tunnel.driver. They may also change the files below patches/clusters/<name>.
	Owners []string `json:"owners,omitempty"`
	// Prefixes of the cluster's pod addresses; any number, either family.
	PodCIDRs []netip.Prefix `json:"podCIDRs,omitempty"`
	// Prefixes of the cluster's Service addresses (ClusterIPs).
	ServiceCIDRs []netip.Prefix `json:"serviceCIDRs,omitempty"`
	// Whether other clusters see global addresses instead of the cluster's own. auto:
	// if its CIDRs overlap another cluster's; always: even without an overlap; never: an
	// overlap is an error.
	Globalnet string `json:"globalnet,omitempty" default:"auto" enum:"auto|always|never"`
	// The cluster's block of spec.globalnet.cidr. Without it a block is allocated and
	// recorded in the lock file.
	GlobalCIDR netip.Prefix `json:"globalCIDR,omitzero"`
	// The cluster's block of spec.globalnet.ipv6Cidr. Without it a block is allocated and
	// recorded in the lock file.
	GlobalIPv6CIDR netip.Prefix `json:"globalIPv6CIDR,omitzero"`
	// The age recipient for which this cluster's keys are encrypted: age1..., or age1pq1...
	// from hawser keys identity --post-quantum.
	Recipient string `json:"recipient" required:"true" hint:"hawser keys identity FILE makes the identity of a cluster and prints its recipient" owner:"cluster"`
	// How the cluster's own DNS forwards the clusterset's domains to the agents. auto:
	// coredns-custom if that ConfigMap exists and the Corefile imports *.server files, as
	// in k3s and AKS; otherwise coredns. coredns: a marked block in ConfigMap
	// kube-system/coredns; node-local: that block, and the same block in ConfigMap
	// kube-system/node-local-dns, for pods that query NodeLocal DNSCache;
	// coredns-custom: a separate key in ConfigMap kube-system/coredns-custom;
	// kube-dns: stubDomains in ConfigMap kube-system/kube-dns; none: Hawser writes
	// nothing, and you configure the forwarding.
	DNS string `json:"dns,omitempty" default:"auto" enum:"auto|coredns|node-local|coredns-custom|kube-dns|none" owner:"cluster"`
	// Who installs the CRDs of ServiceExport and ServiceImport. install: Hawser renders
	// the definitions; keep: Hawser does not write them. Exports of this file need no
	// CRDs.
	CRDs string `json:"crds,omitempty" default:"install" enum:"install|keep" owner:"cluster"`
	// Overrides of spec.tunnel for this cluster.
	Tunnel TunnelOverride `json:"tunnel,omitzero"`
	// How nodes exchange packets of other clusters with the gateways of this cluster. tunnel:
	// in VXLAN. auto: without VXLAN where the network between two nodes carries such packets;
	// agents test that all the time and use VXLAN where it does not. direct: like auto, and
	// each pair of nodes that needs VXLAN is reported as a problem.
	NodeNetwork string `json:"nodeNetwork,omitempty" default:"auto" enum:"tunnel|auto|direct" owner:"cluster"`
	// The gateways of the cluster, which have its tunnels; 1 to 32.
	Gateways []Gateway `json:"gateways" required:"true" owner:"cluster"`
	// Egress addresses for some of the cluster's pods. A rule with a podSelector
	// overrides a rule for the whole namespace.
	Egress []EgressRule `json:"egress,omitempty" owner:"cluster"`
}

// Gateway is a node that has tunnels, or several such nodes selected by labels.
type Gateway struct {
	_ struct{} `name:"name"`
	// Name of the gateway, a DNS label; unique in its cluster. With nodeSelector the
	// gateways are <name>-1, <name>-2 and so on.
	Name string `json:"name" required:"true"`
	// Name of the gateway's Node in Kubernetes. Set either this or nodeSelector.
	Node string `json:"node,omitempty"`
	// Labels that a node must have to run the gateway, all of them. At least one must be a
	// label that kubelets cannot set, such as
	// node-restriction.kubernetes.io/hawser-gateway. The agents of these nodes elect one
	// node, and another node takes over if it fails. Needs agents with a Kubernetes API.
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Accepts a nodeSelector whose labels a kubelet may set on its own Node. Any node of
	// the cluster can then make itself a gateway and read the cluster's private keys.
	AllowNodeLabels bool `json:"allowNodeLabels,omitempty"`
	// Number of gateways that nodeSelector selects, each on its own node; 1 if not set.
	Count *int `json:"count,omitempty" min:"1" max:"32"`
	// Where other gateways reach the gateway, in order of preference: addresses, or
	// dns:<name>. Both can have a port, such as 203.0.113.7:6000, at a router that forwards
	// this port and the following ones to the gateway's ports. Sources of discovered
	// endpoints can follow. Gateways announce these endpoints to each other over existing
	// links: node:ExternalIP and node:InternalIP are the addresses of its Node;
	// service:LoadBalancer and service:NodePort are the addresses of a Service that Hawser
	// renders for it; seen is its observed address, from which other gateways receive its
	// packets. Without endpoints the gateway only dials out.
	Endpoints []string `json:"endpoints,omitempty"`
	// First of the UDP ports on which the gateway listens. 0: the port of the cluster,
	// otherwise spec.tunnel.port.
	Port int `json:"port,omitempty" min:"1" max:"65470"`
	// Public key of your own key pair: 32 bytes (X25519) in base64. Hawser then renders
	// no private key for the gateway; the node must have it already.
	PublicKey string `json:"publicKey,omitempty"`
	// Public key of your own IKE key pair: 32 bytes (Ed25519) in base64. IPsec links of a
	// gateway with publicKey need it. The node must have the private key.
	IKEPublicKey string `json:"ikePublicKey,omitempty"`
}

// EgressRule assigns separate egress addresses to pods.
type EgressRule struct {
	_ struct{} `name:"name"`
	// Name of the rule, a DNS label; unique in its cluster.
	Name string `json:"name" required:"true"`
	// Namespace of the pods.
	Namespace string `json:"namespace" required:"true"`
	// Pods of the namespace; by default all of them.
	PodSelector *PodSelector `json:"podSelector,omitempty"`
	// Number of egress addresses of the rule.
	IPs int `json:"ips,omitempty" default:"1" min:"1" max:"20"`
}

// PodSelector selects pods by their labels.
type PodSelector struct {
	// Labels that a pod must have, all of them.
	MatchLabels map[string]string `json:"matchLabels" required:"true"`
}
