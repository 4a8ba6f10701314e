package schema

// Agent configures the agents' pods in Kubernetes. The defaults are the same in every version
// of Hawser, except for the image.
type Agent struct {
	// Image of the agent, with a tag or a digest. Without it the published image does not
	// change. The first publication uses hawser.dev/hawser-agent:<version>, with the version
	// of the hawser program that publishes.
	Image string `json:"image,omitempty"`
	// Names of Secrets in the namespace hawser-system with credentials for the
	// image's registry.
	ImagePullSecrets []string `json:"imagePullSecrets,omitempty"`
	// PriorityClass of the agents' pods.
	PriorityClassName string `json:"priorityClassName,omitempty" default:"system-node-critical"`
	// Taints that agents tolerate. By default agents run on every node, with any
	// taints. An empty list is the same as no list.
	Tolerations []Toleration `json:"tolerations,omitempty"`
	// Resource requests of each agent.
	Requests AgentRequests `json:"requests,omitzero"`
	// Resource limits of agents on nodes that are not gateways.
	Limits AgentLimits `json:"limits,omitzero"`
	// Resource limits of agents on gateways.
	GatewayLimits GatewayLimits `json:"gatewayLimits,omitzero"`
}

// Toleration matches taints that agents tolerate, as in a pod.
type Toleration struct {
	// Key of the taint. An empty key with operator Exists matches every taint.
	Key string `json:"key,omitempty"`
	// Exists: matches any value; Equal: matches the value below.
	Operator string `json:"operator,omitempty" default:"Equal" enum:"Equal|Exists"`
	// Value of the taint; operator Equal only.
	Value string `json:"value,omitempty"`
	// Effect of the taint. An empty effect matches every effect.
	Effect string `json:"effect,omitempty" enum:"NoSchedule|PreferNoSchedule|NoExecute"`
}

// AgentRequests are the resource requests of an agent.
type AgentRequests struct {
	// CPU request, such as 50m or "1".
	CPU string `json:"cpu,omitempty" default:"50m"`
	// Memory request, such as 64Mi.
	Memory string `json:"memory,omitempty" default:"64Mi"`
}

// AgentLimits are the resource limits of an agent on a node that is not a gateway.
type AgentLimits struct {
	// CPU limit, such as 500m or "2". Without it CPU is not limited.
	CPU string `json:"cpu,omitempty"`
	// Memory limit, such as 512Mi.
	Memory string `json:"memory,omitempty" default:"512Mi"`
}

// GatewayLimits are the resource limits of an agent on a gateway.
type GatewayLimits struct {
	// CPU limit, such as 500m or "2". Without it CPU is not limited.
	CPU string `json:"cpu,omitempty"`
	// Memory limit, such as 1Gi.
	Memory string `json:"memory,omitempty" default:"1Gi"`
}
