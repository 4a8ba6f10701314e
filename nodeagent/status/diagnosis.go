package status

import (
	"fmt"
	"net/netip"
)

// Kinds of findings.
const (
	FindingForeign = "foreign" // a rule of another program
	FindingOwn     = "own"     // a rule of Hawser
	FindingQueued  = "queued"  // a program got the packet (NFQUEUE) and did not return it
	FindingLost    = "lost"    // the trace ends without a verdict
)

// Diagnosis is the result of a trace of the clusterset's packets on one node (hawser-agent
// diagnose).
type Diagnosis struct {
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
	Gateway string `json:"gateway,omitempty"` // name, when this node is one
	// SiblingGateways are all gateways of this cluster, including this node's own. Remotes are
	// the gateways of other clusters (cluster/gateway) to which this gateway has links. Nodes
	// is the number of nodes of this cluster. Packets may pass from this node to any of them.
	SiblingGateways []string `json:"siblingGateways,omitempty"`
	Remotes         []string `json:"remotes,omitempty"`
	Nodes           int      `json:"nodes,omitempty"`

	Seconds float64 `json:"seconds"` // duration of the trace
	Packets int     `json:"packets"` // traced packets
	Passed  int     `json:"passed"`  // packets that left the node, or reached their destination
	// Sampled reports whether the rate limit of the trace may have skipped packets.
	Sampled bool `json:"sampled,omitempty"`
	// ReversePathDrops counts the packets of any traffic that rp_filter dropped during the
	// trace: the route to their source uses another device. It excludes lost test packets of
	// direct pairs.
	ReversePathDrops int `json:"reversePathDrops,omitempty"`
	// Problems are the agent's problems that lose packets, traced or not: pods outside
	// podCIDRs, routing rules of other programs, and connected networks. On gateways they
	// include nodes whose VXLAN the gateway drops.
	Problems []string `json:"problems,omitempty"`
	// Prefixes limit the trace to packets from or to one of them; none = all packets.
	Prefixes []netip.Prefix `json:"prefixes,omitempty"`
	Findings []Finding      `json:"findings"`
	Flows    []FlowTrace    `json:"flows,omitempty"` // sorted by packets, most first
}

// Finding is one place where packets were dropped.
type Finding struct {
	Kind     string   `json:"kind"`
	Location string   `json:"location"` // rule 12 in chain forward of table inet filter; for lost: the last rule
	Packets  int      `json:"packets"`
	Flows    []string `json:"flows"` // some of them
	Text     string   `json:"text"`
	Next     string   `json:"next"`
}

// FlowTrace has the traced packets of one connection, or of several connections from the same
// client to the same server.
type FlowTrace struct {
	Ingress Ends   `json:"ingress"`          // addresses on arrival, or as the node sent them
	Egress  Ends   `json:"egress"`           // addresses at the last traced point, after translation if any
	In      string `json:"in,omitempty"`     // interface; empty = sent by this node
	Out     string `json:"out,omitempty"`    // interface; empty = for this node itself, or dropped earlier
	Packets int    `json:"packets"`          // traced packets
	Passed  int    `json:"passed"`           // packets that left the node, or reached their destination
	Resets  int    `json:"resets,omitempty"` // TCP resets
	// First, Middle and Last are arrival times of packets, in seconds since the start. Middle
	// belongs to the packet nearest to the middle of the trace. Other nodes that traced a
	// little earlier or later most likely saw that packet, too.
	First  float64 `json:"first"`
	Middle float64 `json:"middle"`
	Last   float64 `json:"last"`

	Kind     string `json:"kind,omitempty"`     // of the finding that explains their drop; empty = they passed
	Location string `json:"location,omitempty"` // of that finding
}

// Ends are the addresses of packets, with the port of the server. The client's port differs in
// each connection and is omitted.
type Ends struct {
	Protocol string `json:"protocol"` // tcp | udp | icmp | ...
	From     string `json:"from"`     // 10.7.2.5, or 10.7.2.5:80 if it is the server
	To       string `json:"to"`
}

