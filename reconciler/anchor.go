package reconciler

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"hawser.dev/hawser/internal/atomicfile"
	"hawser.dev/hawser/reconciler/gitrepo"
)

// anchor describes the last published commit. It is stored outside of the repository, because
// anyone with push access can reset a branch to an older commit. Its revision never decreases.
type anchor struct {
	Clusterset string `json:"clusterset"`
	Published  string `json:"published"` // commit of the publish branch; empty = nothing was published
	Revision   int64  `json:"revision"`
	Source     string `json:"source"` // commit of the topology branch
	Digest     string `json:"digest"` // of the fabric
	// Signers is the path of the allowed_signers file in Source. Commits after Source must be
	// signed. Empty = trust.commits is not set.
	Signers string `json:"signers,omitempty"`
	// Accepted contains the used values of --accept-commit. Each value works once.
	Accepted []string `json:"accepted,omitempty"`
}

// commit returns the last published commit.
func (a anchor) commit() PublishedCommit {
	return PublishedCommit{Commit: hash(a.Published), Revision: a.Revision, Source: a.Source, Digest: a.Digest, Signers: a.Signers}
}

// equal reports whether a and b have the same content.
func (a anchor) equal(b anchor) bool {
	return a.Clusterset == b.Clusterset && a.commit() == b.commit() && slices.Equal(a.Accepted, b.Accepted)
}

// restoreAnchor reads the anchor from the state file if that is newer. Several reconcilers can
// share the file. Without a state file the anchor is in memory only.
func (r *Reconciler) restoreAnchor() error {
	if r.cfg.StateFile == "" {
		return nil
	}
	saved, exists, err := r.readStateFile()
	if err != nil {
		return err
	}
	if exists && saved.newerThan(r.anchor) {
		r.anchor = saved
	}
	return nil
}

// storeAnchor writes the state file if it is missing or older than the anchor in memory. It fails
// with errBranchMoved if the file is newer. Then another reconciler has published after this one
// read the branches.
func (r *Reconciler) storeAnchor() error {
	if r.cfg.StateFile == "" {
		return nil
	}
	saved, exists, err := r.readStateFile()
	switch {
	case err != nil:
		return err
	case !exists || !saved.equal(r.anchor) && !saved.newerThan(r.anchor):
		return r.saveAnchor(r.anchor)
	case saved.newerThan(r.anchor):
		return fmt.Errorf("state %s is newer than the branches that were read: %w", r.cfg.StateFile, errBranchMoved)
	}
	return nil
}

// newerThan reports whether a has a higher revision than b. An anchor without a published commit is
// the oldest.
func (a anchor) newerThan(b anchor) bool {
	return a.Published != "" && (b.Published == "" || a.Revision > b.Revision)
}

// readStateFile reads the state file.
func (r *Reconciler) readStateFile() (saved anchor, exists bool, err error) {
	raw, err := os.ReadFile(r.cfg.StateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return saved, false, nil
	}
	if err != nil {
		return saved, false, fmt.Errorf("read state: %w", err)
	}
	if err = json.Unmarshal(raw, &saved); err == nil {
		err = saved.validate()
	}
	if err != nil {
		return saved, true, fmt.Errorf("read state %s: %w: restore the file from a backup, or remove it and start with --accept-commit "+
			"and the newest commit of the topology branch that you checked", r.cfg.StateFile, err)
	}
	return saved, true, nil
}

// validate returns an error if the anchor is incomplete. An empty anchor is valid.
func (a anchor) validate() error {
	if a.Published == "" && a.Revision == 0 && a.Source == "" {
		return nil // nothing was published yet
	}
	for _, commit := range []string{a.Published, a.Source} {
		if commit == "" || hash(commit).String() != commit {
			return fmt.Errorf("%q is not the hash of a commit", commit)
		}
	}
	if a.Clusterset == "" || a.Revision <= 0 {
		return errors.New("it names no clusterset or revision")
	}
	return nil
}

// saveAnchor writes the anchor to the state file. If the file has a newer revision, saveAnchor
// reads the anchor from the file instead. After an error neither the file nor the anchor changes.
func (r *Reconciler) saveAnchor(a anchor) error {
	if r.cfg.StateFile != "" {
		saved, exists, err := r.readStateFile()
		if err != nil {
			return err
		}
		if exists && saved.Clusterset == a.Clusterset && saved.Revision > a.Revision {
			r.anchor = saved
			return nil
		}
		raw, err := json.MarshalIndent(a, "", "  ")
		if err != nil {
			return fmt.Errorf("encode state: %w", err)
		}
		if err := atomicfile.Write(r.cfg.StateFile, append(raw, '\n'), 0o600); err != nil {
			return fmt.Errorf("state of the reconciler (--state): %w", err)
		}
	}
	r.anchor = a
	return nil
}

