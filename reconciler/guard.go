package reconciler

import (
	"fmt"
	"slices"
	"strings"

	"hawser.dev/hawser/schema"
)

// guard refuses a topology that removes more than half of the clusters that are
// published. That is nearly always a truncated file or a bad merge, and all
// agents would take the tunnels to those clusters down at once; a person who
// means it says so.
func guard(have map[string][]byte, set *schema.ClusterSet) error {
	published := publishedClusters(have)
	var gone []string
	for _, name := range published {
		if set.Cluster(name) == nil {
			gone = append(gone, name)
		}
	}
	if set.Spec.Decommission || 2*len(gone) <= len(published) {
		return nil
	}
	const most = 5
	names := strings.Join(gone[:min(len(gone), most)], ", ")
	if more := len(gone) - most; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Errorf("the commit removes %d of %d clusters (%s), which looks like a mistake: "+
		"set spec.decommission: true, or pass --allow-mass-delete, if it is meant", len(gone), len(published), names)
}

// publishedClusters lists the clusters of a rendered tree by name.
func publishedClusters(tree map[string][]byte) []string {
	var names []string
	for path := range tree {
		rest, inside := strings.CutPrefix(path, "clusters/")
		if name, file, ok := strings.Cut(rest, "/"); inside && ok && file == "kustomization.yaml" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
