package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/render"
)

// Report is a plan for reviewers on a code host: as a comment, as annotations of lines, and for
// code scanning. All texts can come from untrusted users, so every renderer escapes every text.
type Report struct {
	Plan       *Plan       // nil if the topology has errors and was not compared
	Want, Have render.Tree // compared trees, for maps; nil = no maps
	Findings   diag.List   // errors and warnings in the topology
	File       string      // topology file; position of messages without a position
}

// annotation is a message about one position.
type annotation struct {
	file   string
	line   int // from 1
	column int // from 1; 0 if unknown
	level  string
	text   string
}

// Levels of annotations.
const (
	levelError   = "error"
	levelWarning = "warning"
	levelNote    = "note"
)

// levels returns the levels, the most severe first.
func levels() []string { return []string{levelError, levelWarning, levelNote} }

// annotations returns all annotations: findings, disruptive entries, other entries.
func (r *Report) annotations() []annotation {
	var out []annotation
	for _, d := range r.Findings {
		d = d.Clipped()
		m := annotation{file: d.Pos.File, line: d.Pos.Line, column: d.Pos.Column, level: levelWarning, text: d.Summary}
		if d.Severity == diag.Error {
			m.level = levelError
		}
		if d.Path != "" {
			m.text = d.Path + ": " + m.text
		}
		if d.Hint != "" {
			m.text += "\nhint: " + d.Hint
		}
		out = append(out, m)
	}
	if r.Plan != nil {
		for i := range r.Plan.Entries {
			out = append(out, r.annotation(&r.Plan.Entries[i]))
		}
	}
	for i := range out {
		out[i].file, out[i].line = cmp.Or(out[i].file, r.File), max(out[i].line, 1)
	}
	rank := levels()
	slices.SortStableFunc(out, func(a, b annotation) int { return slices.Index(rank, a.level) - slices.Index(rank, b.level) })
	return out
}

func (r *Report) annotation(e *Entry) annotation {
	m := annotation{level: levelNote, text: entryText(e)}
	m.file, m.line = parsePosition(e.Source)
	if e.Disruptive != "" {
		m.level = levelWarning
		m.text += "\ndisruptive: " + e.Disruptive
	}
	if e.Remark != "" {
		m.text += "\n" + e.Remark
	}
	return m
}

// verb returns the verb of an operation.
func verb(op diff.Op) string {
	return map[diff.Op]string{diff.Create: "add", diff.Update: "change", diff.Replace: "replace", diff.Delete: "destroy"}[op]
}

// entryText returns an entry on one line, and its changed fields below that line.
func entryText(e *Entry) string {
	text := verb(e.Op) + " " + e.Kind + " " + e.Key
	for _, f := range e.Fields {
		switch e.Op {
		case diff.Update, diff.Replace:
			text += fmt.Sprintf("\n%s: %s -> %s", f.Name, orNone(f.Have), orNone(f.Want))
		}
	}
	return text
}

// parsePosition parses file:line.
func parsePosition(source string) (file string, line int) {
	at := strings.LastIndexByte(source, ':')
	if at < 0 {
		return "", 0
	}
	line, err := strconv.Atoi(source[at+1:])
	if err != nil {
		return "", 0
	}
	return source[:at], line
}

// sanitize replaces characters that break a line, move a cursor or change the order of letters,
// except characters in keep. It also replaces text that GitHub's runners parse as a command at any
// position.
func sanitize(text string, keep ...rune) string {
	text = strings.ReplaceAll(text, "##[", "##"+string(unicode.ReplacementChar))
	return strings.Map(func(r rune) rune {
		if slices.Contains(keep, r) {
			return r
		}
		if unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}