// accepted reports whether AcceptCommit accepts the source branch and the current publish branch.
// AcceptCommit must be in the history of the source branch, and not used before.
func (r *Reconciler) accepted(in inputs) (bool, error) {
	if r.cfg.AcceptCommit == "" || slices.Contains(r.anchor.Accepted, r.cfg.AcceptCommit) {
		return false, nil
	}
	return r.source.IsAncestor(hash(r.cfg.AcceptCommit), in.source)
}

// previousPublished returns the published commit that the next one follows. It is the newest signed
// commit of the publish branch if that commit descends from the anchor, otherwise the anchor.
// newestSigned is the newest signed commit of the branch, or zero. branchErr is the reason why the
// branch does not contain the anchor, or has no signed commit.
func (r *Reconciler) previousPublished(in inputs, signers []string, clusterset string) (previous PublishedCommit, newestSigned gitrepo.Hash, branchErr error, err error) {
	last := r.anchor.commit()
	newest, skipped, err := NewestPublished(r.publish, clusterset, signers, in.published, last.Commit)
	notPublished := errors.Is(err, ErrNotPublished)
	newestSigned = newest.Commit
	switch {
	case err != nil && !notPublished:
		return previous, newestSigned, nil, err
	case !notPublished && newestSigned == last.Commit:
		newest = last
	case last.Commit.IsZero() && in.published.IsZero():
		return previous, newestSigned, nil, nil // nothing was published yet
	case last.Commit.IsZero() && notPublished:
		return previous, newestSigned, fmt.Errorf("branch %s of %s has no commit of this reconciler (%w): it is another branch, it was published with another root key "+
			"(--allow-other-root as well, if the old key is lost), or another writer replaced it", r.cfg.PublishBranch, r.publish.Name(), err), nil
	case last.Commit.IsZero():
	default:
		follows := false
		if !notPublished && newest.Revision > last.Revision {
			if follows, err = r.publish.IsAncestor(last.Commit, newestSigned); err != nil {
				return previous, newestSigned, nil, err
			}
		}
		if !follows {
			state := "was deleted"
			switch {
			case !notPublished:
				state = fmt.Sprintf("was put back to %s, revision %d",
					short(newestSigned.String()), newest.Revision)
			case !in.published.IsZero():
				state = fmt.Sprintf("was replaced (%v)", err)
			}
			return last, newestSigned, fmt.Errorf("branch %s of %s %s; commit %s, revision %d, was published last", r.cfg.PublishBranch, r.publish.Name(), state,
				short(r.anchor.Published), r.anchor.Revision), nil
		}
	}
	if len(skipped) > 0 {
		r.cfg.Log.Warn("the publish branch has commits that are not signed, undoing them", "branch", r.cfg.PublishBranch,
			"found", in.published.String(), "signed", newestSigned.String(), "commits", len(skipped))
	}
	return newest, newestSigned, nil, nil
}

// checkPublishBranch returns a failure if the publish branch does not contain the last published
// commit. Without trust.commits it returns no failure if the repository still has that commit: the
// pass then publishes on top of the branch.
func (r *Reconciler) checkPublishBranch(in inputs, w *buildState) *Failure {
	if w.branchErr == nil || w.accepted {
		return nil
	}
	hasAnchor := r.anchor.Published != ""
	if hasAnchor && r.anchor.Signers == "" && !w.baseMissing {
		r.cfg.Log.Warn("the publish branch was changed by another writer, publishing on top of it", "branch", r.cfg.PublishBranch, "err", w.branchErr)
		return nil
	}
	accept, restore := in.source.String(), ""
	if hasAnchor {
		restore = fmt.Sprintf("have the branch put back to %s, or ", r.anchor.Published)
		// The commits after the trusted one are still checked.
		if follows, err := r.source.IsAncestor(hash(r.anchor.Source), in.source); err == nil && follows {
			accept = r.anchor.Source
		}
	}
	return fail(ReasonUntrusted, in.source.String(), fmt.Errorf("%w: %spass --accept-commit %s once, after a look at the branches, to publish again", w.branchErr, restore, accept))
}
