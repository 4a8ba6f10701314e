package schema

// Export is a Service that clusters offer to each other under one name.
type Export struct {
	_ struct{} `name:"namespace/name"`
	// Name of the Service in each exporting cluster.
	Name string `json:"name" required:"true"`
	// Namespace of the Service in each exporting cluster.
	Namespace string `json:"namespace" required:"true"`
	// ClusterSetIP: one address for all clusters' backends together; Headless:
	// the addresses of the pods.
	Type string `json:"type,omitempty" default:"ClusterSetIP" enum:"ClusterSetIP|Headless"`
	// Clusters that export it; at least one.
	Clusters []string `json:"clusters" required:"true"`
	// Ports of the Service that are exported; at least one.
	Ports []Port `json:"ports" required:"true"`
	// Who may reach it; without it, every cluster of the set.
	Allow *Allow `json:"allow,omitempty"`
	// Which cluster's backends a caller reaches; type ClusterSetIP only.
	Balance Balance `json:"balance,omitzero"`
	// ClientIP: a client address keeps its backend; empty: each connection is
	// placed on its own.
	SessionAffinity string `json:"sessionAffinity,omitempty" enum:"ClientIP"`
	// Labels that the import of it has in every cluster.
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations that the import of it has in every cluster.
	Annotations map[string]string `json:"annotations,omitempty"`
	// Pods that get a fixed global address; type Headless only. A number N: the
	// pods of a StatefulSet with the ordinals 0 to N-1; or a list of pod hostnames.
	Hostnames Hostnames `json:"hostnames,omitzero"`
}

// Port is one port of an export.
type Port struct {
	// Name of the port, a DNS label. Required and unique when there is more
	// than one port.
	Name string `json:"name,omitempty"`
	// The Service's port number.
	Port int `json:"port" required:"true" min:"1" max:"65535"`
	// Transport protocol.
	Protocol string `json:"protocol,omitempty" default:"TCP" enum:"TCP|UDP"`
	// Application protocol of the port, as in a Service; carried, not interpreted.
	AppProtocol string `json:"appProtocol,omitempty"`
}

// Allow says who may reach an export. Clusters that export it always may.
type Allow struct {
	// Names of the clusters that may reach it.
	Clusters []string `json:"clusters"`
}

// Balance says which cluster's backends a caller reaches.
type Balance struct {
	// local-first: the caller's own cluster while it is ready, then all others
	// alike; spread: every ready cluster alike; weighted: ready clusters in
	// proportion to weights; failover: the first ready cluster of order.
	Policy string `json:"policy,omitempty" default:"local-first" enum:"local-first|spread|weighted|failover"`
	// Weight of each exporting cluster by name; policy weighted only. A cluster
	// that is not named is chosen only while none of the named is ready.
	Weights map[string]int `json:"weights,omitempty" min:"1" max:"1000"`
	// Exporting clusters, first choice first; policy failover only. Those that
	// are not named are chosen only while none of the named is ready.
	Order []string `json:"order,omitempty"`
}

// Hostnames is a number of StatefulSet ordinals, or a list of pod hostnames. In
// the file it is written as the one or the other.
type Hostnames struct {
	Count int      // the ordinals 0 to Count-1
	Names []string // or these hostnames
}
