package reconciler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/reconciler/gitrepo"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/render/keys"
	"hawser.dev/hawser/schema/document"
	"hawser.dev/hawser/schema/load"
)

// maxRestarts is the maximum number of restarts of a pass because a branch has moved.
const maxRestarts = 8

// Outcome is the result of a successful pass.
type Outcome struct {
	Source           Revision
	Published        string // newest commit of the publish branch
	Digest           string // of the fabric
	Changed          bool   // a commit was published
	LockNotCommitted bool   // the lock on the source branch lacks published addresses
	LockedCommit     string // parent of Source if Source is a lock commit of this pass; otherwise empty
	Warnings         diag.List
	Took             time.Duration
}

func (o *Outcome) describe() string {
	if o.Changed {
		return "published as " + short(o.Published)
	}
	return "nothing to publish"
}

// lastResult contains the inputs and outcome of the last successful pass. Equal inputs need no new
// pass.
type lastResult struct {
	inputs  inputs
	outcome *Outcome
}

// inputs identifies the input of a pass, in addition to the configuration.
type inputs struct {
	source, published gitrepo.Hash
	keys, openPGP     [32]byte // digests of the key files
}

// errBranchMoved means that a branch has moved during a pass. The pass then restarts.
var errBranchMoved = gitrepo.ErrRefChanged

// reconcile publishes the newest source commit.
func (r *Reconciler) reconcile(ctx context.Context) (*Outcome, *Failure) {
	for range maxRestarts {
		out, failure := r.reconcileOnce(ctx)
		if failure == nil || !errors.Is(failure, errBranchMoved) {
			return out, failure
		}
		r.cfg.Log.Info("a branch moved meanwhile, starting again", "commit", failure.Revision)
	}
	return nil, fail(ReasonPublish, "", fmt.Errorf("the branches moved %d times while publishing", maxRestarts))
}

func (r *Reconciler) reconcileOnce(ctx context.Context) (*Outcome, *Failure) {
	startedAt := r.cfg.Now()
	if err := r.restoreAnchor(); err != nil {
		return nil, fail(ReasonState, "", err)
	}
	if a := r.anchor; a.Published != "" && !r.statusStore.load().Ready {
		// Restore Ready after a restart, so that the Service serves /status even if this
		// pass fails.
		r.statusStore.update(func(s *Status) { s.Ready, s.Published, s.FabricDigest = true, a.Published, a.Digest })
	}
	in, failure := r.readInputs(ctx)
	if failure != nil {
		return nil, failure
	}
	if err := r.storeAnchor(); err != nil {
		return nil, fail(ReasonState, in.source.String(), err)
	}
	if r.last.outcome != nil && r.last.inputs == in {
		same := *r.last.outcome
		same.Changed = false
		return &same, nil
	}
	work, failure := r.buildCommit(in)
	if failure != nil {
		return nil, failure
	}
	out, failure := r.publishBuild(ctx, in, work)
	if failure != nil {
		return nil, failure
	}
	out.Took = r.cfg.Now().Sub(startedAt)
	return out, nil
}

// readInputs reads the heads of the branches.
func (r *Reconciler) readInputs(ctx context.Context) (inputs, *Failure) {
	startedAt := r.cfg.Now()
	var in inputs
	if err := r.sync(ctx); err != nil {
		return in, err
	}
	r.metrics.fetch.Observe(r.cfg.Now().Sub(startedAt).Seconds())
	var err error
	in.source, err = r.source.Head(r.cfg.SourceBranch)
	if errors.Is(err, gitrepo.ErrNoBranch) {
		return in, fail(ReasonNoBranch, "", fmt.Errorf("%w: commit a %s there, or name the branch that has it with --ref", err, r.topologyPath()))
	}
	if err != nil {
		return in, fail(ReasonFetch, "", err)
	}
	r.recordLatest(in.source)
	in.published, err = r.publish.Head(r.cfg.PublishBranch)
	if err != nil && !errors.Is(err, gitrepo.ErrNoBranch) {
		return in, fail(ReasonPublish, in.source.String(), err)
	}
	if in.published.IsZero() {
		if err := r.publish.CheckNew(r.cfg.PublishBranch); err != nil {
			return in, fail(ReasonPublish, in.source.String(), err)
		}
	}
	if in.keys, err = fileDigest(r.cfg.RootKeyFile); err != nil {
		return in, fail(ReasonKeys, in.source.String(), fmt.Errorf("read root key: %w", err))
	}
	if in.openPGP, err = fileDigest(r.cfg.OpenPGPKeyFile); err != nil {
		return in, fail(ReasonKeys, in.source.String(), fmt.Errorf("read OpenPGP key: %w", err))
	}
	return in, nil
}

