package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/storage"
)

const (
	lockTimeout      = 2 * time.Second       // maximum wait for a branch's lock
	lockPollInterval = 10 * time.Millisecond // between two attempts
)

// local is a repository on this machine.
type local struct {
	path      string // from the user: a work tree, a directory in it, or a git directory
	allowBare bool   // as Config.ExplicitURL
	dirs      gitDirs
	store     *boundedStorage
}

// gitDirs are the directories of a repository (gitrepository-layout(5)).
type gitDirs struct {
	git    string // HEAD and index of this work tree
	common string // objects and refs; differs from git in a linked work tree
	work   string // top of the work tree; empty for a bare repository
}

// locate finds the repository that contains path, as git does: it uses the nearest .git in path and
// its parents. path is a bare repository only if a user named it, because anyone can commit the
// files of a bare repository. git does the same with safe.bareRepository=explicit. The path "." is
// never a bare repository inside a work tree, because it is the default of --repo.
func locate(path string, allowBare bool) (gitDirs, error) {
	start, err := filepath.Abs(path)
	if err != nil {
		return gitDirs{}, fmt.Errorf("find the repository of %s: %w", path, err)
	}
	bare := allowBare && isGitDir(start) && filepath.Base(start) != ".git"
	for dir := start; ; dir = filepath.Dir(dir) {
		dot := filepath.Join(dir, ".git")
		git, err := gitDirAt(dot)
		if err != nil {
			return gitDirs{}, err
		}
		if git != "" && (dir == start || !bare || filepath.Clean(path) == ".") {
			if err := checkNotEmbedded(dir); err != nil {
				return gitDirs{}, err
			}
			return resolveCommonDir(gitDirs{git: git, work: dir})
		}
		if dir != filepath.Dir(dir) {
			continue
		}
		if bare {
			return resolveCommonDir(gitDirs{git: start})
		}
		return gitDirs{}, fmt.Errorf("%s: %w (git init makes one)", path, ErrNoRepository)
	}
}

// gitDirAt returns the git directory of dot, a path that ends in .git. dot is that directory or a
// file that contains its path. gitDirAt returns "" if dot is neither. It fails if the file refers
// to a directory inside a work tree, because a commit can contain that directory.
func gitDirAt(dot string) (string, error) {
	if isGitDir(dot) {
		return dot, nil
	}
	raw, err := readSmallFile(dot)
	if err != nil {
		return "", nil
	}
	target, ok := strings.CutPrefix(strings.TrimSpace(string(raw)), "gitdir: ")
	if !ok {
		return "", nil
	}
	target, err = filepath.EvalSymlinks(absolutePath(filepath.Dir(dot), target))
	if err != nil {
		return "", fmt.Errorf("open the repository that %s names: %w", dot, err)
	}
	if !isGitDir(target) {
		if _, err := os.Stat(filepath.Join(target, "commondir")); err != nil {
			return "", fmt.Errorf("%s names %s, which is not a git directory", dot, target)
		}
	}
	for dir := target; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if filepath.Base(dir) == ".git" {
			return target, nil
		}
		if isGitDir(filepath.Join(dir, ".git")) {
			return "", fmt.Errorf("%s names %s, which is inside the work tree %s: commits can contain that directory, so it is not used as a repository "+
				"(name a repository with --repo)", dot, target, dir)
		}
	}
	return target, nil
}

// checkNotEmbedded returns an error if an outer repository has committed the files of the work tree
// dir. git never checks out a .git, and records a repository inside a work tree as a submodule. So
// the .git in dir comes from a build or an archive.
func checkNotEmbedded(dir string) error {
	for top := filepath.Dir(dir); top != filepath.Dir(top); top = filepath.Dir(top) {
		git, err := gitDirAt(filepath.Join(top, ".git"))
		if err != nil || git == "" {
			continue
		}
		dirs, err := resolveCommonDir(gitDirs{git: git, work: top})
		if err != nil {
			return err
		}
		store, err := openStorage(dirs)
		if err != nil {
			return nil // Hawser reads no commit of this repository
		}
		head, err := resolveRef(store, plumbing.HEAD)
		if err != nil {
			return nil
		}
		relPath, err := filepath.Rel(top, dir)
		if err != nil {
			return err
		}
		s := &Store{name: top, backend: &local{dirs: dirs, store: store}}
		entry, err := s.lookup(head, filepath.ToSlash(relPath))
		if err == nil && entry.Mode == filemode.Dir {
			return fmt.Errorf("%s is inside the work tree %s, whose commits contain the files of that directory: remove it, "+
				"or name the repository with --repo", filepath.Join(dir, ".git"), top)
		}
		return nil
	}
	return nil
}

// maxSmallFile is the maximum size of a one-line file in a git directory, in bytes.
const maxSmallFile = 64 << 10

// readSmallFile reads a regular file of at most maxSmallFile bytes.
func readSmallFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxSmallFile {
		return nil, fmt.Errorf("%s: want a regular file of at most %d bytes", path, maxSmallFile)
	}
	return os.ReadFile(path)
}

