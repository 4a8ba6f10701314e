package converge

import (
	"fmt"
	"io"

	"hawser.dev/hawser/internal/diff"
)

// PrintPlan writes changes as text: each with the topology path that causes it, and a summary at
// the end. It returns the first error of w.
func PrintPlan(w io.Writer, changes []Change) error {
	count := map[diff.Op]int{}
	for _, c := range changes {
		count[c.Op]++
		if _, err := fmt.Fprintln(w, c); err != nil {
			return err
		}
		if c.Origin != "" {
			if _, err := fmt.Fprintf(w, "    by %s\n", c.Origin); err != nil {
				return err
			}
		}
	}
	if len(changes) == 0 {
		_, err := fmt.Fprintln(w, NoChanges)
		return err
	}
	_, err := fmt.Fprintf(w, "Plan: %d to create, %d to update, %d to replace, %d to delete.\n",
		count[diff.Create], count[diff.Update], count[diff.Replace], count[diff.Delete])
	return err
}

// NoChanges is the output of PrintPlan without changes.
const NoChanges = "No changes."
