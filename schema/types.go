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

// ClusterSet is the topology file: everything that all clusters must agree on.
type ClusterSet struct {
	// Version of this format.
	APIVersion string `json:"apiVersion" required:"true" enum:"hawser.dev/v1alpha1"`
	// What the document is.
	Kind string `json:"kind" required:"true" enum:"ClusterSet"`
	// Name of the clusterset.
	Metadata Metadata `json:"metadata"`
	// The clusterset itself.
	Spec Spec `json:"spec"`
}

// Metadata names the clusterset.
type Metadata struct {
	// Name of the clusterset, a DNS label. It goes into the derivation of every
	// tunnel key, so that changing it replaces all keys.
	Name string `json:"name" required:"true"`
}

// Spec is the body of the topology file.
type Spec struct {
	// DNS domain of the clusterset's names, as in
	// <service>.<namespace>.svc.<domain>. It may not contain a cluster's own domain,
	// hide names of it, or be a reverse zone.
	Domain string `json:"domain,omitempty" default:"clusterset.local"`
	// More domains that are answered exactly like domain.
	ExtraDomains []string `json:"extraDomains,omitempty"`
	// The global address space, by which clusters with the same CIDRs reach
	// each other.
	Globalnet Globalnet `json:"globalnet,omitzero"`
	// The pool of clusterset IPs.
	Services Services `json:"services,omitzero"`
	// Defaults of every tunnel.
	Tunnel Tunnel `json:"tunnel,omitzero"`
	// What single links between two clusters do differently from tunnel, and from
	// what their clusters say.
	Links []Link `json:"links,omitempty"`
	// How links are probed.
	Health Health `json:"health,omitzero"`
	// Which clusters have a tunnel to each other.
	Connectivity Connectivity `json:"connectivity,omitzero"`
	// What one pod may take of what others need too.
	Limits Limits `json:"limits,omitzero"`
	// How names are answered.
	DNS DNS `json:"dns,omitzero"`
	// The generations of tunnel keys in force.
	Keys Keys `json:"keys,omitzero"`
	// Whose commits of the topology count, and which keys sign published commits.
	Trust Trust `json:"trust,omitzero"`
	// Whether agents in Kubernetes serve metrics.
	Metrics Metrics `json:"metrics,omitzero"`
	// How agents run in Kubernetes.
	Agent Agent `json:"agent,omitzero"`
	// Whether clusters serve the web page of the clusterset, for people to look at. {} is
	// enough; without it no cluster does.
	UI *UI `json:"ui,omitempty"`
	// Allows agents to take down everything that Hawser made. Without it a
	// clusterset without clusters is refused.
	Decommission bool `json:"decommission,omitempty"`
	// The members of the clusterset.
	Clusters []Cluster `json:"clusters"`
	// Whether exports may be made in the clusters too, with a ServiceExport.
	// Without it only those in exports count. A mapping is the same as a list of it
	// alone. For their addresses a quarter of every cluster's global block is kept,
	// and half of the pool of clusterset IPs; nothing moves for that.
	DynamicExports *DynamicExports `json:"dynamicExports,omitempty"`
	// The services that clusters offer to each other.
	Exports []Export `json:"exports,omitempty" owner:"namespace"`
}

// Trust names whose commits of the topology count, and which keys sign published commits.
type Trust struct {
	// Path, from the folder of this file, of an allowed_signers file as ssh-keygen has
	// it, of an OpenPGP key ring in armor, or of a file with both. Once a topology with
	// it is published, hawser reconcile takes only commits that are signed by a key that
	// the file had one commit before; what a merge brings in its signer vouches for.
	// Options of a line other than namespaces are not used.
	Commits string `json:"commits,omitempty"`
	// Fingerprints of the OpenPGP keys that sign what is published, for Argo CD: 40 hex
	// digits, as gpg --list-keys shows them. The Applications are then in an AppProject
	// that takes only commits signed by one of these, and hawser reconcile, which signs
	// with one of them (--sign-openpgp), publishes nothing without it. At most 16.
	OpenPGPKeys []string `json:"openPGPKeys,omitempty"`
	// Principals that may change everything: names from the first field of a line of the
	// allowed_signers file, or patterns in which * stands for any characters. When it is
	// set, each change that a commit makes must be owned by the principal that signed the
	// commit. When nothing has owners, every signer may change everything.
	Owners []string `json:"owners,omitempty"`
	// Principals that may, besides owners, change the exports of certain namespaces, and
	// the patterns of dynamicExports that match only these. If several items match a
	// namespace, the owners of all of them own it.
	Namespaces []NamespaceOwners `json:"namespaces,omitempty"`
}

// NamespaceOwners names the owners of what is exported from certain namespaces.
type NamespaceOwners struct {
	// Namespaces: names, or patterns in which * stands for any characters.
	Names []string `json:"names" required:"true"`
	// Principals, as in trust.owners.
	Owners []string `json:"owners" required:"true"`
}

