package reconciler

import (
	"fmt"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema/overlay"
)

// Refused reports whether the commit itself is at fault: trying again without
// another commit would not help. Otherwise git, a file or the network is.
func (f *Failure) Refused() bool {
	switch f.Reason {
	case ReasonNoBranch, ReasonNoFile, ReasonInvalid, ReasonStaleLock, ReasonRender, ReasonMassDelete, ReasonMoves, ReasonUntrusted:
		return true
	}
	return false
}

// reasonOf tells a topology that is at fault from a lock and a root key that are.
func reasonOf(list diag.List) Reason {
	reason := ReasonKeys
	for _, d := range list {
		switch {
		case d.Severity != diag.Error || d.Code == "no-root-key" || d.Code == "root-break":
		case d.Code == overlay.CodeWouldMove:
			reason = ReasonMoves
		default:
			return ReasonInvalid
		}
	}
	return reason
}

func fail(reason Reason, revision string, err error) *Failure {
	return &Failure{Reason: reason, Revision: revision, Message: err.Error(), cause: err}
}

// failFindings reports findings that have places in the topology, the first one in words.
func failFindings(reason Reason, revision string, list diag.List, files map[string][]byte) *Failure {
	var errs diag.List
	for _, d := range list {
		if d.Severity == diag.Error {
			errs = append(errs, d)
		}
	}
	text := errs[0].Error()
	if more := len(errs) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return &Failure{Reason: reason, Revision: revision, Message: text, Diagnostics: list, cause: errs.Err(), files: files}
}

// Files gives the texts that Diagnostics point into, by name.
func (f *Failure) Files() map[string][]byte { return f.files }
