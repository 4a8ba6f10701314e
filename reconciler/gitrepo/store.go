// Package gitrepo reads and writes the branches of a git repository through go-git. For a local
// repository it uses the object store directly. For a remote one it uses a mirror. It never changes
// a work tree or an index.
package gitrepo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/storage"
)

// Errors for errors.Is.
var (
	// ErrNoBranch: the repository does not have the branch. An empty repository has no branch.
	ErrNoBranch = errors.New("no such branch")
	// ErrNoRepository: neither the directory nor one above it is a git repository.
	ErrNoRepository = errors.New("not in a git repository")
	// ErrNoFile: the commit does not have the file.
	ErrNoFile = errors.New("no such file")
	// ErrNoCommit: the repository does not have the commit.
	ErrNoCommit = errors.New("no such commit")
	// ErrUnusable: the commit exceeds a limit or has an entry that Hawser does not follow. A
	// retry fails in the same way.
	ErrUnusable = errors.New("the commit cannot be used")
	// ErrRefChanged: the branch no longer points to the commit that the caller read.
	ErrRefChanged = errors.New("branch moved meanwhile")
)

// Hash names a git object.
type Hash = plumbing.Hash

// Config configures the access to a repository.
type Config struct {
	// URL is a path, or any URL that git understands (https, ssh, git, file, user@host:path).
	URL string
	// ExplicitURL means that a user named URL as the repository (--repo). Then URL can be a bare
	// repository. Otherwise URL is a directory with files, and its repository has a work tree.
	ExplicitURL bool
	Auth        Auth
	// Cache is the directory of the mirror of a remote repository. Empty = the mirror is in
	// memory.
	Cache string
	// Depth is the number of commits to fetch of a remote branch; 0 = all.
	Depth int
	// IdleTimeout is the maximum time without a byte from the server. After it a transfer fails. 0
	// = two minutes.
	IdleTimeout time.Duration
	// MaxFetch is the maximum number of bytes of one fetch; 0 = 4 GiB.
	MaxFetch int64
}

// Store is one repository. Its methods are not safe for concurrent use, except Watch.
type Store struct {
	name string // for messages, without credentials
	backend
}

// backend is the part of a Store that differs between local and remote repositories.
type backend interface {
	// sync makes the named branches of the repository readable.
	sync(ctx context.Context, branches []string) error
	// objects returns the storage as of the last sync.
	objects() storage.Storer
	// branchRef returns the local ref of a branch of the repository.
	branchRef(branch string) plumbing.ReferenceName
	// listRefs returns the refs as of the last sync.
	listRefs() (storer.ReferenceIter, error)
	// remotes returns the remotes of a clone.
	remotes() ([]Remote, error)
	// remoteHead returns the current commit of a branch of the repository; zero if absent. It
	// fetches nothing.
	remoteHead(ctx context.Context, branch string) (Hash, error)
	// candidateRefs returns the refs to which name can resolve, in order of precedence.
	candidateRefs(name string) []plumbing.ReferenceName
	// advance moves a branch. It returns ErrRefChanged if the branch is not at from. A server
	// can require that to descends from from.
	advance(ctx context.Context, branch string, from, to Hash) error
	// checkedOut reports whether a work tree is on the branch.
	checkedOut(branch string) (bool, error)
	watch(ctx context.Context, changed func(), onPolling func(error))
}

// Open returns a repository. It creates the cache directory and does no other I/O. The first Fetch
// contacts the repository.
func Open(cfg Config) (*Store, error) {
	ep, err := transport.NewEndpoint(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("read repository address %s: %w", Redact(cfg.URL), err)
	}
	s := &Store{name: Redact(cfg.URL)}
	if ep.Protocol == "file" {
		s.backend = &local{path: strings.TrimPrefix(cfg.URL, "file://"), allowBare: cfg.ExplicitURL}
		return s, nil
	}
	s.backend, err = newMirror(cfg, ep)
	return s, err
}

// ParseBranch returns the short name of a branch name from a user (main, refs/heads/main). It
// returns an error if the name is invalid.
func ParseBranch(text string) (string, error) {
	short := strings.TrimPrefix(text, "refs/heads/")
	if err := plumbing.NewBranchReferenceName(short).Validate(); err != nil || short == "" {
		return "", fmt.Errorf("%q is not a branch name", text)
	}
	return short, nil
}

