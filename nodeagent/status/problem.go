package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Severity is the weight of a Problem.
type Severity string

const (
	// Error means that something does not work.
	Error Severity = "error"
	// Warning means that something works in part, or may soon stop.
	Warning Severity = "warning"
	// Info means that no action is needed.
	Info Severity = "info"
)

// Problem is a reason why a node or an export does not work as the topology describes.
type Problem struct {
	Path     string   `json:"path,omitempty"` // topology path
	Code     string   `json:"code"`           // one of Codes
	Severity Severity `json:"severity"`
	Text     string   `json:"text"`           // the fault, lower case, no full stop
	Next     string   `json:"next,omitempty"` // the next step, often a command
}

// Codes of problems of the agent itself, of its inputs, and of the kernel.
const (
	NoFabric          = "no-fabric"           // the agent has had no fabric yet
	FabricStale       = "fabric-stale"        // the agent uses an older fabric, or none
	KeysStale         = "keys-stale"          // the agent uses older keys, or none
	FactsStale        = "facts-stale"         // the agent uses older facts, or none
	StateNotSaved     = "state-not-saved"     // the state directory cannot be written
	ClusterUnknown    = "cluster-unknown"     // the fabric lacks this node's cluster
	NodeUnknown       = "node-unknown"        // the facts lack a node
	RoundOverdue      = "round-overdue"       // the agent hangs: no round completes
	ChangesFailed     = "changes-failed"      // the kernel refuses changes
	ChangesReverted   = "changes-reverted"    // another program reverts changes again and again
	ChangesBlocked    = "changes-blocked"     // changes wait for other objects
	DNSNotServing     = "dns-not-serving"     // the agent cannot answer DNS queries
	DNSNotRemoved     = "dns-not-removed"     // a decommission could not remove the block from the cluster's DNS
	DNSNotConfigured  = "dns-not-configured"  // the block in the cluster's DNS cannot be written
	ObjectsNotWritten = "objects-not-written" // objects of the cluster's API cannot be written
	LeaseNotWritten   = "lease-not-written"   // the lease of a gateway cannot be written
	ReportNotWritten  = "report-not-written"  // the HawserNode cannot be written
	MetricsNotServed  = "metrics-not-served"  // the agent cannot listen on the address for metrics
	FeedNotServed     = "feed-not-served"     // the agent cannot listen on the address of the feed
	FeedLost          = "feed-lost"           // a path to another cluster is up, but the node receives no feed of it
	ConntrackFull     = "conntrack-full"      // the connection table is almost full
	QuotaReached      = "quota-reached"       // a pod exceeded limits.connections in the last minute
)

// Codes of problems of addresses and networks.
const (
	PodsOutsideCIDRs      = "pods-outside-cidrs"      // pods of the node are in no prefix of podCIDRs
	UnknownSource         = "unknown-source"          // packets were dropped in the last minute because no prefix of podCIDRs contains their source
	EndpointsOutsideCIDRs = "endpoints-outside-cidrs" // endpoints of exports are in no prefix of podCIDRs
	ForeignRule           = "foreign-rule"            // a routing rule of another program matches packets for other clusters
	ConnectedNetwork      = "connected-network"       // a network of the node has addresses of another cluster or of the clusterset
	ConnectedExport       = "connected-export"        // a network of the node has the address of an export of another cluster
	CoversNode            = "prefix-covers-node"      // a prefix of another cluster contains an address of this node
	NodeAddressConflict   = "node-address-conflict"   // a node has an address of the clusterset, of another cluster or of another node
	NodeUnprotected       = "node-unprotected"        // no agent has reported since a node booted that its nftables rules are in place
	IPv6Disabled          = "ipv6-disabled"           // the cluster has IPv6, which is disabled on the node
	NoFamily              = "no-common-family"        // another cluster has no address family of this cluster
	NoNextHop             = "no-next-hop"             // a node has no address of the family that a route needs
	MTUTooSmall           = "mtu-too-small"           // the MTU of a link is below 1280 bytes, so IPv6 packets are fragmented in the underlay
	MTUTooLarge           = "mtu-too-large"           // tunnel.mtu does not fit the underlay
	SourceTranslated      = "source-translated"       // another cluster uses the same prefix as this flat cluster, so its pods have egress addresses
	NodeNeedsVXLAN        = "node-needs-vxlan"        // nodeNetwork is direct, and packets to another node need VXLAN
	QuotaUnsupported      = "quota-unsupported"       // the gateway's kernel cannot count connections
)

