package gitrepo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/storage"
	"github.com/go-git/go-git/v5/storage/filesystem"
	"github.com/go-git/go-git/v5/storage/memory"
)

const (
	remoteName = "origin"
	// defaultIdleTimeout is the default of Config.IdleTimeout. The total time of a transfer is not
	// limited.
	defaultIdleTimeout = 2 * time.Minute
)

// mirror is the local copy of a remote repository's branches.
type mirror struct {
	auth          Auth
	idleTimeout   time.Duration
	maxFetchBytes int64 // bytes of a pack
	endpoint      *transport.Endpoint
	store         *boundedStorage
	remote        *git.Remote
	depth         int
	dir           string                // of a mirror on disk; empty = in memory
	refs          []*plumbing.Reference // of the remote repository, as last listed
	// unusable contains, by branch, the commits that must not be fetched again.
	unusable map[string]*UnusableBranch
}

// UnusableBranch is the error of a branch whose commit cannot be fetched (ErrUnusable).
type UnusableBranch struct {
	Branch string
	Commit Hash
	Err    error
}

func (u *UnusableBranch) Error() string {
	return fmt.Sprintf("fetch commit %s of branch %s: %v", u.Commit, u.Branch, u.Err)
}
func (u *UnusableBranch) Unwrap() error { return u.Err }

func newMirror(cfg Config, endpoint *transport.Endpoint) (*mirror, error) {
	m := &mirror{auth: cfg.Auth, idleTimeout: cmp.Or(cfg.IdleTimeout, defaultIdleTimeout), maxFetchBytes: cmp.Or(cfg.MaxFetch, maxFetch), endpoint: endpoint, depth: cfg.Depth, dir: cfg.Cache, unusable: map[string]*UnusableBranch{}}
	var store storage.Storer = memory.NewStorage()
	if cfg.Cache != "" {
		if err := os.MkdirAll(cfg.Cache, 0o700); err != nil {
			return nil, fmt.Errorf("make cache directory: %w", err)
		}
		objects := cache.NewObjectLRU(cacheSize)
		store = &packedStorage{Storage: filesystem.NewStorage(osfs.New(cfg.Cache), objects), objectsDir: filepath.Join(cfg.Cache, "objects")}
		if err := m.removePartial(); err != nil {
			return nil, err
		}
	}
	if _, err := git.Init(store, nil); err != nil && !errors.Is(err, git.ErrRepositoryAlreadyExists) {
		return nil, fmt.Errorf("make mirror in %q: %w", cfg.Cache, err)
	}
	m.store = &boundedStorage{Storer: store}
	m.remote = git.NewRemote(m.store, &config.RemoteConfig{Name: remoteName, URLs: []string{cfg.URL}})
	return m, nil
}

// removePartial removes the packs of interrupted transfers. This is safe because no other process
// uses the mirror's directory.
func (m *mirror) removePartial() error {
	if m.dir == "" {
		return nil
	}
	partial, err := filepath.Glob(filepath.Join(m.dir, "objects", "pack", "tmp_*"))
	for _, file := range partial {
		err = errors.Join(err, os.Remove(file))
	}
	if err != nil {
		return fmt.Errorf("remove unfinished packs: %w", err)
	}
	return nil
}

func (m *mirror) objects() storage.Storer { return m.store }

func (m *mirror) branchRef(branch string) plumbing.ReferenceName {
	return plumbing.NewRemoteReferenceName(remoteName, branch)
}

func (m *mirror) candidateRefs(name string) []plumbing.ReferenceName {
	return []plumbing.ReferenceName{m.branchRef(name)}
}

func (m *mirror) listRefs() (storer.ReferenceIter, error) {
	return storer.NewReferenceSliceIter(m.refs), nil
}

func (m *mirror) checkedOut(string) (bool, error) { return false, nil }

func (m *mirror) watch(ctx context.Context, _ func(), _ func(error)) { <-ctx.Done() }

// sync reads the hashes of the branches and fetches new commits. It accepts rewritten branches
// and removes deleted ones.
func (m *mirror) sync(ctx context.Context, branches []string) error {
	return m.exchange(ctx, func(ctx context.Context, auth transport.AuthMethod, monitor *transferMonitor) error {
		heads, err := m.branchHeads(ctx, auth)
		if err != nil {
			return err
		}
		if err := m.prune(heads); err != nil {
			return err
		}
		var unusable error
		for _, branch := range slices.Compact(slices.Sorted(slices.Values(branches))) {
			remoteHash, exists := heads[branch]
			localHash, err := resolveRef(m.store, m.branchRef(branch))
			if err != nil && !errors.Is(err, plumbing.ErrReferenceNotFound) {
				return err
			}
			if !exists || localHash == remoteHash {
				continue
			}
			if failed := m.unusable[branch]; failed == nil || failed.Commit != remoteHash {
				m.unusable[branch] = nil
				err = m.fetch(ctx, auth, monitor, branch)
				if errors.Is(err, ErrUnusable) {
					m.unusable[branch] = &UnusableBranch{Branch: branch, Commit: remoteHash, Err: err}
				}
			}
			if failed := m.unusable[branch]; failed != nil {
				unusable = errors.Join(unusable, failed)
			} else if err != nil {
				return err
			}
		}
		return unusable
	})
}