func (r *Reconciler) sync(ctx context.Context) *Failure {
	if r.publish == r.source {
		err := r.source.Fetch(ctx, r.cfg.SourceBranch, r.cfg.PublishBranch)
		return r.fetchFailure(ReasonFetch, err)
	}
	if err := r.source.Fetch(ctx, r.cfg.SourceBranch); err != nil {
		return r.fetchFailure(ReasonFetch, err)
	}
	return r.fetchFailure(ReasonPublish, r.publish.Fetch(ctx, r.cfg.PublishBranch))
}

// fetchFailure returns the failure for the error of a Fetch; nil if err is nil. A source commit
// that cannot be fetched is refused, because a retry would fail in the same way.
func (r *Reconciler) fetchFailure(reason Reason, err error) *Failure {
	if err == nil {
		return nil
	}
	var unusable *gitrepo.UnusableBranch
	if !errors.As(err, &unusable) {
		return fail(reason, "", err)
	}
	if reason == ReasonFetch && unusable.Branch == r.cfg.SourceBranch {
		r.recordLatest(unusable.Commit)
		return fail(ReasonFetch, unusable.Commit.String(), err)
	}
	return fail(ReasonPublish, "", r.withRecovery(err))
}

// withRecovery adds the next step to the error of an unreadable publish branch.
func (r *Reconciler) withRecovery(err error) error {
	if r.anchor.Published == "" {
		return fmt.Errorf("%w: delete branch %s of %s, or name another branch", err, r.cfg.PublishBranch, r.publish.Name())
	}
	return fmt.Errorf("%w: have branch %s of %s put back to %s", err, r.cfg.PublishBranch, r.publish.Name(), r.anchor.Published)
}

// recordLatest records the newest source commit. It logs a warning if the commit does not descend
// from the previous one.
func (r *Reconciler) recordLatest(commit gitrepo.Hash) {
	previous := r.statusStore.load().Latest
	if previous != nil && previous.Commit == commit.String() {
		return
	}
	subject, err := r.source.Subject(commit)
	if err != nil {
		subject = ""
	}
	latest := Revision{Commit: commit.String(), Subject: subject, At: r.cfg.Now()}
	r.statusStore.update(func(s *Status) { s.Latest = &latest })
	if previous == nil {
		return
	}
	if follows, err := r.source.IsAncestor(hash(previous.Commit), commit); err == nil && !follows {
		r.cfg.Log.Warn("the source branch was rewritten, following it", "before", previous.Commit, "commit", latest.Commit)
	}
}

// revision returns the Revision of a source commit.
func (r *Reconciler) revision(commit gitrepo.Hash) Revision {
	if latest := r.statusStore.load().Latest; latest != nil && latest.Commit == commit.String() {
		return *latest
	}
	return Revision{Commit: commit.String(), At: r.cfg.Now()}
}

// Preview is the tree that a pass would publish.
type Preview struct {
	Built     *Built
	Published render.Tree       // currently published tree
	Files     map[string][]byte // texts of the source, by name, for printing findings
	Commit    string            // of the source
	Changed   bool              // something would be published
}

