// Package humanize formats lists and counts for people.
package humanize

import (
	"fmt"
	"strconv"
	"strings"
)

// Strings returns the text of each item.
func Strings[T fmt.Stringer](list []T) []string {
	out := make([]string, len(list))
	for i, item := range list {
		out[i] = item.String()
	}
	return out
}

// Join joins the texts of items with a separator.
func Join[T fmt.Stringer](list []T, separator string) string {
	return strings.Join(Strings(list), separator)
}

// Plural returns a count with its noun, such as "1 link" or "2 links".
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// FirstN joins up to limit names with commas, and appends the number of the remaining names.
func FirstN(names []string, limit int) string {
	text := strings.Join(names[:min(len(names), limit)], ", ")
	if remaining := len(names) - limit; remaining > 0 {
		text += fmt.Sprintf(" and %d more", remaining)
	}
	return text
}
