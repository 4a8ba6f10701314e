package reconciler

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/reconciler/gitrepo"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/allocate"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/load"
	"hawser.dev/hawser/schema/lockfile"
	"hawser.dev/hawser/schema/lockmerge"
	"hawser.dev/hawser/schema/ownership"
)

// ownerCheck finds the owners of the changes of each commit in the history of a topology.
type ownerCheck struct {
	source    *gitrepo.Store
	dir       string       // directory of the topology
	signers   string       // path of the allowed_signers file of the checked commits
	published []byte       // published lock
	tip       gitrepo.Hash // newest commit; its topology has no commit in its name
	// last is the topology of the newest readable commit. A commit with an unreadable topology
	// is skipped: the next readable topology is compared with last.
	last  ownership.Version
	texts map[string][]byte // texts of the topologies by name, for printing findings
}

// newOwnerCheck returns an ownerCheck of the commits after start.
func newOwnerCheck(source *gitrepo.Store, dir, signers string, start gitrepo.Hash, published []byte, tip gitrepo.Hash) (*ownerCheck, error) {
	out := &ownerCheck{source: source, dir: dir, signers: signers, published: published,
		tip: tip, texts: map[string][]byte{}}
	v, list, err := out.version(start)
	if err == nil {
		err = list.Err()
	}
	if err != nil {
		return out, fmt.Errorf("the topology of commit %s, after which owners are checked, cannot be read: %w",
			short(start.String()), err)
	}
	out.last = v
	return out, nil
}

// version reads the topology of a commit. The topology's name in messages is COMMIT:PATH, which git
// accepts. It is PATH if the newest commit has the same content.
func (r *ownerCheck) version(at gitrepo.Hash) (ownership.Version, diag.List, error) {
	raw, err := r.source.File(at, r.path(TopologyFile))
	if err != nil {
		return ownership.Version{}, nil, err
	}
	name := r.path(TopologyFile)
	blob, err := r.source.FileHash(at, name)
	if err != nil {
		return ownership.Version{}, nil, err
	}
	if newest, err := r.source.FileHash(r.tip, name); err != nil || newest != blob {
		name = short(at.String()) + ":" + name
	}
	r.texts[name] = raw
	set, src, list := load.Decode(name, raw)
	return ownership.Version{Set: set, Source: src}, list, nil
}

func (r *ownerCheck) path(name string) string { return path.Join(r.dir, name) }

// next returns the changes of a commit that require an owner, and advances to the commit.
func (r *ownerCheck) next(parent, commit gitrepo.Hash) ([]ownership.Change, error) {
	files, err := r.source.Changed(parent, commit)
	if err != nil {
		return nil, err
	}
	before := r.last
	var out []ownership.Change
	if slices.Contains(files, r.path(TopologyFile)) {
		v, list, err := r.version(commit)
		if err != nil && !errors.Is(err, gitrepo.ErrNoFile) {
			return nil, err
		}
		if err == nil && !list.HasErrors() {
			if found, err := ownership.Diff(before, v); err == nil {
				out, r.last = found, v
			}
		}
	}
	if !before.Set.HasOwners() {
		return nil, nil
	}
	for _, name := range files {
		owners, owned, err := r.fileOwners(before.Set, parent, commit, name)
		if err != nil {
			return nil, err
		}
		if owned {
			out = append(out, ownership.Change{Action: "changes", Item: name, Pos: diag.Pos{File: name}, Owners: owners})
		}
	}
	return out, nil
}

// fileOwners reports whether a change of a file requires an owner. It returns the owners in
// addition to trust.owners. Files that the reconciler does not read require no owner.
func (r *ownerCheck) fileOwners(set *schema.ClusterSet, parent, commit gitrepo.Hash, name string) (
	owners []string, owned bool, err error,
) {
	cluster, _, inside := strings.Cut(strings.TrimPrefix(name, r.path(render.PatchesDir)+"/clusters/"), "/")
	switch {
	case name == r.signers || set.Spec.Trust.Commits != "" && name == r.path(set.Spec.Trust.Commits):
		return nil, true, nil
	case name == r.path(LockFile):
		allocated, err := r.lockIsAllocated(parent, commit)
		return nil, !allocated, err
	case strings.HasPrefix(name, r.path(render.PatchesDir)+"/clusters/") && inside:
		return set.ClusterOwners(cluster), true, nil
	}
	return nil, name == r.path(render.PatchesDir) || strings.HasPrefix(name, r.path(render.PatchesDir)+"/"), nil
}

// lockIsAllocated reports whether the lock of a commit is the output of hawser allocate for the
// lock of its parent. Then the commit neither moves nor removes an address.
func (r *ownerCheck) lockIsAllocated(parent, commit gitrepo.Hash) (bool, error) {
	var locks [2]*lockfile.Lock
	for i, commitHash := range []gitrepo.Hash{parent, commit} {
		raw, err := r.source.File(commitHash, r.path(LockFile))
		if err != nil && !errors.Is(err, gitrepo.ErrNoFile) {
			return false, err
		}
		var list diag.List
		if locks[i], list = lockfile.Read(r.path(LockFile), raw); list.HasErrors() {
			return false, nil
		}
	}
	set, _, list := load.Topology(r.last.Source.File, r.last.Source.Raw)
	if list.HasErrors() {
		return false, nil
	}
	if allocate.IsAppendOnly(locks[1], locks[0], set) {
		return true, nil
	}
	published, list := lockfile.Read("published "+LockFile, r.published)
	if list.HasErrors() {
		return false, nil
	}
	// Ignore the conflicts of the two locks, because hawser allocate resolves them.
	merged, _ := lockmerge.OntoPublished(locks[0], set, published)
	if allocate.IsAppendOnly(locks[1], merged, set) {
		return true, nil
	}
	// A cluster that was never published can be allocated from scratch.
	next, _ := allocate.Allocate(set, merged)
	return allocate.IsAppendOnly(locks[1], merged.WithoutClusters(merged.Resized(set, next, published)), set), nil
}