// Codes of problems of links.
const (
	NoPath           = "no-path"           // no link leads to another cluster
	KeyMissing       = "key-missing"       // the gateway has no private key, so no tunnel
	PeerKeyMissing   = "peer-key-missing"  // a remote gateway has no public key
	NoEndpoint       = "no-endpoint"       // a remote gateway has no known address, and its driver needs one
	FamilyMissing    = "family-missing"    // two gateways have no common address family inside the tunnels
	DriverUnknown    = "driver-unknown"    // this agent does not have the driver of a link
	DuplicateOrdinal = "duplicate-ordinal" // two gateways of a cluster have the same ordinal
	EndpointRefused  = "endpoint-refused"  // this cluster refuses an endpoint that another cluster announces
)

// Codes of problems of exports and egress rules.
const (
	ServiceMissing         = "service-missing"          // the Service of an export does not exist
	ServiceType            = "service-type"             // the Service of an export is of type ExternalName
	PortMissing            = "port-missing"             // the Service lacks a port of its export
	ExportWithoutEndpoints = "export-without-endpoints" // no endpoint of an export is ready in this cluster
	EndpointUnsupported    = "endpoint-unsupported"     // parts of a Service or of its EndpointSlices are not supported
	ExportInvalid          = "export-invalid"           // a ServiceExport is invalid and ignored
	ExportNotReady         = "export-not-ready"         // a ServiceExport has no address
	ExportRefused          = "export-refused"           // another cluster makes an export that the topology reserves for others
	ImportConflict         = "import-conflict"          // another program writes a ServiceImport of Hawser
	HeadlessNoAddr         = "headless-no-address"      // an endpoint of a headless export has no global address
	TooManyEndpoints       = "too-many-endpoints"       // an export has more endpoints than slots
	TooManyHeadlessPods    = "too-many-headless-pods"   // a headless export has more than 256 pods; other clusters resolve only the first 256 by name
	EgressNoMatch          = "egress-no-match"          // an egress rule matches no pod
	EgressAmbiguous        = "egress-ambiguous"         // two egress rules match a pod
)

// Conditions of a HawserNode. Problems make Ready and Current false.
const (
	// ConditionReady is true if the node is as desired and the agent answers DNS queries.
	ConditionReady = "Ready"
	// ConditionCurrent is true if the agent reads its inputs from their sources, not from
	// copies.
	ConditionCurrent = "Current"
	// ConditionDrainRequested is true if traffic should leave the gateway. Clusters may still use
	// the gateway.
	ConditionDrainRequested = "DrainRequested"
)

// Code has the severity, condition and next step of a problem code.
type Code struct {
	Name     string
	Severity Severity
	// Condition is the condition of the HawserNode that the problem makes false, and Reason the
	// condition's reason. Both are empty if the problem affects no condition.
	Condition, Reason string
	// Shared reports whether all nodes of the cluster report the same problem. Only gateways
	// write such a problem into their HawserNodes.
	Shared bool
	Next   string // with the placeholders CLUSTER and NODE
}

// NextDeliver is the next step if a cluster does not have the published fabric or image.
const NextDeliver = "wait for Flux or Argo CD, or run hawser apply --repo URL"

