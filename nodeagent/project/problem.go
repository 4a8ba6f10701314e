package project

import (
	"cmp"
	"slices"

	"hawser.dev/hawser/nodeagent/driver"
)

// Problem is something that a person should know but that stops nothing: the
// rest of the node's state is still projected.
type Problem struct {
	Path string `json:"path"` // topology path, such as exports[sample/web].clusters[g2]
	Code string `json:"code"` // stable, kebab-case
	Text string `json:"text"` // what is wrong, lower case, no full stop
}

// Codes of problems.
const (
	ClusterUnknown   = "cluster-unknown"    // the fabric does not hold this node's cluster
	NodeUnknown      = "node-unknown"       // the facts do not hold a node
	NoPath           = "no-path"            // no link to a remote cluster
	NoNextHop        = "no-next-hop"        // no node address of the family that a route needs
	CoversNode       = "prefix-covers-node" // a remote prefix holds an address of this node
	NodeAddress      = "node-address"       // a node has an address that is the clusterset's, or another cluster's
	IPv6Off          = "ipv6-off"           // IPv6 is needed and switched off on the host
	NoFamily         = "no-common-family"   // a remote cluster with other address families only
	MTUTooSmall      = "mtu-too-small"      // IPv6 does not fit the underlay whole
	SourceNotKept    = "source-not-kept"    // a flat prefix is used by another cluster too
	KeyMissing       = driver.KeyMissing
	PeerKeyMissing   = driver.PeerKeyMissing
	NoEndpoint       = driver.NoEndpoint
	FamilyMissing    = driver.FamilyMissing
	DriverUnknown    = "driver-unknown"      // a link of a driver that this agent does not have
	LaneTwice        = "lane-twice"          // two gateways of a cluster with one lane
	MTUTooLarge      = "mtu-too-large"       // tunnel.mtu does not fit the underlay
	ServiceMissing   = "service-missing"     // an export whose Service does not exist here
	PortMissing      = "port-missing"        // an export's port that the Service does not have
	ExportInvalid    = "export-invalid"      // a ServiceExport that does not count
	ExportRefused    = "export-refused"      // an export of another cluster that the topology keeps for others
	ExportNotReady   = "export-not-ready"    // a ServiceExport without an address
	ImportTaken      = "import-taken"        // a ServiceImport that should be ours is somebody else's
	HeadlessNoAddr   = "headless-no-address" // a headless endpoint without a global address
	EgressNoMatch    = "egress-no-match"     // an egress rule that matches no pod
	EgressAmbiguous  = "egress-ambiguous"    // a pod that two selectors match
	TooManyEndpoints = "too-many-endpoints"  // more backends than slots
	NoQuota          = "no-quota"            // a gateway whose kernel cannot count connections
	EndpointRefused  = "endpoint-refused"    // another cluster announces an endpoint that does not count
)

func (v *view) problem(path, code, text string) {
	v.problems = append(v.problems, Problem{Path: path, Code: code, Text: text})
}

// sorted gives the problems in an order that does not depend on how they were
// found, each once.
func (v *view) sorted() []Problem {
	slices.SortFunc(v.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Text, b.Text))
	})
	return slices.Compact(v.problems)
}
