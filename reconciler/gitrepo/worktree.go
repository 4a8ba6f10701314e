package gitrepo

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/index"

	"hawser.dev/hawser/internal/checkout"
)

// WorkTree is a work tree of a repository.
type WorkTree struct {
	Top    string // directory
	Branch string // of HEAD; empty = HEAD is detached
	Head   Hash   // zero = nothing is committed yet
}

// WorkTree returns the work tree that contains the repository's path. It returns false for a bare
// or remote repository. Call Fetch first.
func (s *Store) WorkTree() (WorkTree, bool, error) {
	l, isLocal := s.backend.(*local)
	if !isLocal || l.dirs.work == "" {
		return WorkTree{}, false, nil
	}
	raw, err := os.ReadFile(filepath.Join(l.dirs.git, "HEAD"))
	if err != nil {
		return WorkTree{}, false, fmt.Errorf("read HEAD of %s: %w", s.name, err)
	}
	head, w := strings.TrimSpace(string(raw)), WorkTree{Top: l.dirs.work}
	ref, isSymbolic := strings.CutPrefix(head, "ref: ")
	if !isSymbolic {
		w.Head = plumbing.NewHash(head)
		return w, true, nil
	}
	w.Branch = plumbing.ReferenceName(ref).Short()
	w.Head, err = resolveRef(l.store, plumbing.ReferenceName(ref))
	if err != nil && !errors.Is(err, plumbing.ErrReferenceNotFound) {
		return w, true, fmt.Errorf("read HEAD of %s: %w", s.name, err)
	}
	return w, true, nil
}

// Uncommitted returns the paths of the files whose text in the work tree differs from a commit. It
// ignores line ends (checkout.Text) and files outside of a sparse checkout.
func (s *Store) Uncommitted(w WorkTree, commit Hash, files ...string) ([]string, error) {
	var out []string
	for _, name := range files {
		content, err := checkout.ReadFile(filepath.Join(w.Top, filepath.FromSlash(name)))
		missing := errors.Is(err, fs.ErrNotExist)
		if err != nil && !missing {
			return nil, fmt.Errorf("read work tree: %w", err)
		}
		var committed []byte
		absent := commit.IsZero()
		if !absent {
			committed, err = s.File(commit, name)
			if absent = errors.Is(err, ErrNoFile); err != nil && !absent {
				return nil, err
			}
		}
		if missing && !absent {
			sparse, err := s.isSkipWorktree(name)
			if err != nil {
				return nil, err
			}
			missing, content = !sparse, committed
		}
		if missing != absent || !bytes.Equal(checkout.Text(content), checkout.Text(committed)) {
			out = append(out, name)
		}
	}
	return out, nil
}

// isSkipWorktree reports whether a file is outside of a sparse checkout (git-read-tree(1),
// skip-worktree bit).
func (s *Store) isSkipWorktree(name string) (bool, error) {
	gitIndex, err := s.objects().Index()
	if err != nil {
		return false, fmt.Errorf("read the index of %s: %w (git sparse-checkout reapply --no-sparse-index "+
			"and git update-index --no-split-index write a plain one)", s.name, err)
	}
	entry, err := gitIndex.Entry(name)
	if errors.Is(err, index.ErrEntryNotFound) {
		return false, nil
	}
	return err == nil && entry.SkipWorktree, err
}

// Remote reports whether the repository is on another machine.
func (s *Store) Remote() bool {
	_, isLocal := s.backend.(*local)
	return !isLocal
}