// mayChange reports whether one of the principals owns a change. everything contains the owners of
// the whole topology.
func mayChange(everything []string, d ownership.Change, principals []string) bool {
	owners := slices.Concat(everything, d.Owners)
	return slices.ContainsFunc(principals, func(name string) bool {
		return slices.ContainsFunc(owners, func(pattern string) bool { return fabric.MatchesPattern(pattern, name) })
	})
}

// signedCommit is a commit with its signer.
type signedCommit struct {
	commit, parent gitrepo.Hash
	signers        []allowedSigner // allowed signers of the parent
	principals     []string        // of the key that signed the commit
}

// checkOwners returns a failure if the signer of a commit does not own one of its changes.
func (r *Reconciler) checkOwners(in inputs, owners *ownerCheck, c signedCommit) *Failure {
	everything := owners.last.Set.Spec.Trust.Owners
	changes, err := owners.next(c.parent, c.commit)
	if err != nil {
		return fail(ReasonFetch, in.source.String(), err)
	}
	refused := slices.DeleteFunc(changes, func(d ownership.Change) bool { return mayChange(everything, d, c.principals) })
	if len(refused) == 0 {
		return nil
	}
	const maxFindings = 20
	var list diag.List
	for _, d := range refused[:min(len(refused), maxFindings)] {
		list = append(list, diag.Diagnostic{Severity: diag.Error, Code: "not-owner", Path: d.Path, Pos: d.Pos,
			Summary: fmt.Sprintf("commit %s, signed by %s, %s %s, which its signer does not own",
				short(c.commit.String()), strings.Join(c.principals, ", "), d.Action, d.Item),
			Hint: c.approverHint(everything, d)})
	}
	if more := len(refused) - maxFindings; more > 0 {
		list = append(list, diag.Diagnostic{Severity: diag.Error, Code: "not-owner",
			Summary: fmt.Sprintf("commit %s makes %d more changes that its signer does not own",
				short(c.commit.String()), more)})
	}
	return failWithFindings(ReasonUntrusted, in.source.String(), list, owners.texts)
}

// approverHint returns a hint with the owners of a change and how they approve it.
func (c signedCommit) approverHint(everything []string, d ownership.Change) string {
	names := map[string]bool{}
	for _, s := range c.signers {
		for _, p := range s.principals {
			if s.signsCommits && mayChange(everything, d, []string{p}) {
				names[p] = true
			}
		}
	}
	if len(names) == 0 {
		return fmt.Sprintf("its owners are %s, and no key of theirs may sign commits (namespaces of its line)",
			strings.Join(slices.Concat(d.Owners, everything), ", "))
	}
	return fmt.Sprintf("its owners are %s: reset the branch to commit %s and have one of them merge the change (git merge --no-ff -S)",
		strings.Join(slices.Sorted(maps.Keys(names)), " and "), short(c.parent.String()))
}

// CheckOwners compares the owners of a topology with its allowed_signers file. Findings about the
// topology have a path and no position. CheckOwners returns an error if the file cannot be parsed.
func CheckOwners(set *schema.ClusterSet, file string, raw []byte) (diag.List, error) {
	signers, err := parseSigners(raw)
	if err != nil || !set.HasOwners() {
		return nil, err
	}
	var list diag.List
	var principals []string
	for _, s := range signers {
		for _, p := range s.principals {
			if strings.ContainsAny(p, "*?!") {
				line, _, _ := bytes.Cut(slices.Collect(bytes.Lines(raw))[s.line-1], []byte(" "))
				list = append(list, diag.Diagnostic{Severity: diag.Error, Code: "bad-principal",
					Pos:     diag.Pos{File: file, Line: s.line, Column: 1, Width: len(line)},
					Summary: fmt.Sprintf("the principal %q is a pattern, so the owner of the key is unknown", p),
					Hint:    "list the names of the holders of the key, separated by commas; only owners may be patterns"})
			}
			principals = append(principals, p)
		}
	}
	check := func(path string, patterns []string) (known bool) {
		for i, pattern := range patterns {
			if slices.ContainsFunc(principals, func(p string) bool { return fabric.MatchesPattern(pattern, p) }) {
				known = true
				continue
			}
			list = append(list, diag.Diagnostic{Severity: diag.Warning, Code: "unknown-owner",
				Path: fmt.Sprintf("%s[%d]", path, i), Summary: fmt.Sprintf("%s is no principal of %s", pattern, file),
				Hint: "owners are what the lines of that file begin with"})
		}
		return known
	}
	if !check("trust.owners", set.Spec.Trust.Owners) {
		list = append(list, diag.Diagnostic{Severity: diag.Error, Code: "no-owner", Path: "trust.owners",
			Summary: "no key of " + file + " owns everything: no commit could change such fields",
			Hint:    "owners are what the lines of that file begin with"})
	}
	for i, n := range set.Spec.Trust.Namespaces {
		check(fmt.Sprintf("trust.namespaces[%d].owners", i), n.Owners)
	}
	for _, c := range set.Spec.Clusters {
		check("clusters["+c.Name+"].owners", c.Owners)
	}
	return list, nil
}
