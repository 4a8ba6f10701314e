package gitrepo

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"

	"hawser.dev/hawser/internal/checkout"
	"hawser.dev/hawser/internal/yamlsize"
)

// Limits for reading one commit.
const (
	maxDepth     = 64      // nested directories
	maxEntries   = 100_000 // files and directories of one call
	maxTreeBytes = 128 << 20
	maxHistory   = 1_000_000 // commits of one call
	maxSubject   = 200       // characters
)

// tooLarge returns an error that wraps ErrUnusable and describes the exceeded limit.
func tooLarge(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUnusable, fmt.Sprintf(format, args...))
}

// commit returns a commit object. It returns ErrNoCommit if the repository lacks the commit.
func (s *Store) commit(hash Hash) (*object.Commit, error) {
	c, err := object.GetCommit(s.objects(), hash)
	if errors.Is(err, plumbing.ErrObjectNotFound) {
		err = ErrNoCommit
	}
	if err != nil {
		return nil, fmt.Errorf("read commit %s of %s: %w", hash, s.name, err)
	}
	return c, nil
}

// oneLine returns the first maxChars characters of an untrusted text, for logs and terminals. It
// replaces control characters by spaces.
func oneLine(text string, maxChars int) string {
	var out strings.Builder
	count := 0
	for _, r := range text {
		if count++; count > maxChars {
			return out.String() + "..."
		}
		if !unicode.IsPrint(r) {
			r = ' '
		}
		out.WriteRune(r)
	}
	return out.String()
}

// Subject returns the first maxSubject characters of the first line of a commit's message, without
// control characters.
func (s *Store) Subject(commit Hash) (string, error) {
	c, err := s.commit(commit)
	if err != nil {
		return "", err
	}
	subject, _, _ := strings.Cut(strings.TrimSpace(c.Message), "\n")
	return oneLine(subject, maxSubject), nil
}

// Author returns the name of a commit's author.
func (s *Store) Author(commit Hash) (string, error) {
	c, err := s.commit(commit)
	if err != nil {
		return "", err
	}
	return c.Author.Name, nil
}

// When returns the committer time of a commit.
func (s *Store) When(commit Hash) (time.Time, error) {
	c, err := s.commit(commit)
	if err != nil {
		return time.Time{}, err
	}
	return c.Committer.When, nil
}

// Trailer returns the value of a trailer (git-interpret-trailers(1)) of a commit's message. It
// returns "" if the trailer is absent.
func (s *Store) Trailer(commit Hash, name string) (string, error) {
	c, err := s.commit(commit)
	if err != nil {
		return "", err
	}
	paragraphs := strings.Split(strings.TrimSpace(c.Message), "\n\n")
	for line := range strings.Lines(paragraphs[len(paragraphs)-1]) {
		if value, ok := strings.CutPrefix(line, name+": "); ok {
			return strings.TrimSpace(value), nil
		}
	}
	return "", nil
}

// IsAncestor reports whether from is an ancestor of to, or the same commit. If the repository lacks
// from, it returns false.
func (s *Store) IsAncestor(from, to Hash) (bool, error) {
	if from == to {
		return true, nil
	}
	if _, err := s.commit(from); errors.Is(err, ErrNoCommit) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	seen, queue := map[Hash]bool{to: true}, []Hash{to}
	for len(queue) > 0 {
		hash := queue[0]
		queue = queue[1:]
		c, err := s.commit(hash)
		if errors.Is(err, ErrNoCommit) && hash != to {
			continue // end of a shallow clone
		}
		if err != nil {
			return false, err
		}
		for _, parent := range c.ParentHashes {
			if parent == from {
				return true, nil
			}
			if !seen[parent] {
				seen[parent], queue = true, append(queue, parent)
			}
		}
		if len(seen) > maxHistory {
			return false, tooLarge("commit %s has more than %d ancestors before %s", to, maxHistory, from)
		}
	}
	return false, nil
}

