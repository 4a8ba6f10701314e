package reconciler

import (
	"slices"
	"strings"

	"hawser.dev/hawser/internal/massdelete"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema"
)

// Rules are what a person decides about commits that may be a mistake.
type Rules struct {
	// WriteLock allocates what the committed lock lacks; without it such a commit is refused.
	WriteLock bool
	// AllowMassDelete lets a commit remove more than half of the clusters.
	AllowMassDelete bool
}

// Check gives why what was built is not published on top of have, or nil. It is the one
// judge of that: a reconciler asks it of each commit, and hawser diff of what is not
// committed yet. Who signed a commit, which needs the commit, is judged before.
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

// checkMassDelete refuses a topology that removes more than half of the clusters that are
// published. That is nearly always a truncated file or a bad merge, and all
// agents would take the tunnels to those clusters down at once; a person who
// means it says so.
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
