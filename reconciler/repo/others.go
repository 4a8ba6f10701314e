package repo

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/storage"
)

// maxNamed is how many branches a message names.
const maxNamed = 8

// others says what there is in place of a branch that there is not: nothing, or what
// ends a message.
func (s *Store) others(branch string) string {
	branches, tag := s.known(branch)
	slices.Sort(branches)
	more := ""
	if n := len(branches) - maxNamed; n > 0 {
		branches, more = branches[:maxNamed], fmt.Sprintf(" and %d more", n)
	}
	text := ""
	if tag {
		text = ", but a tag of that name"
	}
	switch len(branches) {
	case 0:
		return text
	case 1:
		return text + " (there is " + branches[0] + ")"
	}
	return text + " (there are " + strings.Join(branches, ", ") + more + ")"
}

// knownIn gives the branches that a storage holds, and whether it holds a tag.
func knownIn(st storage.Storer, name string) (branches []string, tag bool) {
	refs, err := st.IterReferences()
	if err != nil {
		return nil, false // the message that asks is about something else
	}
	_ = refs.ForEach(func(ref *plumbing.Reference) error {
		if ref.Name().IsBranch() {
			branches = append(branches, ref.Name().Short())
		}
		tag = tag || ref.Name() == plumbing.NewTagReferenceName(name)
		return nil
	})
	return branches, tag
}
