package reconciler

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/reconciler/gitrepo"
	"hawser.dev/hawser/schema/lockmerge"
)

// Reason is the stable code of a failure. It is a label of metrics.
type Reason string

const (
	// ReasonFetch: the source repository could not be read.
	ReasonFetch Reason = "fetch"
	// ReasonNoBranch: the source branch does not exist (an empty repository).
	ReasonNoBranch Reason = "no-branch"
	// ReasonNoFile: the commit has no topology file.
	ReasonNoFile Reason = "no-file"
	// ReasonInvalid: the topology or its lock has errors.
	ReasonInvalid Reason = "invalid"
	// ReasonStaleLock: the committed lock is stale, and the reconciler may not write it.
	ReasonStaleLock Reason = "stale-lock"
	// ReasonKeys: the root key is unreadable, or is not the root key of the published keys.
	ReasonKeys Reason = "keys"
	// ReasonRender: the tree could not be rendered.
	ReasonRender Reason = "render"
	// ReasonMassDelete: the commit removes more than half of the clusters.
	ReasonMassDelete Reason = "mass-delete"
	// ReasonMoves: the lock of the commit would move a published allocation.
	ReasonMoves Reason = "moves"
	// ReasonUntrusted: a commit lacks a signature that the previous topology requires.
	ReasonUntrusted Reason = "untrusted"
	// ReasonState: the state file cannot be read or written, or is of another clusterset.
	ReasonState Reason = "state"
	// ReasonPublish: the result could not be read or written.
	ReasonPublish Reason = "publish"
)

// reasons returns all reasons.
func reasons() []Reason {
	return []Reason{ReasonFetch, ReasonNoBranch, ReasonNoFile, ReasonInvalid, ReasonStaleLock, ReasonKeys, ReasonRender, ReasonMassDelete,
		ReasonMoves, ReasonUntrusted, ReasonState, ReasonPublish}
}

// Failure is the error of a pass. The last good state stays published.
type Failure struct {
	Reason   Reason `json:"reason"`
	Revision string `json:"revision,omitempty"` // source commit, if known
	Message  string `json:"message"`            // one line
	// Diagnostics contains the findings with their positions in the topology.
	Diagnostics diag.List `json:"diagnostics,omitempty"`
	Since       time.Time `json:"since"` // first pass with this failure
	cause       error
	files       map[string][]byte
}

// Error returns the failure on one line.
func (f *Failure) Error() string { return f.Message }

// Unwrap implements errors.Unwrap.
func (f *Failure) Unwrap() error { return f.cause }

// Revision is a commit of the source branch.
type Revision struct {
	Commit  string    `json:"commit"`
	Subject string    `json:"subject,omitempty"` // first line of its message
	At      time.Time `json:"at"`                // when the reconciler read it first
}

// States of a commit.
const (
	StateSuccess = "success" // published, or nothing to publish
	StateFailure = "failure" // refused; nothing changed
	StateError   = "error"   // failed; the next pass retries
)

// CommitStatus is the result of one source commit, in the form of a commit status of code hosts.
type CommitStatus struct {
	Commit      string    `json:"commit"`
	State       string    `json:"state"`
	Description string    `json:"description"`
	Published   string    `json:"published,omitempty"` // its commit on the publish branch
	At          time.Time `json:"at"`
}

// BranchRef is a branch of a repository that the reconciler reads or writes.
type BranchRef struct {
	Repo   string `json:"repo"`
	Branch string `json:"branch"`
	Path   string `json:"path,omitempty"` // directory of the topology file
}

// Status is the response of /status.
type Status struct {
	Version string    `json:"version"`
	Source  BranchRef `json:"source"`
	Publish BranchRef `json:"publish"`
	Ready   bool      `json:"ready"` // a pass has succeeded, also before a restart
	// Latest is the newest source commit, and Active is the published one.
	Latest *Revision `json:"latest,omitempty"`
	Active *Revision `json:"active,omitempty"`
	// Published is the head of the publish branch, and FabricDigest the digest of its fabric.
	Published        string         `json:"published,omitempty"`
	FabricDigest     string         `json:"fabricDigest,omitempty"`
	LastPass         time.Time      `json:"lastPass,omitzero"`
	LastSuccess      time.Time      `json:"lastSuccess,omitzero"`
	LastError        *Failure       `json:"lastError,omitempty"` // absent after a successful pass
	Warnings         diag.List      `json:"warnings,omitempty"`
	LockNotCommitted bool           `json:"lockPending,omitempty"` // the lock on the source branch lacks published addresses
	Commits          []CommitStatus `json:"commits,omitempty"`     // newest first
}

// maxCommits limits Status.Commits.
const maxCommits = 32

// atomicStatus contains the status. The loop writes it, and HTTP handlers read it.
type atomicStatus struct{ current atomic.Pointer[Status] }

func (b *atomicStatus) load() Status { return *b.current.Load() }

// update replaces the status by a changed copy. It is not safe for concurrent use.
func (b *atomicStatus) update(alter func(*Status)) {
	next := b.load()
	next.Commits = slices.Clone(next.Commits)
	alter(&next)
	b.current.Store(&next)
}

// recordCommit inserts the result of a commit at the front of the history. It removes an earlier
// result of the same commit.
func (s *Status) recordCommit(c CommitStatus) {
	s.Commits = slices.DeleteFunc(s.Commits, func(old CommitStatus) bool { return old.Commit == c.Commit })
	s.Commits = slices.Insert(s.Commits, 0, c)
	s.Commits = s.Commits[:min(len(s.Commits), maxCommits)]
}

// Refused reports whether the commit is the cause of the failure. Then a retry fails until there is
// another commit. Otherwise the cause is git, a file or the network.
func (f *Failure) Refused() bool {
	switch f.Reason {
	case ReasonNoBranch, ReasonNoFile, ReasonInvalid, ReasonStaleLock, ReasonRender, ReasonMassDelete, ReasonMoves, ReasonUntrusted:
		return true
	}
	return false
}

// findingsReason returns the reason for findings about the topology, the lock or the root key.
func findingsReason(list diag.List) Reason {
	reason := ReasonKeys
	for _, d := range list {
		switch {
		case d.Severity != diag.Error || d.Code == "no-root-key" || d.Code == "root-break":
		case d.Code == lockmerge.CodeWouldMove:
			reason = ReasonMoves
		default:
			return ReasonInvalid
		}
	}
	return reason
}

func fail(reason Reason, revision string, err error) *Failure {
	// An unusable commit is invalid: a retry would read the same commit.
	if reason == ReasonFetch && revision != "" && errors.Is(err, gitrepo.ErrUnusable) {
		reason = ReasonInvalid
	}
	return &Failure{Reason: reason, Revision: revision, Message: err.Error(), cause: err}
}

// failWithFindings returns a failure with findings. The message contains the first error.
func failWithFindings(reason Reason, revision string, list diag.List, files map[string][]byte) *Failure {
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

// Files returns the texts that Diagnostics refer to, by name.
func (f *Failure) Files() map[string][]byte { return f.files }
