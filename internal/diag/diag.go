// Package diag defines Diagnostic, the only type for problems in the user's input.
package diag

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Severity decides whether a command continues after a finding.
type Severity string

const (
	// Error means that the input is not used.
	Error Severity = "error"
	// Warning means that the command continues.
	Warning Severity = "warning"
)

// Pos is a position in a source file. The zero value is an unknown position.
type Pos struct {
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`   // from 1
	Column int    `json:"column,omitempty"` // in characters, from 1
	Width  int    `json:"width,omitempty"`  // characters to underline; 0 = 1
}

// IsValid reports whether the position is known.
func (p Pos) IsValid() bool { return p.Line > 0 }

// String returns file:line:column, or only the file if the line is unknown.
func (p Pos) String() string {
	if !p.IsValid() {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Related is another position that contributes to a finding.
type Related struct {
	Path string `json:"path,omitempty"` // topology path, such as clusters[g1].podCIDRs[0]
	Pos  Pos    `json:"pos,omitzero"`
}

// Diagnostic is one finding.
type Diagnostic struct {
	Severity Severity  `json:"severity"`
	Code     string    `json:"code"`           // stable, kebab-case; tests and tools match on it
	Path     string    `json:"path,omitempty"` // topology path, such as exports[sample/web].ports[0]
	Pos      Pos       `json:"pos,omitzero"`
	Summary  string    `json:"summary"`           // the fault, lower case, no full stop
	Hint     string    `json:"hint,omitempty"`    // how to fix it
	Related  []Related `json:"related,omitempty"` // other positions that cause it
}

// Clipped returns the finding with each quoted value, and each name in its paths, cut to MaxQuoted
// characters. All output of findings is clipped.
func (d Diagnostic) Clipped() Diagnostic {
	d.Path, d.Summary, d.Hint = clipPath(d.Path), clipQuotes(d.Summary), clipQuotes(d.Hint)
	d.Related = slices.Clone(d.Related)
	for i := range d.Related {
		d.Related[i].Path = clipPath(d.Related[i].Path)
	}
	return d
}

// MarshalJSON encodes the clipped finding.
func (d Diagnostic) MarshalJSON() ([]byte, error) {
	type plain Diagnostic // without this method
	return json.Marshal(plain(d.Clipped()))
}

// Error returns the clipped finding on one line.
func (d Diagnostic) Error() string {
	d = d.Clipped()
	text := string(d.Severity) + ": "
	if d.Path != "" {
		text += printable(d.Path) + ": "
	}
	text += printable(d.Summary)
	if pos := d.Pos.String(); pos != "" {
		text = pos + ": " + text
	}
	return text
}

// List is a list of findings. It is nil without findings.
type List []Diagnostic

// HasErrors reports whether a finding has severity Error.
func (l List) HasErrors() bool {
	return slices.ContainsFunc(l, func(d Diagnostic) bool { return d.Severity == Error })
}

// Sort orders the findings by position, then path, then code. The output then does not depend on
// the order of the checks.
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

// Err joins the findings of severity Error into one error. It returns nil without such findings.
func (l List) Err() error {
	var errs []error
	for _, d := range l {
		if d.Severity == Error {
			errs = append(errs, d)
		}
	}
	return errors.Join(errs...)
}

// MaxFindings is the maximum number of reported findings of each severity. It bounds the output,
// because a finding can be as long as its source line.
const MaxFindings = 200

// Tally counts findings by severity.
type Tally map[Severity]int

// Full reports whether further findings of a severity are counted but not reported.
func (t Tally) Full(s Severity) bool { return t[s] >= MaxFindings }

// Overflow returns one finding per severity, errors first, with the number of findings beyond
// MaxFindings.
func (t Tally) Overflow() (out List) {
	for _, severity := range []Severity{Error, Warning} {
		if n := t[severity]; n > MaxFindings {
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

// Fail adds an error. The parameters are fields of Diagnostic; relatedPaths are the paths of
// Related. The hint may be empty.
func (f *Findings) Fail(code, path, summary, hint string, relatedPaths ...string) {
	f.add(Error, code, path, summary, hint, relatedPaths)
}

// Warn adds a warning. It has the same parameters as Fail.
func (f *Findings) Warn(code, path, summary, hint string, relatedPaths ...string) {
	f.add(Warning, code, path, summary, hint, relatedPaths)
}

func (f *Findings) add(severity Severity, code, path, summary, hint string, relatedPaths []string) {
	if f.Tally == nil {
		f.Tally = Tally{}
	}
	if !f.Tally.Full(severity) {
		d := Diagnostic{Severity: severity, Code: code, Path: path, Summary: summary, Hint: hint}
		for _, p := range relatedPaths {
			d.Related = append(d.Related, Related{Path: p})
		}
		f.List = append(f.List, d)
	}
	f.Tally[severity]++
}
