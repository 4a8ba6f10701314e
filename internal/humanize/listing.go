// Package humanize writes lists for people: the texts of items, how many there are, and the first
// of many names.
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

// Join writes the texts of items one after the other.
func Join[T fmt.Stringer](list []T, separator string) string {
	return strings.Join(Strings(list), separator)
}

// Plural writes a number of things, as in 1 link and 2 links.
func Plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}

// FirstN joins the first names with commas, and adds the number of the others.
func FirstN(names []string, most int) string {
	text := strings.Join(names[:min(len(names), most)], ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
