package syntax

import (
	"strings"
	"unicode"

	"hawser.dev/hawser/schema/fabric"
)

// Nearest returns the name that the user most likely meant, or "" if no name is similar. A similar
// name differs only in case or separators, or by at most two edits and one edit per three bytes of
// text.
func Nearest(text string, names []string) string {
	best, limit, squashed := "", min(len(text)/3, 2)+1, squash(text)
	for _, name := range names {
		if squash(name) == squashed {
			return name
		}
		if e := edits(text, name); e < limit {
			best, limit = name, e
		}
	}
	return best
}

func squash(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '_' {
			return -1
		}
		return unicode.ToLower(r)
	}, text)
}

// maxEdited is the length in bytes of the longest text that edits compares.
const maxEdited = 64

// edits returns the number of insertions, deletions, replacements and swaps of neighbouring bytes
// that turn a into b (optimal string alignment distance). It returns the longer length if a text
// exceeds maxEdited or the lengths differ by more than two.
func edits(a, b string) int {
	// Nearest allows two edits.
	if max(len(a), len(b)) > maxEdited || max(len(a)-len(b), len(b)-len(a)) > 2 {
		return max(len(a), len(b))
	}
	var rows [3][maxEdited + 1]int
	before, above, row := &rows[0], &rows[1], &rows[2]
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, above, row = above, row, before
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(above[j]+1, row[j-1]+1, above[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}

// SuggestLabel returns the DNS label that the user most likely meant. The result may be empty or
// too long.
func SuggestLabel(text string) string {
	return strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case fabric.IsLabelRune(r):
			return r
		case r == '_' || r == '.' || r == ' ' || r == '/':
			return '-'
		}
		return -1
	}, strings.ToLower(text)), "-")
}
