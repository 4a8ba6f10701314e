package status

import (
	"fmt"
	"net/netip"
)

// Kinds of findings.
const (
	FindingForeign = "foreign" // a foreign rule
	FindingOwn     = "own"     // Hawser's
	FindingQueued  = "queued"  // a program got the packet (nfqueue) and did not return it
	FindingLost    = "lost"    // no event
)

// Diagnosis is the result of traced packets of the clusterset on a node: hawser-agent diagnose.
type Diagnosis struct {
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
	Gateway string `json:"gateway,omitempty"` // name, when this node is one
	// The possible destinations of packets from here: the gateways of the own cluster, the
	// gateways of other clusters (cluster/gateway) to which this one has links, and the number
	// of nodes of the cluster.
	SiblingGateways []string `json:"siblingGateways,omitempty"`
	Remotes         []string `json:"remotes,omitempty"`
	Nodes           int      `json:"nodes,omitempty"`

	Seconds float64 `json:"seconds"` // duration of the trace
	Packets int     `json:"packets"` // traced packets
	Passed  int     `json:"passed"`  // packets that left the node, or reached their destination
	// Sampled reports that there were more packets than can be traced, so some were not traced.
	Sampled bool `json:"sampled,omitempty"`
	// ReversePathDrops is the number of packets of any traffic, except lost test packets of direct pairs,
	// that the kernel dropped meanwhile because their source is reached by another device (rp_filter).
	ReversePathDrops int `json:"reversePathDrops,omitempty"`
	// Problems are the agent's problems of its node that lose packets, also of packets that
	// were not traced: pods outside podCIDRs, routing rules of other programs, and on gateways
	// nodes from which no VXLAN is accepted.
	Problems []string `json:"problems,omitempty"`
	// Only are the prefixes that a traced packet has as source or destination; none = all.
	Prefixes []netip.Prefix `json:"prefixes,omitempty"`
	Findings []Finding      `json:"findings"`
	Flows    []FlowTrace    `json:"flows,omitempty"` // sorted by packets, most first
}

// Finding is one place where packets were dropped.
type Finding struct {
	Kind     string   `json:"kind"`
	Location string   `json:"location"` // rule 12 in chain forward of table inet filter; for lost: the last known place
	Packets  int      `json:"packets"`
	Flows    []string `json:"flows"` // some of them
	Text     string   `json:"text"`
	Next     string   `json:"next"`
}

// FlowTrace has the traced packets of one connection, or of several connections from the same
// client to the same server.
type FlowTrace struct {
	Ingress Ends   `json:"ingress"`          // addresses on arrival, or when the node sent them
	Egress  Ends   `json:"egress"`           // addresses at the last traced point, after translation if any
	In      string `json:"in,omitempty"`     // interface; empty = sent by this node
	Out     string `json:"out,omitempty"`    // interface; empty = for this node itself, or dropped earlier
	Packets int    `json:"packets"`          // traced packets
	Passed  int    `json:"passed"`           // packets that left the node, or reached their destination
	Resets  int    `json:"resets,omitempty"` // TCP resets
	// First, Middle and Last are arrival times of packets, in seconds since the start. Middle
	// is the packet nearest to the middle of the trace: other nodes that traced a little
	// earlier or later most likely saw it too.
	First  float64 `json:"first"`
	Middle float64 `json:"middle"`
	Last   float64 `json:"last"`

	Kind     string `json:"kind,omitempty"`     // kind of the finding where they were dropped; empty = they passed
	Location string `json:"location,omitempty"` // place of that finding
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

// FilteredText describes packets that rp_filter dropped.
func FilteredText(n int) string {
	return fmt.Sprintf("rp_filter dropped %d packets meanwhile, of any traffic: the route to their source uses another device than they arrived on "+
		"(sysctl net.ipv4.conf.*.rp_filter; 2 is loose)", n)
}

// Verification is the result of tests of the exports from one node, or from a pod on it.
type Verification struct {
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
	// FromPod reports that the requests came from a pod of the node, with the name servers of pods.
	FromPod bool       `json:"fromPod,omitempty"`
	Results []Verified `json:"results"`
	// Problem is the reason why nothing was tested, such as a pod that does not start; empty if
	// tested.
	Problem string `json:"problem,omitempty"`
	// Prefixes contain every valid address of a name here.
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

// Verdicts, from the best to the worst, except Skipped, which is neutral.
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

// Probed is the result of TCP connections to one address.
type Probed struct {
	// Late counts new connections that were established only after a second SYN (1 s, RFC 6298).
	Late       int    `json:"late,omitempty"`
	Target     string `json:"target"`           // address:port
	Attempts   int    `json:"attempts"`         // new connections
	Failed     int    `json:"failed,omitempty"` // new connections that were not established
	LongestGap int64  `json:"longestGapMicros"` // between two new connections that were established
	KeptOpen   int    `json:"keptOpen"`         // connections that were kept open, in sequence
	Open       bool   `json:"open,omitempty"`   // one is open now
	Broken     int    `json:"broken,omitempty"` // kept connections that ended by a reset or a timeout
	// ClosedByServer counts kept connections that the server closed, which servers do with idle
	// clients.
	ClosedByServer int    `json:"closedByServer,omitempty"`
	LastError      string `json:"lastError,omitempty"`
}
