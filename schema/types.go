package schema

import (
	"net/netip"

	"hawser.dev/hawser/schema/fabric"
)

// The only apiVersion and kind that load.Topology accepts.
const (
	APIVersion = "hawser.dev/v1alpha1"
	Kind       = "ClusterSet"
)

// ClusterSet is the topology file: the configuration that all clusters share.
type ClusterSet struct {
	// Version of the file format.
	APIVersion string `json:"apiVersion" required:"true" enum:"hawser.dev/v1alpha1"`
	// Type of the document.
	Kind string `json:"kind" required:"true" enum:"ClusterSet"`
	// Name of the clusterset.
	Metadata Metadata `json:"metadata"`
	// Settings and members of the clusterset.
	Spec Spec `json:"spec"`
}

// Metadata names the clusterset.
type Metadata struct {
	// Name of the clusterset, a DNS label. Every tunnel key is derived from it, so
	// a new name replaces all keys.
	Name string `json:"name" required:"true"`
}

// Spec is the body of the topology file.
type Spec struct {
	// DNS domain of the clusterset's names, as in
	// <service>.<namespace>.svc.<domain>. It must not contain a cluster's own domain,
	// hide names of that domain, or be a reverse zone.
	Domain string `json:"domain,omitempty" default:"clusterset.local"`
	// Additional domains with the same names as domain.
	ExtraDomains []string `json:"extraDomains,omitempty"`
	// The global address space. It lets clusters with overlapping CIDRs reach each
	// other.
	Globalnet Globalnet `json:"globalnet,omitzero"`
	// The pool of clusterset IPs.
	Services Services `json:"services,omitzero"`
	// Defaults for every tunnel.
	Tunnel Tunnel `json:"tunnel,omitzero"`
	// Settings for the links between two clusters. They override tunnel and the
	// settings of the two clusters.
	Links []Link `json:"links,omitempty"`
	// How links are probed.
	Health Health `json:"health,omitzero"`
	// Which clusters have links to each other.
	Connectivity Connectivity `json:"connectivity,omitzero"`
	// How much of the shared resources one pod may use.
	Limits Limits `json:"limits,omitzero"`
	// How agents answer DNS queries.
	DNS DNS `json:"dns,omitzero"`
	// The active generations of tunnel keys.
	Keys Keys `json:"keys,omitzero"`
	// Signers whose commits of the topology are accepted, and keys that sign published
	// commits.
	Trust Trust `json:"trust,omitzero"`
	// Whether agents in Kubernetes serve metrics.
	Metrics Metrics `json:"metrics,omitzero"`
	// How agents run in Kubernetes.
	Agent Agent `json:"agent,omitzero"`
	// Serves a web page about the clusterset from its clusters. {} enables it with
	// defaults. By default no cluster serves the page.
	UI *UI `json:"ui,omitempty"`
	// Allows agents to remove everything that Hawser created. A clusterset without
	// clusters is rejected unless this is true.
	Decommission bool `json:"decommission,omitempty"`
	// The members of the clusterset.
	Clusters []Cluster `json:"clusters"`
	// Accepts exports that a ServiceExport in a cluster creates. By default only the
	// exports of this file count. A mapping is the same as a list with one item.
	// Addresses of these exports come from a quarter of each cluster's global block
	// and half of the pool of clusterset IPs. These ranges are then reserved; existing
	// addresses do not change.
	DynamicExports *DynamicExports `json:"dynamicExports,omitempty"`
	// The Services that clusters export to each other.
	Exports []Export `json:"exports,omitempty" owner:"namespace"`
}

// Trust names the signers whose commits of the topology are accepted, and the keys that sign
// published commits.
type Trust struct {
	// Path of a file with the accepted signers, relative to the directory of this file. It is
	// an allowed_signers file of ssh-keygen, an armored OpenPGP key ring, or both in one
	// file. Once a topology with this field is published, hawser reconcile accepts only
	// commits signed by a key that the file contained one commit earlier. The signer of a
	// merge vouches for the merged commits. Of the options in a line, only namespaces= is
	// accepted.
	Commits string `json:"commits,omitempty"`
	// Fingerprints of the OpenPGP keys that sign published commits, for Argo CD: 40 hex
	// digits, as gpg --list-keys shows them; at most 16. The AppProject of the Applications
	// accepts only commits signed by one of these keys. hawser reconcile needs one of
	// these keys to publish (--sign-openpgp).
	OpenPGPKeys []string `json:"openPGPKeys,omitempty"`
	// Principals that may change everything: names from the first field of a line of the
	// allowed_signers file, or patterns in which * matches any characters. If set, the
	// signer of a commit must own each change in it. If nothing in the topology has
	// owners, every signer may change everything.
	Owners []string `json:"owners,omitempty"`
	// Additional owners of certain namespaces. They may change the exports of these
	// namespaces, and the patterns of dynamicExports that match only these namespaces. If
	// several items match a namespace, the owners of all these items own it.
	Namespaces []NamespaceOwners `json:"namespaces,omitempty"`
}

