// Package markdown wraps the text of generated documents.
package markdown

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// Columns is the maximum length of a line of a document, in characters.
const Columns = 100

// special matches words that start a list, a heading or a quotation if they begin a line
// (CommonMark 0.31, sections 4.2, 5.1 and 5.2).
var special = regexp.MustCompile(`^([-+*>]|#{1,6}|[0-9]{1,9}[.)])$`)

// Paragraph returns text as a paragraph, wrapped at Columns. A longer word has its own line.
func Paragraph(text string) string { return fill(text, "", "") }

// Item returns text as a list item, wrapped at Columns.
func Item(text string) string { return fill(text, "- ", "  ") }

func fill(text, first, rest string) string {
	words := strings.Fields(text)
	var out strings.Builder
	line := first
	for i := 0; i < len(words); i++ {
		word := words[i]
		for i+1 < len(words) && special.MatchString(words[i+1]) {
			i++
			word += " " + words[i]
		}
		if line != first && line != rest {
			if utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > Columns {
				out.WriteString(line + "\n")
				line = rest
			} else {
				line += " "
			}
		}
		line += word
	}
	return out.String() + line + "\n"
}
