package repo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
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
	remoteName    = "origin"
	remoteTimeout = 2 * time.Minute // for one exchange with a remote repository
)

// mirror is the local copy of a remote repository's branches.
type mirror struct {
	auth     Auth
	protocol string
	user     string
	store    storage.Storer
	remote   *git.Remote
	depth    int
	refs     []*plumbing.Reference // of the remote repository, as last asked for
}

func newMirror(cfg Config, protocol, user string) (*mirror, error) {
	var store storage.Storer = memory.NewStorage()
	if cfg.Cache != "" {
		if err := os.MkdirAll(cfg.Cache, 0o700); err != nil {
			return nil, fmt.Errorf("make cache folder: %w", err)
		}
		store = filesystem.NewStorage(osfs.New(cfg.Cache), cache.NewObjectLRUDefault())
	}
	if _, err := git.Init(store, nil); err != nil && !errors.Is(err, git.ErrRepositoryAlreadyExists) {
		return nil, fmt.Errorf("make mirror in %q: %w", cfg.Cache, err)
	}
	remote := git.NewRemote(store, &config.RemoteConfig{Name: remoteName, URLs: []string{cfg.URL}})
	return &mirror{auth: cfg.Auth, protocol: protocol, user: user, store: store, remote: remote, depth: cfg.Depth}, nil
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

// sync asks for the branches' hashes and fetches those that are new here. A
// rewritten branch is followed; one that is gone is forgotten.
func (m *mirror) sync(ctx context.Context, branches []string) error {
	ctx, cancel := context.WithTimeout(ctx, remoteTimeout)
	defer cancel()
	auth, err := m.auth.method(m.protocol, m.user)
	if err != nil {
		return err
	}
	heads, err := m.heads(ctx, auth)
	if err != nil {
		return err
	}
	var specs []config.RefSpec
	for _, branch := range slices.Compact(slices.Sorted(slices.Values(branches))) {
		want, exists := heads[branch]
		have, err := resolve(m.store, m.ref(branch))
		if err != nil && !errors.Is(err, plumbing.ErrReferenceNotFound) {
			return err
		}
		switch {
		case !exists:
			if err := m.store.RemoveReference(m.ref(branch)); err != nil {
				return err
			}
		case have != want:
			from := plumbing.NewBranchReferenceName(branch)
			specs = append(specs, config.RefSpec(fmt.Sprintf("+%s:%s", from, m.ref(branch))))
		}
	}
	if len(specs) == 0 {
		return nil
	}
	err = m.remote.FetchContext(ctx, &git.FetchOptions{RefSpecs: specs, Auth: auth, Tags: git.NoTags, Force: true, Depth: m.depth})
	if errors.Is(err, git.NoErrAlreadyUpToDate) {
		return nil
	}
	return err
}

func (m *mirror) remotes() ([]Remote, error) { return nil, nil }

func (m *mirror) ask(ctx context.Context, branch string) (Hash, error) {
	auth, err := m.auth.method(m.protocol, m.user)
	if err != nil {
		return Hash{}, err
	}
	heads, err := m.heads(ctx, auth)
	return heads[branch], err
}

func (m *mirror) heads(ctx context.Context, auth transport.AuthMethod) (map[string]Hash, error) {
	refs, err := m.remote.ListContext(ctx, &git.ListOptions{Auth: auth})
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

// advance pushes. The server compares the branch with what it advertised; that
// this was from is checked by asking again when the push was refused, as the
// texts of servers differ.
func (m *mirror) advance(ctx context.Context, branch string, from, to Hash) error {
	ctx, cancel := context.WithTimeout(ctx, remoteTimeout)
	defer cancel()
	auth, err := m.auth.method(m.protocol, m.user)
	if err != nil {
		return err
	}
	target := plumbing.NewBranchReferenceName(branch)
	spec := fmt.Sprintf("%s:%s", to, target)
	opts := &git.PushOptions{RemoteName: remoteName, Auth: auth, Atomic: true, RefSpecs: []config.RefSpec{config.RefSpec(spec)}}
	if !from.IsZero() {
		opts.RequireRemoteRefs = []config.RefSpec{config.RefSpec(fmt.Sprintf("%s:%s", from, target))}
	}
	err = m.remote.PushContext(ctx, opts)
	if err != nil && !errors.Is(err, git.NoErrAlreadyUpToDate) {
		heads, listErr := m.heads(ctx, auth)
		if listErr == nil && heads[branch] != from {
			return ErrMoved
		}
		return err
	}
	return m.store.SetReference(plumbing.NewHashReference(m.ref(branch), to))
}
