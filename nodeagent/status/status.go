// Package status defines the report of an agent for its unix socket, JSON and `hawser show`, and
// the codes of problems.
package status

import (
	"time"
)

// Status is one agent's report.
type Status struct {
	Cluster    string `json:"cluster"`
	Node       string `json:"node"`
	Gateway    string `json:"gateway,omitempty"` // name of the gateway on this node, if any
	Version    string `json:"version"`
	Digest     string `json:"digest"` // of the current fabric
	Clusterset string `json:"clusterset"`
	Ready      bool   `json:"ready"` // the last round left no change or failure, and the DNS server serves
	// DNSUnavailable reports whether the DNS server does not serve names of the clusterset on
	// this node.
	DNSUnavailable bool         `json:"dnsUnavailable,omitempty"`
	LastRound      Round        `json:"lastRound"`
	Inputs         []InputState `json:"inputs"`
	// Trust is nil without pinned signers: the agent then accepts documents of any signer.
	Trust *Trust `json:"trust,omitempty"`
	// Drained reports whether traffic should leave this gateway (hawser-agent drain).
	Drained bool `json:"drained,omitempty"`
	// Epochs are the current epochs of the fabric for which this gateway has keys.
	Epochs      []int        `json:"epochs,omitempty"`
	Connections []Connection `json:"connections,omitempty"`
	Paths       []Path       `json:"paths,omitempty"` // by remote cluster
	Moves       []Move       `json:"moves,omitempty"` // the last 64, newest last
	// Nodes are the paths to other nodes of the cluster; empty with nodeNetwork: tunnel.
	Nodes    []NodePath `json:"nodes,omitempty"`
	Problems []Problem  `json:"problems,omitempty"`
	// Dropped are the packets that the rules of this node dropped since the agent last wrote
	// the rules.
	Dropped []Dropped `json:"dropped,omitempty"`
	// Conntrack is the use of the node's connection table; nil if unknown.
	Conntrack *Conntrack `json:"conntrack,omitempty"`
	Exports   []Export   `json:"exports,omitempty"`
	Clusters  []Cluster  `json:"clusters,omitempty"`
}

// Round is the outcome of one converge round.
type Round struct {
	At      time.Time `json:"at"`
	Took    string    `json:"took"`
	Changed int       `json:"changed"`
	Drift   int       `json:"drift"`             // changes since the start that repaired drift
	Blocked []string  `json:"blocked,omitempty"` // changes that wait for another object
	Failed  []string  `json:"failed,omitempty"`
}

// Dropped counts the packets that the rules dropped for one reason.
type Dropped struct {
	Reason  string `json:"reason"` // one of desired.Drops
	Packets uint64 `json:"packets"`
	Text    string `json:"text"` // description of the packets
}

// Conntrack has the number of tracked connections, and its limit.
type Conntrack struct {
	Entries int `json:"entries"`
	Limit   int `json:"limit"`
}

// Trust has the trusted signers of this agent, and its accepted revisions.
type Trust struct {
	Signers []string `json:"signers"`          // public keys, in the format of authorized_keys
	Fabric  int64    `json:"fabric,omitempty"` // highest accepted revision of the fabric; older ones are refused
	Keys    int64    `json:"keys,omitempty"`   // the same for the cluster's keys
}

// InputState is the state of an input.
type InputState struct {
	Name  string `json:"name"` // such as fabric, keys, facts, objects or feed g2/a
	OK    bool   `json:"ok"`
	From  string `json:"from,omitempty"` // source of the current state, such as a path or "last good copy"
	Error string `json:"error,omitempty"`
	// Refused is the reason why the agent does not accept a readable document: a reason of
	// schema/fabric/trust.
	Refused string `json:"refused,omitempty"`
	// Since is the time since when From is not the best source; nil = it is the best.
	Since *time.Time `json:"since,omitempty"`
}

// Values of NodePath.Path.
const (
	NodeDirect = "direct"
	NodeVXLAN  = "vxlan"
)

