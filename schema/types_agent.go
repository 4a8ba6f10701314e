package schema

// Agent is how the agents run in Kubernetes. What is not said here has its default, whatever
// version of Hawser renders; the image is the exception.
type Agent struct {
	// Image of the agent, with a tag or a digest. Without it the image that is
	// published stays, and a first publication takes the one of the Hawser that
	// publishes, hawser.dev/hawser-agent:<version>.
	Image string `json:"image,omitempty"`
	// Names of Secrets in the namespace hawser-system that hold logins for the
	// image's registry.
	ImagePullSecrets []string `json:"imagePullSecrets,omitempty"`
	// PriorityClass of the agents' pods.
	PriorityClassName string `json:"priorityClassName,omitempty" default:"system-node-critical"`
	// Taints of nodes on which agents run nevertheless. By default they run on every
	// node, whatever its taints; an empty list is the same as none.
	Tolerations []Toleration `json:"tolerations,omitempty"`
	// What the scheduler keeps free for each agent.
	Requests AgentRequests `json:"requests,omitzero"`
	// What an agent may use at most, on nodes that are no gateways.
	Limits AgentLimits `json:"limits,omitzero"`
	// What an agent on a gateway may use at most.
	GatewayLimits GatewayLimits `json:"gatewayLimits,omitzero"`
}

// Toleration is a taint that agents tolerate, as in a pod.
type Toleration struct {
	// Key of the taint; empty with operator Exists is every taint.
	Key string `json:"key,omitempty"`
	// Exists: whatever its value; Equal: with this value.
	Operator string `json:"operator,omitempty" default:"Equal" enum:"Equal|Exists"`
	// Value of the taint; operator Equal only.
	Value string `json:"value,omitempty"`
	// Effect of the taint; empty is every effect.
	Effect string `json:"effect,omitempty" enum:"NoSchedule|PreferNoSchedule|NoExecute"`
}

// AgentRequests is what the scheduler keeps free for an agent.
type AgentRequests struct {
	// Processors, as 50m or "1".
	CPU string `json:"cpu,omitempty" default:"50m"`
	// Memory, as 64Mi.
	Memory string `json:"memory,omitempty" default:"64Mi"`
}

// AgentLimits is what an agent on a node that is no gateway may use.
type AgentLimits struct {
	// Processors, as 500m or "2". Without it there is no limit.
	CPU string `json:"cpu,omitempty"`
	// Memory, as 512Mi.
	Memory string `json:"memory,omitempty" default:"512Mi"`
}

// GatewayLimits is what an agent on a gateway may use.
type GatewayLimits struct {
	// Processors, as 500m or "2". Without it there is no limit.
	CPU string `json:"cpu,omitempty"`
	// Memory, as 1Gi.
	Memory string `json:"memory,omitempty" default:"1Gi"`
}