// DynamicExports says which ServiceExports count that are made in a cluster and are
// not in exports. In the file it is a list of rules, or one rule alone.
type DynamicExports struct {
	Rules []DynamicRule // one or more
	Alone bool          // written without a list
}

// DynamicRule says who may make exports in some namespaces.
type DynamicRule struct {
	// Namespaces in which they count: names, or patterns in which * stands for any
	// characters. A pattern that begins with * is written in quotes.
	Namespaces []string `json:"namespaces" required:"true"`
	// Names of the clusters that may export from these namespaces. What another one
	// says of them does not count anywhere, and is told. By default any cluster may,
	// from namespaces that no item keeps for some; a namespace that several items
	// keep is for the clusters of all of them.
	Clusters []string `json:"clusters,omitempty"`
}

// Globalnet is the global address space.
type Globalnet struct {
	// IPv4 pool that the clusters' global blocks are taken from. There is none by
	// default when all the clusters' prefixes are IPv6.
	CIDR netip.Prefix `json:"cidr,omitzero" default:"242.0.0.0/8"`
	// IPv6 pool of the clusters' global blocks. By default, when some cluster has an
	// IPv6 prefix: a /48 of its own (RFC 4193) made of the clusterset's name.
	IPv6CIDR netip.Prefix `json:"ipv6Cidr,omitzero"`
	// Length in bits of the IPv4 prefix that is one cluster's block. 0: as
	// large as the egress mode needs.
	ClusterPrefix int `json:"clusterPrefix,omitempty" min:"8" max:"29"`
	// How pods of a cluster with globalnet go out. mapped: every pod has its
	// own global address; shared: pods share egressIPs; auto: mapped where the
	// cluster's block is large enough, otherwise shared.
	Egress string `json:"egress,omitempty" default:"auto" enum:"auto|mapped|shared"`
	// Number of egress addresses of a cluster, which its pods share in shared
	// mode and processes on the host network in both.
	EgressIPs int `json:"egressIPs,omitempty" default:"8" min:"1" max:"64"`
}

// Services is the pool of clusterset IPs.
type Services struct {
	// IPv4 pool of clusterset IPs, one for each export of type ClusterSetIP. There
	// is none by default when all the clusters' prefixes are IPv6.
	CIDR netip.Prefix `json:"cidr,omitzero" default:"243.0.0.0/16"`
	// IPv6 pool of clusterset IPs. By default, when some cluster has an IPv6 prefix:
	// a /64 made of the clusterset's name.
	IPv6CIDR netip.Prefix `json:"ipv6Cidr,omitzero"`
}

// Tunnel holds the defaults of every link between gateways.
type Tunnel struct {
	// What carries packets between gateways. vxlan does not encrypt: it is for
	// networks that are trusted.
	Driver string `json:"driver,omitempty" default:"wireguard" enum:"wireguard|ipsec|vxlan"`
	// IPv4 pool of the gateways' addresses inside the tunnels. There is none by
	// default when all the clusters' prefixes are IPv6.
	CIDR netip.Prefix `json:"cidr,omitzero" default:"241.0.0.0/16"`
	// IPv6 pool of the gateways' addresses inside the tunnels. By default, when some
	// cluster has an IPv6 prefix: a /64 made of the clusterset's name.
	IPv6CIDR netip.Prefix `json:"ipv6Cidr,omitzero"`
	// First of the UDP ports on which gateways listen. WireGuard takes two for each
	// gateway of the largest cluster, and never more than 64; VXLAN takes the one
	// behind these 64. IPsec has ports of its own.
	Port int `json:"port,omitempty" default:"51820" min:"1" max:"65472"`
	// MTU of the tunnel devices in bytes. 0: the MTU of the underlay less what
	// the driver adds.
	MTU int `json:"mtu,omitempty" min:"576" max:"65535"`
	// How often a gateway sends something to keep NAT and firewalls on the path
	// open. 0s: never.
	Keepalive *fabric.Duration `json:"keepalive,omitempty" default:"25s" min:"0s" max:"18h12m15s"`
	// How links with driver ipsec are made.
	IPsec IPsec `json:"ipsec,omitzero"`
}

// IPsec is how links with driver ipsec are made. Gateways prove themselves with
// keys of their own; there is no shared secret to set.
type IPsec struct {
	// How ESP travels. auto: in UDP where an address is translated on the way,
	// otherwise as IP protocol 50; udp: always in UDP; native: never.
	Encapsulation string `json:"encapsulation,omitempty" default:"auto" enum:"auto|udp|native"`
	// UDP port of IKE.
	IKEPort int `json:"ikePort,omitempty" default:"500" min:"1" max:"65535"`
	// UDP port of IKE and ESP through address translation.
	NATPort int `json:"natPort,omitempty" default:"4500" min:"1" max:"65535"`
	// Ciphers in order of preference: aes-gcm (AES-256-GCM), chacha20
	// (ChaCha20-Poly1305).
	Proposals []string `json:"proposals,omitempty" default:"aes-gcm,chacha20"`
	// Age at which the keys of ESP are replaced; nothing is lost then.
	Rekey fabric.Duration `json:"rekey,omitempty" default:"1h" min:"10s" max:"24h"`
}