// Signature returns the signed bytes of a commit, its signature and its first parent. The signature
// is empty if absent. The parent of a root commit is the zero hash. It returns ErrNoCommit if the
// repository lacks the commit.
func (s *Store) Signature(commit Hash) (raw []byte, signature string, parent Hash, err error) {
	c, err := s.commit(commit)
	if err != nil {
		return nil, "", Hash{}, err
	}
	if raw, err = bytesToSign(c); err != nil {
		return nil, "", Hash{}, fmt.Errorf("read commit %s of %s: %w", commit, s.name, err)
	}
	if len(c.ParentHashes) > 0 {
		parent = c.ParentHashes[0]
	}
	return raw, c.PGPSignature, parent, nil
}

// Changed returns the paths of the files in which two commits differ, sorted. The zero hash means a
// commit without files.
func (s *Store) Changed(from, to Hash) ([]string, error) {
	w := treeWalk{store: s}
	before, err := s.rootTree(from)
	if err != nil {
		return nil, err
	}
	after, err := s.rootTree(to)
	if err != nil {
		return nil, err
	}
	if err := w.compare("", before, after); err != nil {
		return nil, fmt.Errorf("compare commits %s and %s of %s: %w", from, to, s.name, err)
	}
	slices.Sort(w.changed)
	return w.changed, nil
}

// File returns the content of one file of a commit, at most checkout.MaxFile bytes. It returns
// ErrNoFile for a missing file, and ErrUnusable for a path with a symbolic link or a submodule.
func (s *Store) File(commit Hash, name string) ([]byte, error) {
	entry, err := s.lookup(commit, name)
	if err == nil {
		if entry.Mode == filemode.Dir {
			err = fmt.Errorf("%w: it is a directory", ErrNoFile)
		} else if err = s.checkRegular(entry, path.Clean(name)); err == nil {
			raw, readErr := s.blob(entry.Hash, checkout.MaxFile)
			if readErr == nil {
				return raw, nil
			}
			err = readErr
		}
	}
	return nil, fmt.Errorf("read %s in commit %s of %s: %w", name, commit, s.name, err)
}

// FileHash returns the hash of a file's content, without reading the content. For a missing file it
// returns the same errors as File.
func (s *Store) FileHash(commit Hash, name string) (Hash, error) {
	entry, err := s.lookup(commit, name)
	return entry.Hash, err
}

// Tree returns all files of a commit by path. It skips symbolic links and submodules. It returns
// ErrUnusable if the files have more than maxTreeBytes, or a YAML file has more than
// yamlsize.MaxValues values. It returns ErrNoCommit if the repository lacks the commit.
func (s *Store) Tree(commit Hash) (map[string][]byte, error) {
	return s.readDir(commit, "", treeWalk{store: s, entryCount: maxEntries, bytesLeft: maxTreeBytes})
}

// DirFiles returns all files below a directory of a commit, by path relative to the directory. The
// limits are checkout.Patches and yamlsize.MaxValues. A missing directory is empty. It returns
// ErrUnusable for a symbolic link or a submodule in the directory or on its path.
func (s *Store) DirFiles(commit Hash, dir string) (map[string][]byte, error) {
	return s.readDir(commit, dir, treeWalk{store: s, entryCount: checkout.Patches().Entries, bytesLeft: int64(checkout.Patches().Bytes), strict: true})
}

func (s *Store) readDir(commit Hash, dir string, w treeWalk) (map[string][]byte, error) {
	w.files = map[string][]byte{}
	entry, err := s.lookup(commit, dir)
	if errors.Is(err, ErrNoFile) {
		return w.files, nil
	}
	if err == nil && entry.Mode != filemode.Dir {
		if err = s.checkRegular(entry, path.Clean(dir)); err == nil {
			return w.files, nil // a file of that name is not a directory
		}
	}
	if err == nil {
		err = w.read(dir, "", entry.Hash, 0)
	}
	for name, raw := range w.files {
		if place, found := yamlsize.Excess(name, raw); found && err == nil && path.Ext(name) == ".yaml" {
			err = tooLarge("%s: %s", place, yamlsize.Summary())
		}
	}
	if err != nil {
		what := "files"
		if dir != "" {
			what = dir
		}
		return nil, fmt.Errorf("read %s in commit %s of %s: %w", what, commit, s.name, err)
	}
	return w.files, nil
}

