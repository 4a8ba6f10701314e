// Package markdown wraps the text of generated documents.
package markdown

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// Columns is the maximum length of a line of a document, in characters.
const Columns = 100

// blockMarker matches words that start a list, a heading or a quotation if they begin a line
// (CommonMark 0.31, sections 4.2, 5.1 and 5.2).
var blockMarker = regexp.MustCompile(`^([-+*>]|#{1,6}|[0-9]{1,9}[.)])$`)

// Paragraph returns text as a paragraph, wrapped at Columns. A longer word has its own line.
func Paragraph(text string) string { return wrap(text, "", "") }

// Item returns text as a list item, wrapped at Columns.
func Item(text string) string { return wrap(text, "- ", "  ") }

func wrap(text, firstIndent, indent string) string {
	words := strings.Fields(text)
	var out strings.Builder
	line := firstIndent
	for i := 0; i < len(words); i++ {
		word := words[i]
		for i+1 < len(words) && blockMarker.MatchString(words[i+1]) {
			i++
			word += " " + words[i]
		}
		if line != firstIndent && line != indent {
			if utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > Columns {
				out.WriteString(line + "\n")
				line = indent
			} else {
				line += " "
			}
		}
		line += word
	}
	return out.String() + line + "\n"
}
