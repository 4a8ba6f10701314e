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
	// maxSilence is the default time without a byte from a server that ends a transfer. A
	// transfer with progress may take any time.
	maxSilence = 2 * time.Minute
)

// mirror is the local copy of a remote repository's branches.
type mirror struct {
	auth    Auth
	silence time.Duration
	limit   int64 // bytes of a pack
	at      *transport.Endpoint
	store   *bounded
	remote  *git.Remote
	depth   int
	folder  string                // of a mirror on disk; empty = it is in memory
	refs    []*plumbing.Reference // of the remote repository, as last asked for
	// unusable has the commits that are not fetched again, by branch.
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

func newMirror(cfg Config, at *transport.Endpoint) (*mirror, error) {
	m := &mirror{auth: cfg.Auth, silence: cmp.Or(cfg.Silence, maxSilence), limit: cmp.Or(cfg.MaxFetch, maxFetch), at: at, depth: cfg.Depth, folder: cfg.Cache, unusable: map[string]*UnusableBranch{}}
	var store storage.Storer = memory.NewStorage()
	if cfg.Cache != "" {
		if err := os.MkdirAll(cfg.Cache, 0o700); err != nil {
			return nil, fmt.Errorf("make cache folder: %w", err)
		}
		objects := cache.NewObjectLRU(cacheSize)
		store = &packed{Storage: filesystem.NewStorage(osfs.New(cfg.Cache), objects), objects: filepath.Join(cfg.Cache, "objects")}
		if err := m.removePartial(); err != nil {
			return nil, err
		}
	}
	if _, err := git.Init(store, nil); err != nil && !errors.Is(err, git.ErrRepositoryAlreadyExists) {
		return nil, fmt.Errorf("make mirror in %q: %w", cfg.Cache, err)
	}
	m.store = &bounded{Storer: store}
	m.remote = git.NewRemote(m.store, &config.RemoteConfig{Name: remoteName, URLs: []string{cfg.URL}})
	return m, nil
}

// removePartial removes packs that a broken transfer left in the mirror's folder, which has
// no other user.
func (m *mirror) removePartial() error {
	if m.folder == "" {
		return nil
	}
	left, err := filepath.Glob(filepath.Join(m.folder, "objects", "pack", "tmp_*"))
	for _, file := range left {
		err = errors.Join(err, os.Remove(file))
	}
	if err != nil {
		return fmt.Errorf("remove unfinished packs: %w", err)
	}
	return nil
}

func (m *mirror) objects() storage.Storer { return m.store }

func (m *mirror) ref(branch string) plumbing.ReferenceName {
	return plumbing.NewRemoteReferenceName(remoteName, branch)
}

func (m *mirror) candidates(name string) []plumbing.ReferenceName {
	return []plumbing.ReferenceName{m.ref(name)}
}

func (m *mirror) seen() (storer.ReferenceIter, error) {
	return storer.NewReferenceSliceIter(m.refs), nil
}

func (m *mirror) checkedOut(string) (bool, error) { return false, nil }

func (m *mirror) watch(ctx context.Context, _ func(), _ func(error)) { <-ctx.Done() }

// sync reads the hashes of the branches and fetches new commits. It accepts rewritten branches
// and removes deleted ones.
func (m *mirror) sync(ctx context.Context, branches []string) error {
	return m.exchange(ctx, func(ctx context.Context, auth transport.AuthMethod, heard *listener) error {
		heads, err := m.branchHeads(ctx, auth)
		if err != nil {
			return err
		}
		if err := m.prune(heads); err != nil {
			return err
		}
		var unusable error
		for _, branch := range slices.Compact(slices.Sorted(slices.Values(branches))) {
			want, exists := heads[branch]
			have, err := resolve(m.store, m.ref(branch))
			if err != nil && !errors.Is(err, plumbing.ErrReferenceNotFound) {
				return err
			}
			if !exists || have == want {
				continue
			}
			if bad := m.unusable[branch]; bad == nil || bad.Commit != want {
				m.unusable[branch] = nil
				err = m.fetch(ctx, auth, heard, branch)
				if errors.Is(err, ErrUnusable) {
					m.unusable[branch] = &UnusableBranch{Branch: branch, Commit: want, Err: err}
				}
			}
			if bad := m.unusable[branch]; bad != nil {
				unusable = errors.Join(unusable, bad)
			} else if err != nil {
				return err
			}
		}
		return unusable
	})
}

// fetch fetches one branch, so that the branch is known if the pack is over a bound.
func (m *mirror) fetch(ctx context.Context, auth transport.AuthMethod, heard *listener, branch string) error {
	heard.reset()
	spec := config.RefSpec(fmt.Sprintf("+%s:%s", plumbing.NewBranchReferenceName(branch), m.ref(branch)))
	into := git.NewRemote(&receiver{bounded: m.store, folder: m.folder, limit: m.limit, listener: heard}, m.remote.Config())
	err := into.FetchContext(ctx, &git.FetchOptions{RefSpecs: []config.RefSpec{spec}, Auth: auth, Tags: git.NoTags, Force: true, Depth: m.depth, Progress: heard})
	if errors.Is(err, git.NoErrAlreadyUpToDate) {
		return nil
	}
	if err != nil {
		err = errors.Join(err, m.removePartial())
	}
	return err
}

// prune forgets the branches that the remote repository lacks. The name of one can be in the
// way of a new one, such as team of team/main.
func (m *mirror) prune(heads map[string]Hash) error {
	refs, err := m.store.IterReferences()
	if err != nil {
		return err
	}
	var gone []plumbing.ReferenceName
	err = refs.ForEach(func(ref *plumbing.Reference) error {
		branch, ours := strings.CutPrefix(ref.Name().String(), m.ref("").String())
		if _, exists := heads[branch]; ours && !exists {
			gone = append(gone, ref.Name())
		}
		return nil
	})
	for _, name := range gone {
		err = errors.Join(err, m.store.RemoveReference(name))
	}
	if m.folder != "" && len(gone) > 0 {
		removeEmpty(filepath.Join(m.folder, "refs", "remotes"))
	}
	return err
}

// exchange calls do with the login. It ends the exchange if the server is silent for too
// long, and puts what the server said into the error.
func (m *mirror) exchange(ctx context.Context, do func(context.Context, transport.AuthMethod, *listener) error) error {
	auth, err := m.auth.method(m.at)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	heard := newListener(m.silence, func() { cancel(errSilent{m.silence}) })
	defer heard.stop()
	err = do(ctx, auth, heard)
	if err == nil || errors.Is(err, ErrRefChanged) {
		return err
	}
	if cause := context.Cause(ctx); errors.As(cause, &errSilent{}) {
		err = cause
	}
	text := oneLine(err.Error(), maxMessage) + m.auth.loginHint(m.at, err) + heard.text()
	for _, secret := range m.auth.secrets(m.at, auth) {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	return &exchangeError{text: text, cause: err}
}

// exchangeError is a failed exchange with a server. Its text has no secret.
type exchangeError struct {
	text  string
	cause error
}

func (e *exchangeError) Error() string { return e.text }
func (e *exchangeError) Unwrap() error { return e.cause }

// errSilent ends an exchange.
type errSilent struct{ after time.Duration }

func (e errSilent) Error() string {
	return fmt.Sprintf("the server sent nothing for %s", e.after)
}

func (m *mirror) remotes() ([]Remote, error) { return nil, nil }

func (m *mirror) remoteHead(ctx context.Context, branch string) (hash Hash, err error) {
	err = m.exchange(ctx, func(ctx context.Context, auth transport.AuthMethod, _ *listener) error {
		heads, err := m.branchHeads(ctx, auth)
		hash = heads[branch]
		return err
	})
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

// advance pushes. The server compares the branch with the hash that it advertised. After a
// refusal, advance reads the branch again to learn whether it moved, because the texts of
// servers differ.
func (m *mirror) advance(ctx context.Context, branch string, from, to Hash) error {
	target := plumbing.NewBranchReferenceName(branch)
	spec := fmt.Sprintf("%s:%s", to, target)
	err := m.exchange(ctx, func(ctx context.Context, auth transport.AuthMethod, heard *listener) error {
		opts := &git.PushOptions{RemoteName: remoteName, Auth: auth, Atomic: true, RefSpecs: []config.RefSpec{config.RefSpec(spec)}, Progress: heard}
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
	return m.store.SetReference(plumbing.NewHashReference(m.ref(branch), to))
}