// SameRepository reports whether two addresses are equal or are paths into one git directory. It
// contacts no server.
func SameRepository(a, b string) bool {
	if a == b {
		return true
	}
	var dirs [2]string
	for i, address := range []string{a, b} {
		ep, err := transport.NewEndpoint(address)
		if err != nil || ep.Protocol != "file" {
			return false
		}
		found, err := locate(strings.TrimPrefix(address, "file://"), true)
		if err != nil {
			return false
		}
		if dirs[i], err = filepath.EvalSymlinks(found.common); err != nil {
			return false
		}
	}
	return dirs[0] == dirs[1]
}

// Redact removes the password from a repository address.
func Redact(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.User == nil {
		return address
	}
	return u.Redacted()
}

// Name returns the repository's address without credentials.
func (s *Store) Name() string { return s.name }

// Fetch reads the current commits of the named branches. It returns no error for a missing branch;
// Head then returns ErrNoBranch.
func (s *Store) Fetch(ctx context.Context, branches ...string) error {
	if err := s.sync(ctx, branches); err != nil {
		return fmt.Errorf("read repository %s: %w", s.name, err)
	}
	return nil
}

// Head returns the commit of a branch as of the last Fetch, or ErrNoBranch.
func (s *Store) Head(branch string) (Hash, error) {
	if s.objects() == nil {
		return Hash{}, fmt.Errorf("branch %s of %s: %w", branch, s.name, ErrNoBranch)
	}
	ref, err := resolveRef(s.objects(), s.branchRef(branch))
	if errors.Is(err, plumbing.ErrReferenceNotFound) {
		existing := s.existingBranches(branch)
		return Hash{}, fmt.Errorf("branch %s of %s: %w%s", branch, s.name, ErrNoBranch, existing)
	}
	if err != nil {
		return Hash{}, fmt.Errorf("branch %s of %s: %w", branch, s.name, err)
	}
	return ref, nil
}

// Resolved is the commit of a resolved name.
type Resolved struct {
	Commit Hash
	// Ref is the full name of the ref, such as refs/heads/rendered; empty for a hash.
	Ref string
}

// Resolve returns the commit of a name. A name is a branch, a tag, or at least seven digits of a
// commit hash. In a clone it can also be a branch of the remote (origin/rendered, or rendered
// alone). Resolve returns ErrNoBranch if the name matches nothing.
func (s *Store) Resolve(name string) (Resolved, error) {
	if s.objects() != nil {
		for _, ref := range append(s.candidateRefs(name), plumbing.NewTagReferenceName(name)) {
			hash, err := resolveRef(s.objects(), ref)
			if errors.Is(err, plumbing.ErrReferenceNotFound) {
				continue
			}
			if err == nil {
				hash, err = s.peelTag(hash)
			}
			return Resolved{Commit: hash, Ref: ref.String()}, err
		}
		if hashPattern.MatchString(name) {
			if hash, err := s.resolveHash(name); err == nil {
				return Resolved{Commit: hash}, nil
			}
		}
	}
	return Resolved{}, fmt.Errorf("branch %s of %s: %w", name, s.name, ErrNoBranch)
}

// hashPattern matches a commit hash or a prefix of one.
var hashPattern = regexp.MustCompile(`^[0-9a-f]{7,40}$`)

func (s *Store) resolveHash(text string) (Hash, error) {
	if len(text) == len(Hash{})*2 {
		hash, err := s.peelTag(plumbing.NewHash(text))
		if err == nil {
			_, err = s.commit(hash)
		}
		return hash, err
	}
	b, ok := s.objects().(*boundedStorage)
	if !ok {
		return Hash{}, ErrNoCommit
	}
	found, err := b.commitsWithPrefix(text)
	if err != nil {
		return Hash{}, err
	}
	if len(found) != 1 {
		return Hash{}, fmt.Errorf("%w: %d commits begin with %s", ErrNoCommit, len(found), text)
	}
	return found[0], nil
}

// peelTag returns the commit of an annotated tag. It returns any other hash unchanged.
func (s *Store) peelTag(hash Hash) (Hash, error) {
	tag, err := object.GetTag(s.objects(), hash)
	if errors.Is(err, plumbing.ErrObjectNotFound) {
		return hash, nil
	}
	if err != nil {
		return Hash{}, fmt.Errorf("read tag %s of %s: %w", hash, s.name, err)
	}
	commit, err := tag.Commit()
	if err != nil {
		return Hash{}, fmt.Errorf("read tag %s of %s: %w", hash, s.name, err)
	}
	return commit.Hash, nil
}

