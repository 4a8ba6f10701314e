// Package massdelete refuses to delete more than half of a set of objects without an explicit flag.
package massdelete

import (
	"fmt"

	"hawser.dev/hawser/internal/humanize"
)

// maxShown is the maximum number of names in the error.
const maxShown = 5

// Check returns an error if more than half of total objects are deleted. The message starts with
// action, the numbers and kind: "the commit removes 3 of 4 clusters".
func Check(action, kind string, total int, deleted []string) error {
	if 2*len(deleted) <= total {
		return nil
	}
	return fmt.Errorf("%s %d of %d %s (%s), which looks like a mistake: "+
		"set spec.decommission: true, or pass --allow-mass-delete, if it is meant", action, len(deleted), total, kind, humanize.FirstN(deleted, maxShown))
}