// rootTree returns the hash of a commit's top tree; the zero hash for the zero commit.
func (s *Store) rootTree(commit Hash) (Hash, error) {
	if commit.IsZero() {
		return Hash{}, nil
	}
	c, err := s.commit(commit)
	if err != nil {
		return Hash{}, err
	}
	return c.TreeHash, nil
}

// lookup returns the tree entry of a path in a commit. It reads only the directories on that path.
func (s *Store) lookup(commit Hash, name string) (object.TreeEntry, error) {
	root, err := s.rootTree(commit)
	if err != nil {
		return object.TreeEntry{}, err
	}
	entry := object.TreeEntry{Mode: filemode.Dir, Hash: root}
	if name = path.Clean("/" + name)[1:]; name == "" {
		return entry, nil
	}
	parts := strings.Split(name, "/")
	if len(parts) > maxDepth {
		return entry, tooLarge("more than %d directories in each other", maxDepth)
	}
	for i, part := range parts {
		parentPath := strings.Join(parts[:i], "/")
		if entry.Mode != filemode.Dir {
			if err := s.checkRegular(entry, parentPath); err != nil {
				return entry, err
			}
			return entry, fmt.Errorf("%w: %s is a file", ErrNoFile, parentPath)
		}
		entries, err := s.readEntries(entry.Hash)
		if err != nil {
			return entry, err
		}
		var found bool
		if entry, found = entries[part]; !found {
			return entry, ErrNoFile
		}
	}
	return entry, nil
}

// readEntries reads one directory. It returns ErrUnusable for a duplicate or invalid file name. git
// does not write such names, and two readers could see different files.
func (s *Store) readEntries(tree Hash) (map[string]object.TreeEntry, error) {
	if tree.IsZero() {
		return nil, nil
	}
	t, err := object.GetTree(s.objects(), tree)
	if err != nil {
		return nil, s.missingError(tree, err)
	}
	out := make(map[string]object.TreeEntry, len(t.Entries))
	for _, e := range t.Entries {
		if e.Name == "." || e.Name == ".." || strings.EqualFold(e.Name, ".git") || strings.Contains(e.Name, "/") {
			return nil, fmt.Errorf("%w: directory %s has the invalid path %q", ErrUnusable, tree, oneLine(e.Name, maxQuotedChars))
		}
		if _, duplicate := out[e.Name]; duplicate {
			return nil, fmt.Errorf("%w: directory %s has the name %q twice", ErrUnusable, tree, oneLine(e.Name, maxQuotedChars))
		}
		out[e.Name] = e
	}
	return out, nil
}

// maxQuotedChars is the maximum number of characters of a file name that an error quotes.
const maxQuotedChars = 40

// checkRegular returns an error unless the entry is a regular file.
func (s *Store) checkRegular(entry object.TreeEntry, name string) error {
	switch {
	case entry.Mode == filemode.Symlink:
		target, err := s.blob(entry.Hash, maxSmallFile)
		if err != nil {
			return err
		}
		return fmt.Errorf("%w: %w", ErrUnusable, checkout.LinkError(name, string(target)))
	case !entry.Mode.IsFile():
		return fmt.Errorf("%w: %w", ErrUnusable, checkout.SubmoduleError(name))
	}
	return nil
}

