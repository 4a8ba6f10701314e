package reconciler

import (
	"slices"
	"strings"

	"hawser.dev/hawser/internal/massdelete"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema"
)

// Rules are an operator's exceptions for commits that can be a mistake.
type Rules struct {
	// WriteLock allows allocations that the committed lock lacks. Otherwise such a commit is
	// refused.
	WriteLock bool
	// AllowMassDelete lets a commit remove more than half of the clusters.
	AllowMassDelete bool
}

// Check returns an error if a built tree must not replace the published tree. It does not check
// signatures.
func (b *Built) Check(published render.Tree, rules Rules, revision string, files map[string][]byte) *Failure {
	if len(b.Stale) > 0 && !rules.WriteLock {
		return failWithFindings(ReasonStaleLock, revision, WithPositions(b.Stale, b.Source), files)
	}
	if rules.AllowMassDelete {
		return nil
	}
	if err := checkMassDelete(published, b.Set); err != nil {
		return fail(ReasonMassDelete, revision, err)
	}
	return nil
}

// checkMassDelete returns an error if a topology removes more than half of the published clusters.
// The cause of such a topology is nearly always a truncated file or a bad merge. All agents would
// remove the tunnels to those clusters at once.
func checkMassDelete(published map[string][]byte, set *schema.ClusterSet) error {
	var clusters []string
	for path := range published {
		relPath, inside := strings.CutPrefix(path, "clusters/")
		if name, file, ok := strings.Cut(relPath, "/"); inside && ok && file == "kustomization.yaml" {
			clusters = append(clusters, name)
		}
	}
	slices.Sort(clusters)
	var removed []string
	for _, name := range clusters {
		if set.Cluster(name) == nil {
			removed = append(removed, name)
		}
	}
	if set.Spec.Decommission {
		return nil
	}
	return massdelete.Check("the commit removes", "clusters", len(clusters), removed)
}
