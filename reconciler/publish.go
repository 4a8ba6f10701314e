package reconciler

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"

	"hawser.dev/hawser/reconciler/gitrepo"
)

// publishBuild commits the built tree to the publish branch, and a new lock to the source
// branch.
func (r *Reconciler) publishBuild(ctx context.Context, in inputs, w *buildState) (*Outcome, *Failure) {
	out := &Outcome{
		Digest: w.built.Digest, Warnings: w.built.Warnings, Changed: !w.built.Tree.Equal(w.published),
	}
	// Check that the state file is writable before the first write to a repository.
	if err := r.saveAnchor(r.anchor); err != nil {
		return nil, fail(ReasonState, in.source.String(), err)
	}
	// The revision is the Unix time. It is the previous revision plus one if the clock went
	// back.
	w.revision = max(w.previous.Revision+1, r.anchor.Revision+1, r.cfg.Now().Unix())
	if len(w.built.Stale) > 0 {
		source, pending, failure := r.commitLock(ctx, in.source, w)
		if failure != nil {
			return nil, failure
		}
		if source != in.source {
			out.LockedCommit = in.source.String()
			r.cfg.Log.Info("committed the lock to the source branch: git pull --rebase before the next push", "commit", source.String(), "on", in.source.String())
		}
		in.source, out.LockNotCommitted = source, pending
		r.recordLatest(source)
	}
	out.Source = r.revision(in.source)
	// A published commit names the source commit after which all commits must be signed.
	out.Changed = out.Changed || w.previous.Signers != w.signersFile || w.signersFile != "" && w.previous.Source != in.source.String()
	// Flux and Argo CD verify the newest commit of the branch, so publish a new commit on top
	// of an unsigned one.
	out.Changed = out.Changed || w.previous.Commit != in.published || w.previous.Revision == 0
	if w.pgp != nil && w.commitSigners != nil && !out.Changed {
		signed, err := w.pgp.signed(r.publish, in.published)
		if err != nil {
			return nil, fail(ReasonPublish, in.source.String(), err)
		}
		out.Changed = !signed
	}
	if out.Changed {
		published, failure := r.publishTree(ctx, in, w)
		if failure != nil {
			return nil, failure
		}
		in.published = published
	}
	if !in.published.IsZero() {
		out.Published = in.published.String()
	}
	next := anchor{Clusterset: w.built.Set.Metadata.Name, Published: in.published.String(), Revision: w.previous.Revision, Source: w.previous.Source,
		Digest: w.previous.Digest, Signers: w.previous.Signers, Accepted: r.anchor.Accepted}
	if out.Changed {
		next.Revision, next.Source, next.Digest, next.Signers = w.revision, in.source.String(), w.built.Digest, w.signersFile
	}
	if w.accepted {
		next.Accepted = append(slices.Clone(next.Accepted), r.cfg.AcceptCommit)
	}
	if !next.equal(r.anchor) {
		if err := r.saveAnchor(next); err != nil {
			return nil, fail(ReasonState, in.source.String(), err)
		}
	}
	r.last = lastResult{inputs: in, outcome: out}
	return out, nil
}

// commitLock commits the lock to the source branch and returns the new head. It returns true if the
// lock is not committed: a work tree is on the branch, or the repository is read-only. The
// addresses are valid nevertheless, because every later pass reads the lock on the publish branch.
func (r *Reconciler) commitLock(ctx context.Context, source gitrepo.Hash, w *buildState) (gitrepo.Hash, bool, *Failure) {
	inUse, err := r.source.CheckedOut(r.cfg.SourceBranch)
	if err != nil {
		return source, false, fail(ReasonFetch, source.String(), err)
	}
	if inUse {
		r.cfg.Log.Info("a work tree is on the source branch, the lock stays on the publish branch",
			"commit", source.String(), "next", "hawser allocate")
		return source, true, nil
	}
	c := gitrepo.Commit{
		Parent: source, Files: map[string][]byte{r.lockPath(): w.built.Lock}, KeepFiles: true,
		Name: r.cfg.AuthorName, Email: r.cfg.AuthorEmail, When: r.cfg.Now(),
		Message: "allocate addresses\n\nThe committed lock lacked allocations of this topology. Run git pull --rebase before\n" +
			"the next push. hawser allocate before a commit avoids such commits.\n\n" + signedTrailers(KindLock, w.revision, source.String()),
	}
	if w.commitSigners != nil {
		c.Sign = w.commitSigners.signLock
	}
	commit, err := r.source.Write(c)
	if err == nil {
		err = r.source.FastForward(ctx, r.cfg.SourceBranch, source, commit)
	}
	switch {
	case errors.Is(err, gitrepo.ErrRefChanged):
		return source, false, fail(ReasonFetch, source.String(), err)
	case err != nil:
		r.cfg.Log.Warn("the source branch may not be written, the lock stays on the publish branch",
			"commit", source.String(), "err", err, "next", "hawser allocate")
		return source, true, nil
	}
	return commit, false, nil
}

// publishTree commits the built tree to the publish branch.
func (r *Reconciler) publishTree(ctx context.Context, in inputs, w *buildState) (gitrepo.Hash, *Failure) {
	c := gitrepo.Commit{
		Parent: in.published, Files: w.built.Tree,
		Name: r.cfg.AuthorName, Email: r.cfg.AuthorEmail, When: r.cfg.Now(),
		Message: r.message(in.source, w),
	}
	if w.commitSigners != nil {
		c.Sign = w.commitSigners.signPublished
	}
	if w.pgp != nil && w.commitSigners != nil {
		c.SignTrailer, c.Sign = w.commitSigners.signTrailer, w.pgp.sign
	}
	commit, err := r.publish.Write(c)
	if err == nil {
		err = r.publish.FastForward(ctx, r.cfg.PublishBranch, in.published, commit)
	}
	if err != nil {
		return gitrepo.Hash{}, fail(ReasonPublish, in.source.String(), err)
	}
	// The branch moves even if a work tree is on it, although git would refuse such a push: a
	// work tree must not block the clusterset. The next pass replaces commits of the work tree.
	if inUse, err := r.publish.CheckedOut(r.cfg.PublishBranch); err == nil && inUse {
		r.cfg.Log.Warn("a work tree is on the publish branch and now looks modified: check out another branch there",
			"repo", r.publish.Name(), "branch", r.cfg.PublishBranch)
	}
	return commit, nil
}

func (r *Reconciler) message(source gitrepo.Hash, w *buildState) string {
	subject, err := r.source.Subject(source)
	if err != nil {
		subject = ""
	}
	text := fmt.Sprintf("%s: publish %s\n\n%s\n\n", w.built.Set.Metadata.Name, short(source.String()), subject) +
		signedTrailers(KindPublished, w.revision, source.String()) +
		fmt.Sprintf("%s: %s\n", TrailerDigest, w.built.Digest)
	if w.signersFile != "" {
		text += fmt.Sprintf("%s: %s\n", TrailerSigners, w.signersFile)
	}
	return text
}

func short(commit string) string { return commit[:min(len(commit), 12)] }

func hash(commit string) gitrepo.Hash { return plumbing.NewHash(commit) }

// fileDigest returns the digest of a file, to detect changes. It returns zero if path is empty.
func fileDigest(path string) ([32]byte, error) {
	if path == "" {
		return [32]byte{}, nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return [32]byte{}, err
	}
	return sha256.Sum256(raw), nil
}
