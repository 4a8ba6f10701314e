// Package diag holds the one type in which Hawser reports a problem to a person
// with what they wrote.
package diag

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Severity says whether a finding stops the work.
type Severity string

const (
	// Error stops the work: the input is not used.
	Error Severity = "error"
	// Warning is printed; the command continues.
	Warning Severity = "warning"
)

// Pos is a place in a source file. The zero Pos means "no place known".
type Pos struct {
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`   // from 1
	Column int    `json:"column,omitempty"` // in characters, from 1
	Width  int    `json:"width,omitempty"`  // characters to underline; 0 = 1
}

// IsValid reports whether p names a place.
func (p Pos) IsValid() bool { return p.Line > 0 }

// String returns file:line:column, or the file alone when no line is known.
func (p Pos) String() string {
	if !p.IsValid() {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Related is another place that has a part in a finding.
type Related struct {
	Path string `json:"path,omitempty"` // topology path, such as clusters[g1].podCIDRs[0]
	Pos  Pos    `json:"pos,omitzero"`
}

// Diagnostic is one finding for a person.
type Diagnostic struct {
	Severity Severity  `json:"severity"`
	Code     string    `json:"code"`           // stable, kebab-case; what tests and tools match on
	Path     string    `json:"path,omitempty"` // topology path, such as exports[sample/web].ports[0]
	Pos      Pos       `json:"pos,omitzero"`
	Summary  string    `json:"summary"`           // the fault, lower case, no full stop
	Hint     string    `json:"hint,omitempty"`    // how to fix it
	Related  []Related `json:"related,omitempty"` // the other places that cause it
}

// Clipped returns the finding with no more than MaxQuoted characters of each quoted value and of
// each name in its paths. All output of findings is clipped.
func (d Diagnostic) Clipped() Diagnostic {
	d.Path, d.Summary, d.Hint = clipPath(d.Path), clipQuotes(d.Summary), clipQuotes(d.Hint)
	d.Related = slices.Clone(d.Related)
	for i := range d.Related {
		d.Related[i].Path = clipPath(d.Related[i].Path)
	}
	return d
}

// MarshalJSON returns the clipped finding.
func (d Diagnostic) MarshalJSON() ([]byte, error) {
	type plain Diagnostic // without this method
	return json.Marshal(plain(d.Clipped()))
}

// Error returns the finding on one line, so that a Diagnostic is an error too.
func (d Diagnostic) Error() string {
	d = d.Clipped()
	text := string(d.Severity) + ": "
	if d.Path != "" {
		text += printable(d.Path) + ": "
	}
	text += printable(d.Summary)
	if at := d.Pos.String(); at != "" {
		text = at + ": " + text
	}
	return text
}

// List is a set of findings; nil means that nothing was found.
type List []Diagnostic

// HasErrors reports whether any finding stops the work.
func (l List) HasErrors() bool {
	return slices.ContainsFunc(l, func(d Diagnostic) bool { return d.Severity == Error })
}

// Sort orders the findings by place, then path, then code, so that output never
// depends on the order in which checks ran.
func (l List) Sort() {
	slices.SortStableFunc(l, func(a, b Diagnostic) int {
		return cmp.Or(
			cmp.Compare(a.Pos.File, b.Pos.File),
			cmp.Compare(a.Pos.Line, b.Pos.Line),
			cmp.Compare(a.Pos.Column, b.Pos.Column),
			cmp.Compare(a.Path, b.Path),
			cmp.Compare(a.Code, b.Code),
			cmp.Compare(a.Summary, b.Summary),
		)
	})
}

// Err joins the findings of severity Error into one error. It returns nil without such
// findings.
func (l List) Err() error {
	var errs []error
	for _, d := range l {
		if d.Severity == Error {
			errs = append(errs, d)
		}
	}
	return errors.Join(errs...)
}

// MaxFindings limits the reported findings of each severity, as the text of each may be as
// long as its line.
const MaxFindings = 200

// Tally counts findings by severity.
type Tally map[Severity]int

// Full reports whether further findings of a severity are only counted.
func (t Tally) Full(s Severity) bool { return t[s] >= MaxFindings }

// Rest returns one finding per severity, with the number of findings beyond MaxFindings.
func (t Tally) Rest() (out List) {
	for severity, n := range t {
		if n > MaxFindings {
			out = append(out, Diagnostic{Severity: severity, Code: "too-many-findings",
				Summary: fmt.Sprintf("%d more %ss are not shown", n-MaxFindings, severity)})
		}
	}
	return out
}

// Findings collects up to MaxFindings findings of each severity, and counts the rest.
type Findings struct {
	List  List
	Tally Tally
}

// Fail notes an error at a path, by the fields of a Diagnostic. The hint may be empty; others are
// the paths of other places that cause it.
func (f *Findings) Fail(code, path, summary, hint string, others ...string) {
	f.add(Error, code, path, summary, hint, others)
}

// Warn notes a warning in the same way.
func (f *Findings) Warn(code, path, summary, hint string, others ...string) {
	f.add(Warning, code, path, summary, hint, others)
}

func (f *Findings) add(severity Severity, code, path, summary, hint string, others []string) {
	if f.Tally == nil {
		f.Tally = Tally{}
	}
	if !f.Tally.Full(severity) {
		d := Diagnostic{Severity: severity, Code: code, Path: path, Summary: summary, Hint: hint}
		for _, p := range others {
			d.Related = append(d.Related, Related{Path: p})
		}
		f.List = append(f.List, d)
	}
	f.Tally[severity]++
}
