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
	best, limit, folded := "", min(len(text)/3, 2)+1, foldSeparators(text)
	for _, name := range names {
		if foldSeparators(name) == folded {
			return name
		}
		if e := editDistance(text, name); e < limit {
			best, limit = name, e
		}
	}
	return best
}

func foldSeparators(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '_' {
			return -1
		}
		return unicode.ToLower(r)
	}, text)
}

// maxEditLength is the length in bytes of the longest text that edits compares.
const maxEditLength = 64

// editDistance returns the number of insertions, deletions, replacements and swaps of neighbouring
// bytes that turn a into b (optimal string alignment distance). It returns the longer length if a
// text exceeds maxEditLength or the lengths differ by more than two.
func editDistance(a, b string) int {
	// Nearest allows two edits.
	if max(len(a), len(b)) > maxEditLength || max(len(a)-len(b), len(b)-len(a)) > 2 {
		return max(len(a), len(b))
	}
	var rows [3][maxEditLength + 1]int
	prev2, prev, cur := &rows[0], &rows[1], &rows[2]
	for j := range cur {
		cur[j] = j
	}
	for i := 1; i <= len(a); i++ {
		prev2, prev, cur = prev, cur, prev2
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
	}
	return cur[len(b)]
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