// NodePath is the path from this node to another node of the cluster, for packets from and to other
// clusters. Exactly one of the two nodes is a gateway.
type NodePath struct {
	Node   string `json:"node"`
	Addr   string `json:"addr"`
	Path   string `json:"path"`             // direct or vxlan
	Device string `json:"device,omitempty"` // of direct packets
	Reason string `json:"reason,omitempty"` // why the path is not direct
}

// Connection states.
const (
	Connecting   = "connecting"
	Connected    = "connected"
	Disconnected = "error"
)

// Ranks returns the ranks of a link, from the worst to the best.
func Ranks() []string { return []string{"down", "isolated", "draining", "unsteady", "good"} }

// Connection is one link between this node's gateway and a gateway of another cluster.
type Connection struct {
	Gateway       string `json:"gateway"`
	RemoteCluster string `json:"remoteCluster"`
	RemoteGateway string `json:"remoteGateway"`
	Endpoint      string `json:"endpoint"` // the remote address in use
	// EndpointReason names the endpoint of the topology, and the reason for its selection.
	EndpointReason string `json:"endpointReason,omitempty"`
	// Epoch is the epoch of the keys in use; 0 if the driver has no keys.
	Epoch  int    `json:"epoch,omitempty"`
	Driver string `json:"driver"` // wireguard (kernel), wireguard (userspace), vxlan (clear), ipsec (kernel), ipsec (userspace)
	Status string `json:"status"`
	Active bool   `json:"active"` // traffic between the two clusters uses the link
	Rank   string `json:"rank"`   // good | unsteady | draining | isolated | down
	// Reason states why the link is active, or why it is not.
	Reason string    `json:"reason,omitempty"`
	RTT    *RTT      `json:"rtt,omitempty"`
	Loss   float64   `json:"loss"`          // 0..1 over the window of probes
	MTU    int       `json:"mtu,omitempty"` // bytes of a packet inside; 0 if unknown
	Since  time.Time `json:"since"`         // of Status
	// HeldUntil is the time until which the link stays Unsteady after too many failures; nil =
	// it is not held.
	HeldUntil *time.Time `json:"heldUntil,omitempty"`

	// Migration is the unfinished migration of this link to another tunnel; nil = none.
	Migration *Migration `json:"migration,omitempty"`
	Security  *Security  `json:"security,omitempty"` // of IPsec, while it is up

	RxBytes int64 `json:"rxBytes"`
	TxBytes int64 `json:"txBytes"`
}

// Migration is the unfinished change of a link to another tunnel.
type Migration struct {
	From   string    `json:"from"` // driver and ports of the tunnel in use
	To     string    `json:"to"`
	Since  time.Time `json:"since"`  // when the migration was requested
	Reason string    `json:"reason"` // why the migration waits
}

// Security has the negotiated parameters of an IPsec connection.
type Security struct {
	Cipher string `json:"cipher"` // name in charon: AES_GCM_16-256
	InUDP  bool   `json:"inUDP"`  // ESP is encapsulated in UDP (RFC 3948)
	// SPIIn and SPIOut are the SPIs of received and sent packets, hexadecimal.
	SPIIn  string    `json:"spiIn"`
	SPIOut string    `json:"spiOut"`
	Since  time.Time `json:"since"`  // when the agent first observed that it was up
	Rekeys int       `json:"rekeys"` // rekeyings since then
}

// Path is the link that carries this node's traffic to another cluster.
type Path struct {
	Cluster string `json:"cluster"` // the remote cluster
	// Transit are the clusters that forward the traffic, in order. The link leads to the first
	// one.
	Transit       []string  `json:"transit,omitempty"`
	Link          string    `json:"link"` // g1/a-g2/b
	LocalGateway  string    `json:"localGateway"`
	RemoteGateway string    `json:"remoteGateway"`
	Rank          string    `json:"rank"` // as in Connection
	Reason        string    `json:"reason"`
	MTU           int       `json:"mtu,omitempty"` // bytes, if less than the MTU of the device
	Since         time.Time `json:"since"`
	LastMove      *Move     `json:"lastMove,omitempty"` // nil = none since the agent started
}