// fetch fetches one branch. The mirror fetches each branch separately to find the branch that
// exceeds a limit.
func (m *mirror) fetch(ctx context.Context, auth transport.AuthMethod, monitor *transferMonitor, branch string) error {
	monitor.reset()
	spec := config.RefSpec(fmt.Sprintf("+%s:%s", plumbing.NewBranchReferenceName(branch), m.branchRef(branch)))
	receivingRemote := git.NewRemote(&receiver{boundedStorage: m.store, dir: m.dir, maxFetchBytes: m.maxFetchBytes, monitor: monitor}, m.remote.Config())
	err := receivingRemote.FetchContext(ctx, &git.FetchOptions{RefSpecs: []config.RefSpec{spec}, Auth: auth, Tags: git.NoTags, Force: true, Depth: m.depth, Progress: monitor})
	if errors.Is(err, git.NoErrAlreadyUpToDate) {
		return nil
	}
	if err != nil {
		err = errors.Join(err, m.removePartial())
	}
	return err
}

// prune removes the refs of branches that the remote repository no longer has. Such a ref can
// conflict with a new branch: for example, team conflicts with team/main.
func (m *mirror) prune(heads map[string]Hash) error {
	refs, err := m.store.IterReferences()
	if err != nil {
		return err
	}
	var deleted []plumbing.ReferenceName
	err = refs.ForEach(func(ref *plumbing.Reference) error {
		branch, isMirrored := strings.CutPrefix(ref.Name().String(), m.branchRef("").String())
		if _, exists := heads[branch]; isMirrored && !exists {
			deleted = append(deleted, ref.Name())
		}
		return nil
	})
	for _, name := range deleted {
		err = errors.Join(err, m.store.RemoveReference(name))
	}
	if m.dir != "" && len(deleted) > 0 {
		removeEmptyDirs(filepath.Join(m.dir, "refs", "remotes"))
	}
	return err
}

// exchange calls do with the credentials. It cancels the context of do if the server sends nothing for
// idleTimeout. The returned error contains the server's messages, without secrets.
func (m *mirror) exchange(ctx context.Context, do func(context.Context, transport.AuthMethod, *transferMonitor) error) error {
	auth, err := m.auth.method(m.endpoint)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	monitor := newTransferMonitor(m.idleTimeout, func() { cancel(idleError{m.idleTimeout}) })
	defer monitor.stop()
	err = do(ctx, auth, monitor)
	if err == nil || errors.Is(err, ErrRefChanged) {
		return err
	}
	if cause := context.Cause(ctx); errors.As(cause, &idleError{}) {
		err = cause
	}
	text := oneLine(err.Error(), maxMessage) + m.auth.hostHint(m.endpoint, err) + monitor.text()
	for _, secret := range m.auth.secrets(m.endpoint, auth) {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	return &exchangeError{text: text, cause: err}
}

// exchangeError is the error of an exchange with a server. Its text contains no secret.
type exchangeError struct {
	text  string
	cause error
}

func (e *exchangeError) Error() string { return e.text }
func (e *exchangeError) Unwrap() error { return e.cause }

// idleError is the error of an exchange in which the server sent nothing for timeout.
type idleError struct{ timeout time.Duration }

func (e idleError) Error() string {
	return fmt.Sprintf("the server sent nothing for %s", e.timeout)
}

func (m *mirror) remotes() ([]Remote, error) { return nil, nil }

func (m *mirror) remoteHead(ctx context.Context, branch string) (hash Hash, err error) {
	list := func(ctx context.Context, auth transport.AuthMethod, _ *transferMonitor) error {
		heads, err := m.branchHeads(ctx, auth)
		hash = heads[branch]
		return err
	}
	err = m.exchange(ctx, list)
	return hash, err
}

func (m *mirror) branchHeads(ctx context.Context, auth transport.AuthMethod) (map[string]Hash, error) {
	refs, err := m.remote.ListContext(ctx, &git.ListOptions{Auth: auth})
	if err != nil && strings.Contains(err.Error(), "object-format=sha256") { // go-git quotes the line that it cannot read
		err = errSHA256
	}
	if err != nil && !errors.Is(err, transport.ErrEmptyRemoteRepository) {
		return nil, err
	}
	m.refs = refs
	heads := map[string]Hash{}
	for _, ref := range refs {
		if ref.Name().IsBranch() && ref.Type() == plumbing.HashReference {
			heads[ref.Name().Short()] = ref.Hash()
		}
	}
	return heads, nil
}

// advance pushes a commit to a branch. The server compares the branch with the hash that it
// advertised. If the server rejects the push, advance lists the branches again to detect a move,
// because the error texts of servers differ.
func (m *mirror) advance(ctx context.Context, branch string, from, to Hash) error {
	target := plumbing.NewBranchReferenceName(branch)
	spec := fmt.Sprintf("%s:%s", to, target)
	err := m.exchange(ctx, func(ctx context.Context, auth transport.AuthMethod, monitor *transferMonitor) error {
		opts := &git.PushOptions{RemoteName: remoteName, Auth: auth, Atomic: true, RefSpecs: []config.RefSpec{config.RefSpec(spec)}, Progress: monitor}
		if !from.IsZero() {
			opts.RequireRemoteRefs = []config.RefSpec{config.RefSpec(fmt.Sprintf("%s:%s", from, target))}
		}
		err := m.remote.PushContext(ctx, opts)
		if err == nil || errors.Is(err, git.NoErrAlreadyUpToDate) {
			return nil
		}
		heads, listErr := m.branchHeads(ctx, auth)
		if listErr == nil && heads[branch] != from {
			return ErrRefChanged
		}
		return err
	})
	if err != nil {
		return err
	}
	return m.store.SetReference(plumbing.NewHashReference(m.branchRef(branch), to))
}
