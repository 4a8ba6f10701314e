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

	"gopkg.in/yaml.v3"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/internal/listing"
)

var (
	yamlLine = regexp.MustCompile(`^line (\d+): `)
	// What the parser, as opposed to the scanner, complains of. Of those the
	// package gives the line before the one where the collection begins.
	yamlParser = regexp.MustCompile(`^did not find expected (node content|key|',' or '[\]}]'|'-' indicator|<)`)
	// Which complaints a line gives rise to that is indented wrongly.
	yamlIndent = regexp.MustCompile(`^(did not find expected (key|'-' indicator)|mapping values are not allowed)`)
)

// SyntaxError turns an error of the YAML parser, which knows the line alone, into a finding.
func (s *Source) SyntaxError(err error) diag.Diagnostic {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	f := diag.Diagnostic{Severity: diag.Error, Code: "yaml-syntax", Pos: diag.Pos{File: s.File}}
	f.Hint = "check the indentation (spaces, no tabs), brackets and quotes on this line and the one before"
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		text = text[len(m[0]):]
		number, _ := strconv.Atoi(m[1])
		if yamlParser.MatchString(text) {
			if end := s.firstWith(err); end > number+1 {
				number = end
			} else {
				number++
				f.Hint = "check the indentation (spaces, no tabs), brackets and quotes of what begins on this line"
			}
		}
		if strings.HasPrefix(text, "did not find expected alphabetic") {
			f.Hint = "put text that begins with * or & in quotes" // it took it for an alias or an anchor
		}
		number = min(number, len(s.lines()))
		f.Pos = s.wholeLine(number)
		if summary, hint := s.indentation(number); summary != "" && yamlIndent.MatchString(text) {
			f.Summary, f.Hint = summary, hint
			return f
		}
	}
	f.Summary = "not YAML: " + text
	return f
}

// firstWith gives the first line up to which the text gives the error. The package
// names the line where a collection begins and not the one that ends it too early;
// but once the parser saw that one, no line behind it changes the error.
func (s *Source) firstWith(err error) int {
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

// yamlError gives the first error of a text of any number of documents.
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

// indentation says what is wrong with the spaces before a line, or nothing when it
// is indented as one of the lines above that it can belong to.
func (s *Source) indentation(number int) (summary, hint string) {
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
	return fmt.Sprintf("wrong indentation: %s, where the line fits with %d", listing.Count(have, "space"), best),
		fmt.Sprintf("indent it as what stands on line %d; a key stands exactly below the keys beside it", from)
}

// indent counts the spaces before a line. There are none before lines that are
// empty or hold a comment alone, and those with tabs are not counted.
func indent(line []byte) (spaces int, ok bool) {
	body := bytes.TrimLeft(line, " ")
	if len(body) == 0 || body[0] == '#' || body[0] == '\t' {
		return 0, false
	}
	return len(line) - len(body), true
}

// MergeMarker finds the first line that git wrote into an unresolved merge.
func MergeMarker(file string, raw []byte) (diag.Pos, bool) {
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
