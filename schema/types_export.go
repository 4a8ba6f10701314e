package schema

// Export is a Service that one or more clusters export under one name.
type Export struct {
	_ struct{} `name:"namespace/name"`
	// Name of the Service in each exporting cluster.
	Name string `json:"name" required:"true"`
	// Namespace of the Service in each exporting cluster.
	Namespace string `json:"namespace" required:"true"`
	// ClusterSetIP: one address for the backends of all clusters; Headless: the addresses
	// of the pods.
	Type string `json:"type,omitempty" default:"ClusterSetIP" enum:"ClusterSetIP|Headless"`
	// Clusters that export the Service; at least one.
	Clusters []string `json:"clusters" required:"true"`
	// Exported ports of the Service; at least one.
	Ports []Port `json:"ports" required:"true"`
	// Which clusters may reach the export; by default all.
	Allow *Allow `json:"allow,omitempty"`
	// Which cluster's backends a client reaches; type ClusterSetIP only.
	Balance Balance `json:"balance,omitzero"`
	// ClientIP: connections from one client address reach the same backend; empty: each
	// connection gets a backend independently.
	SessionAffinity string `json:"sessionAffinity,omitempty" enum:"ClientIP"`
	// Labels of the import in every cluster.
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations of the import in every cluster.
	Annotations map[string]string `json:"annotations,omitempty"`
	// Pods with a fixed global address; type Headless only. A number N: the pods of a
	// StatefulSet with the ordinals 0 to N-1; otherwise a list of pod hostnames.
	Hostnames Hostnames `json:"hostnames,omitzero"`
}

// Port is one port of an export.
type Port struct {
	// Name of the port, a DNS label. Required and unique if there is more than one port.
	Name string `json:"name,omitempty"`
	// The Service's port number.
	Port int `json:"port" required:"true" min:"1" max:"65535"`
	// Transport protocol.
	Protocol string `json:"protocol,omitempty" default:"TCP" enum:"TCP|UDP"`
	// Application protocol of the port, as in a Service. Hawser passes it to the import
	// unchanged.
	AppProtocol string `json:"appProtocol,omitempty"`
}

// Allow restricts the clusters that may reach an export. Clusters that export it can always
// reach it.
type Allow struct {
	// Names of the clusters that may reach the export.
	Clusters []string `json:"clusters"`
}

// Balance selects the cluster whose backends a client reaches.
type Balance struct {
	// local-first: the client's own cluster while it is ready, otherwise all others
	// equally; spread: all ready clusters equally; weighted: ready clusters in
	// proportion to weights; failover: the first ready cluster of order.
	Policy string `json:"policy,omitempty" default:"local-first" enum:"local-first|spread|weighted|failover"`
	// Weight of each exporting cluster by name; policy weighted only. Clusters without a
	// weight are used only while no cluster with a weight is ready.
	Weights map[string]int `json:"weights,omitempty" min:"1" max:"1000"`
	// Exporting clusters in order of preference; policy failover only. Clusters that are
	// not listed are used only while no listed cluster is ready.
	Order []string `json:"order,omitempty"`
}

// Hostnames is a number of StatefulSet ordinals, or a list of pod hostnames.
type Hostnames struct {
	Count int      // the ordinals 0 to Count-1
	Names []string // or these hostnames
}
