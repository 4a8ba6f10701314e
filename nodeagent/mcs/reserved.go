package mcs

import (
	"maps"
	"strings"
)

// reserved are the domains of labels and annotations on which controllers act: with
// those below them no export marks the imports of other clusters.
func reserved() []string { return []string{"kubernetes.io", "k8s.io", "hawser.dev"} }

// sharable reports whether a label or annotation may go from an export to the imports
// of all clusters. KEP-1645 itself has two in a reserved domain.
func sharable(key string) bool {
	if key == "multicluster.kubernetes.io/service-name" || key == "multicluster.kubernetes.io/source-cluster" {
		return true
	}
	domain, _, found := strings.Cut(strings.ToLower(key), "/")
	for _, r := range reserved() {
		if found && (domain == r || strings.HasSuffix(domain, "."+r)) {
			return false
		}
	}
	return true
}

// shared gives an offer as it counts, in the own cluster too: without labels and
// annotations that may not be shared.
func (o *Offer) shared() *Offer {
	out := *o
	out.Labels, out.Annotations = sharables(o.Labels), sharables(o.Annotations)
	if len(out.Labels) == len(o.Labels) && len(out.Annotations) == len(o.Annotations) {
		return o
	}
	return &out
}

// sharables leaves out the others; what has none is given back as it is.
func sharables(entries map[string]string) map[string]string {
	out := entries
	for key := range entries {
		if sharable(key) {
			continue
		}
		if len(out) == len(entries) {
			out = maps.Clone(entries)
		}
		delete(out, key)
	}
	return out
}
