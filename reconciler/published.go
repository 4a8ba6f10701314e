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

// Trailers of a reconciler's commits (git-interpret-trailers(1)). The commit's signature covers
// them.
const (
	// TrailerKind is published or lock. Different keys sign the two kinds, so that programs
	// that check only the key (git verify-commit, Flux) never confuse them.
	TrailerKind = "Hawser-Kind"
	// TrailerRevision is a number that increases with each published commit.
	TrailerRevision = "Hawser-Revision"
	// TrailerSource is the commit of the topology branch.
	TrailerSource = "Source-Commit"
	// TrailerDigest is the digest of the fabric.
	TrailerDigest = "Fabric-Digest"
	// TrailerSigners is the path of the allowed_signers file of the source commit, if the
	// topology requires signed commits.
	TrailerSigners = "Allowed-Signers"
)

// Values of TrailerKind.
const (
	KindPublished = "published"
	KindLock      = "lock"
)

// maxSkippedCommits is the maximum number of commits that NewestPublished skips. It limits the time
// that a push of many unsigned commits takes.
const maxSkippedCommits = 1000

// ErrNotPublished is the error for a commit that is not a published commit of the clusterset.
var ErrNotPublished = errors.New("not a published commit")

// PublishedCommit is the signed content of a published commit's message.
type PublishedCommit struct {
	Commit   gitrepo.Hash
	Revision int64
	Source   string // commit of the topology branch
	Digest   string // of the fabric
	Signers  string // path of the allowed_signers file in Source; empty = trust.commits is not set
}

// VerifyPublished returns the published commit with a hash. It fails with ErrNotPublished if no
// reconciler of the clusterset signed the commit as a published one. The key must be in signers, or
// at the end of a chain of signers that starts in signers. The commit's fabric contains the chain.
// signers are public keys in authorized_keys format, as hawser keys signers prints them.
// VerifyPublished reads the commit and at most one of its files. gitrepo.ErrNoCommit means that the
// repository lacks the commit.
func VerifyPublished(store *gitrepo.Store, clusterset string, signers []string, commit gitrepo.Hash) (PublishedCommit, error) {
	raw, armored, _, err := store.Signature(commit)
	if err != nil {
		return PublishedCommit{}, err
	}
	refuse := func(err error) (PublishedCommit, error) {
		return PublishedCommit{}, fmt.Errorf("%w: commit %s: %w", ErrNotPublished, short(commit.String()), err)
	}
	// An OpenPGP signature is for other programs; verify the signature in the trailer.
	if strings.HasPrefix(armored, armorBegin) {
		if raw, armored, err = splitTrailer(raw); err != nil {
			return refuse(err)
		}
	}
	signedBy, err := verifySignature(nil, gitNamespace, raw, armored, time.Time{})
	if err != nil {
		return refuse(err)
	}
	out, err := readPublished(raw)
	if err != nil {
		return refuse(err)
	}
	if out.Commit = commit; slices.Contains(signers, signedBy) {
		return out, nil
	}
	const fabricFile = "base/fabric.yaml" // contains the chain of signers
	fabric, err := store.File(commit, fabricFile)
	if err != nil { // anyone can push a commit that cannot be read
		return refuse(fmt.Errorf("it is signed by %s, and its chain of signers cannot be read: %w", signedBy, err))
	}
	tree := render.Tree{fabricFile: fabric}
	if slices.Contains(render.SignersFrom(tree, clusterset, signers), signedBy) {
		return out, nil
	}
	return refuse(fmt.Errorf("it is signed by %s, which is not a signer of clusterset %s", signedBy, clusterset))
}

// NewestPublished returns the newest published commit among from and its first parents. It also
// returns the skipped newer commits, newest first. It fails with ErrNotPublished if it finds none.
// The search ends at commit at, which the caller trusts: the result then contains only the hash. A
// zero at has no effect.
func NewestPublished(store *gitrepo.Store, clusterset string, signers []string, from, at gitrepo.Hash) (found PublishedCommit, skipped []gitrepo.Hash, err error) {
	firstErr := fmt.Errorf("%w: the branch has no commit", ErrNotPublished)
	for commit := from; !commit.IsZero(); {
		if commit == at {
			return PublishedCommit{Commit: commit}, skipped, nil
		}
		found, err = VerifyPublished(store, clusterset, signers, commit)
		switch {
		case err == nil:
			return found, skipped, nil
		case errors.Is(err, gitrepo.ErrNoCommit) && len(skipped) > 0:
			return found, skipped, firstErr // the clone is shallow
		case !errors.Is(err, ErrNotPublished):
			return found, skipped, err
		case len(skipped) == 0:
			firstErr = err
		}
		if skipped = append(skipped, commit); len(skipped) > maxSkippedCommits {
			break
		}
		_, _, parent, err := store.Signature(commit)
		if err != nil {
			return found, skipped, err
		}
		commit = parent
	}
	return found, skipped, firstErr
}

// readPublished reads the signed text of a published commit.
func readPublished(raw []byte) (PublishedCommit, error) {
	revision, fields, err := readSigned(raw, KindPublished)
	return PublishedCommit{Revision: revision, Source: fields[TrailerSource], Digest: fields[TrailerDigest],
		Signers: fields[TrailerSigners]}, err
}

// readSigned returns the revision and all trailers of a commit's signed text. It fails if the
// commit is of another kind.
func readSigned(raw []byte, kind string) (revision int64, fields map[string]string, err error) {
	_, message, _ := bytes.Cut(raw, []byte("\n\n"))
	message = bytes.TrimSpace(message)
	if paragraph := bytes.LastIndex(message, []byte("\n\n")); paragraph >= 0 {
		message = message[paragraph+2:]
	}
	fields = map[string]string{}
	for line := range strings.Lines(string(message)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if _, duplicate := fields[name]; duplicate {
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

// signedTrailers returns the trailers for the end of a commit's message.
func signedTrailers(kind string, revision int64, source string) string {
	return fmt.Sprintf("%s: %s\n%s: %d\n%s: %s\n", TrailerKind, kind, TrailerRevision, revision, TrailerSource, source)
}
