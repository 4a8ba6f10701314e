package schema

import "slices"

// UI is the web page of the clusterset, served inside of Kubernetes clusters. It shows the
// fabric, and what the cluster's own agents report; it changes nothing.
type UI struct {
	// Names of the clusters that serve it; all by default. Hosts outside Kubernetes serve
	// none.
	Clusters []string `json:"clusters,omitempty"`
	// DNS names under which an ingress serves it, at most 16. Without them it is served to
	// names of the Service, and to localhost for kubectl port-forward.
	Hosts []string `json:"hosts,omitempty"`
	// Name of a Secret in the namespace hawser-system that has, in each of the clusters, a
	// token of 32 characters or more under the key token; who sends it sees the page.
	// Without it the page makes a token when it starts and writes its URL to its log.
	TokenSecret string `json:"tokenSecret,omitempty"`
	// Image of hawser, with a tag or a digest. By default it is that of the agents with the
	// name hawser instead of hawser-agent, by tag.
	Image string `json:"image,omitempty"`
}

// Serves reports whether a cluster serves the page.
func (u *UI) Serves(cluster string) bool {
	return u != nil && (len(u.Clusters) == 0 || slices.Contains(u.Clusters, cluster))
}
