package status

import (
	"fmt"
	"net/netip"
)

// Kinds of findings.
const (
	FindingForeign = "foreign" // a foreign rule
	FindingOwn     = "own"     // Hawser's
	FindingQueued  = "queued"  // a program was asked and did not answer
	FindingLost    = "lost"    // no event
)

// Diagnosis is what became of packets of the clusterset on a node, of those that were
// followed: hawser-agent diagnose.
type Diagnosis struct {
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
	Gateway string `json:"gateway,omitempty"` // name, when this node is one
	// Where packets may go from here: the gateways of the own cluster, those of others
	// (cluster/gateway) that this one has links with, and how many nodes the cluster has.
	SiblingGateways []string `json:"mates,omitempty"`
	Remotes         []string `json:"remotes,omitempty"`
	Nodes           int      `json:"nodes,omitempty"`

	Seconds float64 `json:"seconds"` // how long was looked
	Packets int     `json:"packets"` // that were followed
	Passed  int     `json:"passed"`  // that left the node, or reached what they were for
	// Sampled says that more packets came than are followed, so that some were not.
	Sampled bool `json:"full,omitempty"`
	// ReversePathDrops is how many packets the kernel dropped meanwhile because their source is
	// reached by another link (rp_filter), of whatever traffic.
	ReversePathDrops int `json:"filtered,omitempty"`
	// Problems are what the agent reports of its node and loses packets, whether or not some
	// were followed: pods outside podCIDRs, routing rules of other programs, and on gateways
	// nodes from which no VXLAN is accepted.
	Problems []string `json:"problems,omitempty"`
	// Only are the prefixes from or to which packets were followed; none = all.
	Only     []netip.Prefix `json:"only,omitempty"`
	Findings []Finding      `json:"findings"`
	Flows    []FlowTrace    `json:"flows,omitempty"` // the most packets first
}

// Finding is one place where packets ended.
type Finding struct {
	Kind    string   `json:"kind"`
	Place   string   `json:"place"` // rule 12 in chain forward of table inet filter; for lost: where it was last
	Packets int      `json:"packets"`
	Flows   []string `json:"flows"` // some of them
	Text    string   `json:"text"`
	Do      string   `json:"do"`
}

// FlowTrace is what a node saw of like packets: those of one connection, or of further
// connections from the same client to the same server.
type FlowTrace struct {
	Ingress Ends   `json:"ingress"`          // addresses on arrival, or when the node itself sent them
	Egress  Ends   `json:"egress"`           // addresses at the last point seen: translated, or the same
	In      string `json:"in,omitempty"`     // interface; empty = made on this node
	Out     string `json:"out,omitempty"`    // interface; empty = for this node itself, or it did not get so far
	Packets int    `json:"packets"`          // that were followed
	Passed  int    `json:"passed"`           // that left the node, or reached what they were for
	Resets  int    `json:"resets,omitempty"` // that only reset a connection (TCP)
	// First, Middle and Last are when packets of it came, in seconds since the beginning:
	// Middle is the packet nearest to the middle of the time, which other nodes that
	// looked a little sooner or later watched most certainly.
	First  float64 `json:"first"`
	Middle float64 `json:"middle"`
	Last   float64 `json:"last"`

	Kind  string `json:"kind,omitempty"`  // of the finding that they ended at; empty = they passed
	Place string `json:"place,omitempty"` // of that finding
}

// Ends are the addresses of packets, with the port of the server. The client's port is
// another one in each connection, and not told.
type Ends struct {
	Protocol string `json:"protocol"` // tcp | udp | icmp | ...
	From     string `json:"from"`     // 10.7.2.5, or 10.7.2.5:80 if it is the server
	To       string `json:"to"`
}

// String is for people: tcp 10.7.2.5 -> 243.0.0.1:80.
func (e Ends) String() string { return e.Protocol + " " + e.From + " -> " + e.To }

// FilteredText describes packets that rp_filter dropped.
func FilteredText(n int) string {
	return fmt.Sprintf("rp_filter dropped %d meanwhile, of whatever traffic: their source is reached by another link than they came by "+
		"(sysctl net.ipv4.conf.*.rp_filter; 2 is loose)", n)
}

// Verification is what one node, or a pod on it, reached of the exports.
type Verification struct {
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
	// FromPod reports that the requests came from a pod of the node, with the name servers of pods.
	FromPod bool       `json:"fromPod,omitempty"`
	Results []Verified `json:"results"`
	// Problem says why nothing was tested, such as a pod that does not start; empty if it was.
	Problem string `json:"problem,omitempty"`
	// Prefixes hold every address that a name may have here.
	Prefixes []netip.Prefix `json:"prefixes,omitempty"`
}

// Check is one name to verify: of a service, or of one cluster's part of it.
type Check struct {
	Export   string      `json:"export"`            // namespace/name
	Cluster  string      `json:"cluster,omitempty"` // whose part it is; empty = the name of the whole service
	Name     string      `json:"name"`              // without a dot at its end
	Ports    []CheckPort `json:"ports,omitempty"`
	Headless bool        `json:"headless,omitempty"` // SRV records have the ports of its pods
	// NotReady says why no request can succeed, such as a service without endpoints; empty if one can.
	NotReady string `json:"notReady,omitempty"`
	Skipped  string `json:"skipped,omitempty"` // why it is not tested on purpose; empty = it is
}

// CheckPort is one port of an export.
type CheckPort struct {
	Name     string `json:"name,omitempty"` // without one it has no SRV record
	Protocol string `json:"protocol"`       // TCP | UDP
	Number   uint16 `json:"number"`
}

// Verified is the result of one check.
type Verified struct {
	Check
	Reached []string `json:"reached,omitempty"` // address:port, UDP with /UDP behind it
	Error   string   `json:"error,omitempty"`   // what did not answer, and why; empty if all did
	Unknown string   `json:"unknown,omitempty"` // what cannot be judged, and why: UDP servers that send no reply
	Micros  int64    `json:"micros,omitempty"`  // lookups and connections, one after the other
}

// Verdict is what a result says.
type Verdict string

// Verdicts, from the best to the worst but Skipped, which says nothing.
const (
	VerdictSkipped  Verdict = "skipped"
	VerdictAnswered Verdict = "answered"
	VerdictUnknown  Verdict = "unknown"
	VerdictFailed   Verdict = "failed"
)

// Verdict returns what the result says.
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

// Probed is what TCP connections to one address saw.
type Probed struct {
	Target     string `json:"target"`           // address:port
	Attempts   int    `json:"attempts"`         // new connections
	Failed     int    `json:"failed,omitempty"` // new connections that were not established
	LongestGap int64  `json:"longestGapMicros"` // between two new connections that were established
	Kept       int    `json:"kept"`             // connections that were kept open, one after the other
	Open       bool   `json:"open,omitempty"`   // one is open now
	Broken     int    `json:"broken,omitempty"` // kept connections that ended by a reset or a timeout
	// ClosedByServer counts kept connections that the server closed, as it does with idle clients.
	ClosedByServer int    `json:"closedByServer,omitempty"`
	LastError      string `json:"lastError,omitempty"`
}