// Preview builds the newest commit and writes nothing.
func (r *Reconciler) Preview(ctx context.Context) (*Preview, *Failure) {
	if err := r.restoreAnchor(); err != nil {
		return nil, fail(ReasonState, "", err)
	}
	in, failure := r.readInputs(ctx)
	if failure != nil {
		return nil, failure
	}
	w, failure := r.buildCommit(in)
	if failure != nil {
		return nil, failure
	}
	return &Preview{Built: w.built, Published: w.published, Files: w.files, Commit: in.source.String(),
		Changed: w.previous.Commit != in.published || !w.built.Tree.Equal(w.published)}, nil
}

// buildState contains the intermediate results of a pass.
type buildState struct {
	published render.Tree // last tree that this reconciler published
	built     *Built
	// previous is the published commit that the next one follows; zero = none.
	previous PublishedCommit
	// branchErr is the reason why the publish branch does not contain previous. baseMissing
	// reports whether the repository lacks previous, too.
	branchErr   error
	baseMissing bool
	revision    int64 // of the new commits
	// accepted reports whether an operator accepts the current branches (AcceptCommit).
	accepted      bool
	keys          publicKeys
	commitSigners *commitSigners // nil without a root key
	pgp           *openPGP       // nil = published commits have SSH signatures
	// signersFile is the path of the allowed_signers file for later commits. Empty = later
	// commits need no signature.
	signersFile string
	// comparedTopology is the last topology that the owner check compared; nil = none.
	comparedTopology *document.Source
	files            map[string][]byte // texts for printing findings
}

// buildCommit reads the source commit and builds it on top of the published tree.
func (r *Reconciler) buildCommit(in inputs) (*buildState, *Failure) {
	revision := in.source.String()
	root, err := ReadRootKey(r.cfg.RootKeyFile, r.cfg.RootIdentityFile)
	if err != nil {
		return nil, fail(ReasonKeys, revision, err)
	}
	pgp, err := readOpenPGP(r.cfg.OpenPGPKeyFile, r.cfg.Now)
	if err != nil {
		return nil, fail(ReasonKeys, revision, err)
	}
	w := &buildState{published: render.Tree{}, pgp: pgp, files: map[string][]byte{}}
	if w.accepted, err = r.accepted(in); err != nil {
		return nil, fail(ReasonFetch, revision, err)
	}
	if r.cfg.AcceptCommit != "" && r.anchor.Published == "" && !w.accepted {
		return nil, fail(ReasonUntrusted, revision, fmt.Errorf("commit %s does not follow from commit %s, which --accept-commit names, and there is no state that is newer",
			short(revision), r.cfg.AcceptCommit))
	}
	clusterset := r.anchor.Clusterset
	if clusterset == "" { // nothing was published, so no commit must be signed
		if failure := r.readTopology(in, w); failure != nil {
			return nil, failure
		}
		if set, _, list := load.Decode(r.topologyPath(), w.files[r.topologyPath()]); !list.HasErrors() {
			clusterset = set.Metadata.Name
		}
	}
	if failure := r.selectPublished(in, w, root, clusterset); failure != nil {
		return nil, failure
	}
	if failure := r.checkSignatures(in, w); failure != nil {
		return nil, failure
	}
	if failure := r.checkPublishBranch(in, w); failure != nil {
		return nil, failure
	}
	// Read the files of the commit only after the check of its signatures.
	if failure := r.readTopology(in, w); failure != nil {
		return nil, failure
	}
	topology := w.files[r.topologyPath()]
	if set, _, list := load.Decode(r.topologyPath(), topology); !list.HasErrors() && clusterset != "" && set.Metadata.Name != clusterset {
		return nil, fail(ReasonState, revision, fmt.Errorf("the topology is of clusterset %s, and the state of the reconciler of clusterset %s: "+
			"name a state file of its own (--state), or revert the commit if it renames the clusterset", set.Metadata.Name, clusterset))
	}
	lock, err := r.source.File(in.source, r.lockPath())
	if err != nil && !errors.Is(err, gitrepo.ErrNoFile) {
		return nil, fail(ReasonFetch, revision, err)
	}
	patches, err := r.source.DirFiles(in.source, path.Join(r.cfg.Path, render.PatchesDir))
	if err != nil {
		return nil, fail(ReasonFetch, revision, err)
	}
	w.files[r.lockPath()] = lock
	startedAt := r.cfg.Now()
	built, list := Build(BuildInput{
		File: r.topologyPath(), Topology: topology, LockFile: r.lockPath(), Lock: lock, Patches: patches,
		Published: w.published, Root: root, RootFile: r.cfg.RootKeyFile, AllowOtherRoot: r.cfg.AllowOtherRoot, Image: r.cfg.Image, Version: r.cfg.Version, Now: startedAt,
	})
	r.metrics.render.Observe(r.cfg.Now().Sub(startedAt).Seconds())
	if list.HasErrors() {
		return nil, failWithFindings(findingsReason(list), revision, list, w.files)
	}
	if err := pgp.checkListed(built.Set.Spec.Trust.OpenPGPKeys, r.cfg.OpenPGPKeyFile); err != nil {
		return nil, fail(ReasonKeys, revision, err)
	}
	if w.comparedTopology != nil && !bytes.Equal(w.comparedTopology.Raw, topology) {
		return nil, fail(ReasonUntrusted, revision, errors.New("the topology can be built but not compared with the one before, "+
			"so the owners of the changes are unknown: this is a bug in hawser, please report it with the topology"))
	}
	w.built = built
	if root != nil {
		if w.commitSigners, err = newCommitSigners(root, built.Set.Metadata.Name, built.Set.Spec.Keys.Epochs); err != nil {
			return nil, fail(ReasonKeys, revision, err)
		}
	}
	var failure *Failure
	if w.signersFile, failure = r.checkedSignersPath(in, built); failure != nil {
		return nil, failure
	}
	rules := Rules{WriteLock: r.cfg.WriteLock, AllowMassDelete: r.cfg.AllowMassDelete}
	return w, built.Check(w.published, rules, revision, w.files)
}

