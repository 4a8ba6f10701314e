package baseline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/reconciler/gitrepo"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/render/plan"
)

// Origin is a commit of the publish branch, and the published commit of the topology.
type Origin struct {
	Commit string `json:"commit"`
	Time   string `json:"time"` // RFC 3339 in UTC
	// Source is the commit of the topology. Author and Subject are of the newest topology
	// commit that is not a lock commit of the reconciler. If the repository lacks that commit,
	// they are of the published commit.
	Source  string `json:"source,omitempty"`
	Author  string `json:"author"`
	Subject string `json:"subject"`
}

// Publication is one commit of the publish branch.
type Publication struct {
	Origin
	Summary plan.Summary `json:"summary"`
	Changes string       `json:"changes"` // on one line
	// Verified reports whether a signer signed the commit as published. Refused is the reason
	// if not. Both are empty if the command has no signers.
	Verified bool   `json:"verified"`
	Refused  string `json:"refused,omitempty"`
}

// Signed returns the verification result for the table.
func (p Publication) Signed() string {
	switch {
	case p.Verified:
		return "yes"
	case p.Refused != "":
		return "NO"
	}
	return "not verified"
}

// History returns the publications of a branch along first parents, newest first. It returns at
// most limit publications; 0 = all. sources are the repositories that may have the topology.
func History(ctx context.Context, store *gitrepo.Store, at gitrepo.Hash, limit int, verify []Verifier, sources ...*gitrepo.Store) ([]Publication, error) {
	list := []Publication{}
	tree, err := TreeOf(store, at)
	for err == nil && !at.IsZero() && (limit == 0 || len(list) < limit) && ctx.Err() == nil {
		var parent gitrepo.Hash
		var before render.Tree
		var p Publication
		if _, _, parent, err = store.Signature(at); err != nil {
			break
		}
		before, err = TreeOf(store, parent)
		cut := errors.Is(err, gitrepo.ErrNoCommit)
		if err != nil && !cut {
			break
		}
		if p.Origin, err = OriginOf(store, at, sources...); err != nil {
			break
		}
		for _, v := range verify {
			if p.Refused, err = v.RefusalReason(store, at); err != nil {
				return list, err
			}
			p.Verified = p.Refused == ""
		}
		if cut {
			p.Changes = "unknown: the clone ends here"
		} else if err = p.count(tree, before); err != nil {
			return nil, fmt.Errorf("compare commit %s with the one before: %w", at, err)
		}
		if list = append(list, p); cut {
			return list, nil
		}
		at, tree = parent, before
	}
	return list, errors.Join(err, ctx.Err())
}

// TreeOf returns the tree of a published commit. It is empty for the zero hash. The error is
// ErrNoCommit if a shallow clone lacks the commit.
func TreeOf(store *gitrepo.Store, commit gitrepo.Hash) (render.Tree, error) {
	if commit.IsZero() {
		return render.Tree{}, nil
	}
	return store.Tree(commit)
}

// OriginOf describes a published commit. sources are the repositories that may have the topology.
func OriginOf(store *gitrepo.Store, commit gitrepo.Hash, sources ...*gitrepo.Store) (Origin, error) {
	p := Origin{Commit: commit.String()}
	when, err := store.When(commit)
	if err != nil {
		return p, err
	}
	p.Time = when.UTC().Format(time.RFC3339)
	if p.Source, err = store.Trailer(commit, reconciler.TrailerSource); err != nil {
		return p, err
	}
	for _, source := range append(sources, store) {
		if found, err := source.Resolve(p.Source); err == nil {
			store, commit = source, authored(source, found.Commit)
			break
		}
	}
	if p.Author, err = store.Author(commit); err != nil {
		return p, err
	}
	p.Subject, err = store.Subject(commit)
	return p, err
}

// topologyDepth is the number of commits of a topology branch that Published.Origin fetches from a
// server.
const topologyDepth = 200

// Unpublished is the newest commit of a topology branch that is not published.
type Unpublished struct {
	Branch  string `json:"branch"`
	Commit  string `json:"commit"`
	Time    string `json:"time"` // RFC 3339 in UTC
	Subject string `json:"subject"`
}