// Codes returns all codes of problems, causes before their effects.
func Codes() []Code {
	const (
		show    = "hawser show all --cluster CLUSTER"
		links   = "hawser show connections --cluster CLUSTER"
		packets = "hawser diagnose"
		logs    = "kubectl -n hawser-system logs -l app.kubernetes.io/part-of=hawser --prefix --tail=100"
		node    = "kubectl describe node NODE"
		service = "kubectl get services,endpointslices -A"
	)
	return []Code{
		{Name: NoFabric, Severity: Error, Condition: ConditionReady, Reason: "NoInputs", Next: NextDeliver},
		{Name: FabricStale, Severity: Error, Condition: ConditionCurrent, Reason: "LastGoodCopy", Next: "hawser history, then correct the topology or run hawser rollback"},
		{Name: KeysStale, Severity: Error, Condition: ConditionCurrent, Reason: "LastGoodCopy", Next: "compare recipient of CLUSTER in the topology with its Secret hawser-age-identity"},
		{Name: FactsStale, Severity: Error, Condition: ConditionCurrent, Reason: "LastGoodCopy", Next: "hawser preflight"},
		{Name: StateNotSaved, Severity: Error, Condition: ConditionCurrent, Reason: "LastGoodCopy", Next: node},
		{Name: ClusterUnknown, Severity: Error, Next: "hawser show clusters"},
		{Name: NodeUnknown, Severity: Error, Next: "kubectl get nodes -o wide"},
		{Name: RoundOverdue, Severity: Error, Condition: ConditionReady, Reason: "RoundOverdue", Next: logs},
		{Name: ChangesFailed, Severity: Error, Condition: ConditionReady, Reason: "Failed", Next: show},
		{Name: ChangesReverted, Severity: Error, Condition: ConditionReady, Reason: "Failed", Next: show},
		{Name: ChangesBlocked, Severity: Error, Condition: ConditionReady, Reason: "Blocked", Next: show},
		{Name: DNSNotServing, Severity: Error, Condition: ConditionReady, Reason: "DNSNotServing", Next: logs},
		{Name: DNSNotRemoved, Severity: Error, Condition: ConditionReady, Reason: "DNSNotRemoved", Next: logs},
		{Name: DNSNotConfigured, Severity: Error, Shared: true, Next: "correct the lines from \"hawser: begin\" to \"hawser: end\" in the Corefile of the cluster"},
		{Name: ObjectsNotWritten, Severity: Error, Next: logs},
		{Name: LeaseNotWritten, Severity: Error, Next: logs},
		{Name: ReportNotWritten, Severity: Warning, Next: logs},
		{Name: MetricsNotServed, Severity: Warning, Next: "set another spec.metrics.port in the topology, or stop the program that uses the port"},
		{Name: FeedNotServed, Severity: Error, Next: logs},
		{Name: FeedLost, Severity: Error, Next: logs},
		{Name: KeyMissing, Severity: Error, Next: "hawser keys epochs"},
		{Name: PeerKeyMissing, Severity: Warning, Shared: true, Next: "hawser keys epochs"},
		{Name: DriverUnknown, Severity: Error, Next: "hawser version, then hawser apply with a newer image"},
		{Name: DuplicateOrdinal, Severity: Error, Shared: true, Next: "hawser validate"},
		{Name: NodeAddressConflict, Severity: Warning, Shared: true, Next: "kubectl get nodes -o wide"},
		{Name: IPv6Disabled, Severity: Warning, Next: "sysctl net.ipv6.conf.all.disable_ipv6 on NODE"},
		{Name: CoversNode, Severity: Error, Next: "correct the CIDRs of the other cluster in the topology"},
		{Name: ConnectedNetwork, Severity: Error, Next: "ip route on NODE"},
		{Name: ConnectedExport, Severity: Error, Next: "ip route on NODE"},
		{Name: ForeignRule, Severity: Error, Next: "ip rule on NODE"},
		{Name: PodsOutsideCIDRs, Severity: Error, Next: "correct clusters[CLUSTER].podCIDRs in the topology (hawser discover prints the prefixes)"},
		{Name: UnknownSource, Severity: Error, Next: packets},
		{Name: NoNextHop, Severity: Warning, Next: "kubectl get nodes -o wide"},
		{Name: NoEndpoint, Severity: Warning, Next: links},
		{Name: FamilyMissing, Severity: Warning, Next: links},
		{Name: EndpointRefused, Severity: Warning, Next: links},
		{Name: NodeNeedsVXLAN, Severity: Warning, Next: "hawser show nodes --cluster CLUSTER"},
		{Name: MTUTooLarge, Severity: Warning, Next: "correct tunnel.mtu in the topology"},
		{Name: ConntrackFull, Severity: Warning, Next: "conntrack -S on NODE"},
		{Name: QuotaReached, Severity: Warning, Next: "conntrack -L on NODE"},
		{Name: NodeUnprotected, Severity: Info, Shared: true, Next: "kubectl -n hawser-system get pods -o wide"},
		{Name: NoPath, Severity: Info, Shared: true, Next: links},
		{Name: NoFamily, Severity: Info, Shared: true},
		{Name: MTUTooSmall, Severity: Info, Next: links},
		{Name: SourceTranslated, Severity: Info, Shared: true},
		{Name: QuotaUnsupported, Severity: Info},
		{Name: ServiceMissing, Severity: Error, Shared: true, Next: service},
		{Name: ServiceType, Severity: Error, Shared: true, Next: service},
		{Name: PortMissing, Severity: Error, Shared: true, Next: service},
		{Name: ExportInvalid, Severity: Error, Shared: true, Next: service},
		{Name: ExportNotReady, Severity: Error, Shared: true, Next: service},
		{Name: EndpointsOutsideCIDRs, Severity: Error, Shared: true, Next: "correct clusters[CLUSTER].podCIDRs in the topology (hawser discover prints the prefixes)"},
		{Name: ExportRefused, Severity: Warning, Shared: true, Next: "hawser show exports"},
		{Name: ExportWithoutEndpoints, Severity: Warning, Shared: true, Next: service},
		{Name: HeadlessNoAddr, Severity: Warning, Shared: true, Next: "hawser show exports"},
		{Name: TooManyEndpoints, Severity: Warning, Shared: true, Next: service},
		{Name: TooManyHeadlessPods, Severity: Warning, Shared: true, Next: service},
		{Name: ImportConflict, Severity: Warning, Shared: true, Next: "kubectl get serviceimports -A --show-managed-fields -o yaml"},
		{Name: EndpointUnsupported, Severity: Info, Shared: true},
		{Name: EgressNoMatch, Severity: Info, Shared: true},
		{Name: EgressAmbiguous, Severity: Info, Shared: true},
	}
}