func isGitDir(dir string) bool {
	for _, name := range []string{"HEAD", "objects", "refs"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}

func resolveCommonDir(d gitDirs) (gitDirs, error) {
	raw, err := os.ReadFile(filepath.Join(d.git, "commondir"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.common = d.git
	case err != nil:
		return d, fmt.Errorf("open git directory %s: %w", d.git, err)
	default:
		d.common = absolutePath(d.git, strings.TrimSpace(string(raw)))
	}
	return d, nil
}

func absolutePath(base, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(base, path)
}

// sync opens the repository again, to read new packs of other processes.
func (l *local) sync(context.Context, []string) error {
	dirs, err := locate(l.path, l.allowBare)
	if err != nil {
		return err
	}
	store, err := openStorage(dirs)
	if err != nil {
		return err
	}
	l.dirs, l.store = dirs, store
	return nil
}

func (l *local) objects() storage.Storer {
	if l.store == nil {
		return nil
	}
	return l.store
}

func (l *local) branchRef(branch string) plumbing.ReferenceName {
	return plumbing.NewBranchReferenceName(branch)
}

func (l *local) candidateRefs(name string) []plumbing.ReferenceName {
	return []plumbing.ReferenceName{
		l.branchRef(name), plumbing.ReferenceName("refs/remotes/" + name), plumbing.NewRemoteReferenceName(remoteName, name),
	}
}

func (l *local) listRefs() (storer.ReferenceIter, error) { return l.store.IterReferences() }

// remotes returns the repository's remotes. It resolves relative paths against the repository, as
// git does.
func (l *local) remotes() ([]Remote, error) {
	conf, err := l.store.Config()
	if err != nil {
		return nil, err
	}
	var out []Remote
	for name, r := range conf.Remotes {
		if len(r.URLs) == 0 {
			continue
		}
		address := r.URLs[0]
		if ep, err := transport.NewEndpoint(address); err == nil && ep.Protocol == "file" && !strings.HasPrefix(address, "file://") {
			base := l.dirs.work
			if base == "" {
				base = l.dirs.common
			}
			address = absolutePath(base, address)
		}
		out = append(out, Remote{Name: name, URL: address})
	}
	return out, nil
}

func (l *local) remoteHead(ctx context.Context, branch string) (Hash, error) {
	if err := l.sync(ctx, nil); err != nil {
		return Hash{}, err
	}
	hash, err := resolveRef(l.store, l.branchRef(branch))
	if errors.Is(err, plumbing.ErrReferenceNotFound) {
		return Hash{}, nil
	}
	return hash, err
}

// advance uses git's protocol for a loose ref: create <ref>.lock, compare, write, rename. Only one
// process can create the lock. git does not honour the locks of go-git's compare-and-set.
func (l *local) advance(ctx context.Context, branch string, from, to Hash) error {
	path := filepath.Join(l.dirs.common, filepath.FromSlash(l.branchRef(branch).String()))
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	lock, err := acquireLock(ctx, path+".lock")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(lock.Name()) }() // fails after the rename
	err = l.checkRef(branch, from)
	if err == nil {
		_, err = fmt.Fprintln(lock, to)
	}
	if err := errors.Join(err, lock.Close()); err != nil {
		return err
	}
	removeEmptyDirs(path) // git leaves the directory of a deleted branch
	return os.Rename(lock.Name(), path)
}

// removeEmptyDirs removes the directory at path and the directories below it if they contain no
// files.
func removeEmptyDirs(path string) {
	if info, err := os.Lstat(path); err != nil || !info.IsDir() {
		return
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.IsDir() {
			removeEmptyDirs(filepath.Join(path, e.Name()))
		}
	}
	_ = os.Remove(path) // fails if it has a file
}

func (l *local) checkRef(branch string, from Hash) error {
	current, err := resolveRef(l.store, l.branchRef(branch))
	if err != nil && !errors.Is(err, plumbing.ErrReferenceNotFound) {
		return err
	}
	if current != from {
		return ErrRefChanged
	}
	return nil
}

func acquireLock(ctx context.Context, path string) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	tick := time.NewTicker(lockPollInterval)
	defer tick.Stop()
	for {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("another git process holds %s (remove it if none runs): %w", path, err)
		case <-tick.C:
		}
	}
}

// checkedOut compares the branch with HEAD of the main work tree and of all linked work trees.
func (l *local) checkedOut(branch string) (bool, error) {
	conf, err := l.store.Config()
	if err != nil {
		return false, fmt.Errorf("read config of %s: %w", l.path, err)
	}
	heads, err := filepath.Glob(filepath.Join(l.dirs.common, "worktrees", "*", "HEAD"))
	if err != nil {
		return false, fmt.Errorf("list work trees of %s: %w", l.path, err)
	}
	if !conf.Core.IsBare {
		heads = append(heads, filepath.Join(l.dirs.common, "HEAD"))
	}
	for _, head := range heads {
		raw, err := os.ReadFile(head)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, fmt.Errorf("read %s: %w", head, err)
		}
		if strings.TrimSpace(string(raw)) == "ref: "+l.branchRef(branch).String() {
			return true, nil
		}
	}
	return false, nil
}

// resolveRef returns the hash of a ref. It follows symbolic refs.
func resolveRef(st storage.Storer, name plumbing.ReferenceName) (Hash, error) {
	ref, err := storer.ResolveReference(st, name)
	if err != nil {
		return Hash{}, err
	}
	return ref.Hash(), nil
}
