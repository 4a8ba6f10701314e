// Package mcs decides what the Multi-Cluster Services API (KEP-1645) says in one
// cluster: which ServiceExports count, how differing ones of one name become one
// import, which addresses they have, and which objects and conditions show it.
// It is pure: every gateway of a cluster that knows the same decides the same,
// so it does not matter which of them writes.
package mcs

import (
	"net/netip"
	"time"

	"hawser.dev/hawser/schema/fabric"
)

// AddressesAnnotation of a ServiceExport holds the addresses, joined by commas, that
// this cluster gave to it out of its block; of a headless one those of its pods, as
// in db-0=242.0.0.1, where they have none that others can reach.
const AddressesAnnotation = "hawser.dev/addresses"

// Export is one ServiceExport of this cluster and what its Service says.
type Export struct {
	Namespace  string    `json:"Namespace"`
	Name       string    `json:"Name"`
	UID        string    `json:"UID"`
	Created    time.Time `json:"Created"` // of the ServiceExport, whole seconds
	Generation int64     `json:"Generation"`
	// Labels and Annotations are those that the ServiceExport exports.
	Labels             map[string]string `json:"Labels"`
	Annotations        map[string]string `json:"Annotations"`
	Addrs              []netip.Addr      `json:"Addrs"`   // of AddressesAnnotation, at most one a family
	Hosts              []fabric.Host     `json:"Hosts"`   // of the same, sorted by name
	AddressesConfirmed bool              `json:"Vouched"` // its status says the same as the annotation: see Vouches
	Service            *Service          `json:"Service"` // nil = there is none of this name
}

// Service is what an import takes from a Service.
type Service struct {
	Type                  string `json:"Type"` // as in Kubernetes: ClusterIP, NodePort, LoadBalancer, ExternalName
	Headless              bool   `json:"Headless"`
	Ports                 []Port `json:"Ports"`
	Families              []int  `json:"Families"`        // 4, 6; in the order of the Service
	Affinity              string `json:"Affinity"`        // ClientIP or empty
	AffinitySeconds       int    `json:"AffinitySeconds"` // of ClientIP; 0 = Kubernetes' default
	InternalTrafficPolicy string `json:"InternalTrafficPolicy"`
	TrafficDistribution   string `json:"TrafficDistribution"`
}

// Port is one port of an offer or an import.
type Port struct {
	Name        string `json:"name,omitempty"`
	Protocol    string `json:"protocol"` // TCP | UDP | SCTP
	Port        int    `json:"port"`
	AppProtocol string `json:"appProtocol,omitempty"`
}

// Offer is what a cluster tells the others of one valid export. It travels in
// the feed, so it is bounded and has short names.
type Offer struct {
	Created               time.Time         `json:"created"`
	Headless              bool              `json:"headless,omitempty"`
	Ports                 []Port            `json:"ports,omitempty"`
	Families              []int             `json:"families,omitempty"`
	Addrs                 []netip.Addr      `json:"addrs,omitempty"` // none for Headless
	Affinity              string            `json:"affinity,omitempty"`
	AffinitySeconds       int               `json:"affinitySeconds,omitempty"`
	InternalTrafficPolicy string            `json:"internalTrafficPolicy,omitempty"`
	TrafficDistribution   string            `json:"trafficDistribution,omitempty"`
	Labels                map[string]string `json:"labels,omitempty"`
	Annotations           map[string]string `json:"annotations,omitempty"`
}

// Import is one ServiceImport, as it is or as it should be.
type Import struct {
	Namespace string    `json:"Namespace"`
	Name      string    `json:"Name"`
	Created   time.Time `json:"Created"` // of the object as it is; zero in what should be
	// Foreign says that the object which stands there has not our mark. Of what it says
	// nothing counts but IPs: those that it had as long as it was ours.
	Foreign               bool              `json:"Taken"`
	Type                  string            `json:"Type"` // fabric.ClusterSetIP | fabric.Headless
	IPs                   []netip.Addr      `json:"IPs"`
	Families              []int             `json:"Families"` // 4, 6; as IPs, and set for Headless too
	Ports                 []Port            `json:"Ports"`
	Affinity              string            `json:"Affinity"`
	AffinitySeconds       int               `json:"AffinitySeconds"`
	InternalTrafficPolicy string            `json:"InternalTrafficPolicy"`
	TrafficDistribution   string            `json:"TrafficDistribution"`
	Labels                map[string]string `json:"Labels"`
	Annotations           map[string]string `json:"Annotations"`
	Clusters              []string          `json:"Clusters"` // that export it, sorted
	Conditions            []Condition       `json:"Conditions"`
}

// Slice is one EndpointSlice of an import: the endpoints of one source cluster in
// one family that have the same ports.
type Slice struct {
	Namespace string     `json:"Namespace"`
	Name      string     `json:"Name"`
	Import    string     `json:"Import"`  // name of the import
	Cluster   string     `json:"Cluster"` // the source
	Family    int        `json:"Family"`  // 4 | 6
	Ports     []Port     `json:"Ports"`
	Endpoints []Endpoint `json:"Endpoints"` // sorted by address
}

// Endpoint is one endpoint, at the address by which this cluster reaches it. It is ready
// unless it terminates.
type Endpoint struct {
	Addr     netip.Addr `json:"Addr"`
	Hostname string     `json:"Hostname"`
	// Terminating means that all endpoints behind the address terminate and serve.
	Terminating bool `json:"Terminating"`
}

// Condition is one condition of a ServiceExport or a ServiceImport. When it
// changed is known to who writes it.
type Condition struct {
	Type    string `json:"Type"`
	Status  string `json:"Status"` // True | False | Unknown
	Reason  string `json:"Reason"`
	Message string `json:"Message"`
}

// Status is what a ServiceExport of this cluster should show.
type Status struct {
	Namespace  string        `json:"Namespace"`
	Name       string        `json:"Name"`
	UID        string        `json:"UID"`
	Generation int64         `json:"Generation"`
	Addrs      []netip.Addr  `json:"Addrs"` // for AddressesAnnotation; none for Headless, and for exports that only the topology can make
	Hosts      []fabric.Host `json:"Hosts"` // for the same, of a headless one
	Conditions []Condition   `json:"Conditions"`
}

// DesiredObjects is all that should stand in this cluster's API.
type DesiredObjects struct {
	// PeersSynced says that every other cluster was heard, or not for so long that it
	// counts as gone. Before, nothing that is missing here may be deleted.
	PeersSynced bool
	Imports     []Import          // sorted by namespace/name
	Slices      []Slice           // sorted by namespace/name
	Exports     []Status          // sorted by namespace/name
	Property    map[string]string // ClusterProperties (KEP-2149) by name
}