// NamespaceOwners names the owners of the exports of certain namespaces.
type NamespaceOwners struct {
	// Namespaces: names, or patterns in which * matches any characters.
	Names []string `json:"names" required:"true"`
	// Principals, as in trust.owners.
	Owners []string `json:"owners" required:"true"`
}

// DynamicExports selects the ServiceExports that count although exports does not list
// them. In the file it is a list of rules, or a single rule.
type DynamicExports struct {
	Rules []DynamicRule // one or more
	Alone bool          // a single rule instead of a list
}

// DynamicRule names the clusters that may create exports in some namespaces.
type DynamicRule struct {
	// Namespaces whose ServiceExports count: names, or patterns in which * matches any
	// characters. A pattern that begins with * needs quotes.
	Namespaces []string `json:"namespaces" required:"true"`
	// Names of the clusters that may export from these namespaces. Exports of other
	// clusters are ignored and reported. Without it any cluster may export, unless
	// another item reserves the namespace for some clusters. If several items reserve a
	// namespace, the clusters of all these items may export from it.
	Clusters []string `json:"clusters,omitempty"`
}

// Globalnet is the global address space.
type Globalnet struct {
	// IPv4 pool of the clusters' global blocks. It has no default if all prefixes of
	// the clusters are IPv6.
	CIDR netip.Prefix `json:"cidr,omitzero" default:"242.0.0.0/8"`
	// IPv6 pool of the clusters' global blocks. Default, if a cluster has an IPv6 prefix:
	// a unique local /48 (RFC 4193), derived from the clusterset's name.
	IPv6CIDR netip.Prefix `json:"ipv6Cidr,omitzero"`
	// Length in bits of the IPv4 prefix that is one cluster's block. 0: as
	// large as the egress mode needs.
	ClusterPrefix int `json:"clusterPrefix,omitempty" min:"8" max:"29"`
	// Source addresses of pods in a cluster with globalnet. mapped: one
	// global address per pod; shared: pods share egressIPs; auto: mapped if the
	// cluster's block is large enough, otherwise shared.
	Egress string `json:"egress,omitempty" default:"auto" enum:"auto|mapped|shared"`
	// Number of egress addresses of a cluster. In shared mode its pods share them.
	// Processes on the host network use them in both modes.
	EgressIPs int `json:"egressIPs,omitempty" default:"8" min:"1" max:"64"`
}

// Services is the pool of clusterset IPs.
type Services struct {
	// IPv4 pool of clusterset IPs, one for each export of type ClusterSetIP. It has no
	// default if all prefixes of the clusters are IPv6.
	CIDR netip.Prefix `json:"cidr,omitzero" default:"243.0.0.0/16"`
	// IPv6 pool of clusterset IPs. Default, if a cluster has an IPv6 prefix: a /64 derived
	// from the clusterset's name.
	IPv6CIDR netip.Prefix `json:"ipv6Cidr,omitzero"`
}

// Tunnel holds the defaults of every link between gateways.
type Tunnel struct {
	// Protocol of the tunnels between gateways. vxlan does not encrypt: use it only in
	// trusted networks.
	Driver string `json:"driver,omitempty" default:"wireguard" enum:"wireguard|ipsec|vxlan"`
	// IPv4 pool of the gateways' addresses inside the tunnels. It has no default if all
	// prefixes of the clusters are IPv6.
	CIDR netip.Prefix `json:"cidr,omitzero" default:"241.0.0.0/16"`
	// IPv6 pool of the gateways' addresses inside the tunnels. Default, if a cluster has
	// an IPv6 prefix: a /64 derived from the clusterset's name.
	IPv6CIDR netip.Prefix `json:"ipv6Cidr,omitzero"`
	// First of the UDP ports on which gateways listen. WireGuard uses two ports for each
	// gateway of the largest cluster, 64 at most. VXLAN uses the two ports after these
	// 64. IPsec uses ikePort and natPort.
	Port int `json:"port,omitempty" default:"51820" min:"1" max:"65470"`
	// MTU of the tunnel devices in bytes. 0: the MTU of the underlay minus the overhead
	// of the driver.
	MTU int `json:"mtu,omitempty" min:"576" max:"65535"`
	// Interval of the packets that a gateway sends to keep NAT and firewalls on the path
	// open. 0s: never.
	Keepalive *fabric.Duration `json:"keepalive,omitempty" default:"25s" min:"0s" max:"18h12m15s"`
	// Settings of links with driver ipsec.
	IPsec IPsec `json:"ipsec,omitzero"`
}

// IPsec configures links with driver ipsec. Gateways authenticate with their own keys;
// there is no shared secret to set.
type IPsec struct {
	// Encapsulation of ESP. auto: in UDP if an address is translated on the path,
	// otherwise as IP protocol 50; udp: always in UDP; native: never in UDP.
	Encapsulation string `json:"encapsulation,omitempty" default:"auto" enum:"auto|udp|native"`
	// UDP port of IKE.
	IKEPort int `json:"ikePort,omitempty" default:"500" min:"1" max:"65535"`
	// UDP port of IKE and ESP through address translation.
	NATPort int `json:"natPort,omitempty" default:"4500" min:"1" max:"65535"`
	// Ciphers in order of preference: aes-gcm (AES-256-GCM), chacha20
	// (ChaCha20-Poly1305).
	Proposals []string `json:"proposals,omitempty" default:"aes-gcm,chacha20"`
	// Age at which the keys of ESP are replaced. No packet is lost.
	Rekey fabric.Duration `json:"rekey,omitempty" default:"1h" min:"10s" max:"24h"`
}

