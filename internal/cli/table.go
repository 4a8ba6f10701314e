package cli

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"
)

// Number formats a count for a cell; zero is empty.
func Number(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// ShortList joins items with commas. If the result has more than width characters, it returns the
// items that fit, at least one, and the number of the others: "fra,sin +18".
func ShortList(items []string, width int) string {
	text := strings.Join(items, ",")
	for n := len(items) - 1; n > 0 && len(text) > width; n-- {
		text = fmt.Sprintf("%s +%d", strings.Join(items[:n], ","), len(items)-n)
	}
	return text
}

// Table is a title, column headings and rows of equal length.
type Table struct {
	Title string // optional
	Head  []string
	Rows  [][]string
}

// String formats the table with aligned columns.
func (t Table) String() string {
	var out strings.Builder
	if t.Title != "" {
		_, _ = fmt.Fprintln(&out, t.Title)
	}
	if len(t.Rows) == 0 {
		return out.String() + "(none)\n"
	}
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{t.Head}, t.Rows...) {
		for i := range row {
			row[i] = cmp.Or(row[i], "-")
		}
		_, _ = fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush() // a Builder returns no errors
	return out.String()
}

// YesNo formats a bool.
func YesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
