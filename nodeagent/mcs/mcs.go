// Package mcs computes the Multi-Cluster Services API (KEP-1645) of one cluster: valid
// ServiceExports, conflict resolution, addresses, and the desired objects and conditions. It is
// pure: every gateway of a cluster with the same input computes the same objects, so any of them
// may write.
package mcs

import (
	"net/netip"
	"time"

	"hawser.dev/hawser/schema/fabric"
)

// AddressesAnnotation of a ServiceExport has the addresses, joined by commas, that its cluster
// allocated in the global block. A headless export has an address for each pod, as in
// db-0=242.0.0.1, if other clusters cannot reach pods at their own addresses.
const AddressesAnnotation = "hawser.dev/addresses"

// Export is one ServiceExport of this cluster with its Service.
type Export struct {
	Namespace  string
	Name       string
	UID        string
	Created    time.Time // of the ServiceExport, whole seconds
	Generation int64
	Rendered   bool // by the reconciler, from spec.exports of the topology
	// Labels and Annotations are the exported labels and annotations of the ServiceExport.
	Labels             map[string]string
	Annotations        map[string]string
	Addrs              []netip.Addr  // of AddressesAnnotation, at most one per family
	Hosts              []fabric.Host // of AddressesAnnotation, sorted by name
	AddressesConfirmed bool          // its status has the addresses of the annotation: see ConfirmsAddresses
	Service            *Service      // nil if absent
}

// Service has the fields of a Service that its import copies.
type Service struct {
	Type                  string // as in Kubernetes: ClusterIP, NodePort, LoadBalancer, ExternalName
	Headless              bool
	Ports                 []Port
	Families              []int  // 4, 6; in the order of the Service
	Affinity              string // ClientIP or empty
	AffinitySeconds       int    // of ClientIP; 0 = Kubernetes' default
	InternalTrafficPolicy string
	TrafficDistribution   string
}

// Port is one port of an offer or an import.
type Port struct {
	Name        string `json:"name,omitempty"`
	Protocol    string `json:"protocol"` // TCP | UDP | SCTP
	Port        int    `json:"port"`
	AppProtocol string `json:"appProtocol,omitempty"`
}

// Offer is a valid export, as its cluster sends it to other clusters in the feed. Check limits the
// size of an offer.
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

// Import is one ServiceImport, observed or desired.
type Import struct {
	Namespace string
	Name      string
	Created   time.Time // of the observed object; zero in desired ones
	// Foreign reports that the object lacks Hawser's label. Only its IPs are used, and only if
	// Hawser wrote them before the label was removed.
	Foreign               bool
	Type                  string // fabric.ClusterSetIP | fabric.Headless
	IPs                   []netip.Addr
	Families              []int // 4, 6; as IPs, and also set for Headless
	Ports                 []Port
	Affinity              string
	AffinitySeconds       int
	InternalTrafficPolicy string
	TrafficDistribution   string
	Labels                map[string]string
	Annotations           map[string]string
	Clusters              []string // that export it, sorted
	Conditions            []Condition
}

// Slice is one EndpointSlice of an import: the endpoints of one source cluster in
// one family that have the same ports.
type Slice struct {
	Namespace string
	Name      string
	Import    string // name of the import
	Cluster   string // the source
	Family    int    // 4 | 6
	Ports     []Port
	Endpoints []Endpoint // sorted by address
}

// Endpoint is one endpoint, at the address by which this cluster reaches it. It is ready
// unless it terminates.
type Endpoint struct {
	Addr     netip.Addr
	Hostname string
	// Terminating means that all endpoints behind the address terminate and serve.
	Terminating bool
}

// Condition is one condition of a ServiceExport or a ServiceImport. The writer adds the time of
// its last change.
type Condition struct {
	Type    string
	Status  string // True | False | Unknown
	Reason  string
	Message string
}

// Status is the desired status of a ServiceExport of this cluster.
type Status struct {
	Namespace  string
	Name       string
	UID        string
	Generation int64
	Addrs      []netip.Addr  // for AddressesAnnotation; none for Headless, and for exports that only the topology can declare
	Hosts      []fabric.Host // for the same annotation, if headless
	Conditions []Condition
}

// DesiredObjects are the desired objects of this cluster's API.
type DesiredObjects struct {
	// PeersSynced reports that every other cluster has sent its state, or counts as gone after
	// a long silence. Until then no missing object may be deleted.
	PeersSynced bool
	Imports     []Import          // sorted by namespace/name
	Slices      []Slice           // sorted by namespace/name
	Exports     []Status          // sorted by namespace/name
	Property    map[string]string // ClusterProperties (KEP-2149) by name
}