// TunnelOverride overrides spec.tunnel for one cluster.
type TunnelOverride struct {
	// As spec.tunnel.driver, for every link of this cluster.
	Driver string `json:"driver,omitempty" enum:"wireguard|ipsec|vxlan"`
	// First of the UDP ports on which this cluster's gateways listen.
	Port int `json:"port,omitempty" min:"1" max:"65470" owner:"cluster"`
	// MTU in bytes of this cluster's links. Between two clusters the smaller value counts.
	MTU int `json:"mtu,omitempty" min:"576" max:"65535" owner:"cluster"`
	// As spec.tunnel.keepalive, for this cluster's links. Between two clusters the
	// shorter interval counts.
	Keepalive *fabric.Duration `json:"keepalive,omitempty" min:"0s" max:"18h12m15s" owner:"cluster"`
}

// Link overrides spec.tunnel and the settings of two clusters for the links between them.
type Link struct {
	// The two clusters.
	Between []string `json:"between" required:"true"`
	// As spec.tunnel.driver, for these links.
	Driver string `json:"driver,omitempty" enum:"wireguard|ipsec|vxlan"`
	// As spec.tunnel.port, for the gateways of both clusters on these links.
	Port int `json:"port,omitempty" min:"1" max:"65470"`
	// As spec.tunnel.mtu, for these links.
	MTU int `json:"mtu,omitempty" min:"576" max:"65535"`
	// As spec.tunnel.keepalive, for these links.
	Keepalive *fabric.Duration `json:"keepalive,omitempty" min:"0s" max:"18h12m15s"`
}

// Health configures the probes of links.
type Health struct {
	// Time between two probes of a link.
	Interval fabric.Duration `json:"interval,omitempty" default:"250ms" min:"20ms" max:"1m"`
	// Number of unanswered probes after which a link is down.
	Misses int `json:"misses,omitempty" default:"3" min:"1" max:"100"`
}

// Limits bounds the shared resources that one pod may use.
type Limits struct {
	// Number of connections to other clusters that one pod may have at a time through one
	// gateway of its own cluster; a flow of UDP or ICMP counts as one. Further new
	// connections are dropped and counted as quota; existing connections continue. A pod
	// is identified by its address. If the limit is 512 or more, only a random sample of
	// its connections is counted, and the effective limit is between 0.8 and 1.2 times the
	// number. 0: no limit.
	Connections *int `json:"connections,omitempty" default:"32768" min:"0" max:"16777216"`
}

// Connectivity selects the clusters that have links to each other.
type Connectivity struct {
	// mesh: every cluster has links to every other; hub: every cluster has links to each
	// of hubs, and the others reach each other through a hub; links: only the pairs of
	// clusters in links have links, and all others use the shortest path over these.
	Mode string `json:"mode,omitempty" default:"mesh" enum:"mesh|hub|links"`
	// Clusters to which all others connect; mode hub only.
	Hubs []string `json:"hubs,omitempty"`
	// Pairs of clusters, each [a, b]; mode links only.
	Links [][]string `json:"links,omitempty"`
	// Allows links that leave clusters without a path to others; mode links only.
	Partial bool `json:"partial,omitempty"`
}

// DNS configures the name server of the agents.
type DNS struct {
	// Whether names of the form <cluster>.<service>.<namespace>.svc.<domain> exist.
	ClusterNames *bool `json:"clusterNames,omitempty" default:"true"`
	// How long resolvers may cache an answer; whole seconds.
	TTL *fabric.Duration `json:"ttl,omitempty" default:"5s" min:"0s" max:"1h"`
	// Link-local IPv4 address at which the agent of each node answers, the same on all
	// nodes. It has no default if all prefixes of the clusters are IPv6.
	Address netip.Addr `json:"address,omitzero" default:"169.254.73.53"`
	// The same for IPv6. Default, if a cluster has an IPv6 prefix: fd68:6177:7365:72::53.
	IPv6Address netip.Addr `json:"ipv6Address,omitzero"`
}

// Keys lists the generations of tunnel keys.
type Keys struct {
	// Active generations: one, or two consecutive ones. To rotate the keys without
	// packet loss, add the next generation. Remove the old one when no link uses it.
	Epochs []int `json:"epochs,omitempty" default:"1"`
}

// Metrics configures the Prometheus metrics of agents in Kubernetes. Outside Kubernetes
// use hawser-agent run --metrics.
type Metrics struct {
	// TCP port of the metrics, on the address of each node. Anyone who can reach the port
	// can read the metrics. They contain names of clusters, gateways and nodes, but no
	// secrets. 0: no metrics.
	Port int `json:"port,omitempty" min:"1024" max:"65535"`
}