// String returns the ends for users: tcp 10.7.2.5 -> 243.0.0.1:80.
func (e Ends) String() string { return e.Protocol + " " + e.From + " -> " + e.To }

// FilteredText returns a text about n packets that rp_filter dropped.
func FilteredText(n int) string {
	return fmt.Sprintf("rp_filter dropped %d packets meanwhile, of any traffic: the route to their source uses another device than they arrived on "+
		"(sysctl net.ipv4.conf.*.rp_filter; 2 is loose)", n)
}

// Verification is the result of tests of the exports from one node, or from a pod on it.
type Verification struct {
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
	// FromPod reports whether a pod of the node sent the requests, with the name servers of
	// pods.
	FromPod bool       `json:"fromPod,omitempty"`
	Results []Verified `json:"results"`
	// Problem is the reason why nothing was tested, such as a pod that does not start; empty if
	// tested.
	Problem string `json:"problem,omitempty"`
	// Prefixes contain every address that a name may resolve to in this cluster.
	Prefixes []netip.Prefix `json:"prefixes,omitempty"`
}

// Check is one name to verify: of a service, or of one cluster's part of it.
type Check struct {
	Export   string      `json:"export"`            // namespace/name
	Cluster  string      `json:"cluster,omitempty"` // cluster of the part; empty = the name of the whole service
	Name     string      `json:"name"`              // without a trailing dot
	Ports    []CheckPort `json:"ports,omitempty"`
	Headless bool        `json:"headless,omitempty"` // SRV records have the ports of its pods
	// NotReady is the reason why no request can succeed, such as a service without endpoints;
	// empty if one can.
	NotReady string `json:"notReady,omitempty"`
	Skipped  string `json:"skipped,omitempty"` // reason why it is intentionally not tested; empty = tested
}

// CheckPort is one port of an export.
type CheckPort struct {
	Name     string `json:"name,omitempty"` // empty = no SRV record
	Protocol string `json:"protocol"`       // TCP | UDP
	Number   uint16 `json:"number"`
}

// Verified is the result of one check.
type Verified struct {
	Check
	Reached []string `json:"reached,omitempty"` // address:port, with /UDP appended for UDP
	Error   string   `json:"error,omitempty"`   // addresses without a reply, and the reason; empty if all replied
	Unknown string   `json:"unknown,omitempty"` // addresses without a verdict, and the reason: UDP servers that send no reply
	Micros  int64    `json:"micros,omitempty"`  // duration of all lookups and connections
}

// Verdict classifies a result.
type Verdict string

// Verdicts, from the best to the worst. VerdictSkipped is neutral.
const (
	VerdictSkipped  Verdict = "skipped"
	VerdictAnswered Verdict = "answered"
	VerdictUnknown  Verdict = "unknown"
	VerdictFailed   Verdict = "failed"
)

// Verdict returns the verdict of the result.
func (v Verified) Verdict() Verdict {
	switch {
	case v.Skipped != "":
		return VerdictSkipped
	case v.Error != "":
		return VerdictFailed
	case v.Unknown != "" || len(v.Reached) == 0:
		return VerdictUnknown
	}
	return VerdictAnswered
}

// Probed is the result of repeated TCP connections to one address.
type Probed struct {
	// Late counts new connections that were established only after a second SYN (1 s, RFC
	// 6298).
	Late       int    `json:"late,omitempty"`
	Target     string `json:"target"`           // address:port
	Attempts   int    `json:"attempts"`         // new connections
	Failed     int    `json:"failed,omitempty"` // new connections that were not established
	LongestGap int64  `json:"longestGapMicros"` // between two new connections that were established
	KeptOpen   int    `json:"keptOpen"`         // connections kept open, one after another
	Open       bool   `json:"open,omitempty"`   // one is open now
	Broken     int    `json:"broken,omitempty"` // kept connections that ended by a reset or a timeout
	// ClosedByServer counts kept connections that the server closed, which servers do with idle
	// clients.
	ClosedByServer int    `json:"closedByServer,omitempty"`
	LastError      string `json:"lastError,omitempty"`
}
