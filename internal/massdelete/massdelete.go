// Package massdelete refuses to delete more than half of a set of objects without an explicit flag.
package massdelete

import (
	"fmt"

	"hawser.dev/hawser/internal/humanize"
)

// maxShown is the maximum number of names in the error.
const maxShown = 5

// Check returns an error if gone is more than half of have. The message starts with did,
// the numbers and what: "the commit removes 3 of 4 clusters".
func Check(did, what string, have int, gone []string) error {
	if 2*len(gone) <= have {
		return nil
	}
	return fmt.Errorf("%s %d of %d %s (%s), which looks like a mistake: "+
		"set spec.decommission: true, or pass --allow-mass-delete, if it is meant", did, len(gone), have, what, humanize.FirstN(gone, maxShown))
}