// blob reads the content of a file. The content has at most limit bytes.
func (s *Store) blob(hash Hash, limit int64) ([]byte, error) {
	blob, err := object.GetBlob(s.objects(), hash)
	if err != nil {
		return nil, s.missingError(hash, err)
	}
	if blob.Size > limit {
		return nil, tooLarge("it has %d bytes: at most %d are read", blob.Size, limit)
	}
	r, err := blob.Reader()
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(r)
	return raw, errors.Join(err, r.Close())
}

// missingError returns the error about a missing object of a commit, with the reason and next step.
func (s *Store) missingError(hash Hash, err error) error {
	if !errors.Is(err, plumbing.ErrObjectNotFound) {
		return err
	}
	if b, ok := s.objects().(*boundedStorage); ok && b.isPartialClone() {
		return fmt.Errorf("object %s is missing, as this is a partial clone (git clone --filter): "+
			"git fetch --refetch --no-filter fetches all objects", hash)
	}
	return fmt.Errorf("object %s is missing (git fsck lists what the repository lacks): %w", hash, err)
}

// treeWalk reads or compares trees within limits.
type treeWalk struct {
	store      *Store
	entryCount int   // read: entries that can still be listed; compare: listed entries
	bytesLeft  int64 // bytes of files that can still be read
	strict     bool  // links and submodules are errors; otherwise they are skipped
	files      map[string][]byte
	changed    []string
}

// read adds the files below a directory to files. dir is its path in the commit, relDir its path in
// files.
func (w *treeWalk) read(dir, relDir string, tree Hash, depth int) error {
	if depth > maxDepth {
		return tooLarge("more than %d directories in each other", maxDepth)
	}
	entries, err := w.store.readEntries(tree)
	if err != nil {
		return err
	}
	if w.entryCount -= len(entries); w.entryCount < 0 {
		return tooLarge("too many files and directories")
	}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		e, fullPath, relPath := entries[name], path.Join(dir, name), path.Join(relDir, name)
		switch {
		case e.Mode == filemode.Dir:
			err = w.read(fullPath, relPath, e.Hash, depth+1)
		case e.Mode == filemode.Regular || e.Mode == filemode.Executable:
			var raw []byte
			if raw, err = w.store.blob(e.Hash, min(w.bytesLeft, maxObject)); err == nil {
				w.bytesLeft -= int64(len(raw))
				w.files[relPath] = raw
			}
		case w.strict:
			return w.store.checkRegular(e, fullPath)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", oneLine(name, maxQuotedChars), err)
		}
	}
	return nil
}

// compare adds to changed the paths of the files in which two directories differ. The zero hash
// means an empty directory.
func (w *treeWalk) compare(dir string, before, after Hash) error {
	if before == after {
		return nil
	}
	if strings.Count(dir, "/") > maxDepth {
		return tooLarge("more than %d directories in each other", maxDepth)
	}
	oldEntries, err := w.store.readEntries(before)
	if err != nil {
		return err
	}
	newEntries, err := w.store.readEntries(after)
	if err != nil {
		return err
	}
	if w.entryCount += len(oldEntries) + len(newEntries); w.entryCount > maxEntries {
		return tooLarge("more than %d files and directories differ", maxEntries)
	}
	names := maps.Clone(oldEntries)
	if names == nil {
		names = map[string]object.TreeEntry{}
	}
	maps.Copy(names, newEntries)
	for name := range names {
		a, b := oldEntries[name], newEntries[name]
		if a.Hash == b.Hash && a.Mode == b.Mode {
			continue
		}
		var subtrees [2]Hash
		for i, e := range []object.TreeEntry{a, b} {
			if e.Mode == filemode.Dir {
				subtrees[i] = e.Hash
			}
		}
		changedPath := path.Join(dir, name)
		if (a.Mode != filemode.Dir && !a.Hash.IsZero()) || (b.Mode != filemode.Dir && !b.Hash.IsZero()) {
			w.changed = append(w.changed, changedPath)
		}
		if err := w.compare(changedPath, subtrees[0], subtrees[1]); err != nil {
			return err
		}
	}
	return nil
}
