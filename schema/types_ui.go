package schema

import "slices"

// UI configures the web page of the clusterset, which runs in the Kubernetes clusters. The
// page shows the fabric and the status of the cluster's own agents. It is read-only.
type UI struct {
	// Names of the clusters that serve the page; by default all. Hosts outside Kubernetes
	// never serve it.
	Clusters []string `json:"clusters,omitempty"`
	// DNS names under which an ingress serves the page, at most 16. Without it the page
	// accepts only the names of its Service, and localhost for kubectl port-forward.
	Hosts []string `json:"hosts,omitempty"`
	// Name of a Secret in the namespace hawser-system of each of these clusters. The value
	// of its key "token" has at least 32 characters; clients that send it see the page.
	// Without the Secret the page creates a token when it starts and logs its URL.
	TokenSecret string `json:"tokenSecret,omitempty"`
	// Image of hawser, with a tag or a digest. By default it has the name of the agents'
	// image, with hawser instead of hawser-agent, and the same tag. Required if the agents'
	// image has a digest or another name.
	Image string `json:"image,omitempty"`
}

// Serves reports whether a cluster serves the page. A nil UI is valid and serves nowhere.
func (u *UI) Serves(cluster string) bool {
	return u != nil && (len(u.Clusters) == 0 || slices.Contains(u.Clusters, cluster))
}
