package document

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/internal/yamlsize"
	"hawser.dev/hawser/schema/syntax"
)

// Parse sets root to the top node of the only document, or leaves it nil.
func (s *Source) Parse() diag.List {
	if list := s.checkEncoding(); list != nil {
		return list
	}
	if at, found := ConflictMarker(s.File, s.Raw); found {
		return diag.List{{Severity: diag.Error, Code: "merge-conflict", Pos: at, Summary: "the file holds the marks of an unfinished merge",
			Hint: "resolve the conflict and remove the lines that begin with <<<<<<<, ======= and >>>>>>>"}}
	}
	if at, found := yamlsize.Excess(s.File, s.Raw); found {
		return diag.List{{Severity: diag.Error, Code: "too-large", Pos: at, Summary: yamlsize.Summary(),
			Hint: "shorten the file, or divide it into several clustersets"}}
	}
	dec := yaml.NewDecoder(bytes.NewReader(s.Raw))
	var doc yaml.Node
	err := dec.Decode(&doc)
	switch {
	case errors.Is(err, io.EOF) || err == nil && syntax.IsNull(doc.Content[0]):
		return diag.List{{Severity: diag.Error, Code: "empty-file", Pos: diag.Pos{File: s.File}, Summary: "the file holds no document",
			Hint: "`hawser init` writes one to begin with"}}
	case err != nil:
		return diag.List{s.SyntaxError(err)}
	}
	s.Root = doc.Content[0]
	for {
		var second yaml.Node
		switch err := dec.Decode(&second); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return diag.List{s.SyntaxError(err)}
		case !syntax.IsNull(second.Content[0]): // a line --- at the end starts an empty document
			return diag.List{{Severity: diag.Error, Code: "second-document", Pos: s.NodePos(second.Content[0]),
				Summary: "a second YAML document begins here", Hint: "a topology file is one document: remove the line --- and join the two"}}
		}
	}
}

// checkEncoding finds the first byte that YAML does not allow in a text.
func (s *Source) checkEncoding() diag.List {
	line, column := 1, 1
	for rest := s.Raw; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		control := r < ' ' && r != '\n' && r != '\r' && r != '\t' || r >= 0x7f && r < 0xa0 && r != 0x85 || r == 0xfffe || r == 0xffff
		if control || r == utf8.RuneError && size == 1 {
			return diag.List{{Severity: diag.Error, Code: "yaml-encoding", Pos: diag.Pos{File: s.File, Line: line, Column: column, Width: 1},
				Summary: fmt.Sprintf("byte %#02x is not allowed in a YAML text", rest[0]),
				Hint:    "save the file as UTF-8 without control characters"}}
		}
		column++
		if r == '\n' {
			line, column = line+1, 1
		}
		rest = rest[size:]
	}
	return nil
}
