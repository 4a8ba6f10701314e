package diag

import "fmt"

// MaxFindings is how many findings of each severity are reported: nobody reads more, and
// each can take as long as its line.
const MaxFindings = 200

// Tally counts findings by severity.
type Tally map[Severity]int

// Full reports whether no more findings of a severity are told.
func (t Tally) Full(s Severity) bool { return t[s] >= MaxFindings }

// Rest gives findings that stand for those beyond MaxFindings.
func (t Tally) Rest() (out List) {
	for severity, n := range t {
		if n > MaxFindings {
			out = append(out, Diagnostic{Severity: severity, Code: "too-many-findings",
				Summary: fmt.Sprintf("%d more %ss are not shown", n-MaxFindings, severity)})
		}
	}
	return out
}

// Findings collects what is found, up to MaxFindings of each severity, and counts the rest.
type Findings struct {
	List  List
	Tally Tally
}

// Fail notes an error.
func (f *Findings) Fail(d Diagnostic) {
	d.Severity = Error
	f.add(d)
}

// Warn notes a warning.
func (f *Findings) Warn(d Diagnostic) {
	d.Severity = Warning
	f.add(d)
}

func (f *Findings) add(d Diagnostic) {
	if f.Tally == nil {
		f.Tally = Tally{}
	}
	if !f.Tally.Full(d.Severity) {
		f.List = append(f.List, d)
	}
	f.Tally[d.Severity]++
}

// Paths turns paths into the other places of a finding.
func Paths(paths ...string) []Related {
	out := make([]Related, len(paths))
	for i, p := range paths {
		out[i] = Related{Path: p}
	}
	return out
}