// Origin describes the published commit. It also returns the newest commit of a topology branch if
// topology, lock or patches changed after the published source. Unpublished is nil if the
// repository lacks the branch, or if the last commits of the branch do not contain that source. The
// description is complete even if the branch cannot be read.
func (p Published) Origin(ctx context.Context, repository, branch string) (Origin, *Unpublished, error) {
	config := RepoOf(repository, "")
	config.Depth = topologyDepth
	store, unread := OpenRepo(ctx, config, branch)
	var sources []*gitrepo.Store
	if unread == nil {
		sources = append(sources, store)
	}
	origin, err := OriginOf(p.Store, plumbing.NewHash(p.Commit), sources...)
	if err = cmp.Or(err, unread); err != nil {
		return origin, nil, err
	}
	head, err := store.Resolve(branch)
	if errors.Is(err, gitrepo.ErrNoBranch) {
		return origin, nil, nil
	}
	if err != nil {
		return origin, nil, err
	}
	source := plumbing.NewHash(origin.Source)
	if newer, err := store.IsAncestor(source, head.Commit); err != nil || !newer {
		return origin, nil, err
	}
	changed, err := store.Changed(source, head.Commit)
	if err != nil || !slices.ContainsFunc(changed, isTopology) {
		return origin, nil, err
	}
	newest := authored(store, head.Commit)
	when, err := store.When(newest)
	if err != nil {
		return origin, nil, err
	}
	subject, err := store.Subject(newest)
	return origin, &Unpublished{Branch: branch, Commit: newest.String(), Time: when.UTC().Format(time.RFC3339), Subject: subject}, err
}

// Line returns the publication on one line.
func (o Origin) Line() string {
	return fmt.Sprintf("publication %.12s of commit %.12s, %s: %s", o.Commit, o.Source, ageOf(o.Time), o.Subject)
}

// Line returns the commit and the next step on one line.
func (u Unpublished) Line() string {
	return fmt.Sprintf("commit %.12s of branch %s, %s, is not published: %s; next: hawser bootstrap, unless a reconciler runs, whose log shows refused commits",
		u.Commit, u.Branch, ageOf(u.Time), u.Subject)
}

// ageOf formats the age of a time in RFC 3339.
func ageOf(text string) string {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return text
	}
	return formatAge(time.Since(at))
}

// isTopology reports whether a file of the topology branch can change the published tree.
func isTopology(name string) bool {
	base := path.Base(name)
	return base == reconciler.TopologyFile || base == reconciler.LockFile || slices.Contains(strings.Split(path.Dir(name), "/"), render.PatchesDir)
}

// authored returns the newest commit that is not a lock commit of the reconciler, from commit along
// first parents. In a shallow clone it may return a lock commit.
func authored(store *gitrepo.Store, commit gitrepo.Hash) gitrepo.Hash {
	for {
		kind, err := store.Trailer(commit, reconciler.TrailerKind)
		if err != nil || kind != reconciler.KindLock {
			return commit
		}
		_, _, parent, err := store.Signature(commit)
		if err != nil || parent.IsZero() {
			return commit
		}
		if _, err := store.Author(parent); err != nil {
			return commit
		}
		commit = parent
	}
}

// count sets the number of changes between two trees. A tree without a fabric counts as empty,
// because the first commit of a branch may have no fabric.
func (p *Publication) count(want, have render.Tree) error {
	for _, tree := range []*render.Tree{&want, &have} {
		if _, err := render.FabricOf(*tree); errors.Is(err, render.ErrNoFabric) {
			*tree = render.Tree{}
		}
	}
	computed, err := plan.Compute(want, have)
	if err != nil {
		return err
	}
	p.Summary = computed.Summary
	type change struct {
		op   diff.Op
		kind string
	}
	var order []change
	counts := map[change]int{}
	for _, e := range computed.Entries {
		c := change{e.Op, e.Kind}
		if counts[c]++; counts[c] == 1 {
			order = append(order, c)
		}
	}
	var parts []string
	for _, c := range order {
		parts = append(parts, fmt.Sprintf("%s%s", c.op, humanize.Plural(counts[c], strings.TrimSuffix(c.kind, "s"))))
	}
	if p.Changes = strings.Join(parts, ", "); p.Changes == "" {
		p.Changes = "nothing"
	}
	return nil
}
