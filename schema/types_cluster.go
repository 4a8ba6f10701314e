package schema

import (
	"net/netip"

	"hawser.dev/hawser/schema/fabric"
)

// Values of Cluster.Globalnet.
const (
	GlobalnetAuto   = "auto"   // when the cluster's CIDRs overlap another's
	GlobalnetAlways = "always" // in any case
	GlobalnetNever  = "never"  // an overlap is an error
)

// Values of Globalnet.Egress; the other two are fabric.EgressMapped and
// fabric.EgressShared.
const EgressAuto = "auto"

// KeepCRDs as Cluster.CRDs leaves definitions that others may own to them.
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
	// Principals that may, besides trust.owners, change the fields that affect this
	// cluster alone: recipient, dns, crds, gateways, egress, and tunnel except tunnel.driver;
	// and the files below patches/clusters/<name>.
	Owners []string `json:"owners,omitempty"`
	// Prefixes that the cluster's pods have their addresses from; any number,
	// either family.
	PodCIDRs []netip.Prefix `json:"podCIDRs,omitempty"`
	// Prefixes of the cluster's Service addresses (ClusterIPs).
	ServiceCIDRs []netip.Prefix `json:"serviceCIDRs,omitempty"`
	// Whether the cluster's own addresses are hidden behind global ones. auto:
	// when its CIDRs overlap another cluster's; always; never: an overlap is an error.
	Globalnet string `json:"globalnet,omitempty" default:"auto" enum:"auto|always|never"`
	// The cluster's block of spec.globalnet.cidr. Without it one is allocated
	// and kept in the lock file.
	GlobalCIDR netip.Prefix `json:"globalCIDR,omitzero"`
	// The cluster's block of spec.globalnet.ipv6Cidr. Without it one is
	// allocated and kept in the lock file.
	GlobalIPv6CIDR netip.Prefix `json:"globalIPv6CIDR,omitzero"`
	// The age recipient (age1..., or age1pq1... of hawser keys identity --post-quantum) whose identity opens this cluster's keys.
	Recipient string `json:"recipient" required:"true" hint:"hawser keys identity FILE makes the identity of a cluster and prints its recipient" owner:"cluster"`
	// How the cluster's own DNS learns of the clusterset's domains. auto: as
	// coredns-custom where there is that ConfigMap and the Corefile imports *.server
	// files, as clusters of k3s and AKS do; otherwise as coredns. coredns: by a marked block in ConfigMap kube-system/coredns; node-local: by that one and the
	// same in ConfigMap kube-system/node-local-dns, where pods ask NodeLocal DNSCache;
	// coredns-custom: by a key of its own in ConfigMap kube-system/coredns-custom;
	// kube-dns: by stubDomains in ConfigMap kube-system/kube-dns; none: somebody else
	// sees to it.
	DNS string `json:"dns,omitempty" default:"auto" enum:"auto|coredns|node-local|coredns-custom|kube-dns|none" owner:"cluster"`
	// Who defines ServiceExports and ServiceImports in the cluster. install: Hawser
	// brings the definitions along; keep: somebody else does, or nobody, and Hawser
	// leaves them alone. Declared exports need none of them.
	CRDs string `json:"crds,omitempty" default:"install" enum:"install|keep" owner:"cluster"`
	// What this cluster does differently from spec.tunnel.
	Tunnel TunnelOverride `json:"tunnel,omitzero"`
	// Gateways hold tunnels; at least one, at most 32.
	Gateways []Gateway `json:"gateways" required:"true" owner:"cluster"`
	// Egress addresses for some of the cluster's pods. A rule with a podSelector
	// comes before one for the whole namespace.
	Egress []EgressRule `json:"egress,omitempty" owner:"cluster"`
}

// Gateway is a node that holds tunnels, or some of them that are picked by labels.
type Gateway struct {
	_ struct{} `name:"name"`
	// Name of the gateway, a DNS label; unique in its cluster. Gateways that
	// nodeSelector picks are <name>-1, <name>-2 and so on.
	Name string `json:"name" required:"true"`
	// Name of the node that it runs on, as Kubernetes knows it. Either this or
	// nodeSelector.
	Node string `json:"node,omitempty"`
	// Labels of the nodes that it may run on, every one of them. At least one must be a
	// label that kubelets cannot set, such as
	// node-restriction.kubernetes.io/hawser-gateway. The agents of these nodes choose one,
	// and another node takes over when that node fails. Needs agents with a Kubernetes API.
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Accepts a nodeSelector whose labels a kubelet may set on its own Node. Any node of
	// the cluster can then make itself a gateway and read the cluster's private keys.
	AllowNodeLabels bool `json:"allowNodeLabels,omitempty"`
	// How many gateways nodeSelector makes, each on a node of its own; 1 without it.
	Count *int `json:"count,omitempty" min:"1" max:"32"`
	// Where other gateways reach it, in order of preference: addresses, or
	// dns:<name>. With :<port> behind it, a router forwards from there: that port to
	// the gateway's first, and so on. Behind those, sources of endpoints that are found,
	// and that others hear over the links that stand: node:ExternalIP and node:InternalIP
	// are the addresses of its Node, service:LoadBalancer and service:NodePort those of a
	// Service that Hawser renders for it, and seen is where others receive from.
	// Without any endpoint it only dials out.
	Endpoints []string `json:"endpoints,omitempty"`
	// First of the UDP ports on which it listens. 0: the cluster's, otherwise
	// spec.tunnel.port.
	Port int `json:"port,omitempty" min:"1" max:"65472"`
	// Public half of a key of your own: 32 bytes (X25519) in base64. Then no
	// private key is rendered for it; the node has it already.
	PublicKey string `json:"publicKey,omitempty"`
	// Public half of an IKE key of your own, which IPsec links of a gateway with
	// publicKey need: 32 bytes (Ed25519) in base64. The node has the private one.
	IKEPublicKey string `json:"ikePublicKey,omitempty"`
}

// EgressRule gives pods their own egress addresses.
type EgressRule struct {
	_ struct{} `name:"name"`
	// Name of the rule, a DNS label; unique in its cluster.
	Name string `json:"name" required:"true"`
	// Namespace of the pods.
	Namespace string `json:"namespace" required:"true"`
	// Which pods of the namespace; without it, all.
	PodSelector *PodSelector `json:"podSelector,omitempty"`
	// Number of egress addresses of the rule.
	IPs int `json:"ips,omitempty" default:"1" min:"1" max:"20"`
}

// PodSelector picks pods by their labels.
type PodSelector struct {
	// Labels that a pod must have, every one of them.
	MatchLabels map[string]string `json:"matchLabels" required:"true"`
}