// Move is a change of the path to another cluster.
type Move struct {
	At      time.Time `json:"at"`
	Cluster string    `json:"cluster"`        // the remote cluster
	From    string    `json:"from,omitempty"` // previous link; empty for the first choice
	To      string    `json:"to"`
	// Kind is first, removed, dead, isolated, drains, unsteady, follows, steady, better or
	// transit.
	Kind   string `json:"kind"`
	Cause  string `json:"cause"`
	Silent string `json:"silent,omitempty"` // time without a reply on the previous link
}

// Attrs returns the move as attributes of a log record.
func (m Move) Attrs() []any {
	from := m.From
	if from == "" {
		from = "none"
	}
	attrs := []any{"cluster", m.Cluster, "from", from, "to", m.To, "cause", m.Cause}
	if m.Silent != "" {
		attrs = append(attrs, "silent", m.Silent)
	}
	return attrs
}

// Drain is the progress of the drain of a gateway.
type Drain struct {
	Gateway string   `json:"gateway"` // empty if this node is not a gateway
	Drained bool     `json:"drained"`
	Users   []string `json:"users,omitempty"` // clusters that still use the gateway
	// NoAlternative are the clusters without a path over another gateway. It is empty while
	// other clusters still leave the gateway. After that, waiting changes nothing.
	NoAlternative []string `json:"noAlternative,omitempty"`
}

// RTT is the round-trip time over the window of probes, in microseconds.
type RTT struct {
	Last   int64 `json:"last"`
	Min    int64 `json:"min"`
	Avg    int64 `json:"avg"`
	Max    int64 `json:"max"`
	StdDev int64 `json:"stdDev"`
}

// Unknown is the value of Ready for a cluster whose state has not arrived.
const Unknown = "unknown"

// MaxBackends limits ExportCluster.Backends.
const MaxBackends = 20

// Export is one export from the point of view of this node.
type Export struct {
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	Type      string          `json:"type"`
	VIPs      []string        `json:"vips,omitempty"`
	Ports     []string        `json:"ports"`
	Policy    string          `json:"policy"`
	Allow     []string        `json:"allow,omitempty"`
	Clusters  []ExportCluster `json:"clusters"`
	// Dynamic reports whether ServiceExports make the export, and not the topology.
	Dynamic bool `json:"dynamic,omitempty"`
	// Conflict describes how the clusters' ServiceExports differ; nil = they agree.
	Conflict *Conflict `json:"conflict,omitempty"`
}

// Conflict is the conflict in the condition of the ServiceExports (KEP-1645).
type Conflict struct {
	Reason  string `json:"reason"` // such as PortConflict; several, joined by commas
	Message string `json:"message"`
}

// ExportCluster is one cluster's part of an export.
type ExportCluster struct {
	Name  string   `json:"name"`
	IPs   []string `json:"ips,omitempty"`
	Ready string   `json:"ready"`           // yes | no | unknown (no state of that cluster has arrived)
	Hosts []string `json:"hosts,omitempty"` // name=address of the ready endpoints (headless)
	// Backends are the endpoints that get connections, by pod or address. Only the agent's own
	// cluster has them, at most MaxBackends.
	Backends []string `json:"backends,omitempty"`
}

// Cluster is one member of the fabric.
type Cluster struct {
	Name         string   `json:"name"`
	PodCIDRs     []string `json:"podCIDRs"`
	ServiceCIDRs []string `json:"serviceCIDRs"`
	GlobalCIDRs  []string `json:"globalCIDRs"`
	Globalnet    bool     `json:"globalnet"`
	EgressMode   string   `json:"egressMode"`
	Gateways     []string `json:"gateways"`
}

// Unreachable is an agent that did not reply.
type Unreachable struct {
	Agent string `json:"agent"` // its socket, cluster/pod, or the cluster alone
	Error string `json:"error"`
	// Cluster and Node are where the agent runs, if known.
	Cluster string `json:"cluster,omitempty"`
	Node    string `json:"node,omitempty"`
	// LastAnswer is the time of its last reply; nil = none was received.
	LastAnswer *time.Time `json:"lastAnswer,omitempty"`
}
