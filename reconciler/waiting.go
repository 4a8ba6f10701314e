package reconciler

import (
	"context"

	"hawser.dev/hawser/reconciler/repo"
	"hawser.dev/hawser/render"
)

// Waiting is a source commit whose fabric waits for approval. What it asks for stands on
// the candidate branch; what was published before stays.
type Waiting struct {
	Source    Revision        `json:"source"`
	Branch    string          `json:"branch"`    // of the candidate
	Candidate string          `json:"candidate"` // commit there
	Approval  render.Approval `json:"approval"`
}

// Message tells on one line what it waits for.
func (w *Waiting) Message() string {
	return "waiting for approval: " + w.Approval.String() + ": hawser approve"
}

// waitingTree gives what this reconciler put on the candidate branch last, or before
// somebody else moved that; empty when it is what is published.
func (r *Reconciler) waitingTree(in inputs, s *signatures, published repo.Hash) (render.Tree, error) {
	for _, from := range []repo.Hash{in.candidate, r.last.inputs.candidate} {
		found, err := r.publish.Signed(from, s.verify)
		if err != nil {
			return nil, err
		}
		if found.IsZero() || found == published {
			continue
		}
		return r.publish.Tree(found)
	}
	return nil, nil
}

// offer puts what was built on the candidate branch, as one commit on top of what is
// published, and gives that.
func (r *Reconciler) offer(ctx context.Context, in inputs, w *work) (repo.Hash, *Failure) {
	fail := func(err error) (repo.Hash, *Failure) {
		return repo.Hash{}, fail(ReasonPublish, in.source.String(), err)
	}
	if !in.candidate.IsZero() {
		have, err := r.publish.Tree(in.candidate)
		if err != nil {
			return fail(err)
		}
		if w.built.Tree.Equal(have) {
			return in.candidate, nil
		}
	}
	commit, err := r.publish.Write(repo.Commit{
		Parent: w.own, Files: w.built.Tree, Sign: w.sign, Message: r.message(in.source, w),
		Name: r.cfg.AuthorName, Email: r.cfg.AuthorEmail, When: r.cfg.Now(),
	})
	if err == nil {
		err = r.publish.Replace(ctx, CandidateBranch(r.cfg.PublishBranch), in.candidate, commit)
	}
	if err != nil {
		return fail(err)
	}
	return commit, nil
}

// settleCandidate moves the candidate branch, where there is one, to what is published:
// nothing waits.
func (r *Reconciler) settleCandidate(ctx context.Context, in *inputs) *Failure {
	if in.candidate.IsZero() || in.candidate == in.published {
		return nil
	}
	if err := r.publish.Replace(ctx, CandidateBranch(r.cfg.PublishBranch), in.candidate, in.published); err != nil {
		return fail(ReasonPublish, in.source.String(), err)
	}
	in.candidate = in.published
	return nil
}