// Remote is a configured remote of a clone.
type Remote struct{ Name, URL string }

// Names returns the branches as of the last Fetch and the remote-tracking branches of a clone
// (origin/main), sorted.
func (s *Store) Names() ([]string, error) {
	refs, err := s.listRefs()
	var names []string
	if err == nil {
		err = refs.ForEach(func(ref *plumbing.Reference) error {
			if name := ref.Name(); name.IsBranch() || name.IsRemote() && ref.Type() == plumbing.HashReference {
				names = append(names, name.Short())
			}
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("list branches of %s: %w", s.name, err)
	}
	slices.Sort(names)
	return names, nil
}

// Remotes returns the remotes of a clone, origin first. A repository on another machine has none.
func (s *Store) Remotes() ([]Remote, error) {
	remotes, err := s.remotes()
	if err != nil {
		return nil, fmt.Errorf("list remotes of %s: %w", s.name, err)
	}
	rank := func(r Remote) int {
		if r.Name == remoteName {
			return 0
		}
		return 1
	}
	slices.SortFunc(remotes, func(a, b Remote) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Name, b.Name)) })
	return remotes, nil
}

// RemoteHead returns the current commit of a branch of the repository; zero if absent. It fetches
// nothing.
func (s *Store) RemoteHead(ctx context.Context, branch string) (Hash, error) {
	hash, err := s.remoteHead(ctx, branch)
	if err != nil {
		return Hash{}, fmt.Errorf("ask repository %s: %w", s.name, err)
	}
	return hash, nil
}

// FastForward moves a branch from one commit to another, or creates it if from is the zero
// hash. If the branch is at another commit, it returns ErrRefChanged and moves nothing.
func (s *Store) FastForward(ctx context.Context, branch string, from, to Hash) error {
	if err := s.advance(ctx, branch, from, to); err != nil {
		return fmt.Errorf("move branch %s of %s to %s: %w", branch, s.name, to, err)
	}
	return nil
}

// CheckNew returns an error if the name of a new branch conflicts with an existing branch. For
// example, rendered conflicts with rendered/a.
func (s *Store) CheckNew(branch string) error {
	refs, err := s.listRefs()
	if err != nil {
		return fmt.Errorf("list branches of %s: %w", s.name, err)
	}
	return refs.ForEach(func(ref *plumbing.Reference) error {
		if existing := ref.Name().Short(); ref.Name().IsBranch() && (strings.HasPrefix(existing, branch+"/") || strings.HasPrefix(branch, existing+"/")) {
			return fmt.Errorf("%s cannot hold branch %s, because it has branch %s: name another branch, or delete %[3]s (git branch -D %[3]s)",
				s.name, branch, existing)
		}
		return nil
	})
}

// CheckedOut reports whether a work tree on this machine is on the branch. If the branch moved,
// git would show changes in that work tree.
func (s *Store) CheckedOut(branch string) (bool, error) { return s.checkedOut(branch) }

// Watch calls changed whenever a branch may have moved, until ctx is done. For a remote repository
// it only waits for ctx. If the kernel cannot watch the files, Watch calls onPolling with the
// reason and polls the files once a second.
func (s *Store) Watch(ctx context.Context, changed func(), onPolling func(error)) {
	s.watch(ctx, changed, onPolling)
}

// maxListedBranches is the maximum number of branches in a message.
const maxListedBranches = 8

// existingBranches returns the suffix of an error about a missing branch. It lists the existing
// branches, and is empty if there are none.
func (s *Store) existingBranches(branch string) string {
	refs, err := s.listRefs()
	if err != nil {
		return ""
	}
	var branches []string
	tag := false
	_ = refs.ForEach(func(ref *plumbing.Reference) error {
		if ref.Name().IsBranch() {
			branches = append(branches, ref.Name().Short())
		}
		tag = tag || ref.Name() == plumbing.NewTagReferenceName(branch)
		return nil
	})
	slices.Sort(branches)
	more := ""
	if n := len(branches) - maxListedBranches; n > 0 {
		branches, more = branches[:maxListedBranches], fmt.Sprintf(" and %d more", n)
	}
	text := ""
	if tag {
		text = ", but a tag of that name"
	}
	switch len(branches) {
	case 0:
		return text
	case 1:
		return text + " (there is " + branches[0] + ")"
	}
	return text + " (there are " + strings.Join(branches, ", ") + more + ")"
}
