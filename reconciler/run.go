package reconciler

import (
	"context"
	"log/slog"
	"net"
	"time"

	"golang.org/x/sync/errgroup"

	"hawser.dev/hawser/reconciler/gitrepo"
)

const (
	minBackoff = time.Second // after a pass that may be retried; doubles up to the interval
	maxLogged  = 20          // logged findings of one commit
)

// Run makes the first pass at once. Then it makes a pass at every interval, after a change of a
// watched repository, and after a webhook. It returns when ctx is done, or if HTTP fails. It serves
// HTTP on listener and closes listener.
func (r *Reconciler) Run(ctx context.Context, listener net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return r.serve(ctx, listener) })
	group.Go(func() error { r.watch(ctx, r.source); return nil })
	if r.publish != r.source {
		group.Go(func() error { r.watch(ctx, r.publish); return nil })
	}
	group.Go(func() error { r.loop(ctx); return nil })
	r.cfg.Log.Info("reconciler started", "source", r.source.Name(), "ref", r.cfg.SourceBranch,
		"publish", r.publish.Name(), "branch", r.cfg.PublishBranch, "listen", listener.Addr().String())
	if r.cfg.StateFile == "" {
		r.cfg.Log.Info("no state file, a restart forgets the last published commit", "next", "--state FILE")
	}
	err := group.Wait()
	r.cfg.Log.Info("reconciler stopped")
	return err
}

func (r *Reconciler) watch(ctx context.Context, store *gitrepo.Store) {
	onPolling := func(err error) { r.cfg.Log.Warn("repository is polled", "repo", store.Name(), "err", err) }
	store.Watch(ctx, r.Trigger, onPolling)
}

func (r *Reconciler) loop(ctx context.Context) {
	backoff := minBackoff
	for ctx.Err() == nil {
		_, err := r.Once(ctx)
		wait := r.cfg.Interval
		switch {
		case err == nil || err.Refused():
			backoff = minBackoff
		default:
			wait = min(backoff, wait)
			backoff = 2 * wait // bounded: an outage of the git server may take days
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-r.trigger:
		}
		timer.Stop()
	}
}

// Once makes one pass and records the result in the status, the metrics and the log.
func (r *Reconciler) Once(ctx context.Context) (*Outcome, *Failure) {
	r.metrics.passes.Inc()
	before := r.statusStore.load()
	out, failure := r.reconcile(ctx)
	if failure != nil && ctx.Err() != nil {
		return nil, failure // the process ends; there is nothing to report
	}
	now := r.cfg.Now()
	if failure != nil {
		r.recordFailure(failure, before, now)
		return nil, failure
	}
	r.recordSuccess(out, before, now)
	return out, nil
}

func (r *Reconciler) recordFailure(f *Failure, before Status, now time.Time) {
	f.Since = now
	repeated := before.LastError != nil && before.LastError.Message == f.Message && before.LastError.Revision == f.Revision
	if repeated {
		f.Since = before.LastError.Since
	}
	r.metrics.failures.WithLabelValues(string(f.Reason)).Inc()
	r.metrics.failing.Set(1)
	r.statusStore.update(func(s *Status) {
		s.LastPass, s.LastError = now, f
		if f.Revision == "" {
			return
		}
		state := StateError
		if f.Refused() {
			state = StateFailure
		}
		s.recordCommit(CommitStatus{Commit: f.Revision, State: state, Description: f.Message, At: f.Since})
	})
	if !repeated {
		attrs := []any{"reason", string(f.Reason), "commit", f.Revision, "err", f.Message, "kept", before.Published}
		r.cfg.Log.Error("commit not published, the last good state stays", attrs...)
		for _, d := range f.Diagnostics[:min(len(f.Diagnostics), maxLogged)] {
			d = d.Clipped()
			r.cfg.Log.Error("finding in the topology", "at", d.Pos.String(), "code", d.Code, "path", d.Path,
				"summary", d.Summary, "hint", d.Hint)
		}
	}
}

func (r *Reconciler) recordSuccess(out *Outcome, before Status, now time.Time) {
	r.metrics.failing.Set(0)
	r.metrics.lastSuccess.Set(float64(now.UnixMilli()) / 1000)
	if out.Published != "" {
		r.metrics.setRevision(out.Source.Commit, out.Published, out.Digest)
	}
	if out.Changed {
		r.metrics.publishes.Inc()
	}
	r.statusStore.update(func(s *Status) {
		s.LastPass, s.LastSuccess, s.LastError = now, now, nil
		s.Warnings, s.LockNotCommitted = out.Warnings, out.LockNotCommitted
		if out.Published == "" {
			return
		}
		s.Ready, s.Active, s.Published, s.FabricDigest = true, &out.Source, out.Published, out.Digest
		if out.LockedCommit != "" {
			s.recordCommit(CommitStatus{Commit: out.LockedCommit, State: StateSuccess, Description: out.describe(),
				Published: out.Published, At: now})
		}
		if before.Active == nil || before.Active.Commit != out.Source.Commit {
			s.recordCommit(CommitStatus{Commit: out.Source.Commit, State: StateSuccess, Description: out.describe(),
				Published: out.Published, At: now})
		}
	})
	if before.LastError != nil {
		r.cfg.Log.Info("recovered", "commit", out.Source.Commit, "after", string(before.LastError.Reason))
	}
	if out.Changed {
		r.cfg.Log.Info("published", "commit", out.Source.Commit, "published", out.Published, "digest", out.Digest,
			slog.Duration("took", out.Took))
	}
}