// TunnelOverride is what one cluster does differently from spec.tunnel.
type TunnelOverride struct {
	// As spec.tunnel.driver, for every link of this cluster.
	Driver string `json:"driver,omitempty" enum:"wireguard|ipsec|vxlan"`
	// First of the UDP ports on which this cluster's gateways listen.
	Port int `json:"port,omitempty" min:"1" max:"65472" owner:"cluster"`
	// MTU in bytes of this cluster's links. Of two clusters the smaller one counts.
	MTU int `json:"mtu,omitempty" min:"576" max:"65535" owner:"cluster"`
	// As spec.tunnel.keepalive, for this cluster's links. Of two clusters the
	// shorter one counts.
	Keepalive *fabric.Duration `json:"keepalive,omitempty" min:"0s" max:"18h12m15s" owner:"cluster"`
}

// Link is what the link between two clusters does differently from spec.tunnel and
// from what the two clusters say.
type Link struct {
	// The two clusters.
	Between []string `json:"between" required:"true"`
	// As spec.tunnel.driver, for this link.
	Driver string `json:"driver,omitempty" enum:"wireguard|ipsec|vxlan"`
	// As spec.tunnel.port, for the gateways of both clusters on this link.
	Port int `json:"port,omitempty" min:"1" max:"65472"`
	// As spec.tunnel.mtu, for this link.
	MTU int `json:"mtu,omitempty" min:"576" max:"65535"`
	// As spec.tunnel.keepalive, for this link.
	Keepalive *fabric.Duration `json:"keepalive,omitempty" min:"0s" max:"18h12m15s"`
}

// Health says how links are probed.
type Health struct {
	// Time between two probes of a link.
	Interval fabric.Duration `json:"interval,omitempty" default:"250ms" min:"20ms" max:"1m"`
	// Number of probes without an answer after which a link counts as dead.
	Misses int `json:"misses,omitempty" default:"3" min:"1" max:"100"`
}

// Limits say what one pod may take of what others need too.
type Limits struct {
	// How many connections one pod may have at a time through one gateway of its own
	// cluster, into other clusters; a flow of UDP or ICMP counts as one. What it begins
	// beyond is dropped, and counted as quota; what it has goes on. A pod is told by its
	// address. From 512 on some of its connections are counted, at random, and it is
	// refused between 0.8 and 1.2 of the number. 0: any number.
	Connections *int `json:"connections,omitempty" default:"32768" min:"0" max:"16777216"`
}

// Connectivity says which clusters have a tunnel to each other.
type Connectivity struct {
	// mesh: every cluster with every other; hub: every cluster with each of
	// hubs, through which the others reach each other; links: only those in links,
	// and over these, by the shortest path, everybody else.
	Mode string `json:"mode,omitempty" default:"mesh" enum:"mesh|hub|links"`
	// Clusters that the others connect to; mode hub only.
	Hubs []string `json:"hubs,omitempty"`
	// Pairs of clusters, each [a, b]; mode links only.
	Links [][]string `json:"links,omitempty"`
	// Allows links that leave clusters without a path to others; mode links only.
	Partial bool `json:"partial,omitempty"`
}

// DNS is how names are answered.
type DNS struct {
	// Whether names of the form <cluster>.<service>.<namespace>.svc.<domain> exist.
	ClusterNames *bool `json:"clusterNames,omitempty" default:"true"`
	// How long resolvers may keep an answer; whole seconds.
	TTL *fabric.Duration `json:"ttl,omitempty" default:"5s" min:"0s" max:"1h"`
	// IPv4 address on every node where its agent answers; link-scope, the same on all
	// nodes. There is none by default when all the clusters' prefixes are IPv6.
	Address netip.Addr `json:"address,omitzero" default:"169.254.73.53"`
	// The same for IPv6. By default, when some cluster has an IPv6 prefix:
	// fd68:6177:7365:72::53.
	IPv6Address netip.Addr `json:"ipv6Address,omitzero"`
}

// Keys are the generations of tunnel keys.
type Keys struct {
	// Generations in force: one, or two that follow each other. To rotate without
	// loss add the next one, and drop the old one when no link uses it any more.
	Epochs []int `json:"epochs,omitempty" default:"1"`
}

// Metrics says how agents in Kubernetes serve metrics, for Prometheus; elsewhere
// hawser-agent run --metrics says it.
type Metrics struct {
	// TCP port at which the agent of each node answers, on the node's own address.
	// Whoever can reach that can read the metrics; they hold names of clusters,
	// gateways and nodes, and no secrets. 0: none.
	Port int `json:"port,omitempty" min:"1024" max:"65535"`
}
