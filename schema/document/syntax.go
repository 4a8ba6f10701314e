package document

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/internal/humanize"
)

var (
	yamlLine = regexp.MustCompile(`^line (\d+): `)
	// Errors of the parser, not of the scanner. Their lines count from 0.
	yamlParser = regexp.MustCompile(`^(did not find expected (node content|key|',' or '[\]}]'|'-' indicator|<)|found (undefined tag|duplicate|incompatible))`)
	// Errors that a wrong indentation causes.
	yamlIndent = regexp.MustCompile(`^(did not find expected (key|'-' indicator)|mapping values are not allowed)`)
	// The error for an unknown alias, which has no line.
	unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
)

const (
	hintBrackets  = "check the indentation (spaces, no tabs), brackets and quotes on this line and the one before"
	hintBegins    = "check the indentation (spaces, no tabs), brackets and quotes of what begins on this line"
	hintAliases   = "anchors and aliases are not supported: write the value out"
	hintStars     = "put text that begins with * or & in quotes"
	hintTag       = "tags are not supported: remove the tag, or put text that begins with ! in quotes"
	hintDirective = "remove the line: a topology has no directives, and the rest of the file is read without it"
)

// syntaxHints returns pairs of a part of an error of the YAML package and the hint for that error.
// The first match wins.
func syntaxHints() [][2]string {
	return [][2]string{
		{"alphabetic or numeric", hintStars}, // read as an alias or an anchor
		{"tag", hintTag},
		{"expected '!'", hintTag},
		{"expected '>'", hintTag},
		{"URI", hintTag},
		{"UTF-8 octet", hintTag},
		{"directive", hintDirective},
		{"incompatible YAML", hintDirective},
		{"version number", hintDirective},
		{"digit or '.'", hintDirective},
		{"non-alphabetical", hintDirective},
		{"end of stream", "close the quote that opens on this line"},
		{"document indicator", "close the quote that opens on this line, before the line with --- or ..."},
		{"escape character", `write the backslash twice, or use single quotes`},
		{"hexdecimal", "write the escape with hexadecimal digits, the backslash twice, or use single quotes"},
		{"escape code", "write the character itself, the backslash twice, or use single quotes"},
		{"tab character", "indent with spaces, not with tabs"},
		{"could not find expected ':'", "write a colon and a space behind the key, or put the text in quotes"},
		{"sequence entries", "put the list below its key, each item on a line of its own that begins with -"},
		{"mapping keys", "write KEY: VALUE without the question mark"},
		{"max depth", "nest lists and mappings less deeply"},
		{"indentation indicator", "write | or > without the 0"},
		{"comment or line break", "put the text behind | or > on the next line, indented"},
		{"<document start>", "a topology is one document: remove the text before the line ---, or the line ..."},
		{"start any token", "put text that begins with @, ` or % in quotes"},
	}
}

// SyntaxError returns a finding for an error of the YAML parser, which has at most a line.
func (s *Source) SyntaxError(err error) diag.Diagnostic {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	f := diag.Diagnostic{Severity: diag.Error, Code: "yaml-syntax", Hint: hintBrackets}
	if m := unknownAnchor.FindStringSubmatch(text); m != nil {
		f.Code, f.Hint = "yaml-alias", hintAliases
		f.Summary, f.Pos = "the alias "+diag.Quote("*"+m[1])+" has no anchor in this file", s.wordPos(s.firstErrorLine(err), "*"+m[1])
		return f
	}
	number := 0 // the package omits the number of the first line
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		text = text[len(m[0]):]
		number, _ = strconv.Atoi(m[1])
	}
	if yamlParser.MatchString(text) {
		if end := s.firstErrorLine(err); end > number+1 {
			number = end
		} else {
			number, f.Hint = number+1, hintBegins
		}
	}
	atEnd := strings.HasSuffix(text, "end of stream") && number >= len(s.lines())
	if atEnd && s.quoteOpenBefore(number) {
		number = 1 // the package reports the last line instead of the first one
	}
	number = max(min(number, len(s.lines())), 1)
	f.Pos = s.wholeLine(number)
	for _, hint := range syntaxHints() {
		if strings.Contains(text, hint[0]) {
			f.Hint = hint[1]
			break
		}
	}
	f.Summary = "not YAML: " + diag.ClipQuoted(text)
	line := string(s.line(number))
	summary, hint := s.checkIndentation(number)
	tab := strings.IndexByte(line, '\t')
	switch {
	case isTemplate(line):
		f.Hint = HintTemplate
	case strings.HasPrefix(line, "%"):
		word, _, _ := strings.Cut(strings.Join(strings.Fields(line), " "), " #")
		f.Summary, f.Hint = "the directive "+diag.Quote(word)+" is not supported", hintDirective
	case tab >= 0 && strings.TrimLeft(line[:tab], " -") == "":
		f.Pos = diag.Pos{File: s.File, Line: number, Column: tab + 1, Width: 1}
		f.Summary, f.Hint = "not YAML: a tab indents the line", "indent with spaces, not with tabs"
	case strings.HasPrefix(line, "..."):
		f.Hint = "a topology is one document: remove the line ..."
	case strings.HasPrefix(text, "mapping values") && strings.Count(line, ": ") > 1:
		f.Hint = "put a text with a colon and a space in quotes"
	case strings.HasPrefix(text, "mapping values") && summary == "":
		f.Hint = "write a colon behind the key on the line before, or put a text with a colon and a space in quotes"
	case summary != "" && yamlIndent.MatchString(text):
		f.Summary, f.Hint = summary, hint
	}
	return f
}