// readTopology reads the topology file of the source commit.
func (r *Reconciler) readTopology(in inputs, w *buildState) *Failure {
	raw, err := r.source.File(in.source, r.topologyPath())
	if errors.Is(err, gitrepo.ErrNoFile) {
		return fail(ReasonNoFile, in.source.String(), err)
	}
	if err != nil {
		return fail(ReasonFetch, in.source.String(), err)
	}
	w.files[r.topologyPath()] = raw
	return nil
}

// selectPublished selects the published commit that the next one follows, and reads its tree. It
// reads files only from commits that are signed or that the anchor names. It does nothing without a
// root key. It does nothing either if clusterset is empty: then the topology has errors, which the
// build reports.
func (r *Reconciler) selectPublished(in inputs, w *buildState, root *keys.Root, clusterset string) *Failure {
	revision := in.source.String()
	if root == nil || clusterset == "" {
		return nil
	}
	var err error
	var newestSigned gitrepo.Hash
	w.keys, err = newPublicKeys(root, clusterset)
	if err == nil {
		w.previous, newestSigned, w.branchErr, err = r.previousPublished(in, w.keys.signers, clusterset)
	}
	// If an operator accepts a branch with another root key, the addresses on that branch stay.
	otherRoot := r.cfg.AllowOtherRoot && w.accepted
	if err == nil && w.branchErr != nil && r.anchor.Published == "" && otherRoot {
		w.previous, newestSigned = PublishedCommit{Commit: in.published}, in.published
	}
	if err == nil && !w.previous.Commit.IsZero() {
		w.published, err = r.publish.Tree(w.previous.Commit)
		if w.baseMissing = errors.Is(err, gitrepo.ErrNoCommit); w.baseMissing {
			w.published, err = render.Tree{}, nil
			if !newestSigned.IsZero() {
				w.published, err = r.publish.Tree(newestSigned)
			}
		}
	}
	if errors.Is(err, gitrepo.ErrUnusable) {
		err = r.withRecovery(err)
	}
	if err != nil {
		return fail(ReasonPublish, revision, err)
	}
	return nil
}
