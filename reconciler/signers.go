package reconciler

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/reconciler/gitrepo"
	"hawser.dev/hawser/schema/load"
)

// checkSignatures returns a failure if the published topology has trust.commits and the source
// branch lacks required signatures. It checks each commit after the published one, along first
// parents. The commit's key must be in the allowed_signers file of its parent, and the signer must
// own the changes. The signer of a merge is responsible for all merged changes. The reconciler's
// own lock commits are accepted if they change only the lock.
func (r *Reconciler) checkSignatures(in inputs, w *buildState) *Failure {
	revision := in.source.String()
	file, base := w.previous.Signers, w.previous.Source
	if w.accepted {
		if revision == r.cfg.AcceptCommit {
			return nil
		}
		older, err := r.source.IsAncestor(hash(r.cfg.AcceptCommit), hash(base))
		if err != nil && !errors.Is(err, gitrepo.ErrNoCommit) {
			return fail(ReasonFetch, revision, err)
		}
		if err != nil || !older {
			if file, err = r.signersPath(hash(r.cfg.AcceptCommit)); err != nil {
				return fail(ReasonUntrusted, revision, fmt.Errorf("--accept-commit: %w", err))
			}
			base = r.cfg.AcceptCommit
		}
	}
	if file == "" {
		return nil
	}
	refuse := func(format string, args ...any) *Failure {
		err := fmt.Errorf(format, args...)
		return fail(ReasonUntrusted, revision, fmt.Errorf("%w; the published topology asks for signed commits (trust.commits): have the commit signed, "+
			"or pass --accept-commit %s once, if this very commit is right", err, revision))
	}
	follows, err := r.source.IsAncestor(hash(base), in.source)
	if err != nil {
		return fail(ReasonFetch, revision, err)
	}
	if !follows {
		return refuse("commit %s does not follow from %s, which is published", short(revision), short(base))
	}
	var commits []gitrepo.Hash // newest first
	for commit := in.source; commit.String() != base; {
		_, _, parent, err := r.source.Signature(commit)
		if errors.Is(err, gitrepo.ErrNoCommit) || err == nil && parent.IsZero() {
			return refuse("commit %s does not follow from %s, which is published, along first parents", short(revision), short(base))
		}
		if err != nil {
			return fail(ReasonFetch, revision, err)
		}
		commits, commit = append(commits, commit), parent
	}
	if len(commits) == 0 {
		return nil
	}
	lock := w.published[LockFile]
	owners, err := newOwnerCheck(r.source, r.cfg.Path, file, hash(base), lock, in.source)
	if err != nil {
		return refuse("%v", err)
	}
	for _, commit := range slices.Backward(commits) {
		raw, signature, parent, err := r.source.Signature(commit)
		if err != nil {
			return fail(ReasonFetch, revision, err)
		}
		signers, err := readSigners(r.source, parent, file)
		if err != nil {
			return refuse("commit %s cannot be checked: %v", short(commit.String()), err)
		}
		signedBy, err := verifySignature(signers, gitNamespace, raw, signature, r.cfg.Now())
		isSigner := func(s allowedSigner) bool { return s.key == signedBy && s.signsCommits }
		switch {
		case err != nil:
			return refuse("commit %s is not signed by a key of %s: %v", short(commit.String()), file, err)
		case slices.ContainsFunc(signers, isSigner):
			c := signedCommit{commit: commit, parent: parent, signers: signers, principals: principalsOf(signers, signedBy)}
			if failure := r.checkOwners(in, owners, c); failure != nil {
				return failure
			}
		case slices.Contains(w.keys.locks, signedBy):
			if err := r.checkLockCommit(raw, parent, commit); err != nil {
				return refuse("commit %s is signed with the clusterset's key for locks: %v", short(commit.String()), err)
			}
		default:
			return refuse("commit %s is signed by %s, who is not in %s of the commit before", short(commit.String()), signedBy, file)
		}
	}
	w.comparedTopology = owners.last.Source
	return nil
}

// signersPath returns the path of the allowed_signers file in the topology of a commit. It returns
// an empty path if the topology has none.
func (r *Reconciler) signersPath(commit gitrepo.Hash) (string, error) {
	raw, err := r.source.File(commit, r.topologyPath())
	if err != nil {
		return "", err
	}
	set, _, list := load.Decode(short(commit.String())+":"+r.topologyPath(), raw)
	if err := list.Err(); err != nil || set.Spec.Trust.Commits == "" {
		return "", err
	}
	return path.Join(r.cfg.Path, set.Spec.Trust.Commits), nil
}

// checkLockCommit returns an error if a commit with the reconciler's signature changes more than
// the lock.
func (r *Reconciler) checkLockCommit(raw []byte, parent, at gitrepo.Hash) error {
	_, fields, err := readSigned(raw, KindLock)
	if err != nil {
		return err
	}
	if fields[TrailerSource] != parent.String() {
		return fmt.Errorf("its trailer %s is %q, not its parent", TrailerSource, fields[TrailerSource])
	}
	changed, err := r.source.Changed(parent, at)
	if err != nil {
		return err
	}
	if !slices.Equal(changed, []string{r.lockPath()}) {
		return fmt.Errorf("it changes more than the lock: %s", strings.Join(changed, ", "))
	}
	return nil
}

// checkedSignersPath returns the path of the allowed_signers file of the built topology, relative
// to the top of the repository. It checks the file first: with an unusable file the reconciler
// would refuse every later commit.
func (r *Reconciler) checkedSignersPath(in inputs, b *Built) (string, *Failure) {
	if b.Set.Spec.Trust.Commits == "" {
		return "", nil
	}
	file := path.Join(r.cfg.Path, b.Set.Spec.Trust.Commits)
	raw, err := r.source.File(in.source, file)
	var list diag.List
	if err == nil {
		list, err = CheckOwners(b.Set, file, raw)
	}
	if err != nil {
		return "", fail(ReasonInvalid, in.source.String(), fmt.Errorf("trust.commits: %s: %w", file, err))
	}
	list = WithPositions(list, b.Source)
	if list.HasErrors() {
		return "", failWithFindings(ReasonInvalid, in.source.String(), list,
			map[string][]byte{r.topologyPath(): b.Source.Raw, file: raw})
	}
	b.Warnings = append(b.Warnings, list...)
	return file, nil
}