// HintTemplate is the hint for a template that was not rendered.
const HintTemplate = "the line is part of a template: render the template first, and pass the result to Hawser"

// isTemplate reports whether a line has the braces of Go templates, Helm or Jinja.
func isTemplate(line string) bool {
	return strings.Contains(line, "{{") || strings.Contains(line, "{%")
}

// InTemplate reports whether a node is on a line of a template.
func (s *Source) InTemplate(n *yaml.Node) bool { return isTemplate(string(s.line(n.Line))) }

// quoteOpenBefore reports whether a quote is open at the end of the lines before a line.
func (s *Source) quoteOpenBefore(number int) bool {
	before := bytes.Join(s.lines()[:max(number-1, 0)], []byte("\n"))
	err := yamlError(before)
	return err != nil && strings.HasSuffix(err.Error(), "end of stream")
}

// wordPos returns the position of a word on a line, or of the whole line if it has no such word.
func (s *Source) wordPos(number int, text string) diag.Pos {
	line := string(s.line(number))
	for from := 0; ; {
		at := strings.Index(line[from:], text)
		if at < 0 {
			return s.wholeLine(number)
		}
		at += from
		from = at + len(text)
		if end := strings.TrimLeft(line[from:], " "); end == line[from:] && end != "" && !strings.ContainsAny(end[:1], ",]}") {
			continue // part of a longer word
		}
		return diag.Pos{File: s.File, Line: number, Column: utf8.RuneCountInString(line[:at]) + 1, Width: utf8.RuneCountInString(text)}
	}
}

// firstErrorLine returns the first line after which the text has the error. The YAML package names
// the line where a collection starts, not the line that ends it too early. Later lines do not
// change the error.
func (s *Source) firstErrorLine(err error) int {
	ends := make([]int, 0, len(s.lines()))
	at := 0
	for _, line := range s.lines() {
		at += len(line) + 1
		ends = append(ends, min(at, len(s.Raw)))
	}
	return 1 + sort.Search(len(ends)-1, func(i int) bool {
		found := yamlError(s.Raw[:ends[i]])
		return found != nil && found.Error() == err.Error()
	})
}

// yamlError returns the first error in a text of any number of documents.
func yamlError(raw []byte) error {
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	for {
		var doc yaml.Node
		if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// checkIndentation returns the error in the indentation of a line; empty if it matches a line above
// that it can belong to.
func (s *Source) checkIndentation(number int) (summary, hint string) {
	have, ok := indent(s.line(number))
	if !ok {
		return "", ""
	}
	best, from, limit := -1, 0, have+len(s.Raw)
	for n := number - 1; n > 0 && limit > 0; n-- {
		line := s.line(n)
		spaces, ok := indent(line)
		if !ok {
			continue
		}
		levels := []int{spaces}
		if rest := line[spaces:]; bytes.HasPrefix(rest, []byte("- ")) {
			levels = []int{spaces + len(rest) - len(bytes.TrimLeft(rest[1:], " ")), spaces}
		}
		for _, level := range levels {
			if level >= limit {
				continue
			}
			if limit = level; best < 0 || max(level-have, have-level) < max(best-have, have-best) {
				best, from = level, n
			}
		}
	}
	if best < 0 || best == have {
		return "", ""
	}
	return fmt.Sprintf("wrong indentation: %s, where the line fits with %d", humanize.Plural(have, "space"), best),
		fmt.Sprintf("indent it like line %d: keys of one mapping start in the same column", from)
}

// indent returns the number of spaces before a line. ok is false for empty lines, comments, and
// lines with tabs.
func indent(line []byte) (spaces int, ok bool) {
	body := bytes.TrimLeft(line, " ")
	if len(body) == 0 || body[0] == '#' || body[0] == '\t' {
		return 0, false
	}
	return len(line) - len(body), true
}

// ConflictMarker finds the first line that git wrote into an unresolved merge.
func ConflictMarker(file string, raw []byte) (diag.Pos, bool) {
	line := 0
	for text := range bytes.Lines(raw) {
		line++
		text = bytes.TrimRight(text, "\r\n")
		if bytes.HasPrefix(text, []byte("<<<<<<< ")) || bytes.HasPrefix(text, []byte(">>>>>>> ")) || string(text) == "=======" {
			return diag.Pos{File: file, Line: line, Column: 1, Width: 7}, true
		}
	}
	return diag.Pos{}, false
}
