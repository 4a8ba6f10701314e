package reconciler

import (
	"slices"
	"strings"

	"hawser.dev/hawser/internal/massdelete"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema"
)

// Rules are an operator's decisions about commits that may be a mistake.
type Rules struct {
	// WriteLock allows allocations that the committed lock lacks; without it such a commit is refused.
	WriteLock bool
	// AllowMassDelete lets a commit remove more than half of the clusters.
	AllowMassDelete bool
}

// Check returns an error if a built tree must not replace the published tree have. The
// reconciler and hawser diff share it. Signatures, which need a commit, are checked elsewhere.
func (b *Built) Check(have render.Tree, rules Rules, revision string, files map[string][]byte) *Failure {
	if len(b.Stale) > 0 && !rules.WriteLock {
		return failFindings(ReasonStaleLock, revision, WithPositions(b.Stale, b.Source), files)
	}
	if rules.AllowMassDelete {
		return nil
	}
	if err := checkMassDelete(have, b.Set); err != nil {
		return fail(ReasonMassDelete, revision, err)
	}
	return nil
}

// checkMassDelete refuses a topology that removes more than half of the published clusters.
// That is nearly always a truncated file or a bad merge, and all agents would remove the
// tunnels to those clusters at once. AllowMassDelete permits it.
func checkMassDelete(have map[string][]byte, set *schema.ClusterSet) error {
	var published []string
	for path := range have {
		rest, inside := strings.CutPrefix(path, "clusters/")
		if name, file, ok := strings.Cut(rest, "/"); inside && ok && file == "kustomization.yaml" {
			published = append(published, name)
		}
	}
	slices.Sort(published)
	var gone []string
	for _, name := range published {
		if set.Cluster(name) == nil {
			gone = append(gone, name)
		}
	}
	if set.Spec.Decommission {
		return nil
	}
	return massdelete.Check("the commit removes", "clusters", len(published), gone)
}
