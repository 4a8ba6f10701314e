package reconciler

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"hawser.dev/hawser/reconciler/gitrepo"
	"hawser.dev/hawser/render"
)

// Trailers of the commits that a reconciler makes (git-interpret-trailers(1)). The commit's
// signature covers them.
const (
	// TrailerKind is published or lock. The two kinds have different keys as well, so that
	// programs that check the key alone (git verify-commit, Flux) never confuse them.
	TrailerKind = "Hawser-Kind"
	// TrailerRevision is a number that grows with each published commit.
	TrailerRevision = "Hawser-Revision"
	// TrailerSource is the commit of the topology branch.
	TrailerSource = "Source-Commit"
	// TrailerDigest is the digest of the fabric.
	TrailerDigest = "Fabric-Digest"
	// TrailerSigners is the path of the allowed_signers file of the source commit, if the
	// topology asks for signed commits.
	TrailerSigners = "Allowed-Signers"
)

// Kinds of commits, as TrailerKind has them.
const (
	KindPublished = "published"
	KindLock      = "lock"
)

// maxSkipped bounds the commits that NewestPublished passes over, so that a push of many
// unsigned commits costs a bounded time.
const maxSkipped = 1000

// ErrNotPublished is the reason why a commit is not a published commit of the clusterset.
var ErrNotPublished = errors.New("not a published commit")

// PublishedCommit is what the signed text of a published commit states.
type PublishedCommit struct {
	Commit   gitrepo.Hash
	Revision int64
	Source   string // commit of the topology branch
	Digest   string // of the fabric
	Signers  string // path of the allowed_signers file in Source; empty = trust.commits is not set
}

// VerifyPublished returns the published commit with a hash. It fails with ErrNotPublished
// unless a reconciler of the clusterset signed the commit as a published one: with a key of
// signers (public keys in the format of authorized_keys, as hawser keys signers prints
// them), or with a key to which the chain of signers in that commit leads from them. It
// reads the commit and at most one file of it. Other errors come from the repository;
// repo.ErrNoCommit means that the commit is missing.
func VerifyPublished(store *gitrepo.Store, clusterset string, signers []string, commit gitrepo.Hash) (PublishedCommit, error) {
	raw, armored, _, err := store.Signature(commit)
	if err != nil {
		return PublishedCommit{}, err
	}
	refuse := func(err error) (PublishedCommit, error) {
		return PublishedCommit{}, fmt.Errorf("%w: commit %s: %w", ErrNotPublished, short(commit.String()), err)
	}
	// A signature of OpenPGP is for other programs. The signature in the trailer counts.
	if strings.HasPrefix(armored, armorBegin) {
		if raw, armored, err = splitTrailer(raw); err != nil {
			return refuse(err)
		}
	}
	by, err := whoSigned(nil, gitNamespace, raw, armored, time.Time{})
	if err != nil {
		return refuse(err)
	}
	out, err := readPublished(raw)
	if err != nil {
		return refuse(err)
	}
	if out.Commit = commit; slices.Contains(signers, by) {
		return out, nil
	}
	const fabricFile = "base/fabric.yaml" // holds the chain of signers
	fabric, err := store.File(commit, fabricFile)
	if err != nil { // anyone can push a commit that cannot be read
		return refuse(fmt.Errorf("it is signed by %s, and its chain of signers cannot be read: %w", by, err))
	}
	if slices.Contains(render.SignersFrom(render.Tree{fabricFile: fabric}, clusterset, signers), by) {
		return out, nil
	}
	return refuse(fmt.Errorf("it is signed by %s, which is not a signer of clusterset %s", by, clusterset))
}

// NewestPublished returns the newest published commit from a commit back along first parents,
// and the commits that it passed over, newest first. It fails with ErrNotPublished if it
// finds none. at, which may be zero, ends the search without a check, because the caller
// knows that commit; the result then has the hash alone.
func NewestPublished(store *gitrepo.Store, clusterset string, signers []string, from, at gitrepo.Hash) (found PublishedCommit, skipped []gitrepo.Hash, err error) {
	first := fmt.Errorf("%w: the branch has no commit", ErrNotPublished)
	for commit := from; !commit.IsZero(); {
		if commit == at {
			return PublishedCommit{Commit: commit}, skipped, nil
		}
		found, err = VerifyPublished(store, clusterset, signers, commit)
		switch {
		case err == nil:
			return found, skipped, nil
		case errors.Is(err, gitrepo.ErrNoCommit) && len(skipped) > 0:
			return found, skipped, first // the history is not here as a whole
		case !errors.Is(err, ErrNotPublished):
			return found, skipped, err
		case len(skipped) == 0:
			first = err
		}
		if skipped = append(skipped, commit); len(skipped) > maxSkipped {
			break
		}
		_, _, parent, err := store.Signature(commit)
		if err != nil {
			return found, skipped, err
		}
		commit = parent
	}
	return found, skipped, first
}

// readPublished reads the signed text of a published commit.
func readPublished(raw []byte) (PublishedCommit, error) {
	revision, fields, err := readSigned(raw, KindPublished)
	return PublishedCommit{Revision: revision, Source: fields[TrailerSource], Digest: fields[TrailerDigest],
		Signers: fields[TrailerSigners]}, err
}

// readSigned returns the revision and all trailers of a commit's signed text. It fails
// unless the commit is of a kind.
func readSigned(raw []byte, kind string) (revision int64, fields map[string]string, err error) {
	_, message, _ := bytes.Cut(raw, []byte("\n\n"))
	message = bytes.TrimSpace(message)
	if at := bytes.LastIndex(message, []byte("\n\n")); at >= 0 {
		message = message[at+2:]
	}
	fields = map[string]string{}
	for line := range strings.Lines(string(message)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if _, twice := fields[name]; twice {
			return 0, nil, fmt.Errorf("it has two trailers %s", name)
		}
		fields[name] = value
	}
	if fields[TrailerKind] != kind {
		return 0, nil, fmt.Errorf("its trailer %s is %q, not %q", TrailerKind, fields[TrailerKind], kind)
	}
	revision, err = strconv.ParseInt(fields[TrailerRevision], 10, 64)
	if err != nil || revision <= 0 {
		return 0, nil, fmt.Errorf("its trailer %s is %q, not a revision", TrailerRevision, fields[TrailerRevision])
	}
	return revision, fields, nil
}

// signedTrailers returns the trailers of a commit, which end its message.
func signedTrailers(kind string, revision int64, source string) string {
	return fmt.Sprintf("%s: %s\n%s: %d\n%s: %s\n", TrailerKind, kind, TrailerRevision, revision, TrailerSource, source)
}
