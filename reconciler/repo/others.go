package repo

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

// maxNamed is how many branches a message names.
const maxNamed = 8

// others says what there is in place of a branch that there is not: nothing, or what
// ends a message.
func (s *Store) others(branch string) string {
	refs, err := s.seen()
	if err != nil {
		return "" // the message that asks is about something else
	}
	var branches []string
	tag := false
	_ = refs.ForEach(func(ref *plumbing.Reference) error {
		if ref.Name().IsBranch() {
			branches = append(branches, ref.Name().Short())
		}
		tag = tag || ref.Name() == plumbing.NewTagReferenceName(branch)
		return nil
	})
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