// Catalog finds codes by name. It is read only.
type Catalog struct {
	codes []Code
	index map[string]int
}

// NewCatalog returns the catalog of Codes.
func NewCatalog() Catalog {
	c := Catalog{codes: Codes(), index: map[string]int{}}
	for i := range c.codes {
		c.index[c.codes[i].Name] = i
	}
	return c
}

// Code returns a code by its name. An unknown name has severity Error and no next step.
func (c Catalog) Code(name string) Code {
	if i, known := c.index[name]; known {
		return c.codes[i]
	}
	return Code{Name: name, Severity: Error}
}

// New returns a problem of a node with the severity and next step of its code.
func (c Catalog) New(cluster, node, code, path, text string) Problem {
	known := c.Code(code)
	return Problem{Path: path, Code: code, Severity: known.Severity, Text: strings.ReplaceAll(text, "\n", "; "),
		Next: strings.NewReplacer("CLUSTER", cluster, "NODE", node).Replace(known.Next)}
}

// Limits of the problems in a HawserNode.
const (
	MaxProblems = 32
	MaxText     = 500 // bytes of text and of next
	maxSameCode = 3   // texts of one code
)

// Summarize returns one problem per code without paths: errors first, then causes before their
// effects. It keeps at most MaxProblems.
func (c Catalog) Summarize(problems []Problem) []Problem {
	texts := map[string][]string{}
	var out []Problem
	for _, p := range problems {
		if texts[p.Code] == nil {
			out = append(out, Problem{Code: p.Code, Severity: p.Severity, Next: clip(p.Next, MaxText)})
		}
		if !slices.Contains(texts[p.Code], p.Text) {
			texts[p.Code] = append(texts[p.Code], p.Text)
		}
	}
	for i := range out {
		all := texts[out[i].Code]
		text := strings.Join(all[:min(len(all), maxSameCode)], "; ")
		suffix := ""
		if more := len(all) - maxSameCode; more > 0 {
			suffix = fmt.Sprintf("; and %d more", more)
		}
		out[i].Text = clip(text, MaxText-len(suffix)) + suffix
	}
	weights := []Severity{Error, Warning, Info}
	slices.SortStableFunc(out, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(slices.Index(weights, a.Severity), slices.Index(weights, b.Severity)), cmp.Compare(c.index[a.Code], c.index[b.Code]), cmp.Compare(a.Code, b.Code))
	})
	return out[:min(len(out), MaxProblems)]
}

// clip shortens text to at most the given number of bytes.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-3], "") + "..."
}
