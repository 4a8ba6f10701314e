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

// Bounds for reading one commit.
const (
	maxDepth   = 64      // folders in each other
	maxEntries = 100_000 // files and folders of one call
	maxBytes   = 128 << 20
	maxHistory = 1_000_000 // commits of one call
	maxSubject = 200       // characters
)

// tooLarge returns an ErrUnusable about a bound.
func tooLarge(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUnusable, fmt.Sprintf(format, args...))
}

// commit reads a commit; ErrNoCommit when it is not here.
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

// oneLine returns the beginning of a text that someone else wrote, for logs and terminals:
// at most the given number of characters, without control characters.
func oneLine(text string, most int) string {
	var out strings.Builder
	count := 0
	for _, r := range text {
		if count++; count > most {
			return out.String() + "..."
		}
		if !unicode.IsPrint(r) {
			r = ' '
		}
		out.WriteRune(r)
	}
	return out.String()
}

// Subject returns the first line of a commit's message, at most maxSubject characters of
// it, without control characters.
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

// Trailer returns the value of a trailer (git-interpret-trailers(1)) of a commit's
// message, "" if absent.
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

// IsAncestor reports whether to has from among its ancestors (or is from). A
// commit that the repository no longer holds has no descendants.
func (s *Store) IsAncestor(from, to Hash) (bool, error) {
	if from == to {
		return true, nil
	}
	if _, err := s.commit(from); errors.Is(err, ErrNoCommit) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	seen, next := map[Hash]bool{to: true}, []Hash{to}
	for len(next) > 0 {
		at := next[0]
		next = next[1:]
		c, err := s.commit(at)
		if errors.Is(err, ErrNoCommit) && at != to {
			continue // a shallow clone ends here
		}
		if err != nil {
			return false, err
		}
		for _, parent := range c.ParentHashes {
			if parent == from {
				return true, nil
			}
			if !seen[parent] {
				seen[parent], next = true, append(next, parent)
			}
		}
		if len(seen) > maxHistory {
			return false, tooLarge("commit %s has more than %d ancestors before %s", to, maxHistory, from)
		}
	}
	return false, nil
}

// Signature returns the signed bytes of a commit, the signature (empty if absent) and the
// first parent (zero for a root commit). It returns ErrNoCommit if the commit is not in
// the repository.
func (s *Store) Signature(commit Hash) (raw []byte, signature string, parent Hash, err error) {
	c, err := s.commit(commit)
	if err != nil {
		return nil, "", Hash{}, err
	}
	if raw, err = unsigned(c); err != nil {
		return nil, "", Hash{}, fmt.Errorf("read commit %s of %s: %w", commit, s.name, err)
	}
	if len(c.ParentHashes) > 0 {
		parent = c.ParentHashes[0]
	}
	return raw, c.PGPSignature, parent, nil
}

// Changed returns the paths of the files in which two commits differ, sorted. The zero
// hash means a commit without files.
func (s *Store) Changed(from, to Hash) ([]string, error) {
	w := walk{store: s}
	before, err := s.root(from)
	if err != nil {
		return nil, err
	}
	after, err := s.root(to)
	if err != nil {
		return nil, err
	}
	if err := w.compare("", before, after); err != nil {
		return nil, fmt.Errorf("compare commits %s and %s of %s: %w", from, to, s.name, err)
	}
	slices.Sort(w.changed)
	return w.changed, nil
}

// File returns the content of one file of a commit, at most checkout.MaxFile bytes. A
// missing file is ErrNoFile; a path with a symbolic link or a submodule is ErrUnusable.
func (s *Store) File(commit Hash, name string) ([]byte, error) {
	entry, err := s.lookup(commit, name)
	if err == nil {
		if entry.Mode == filemode.Dir {
			err = fmt.Errorf("%w: it is a folder", ErrNoFile)
		} else if err = s.regular(entry, path.Clean(name)); err == nil {
			raw, readErr := s.blob(entry.Hash, checkout.MaxFile)
			if readErr == nil {
				return raw, nil
			}
			err = readErr
		}
	}
	return nil, fmt.Errorf("read %s in commit %s of %s: %w", name, commit, s.name, err)
}

// FileHash returns the hash of a file's content, without reading the content. It fails as File
// does.
func (s *Store) FileHash(commit Hash, name string) (Hash, error) {
	entry, err := s.lookup(commit, name)
	return entry.Hash, err
}

// Tree returns all files of a commit by path, at most maxBytes, and YAML within
// yamlsize.MaxValues. Symbolic links and submodules are left out. ErrNoCommit means that the
// commit is not here.
func (s *Store) Tree(commit Hash) (map[string][]byte, error) {
	return s.folder(commit, "", walk{store: s, entries: maxEntries, bytes: maxBytes})
}

// Folder returns all files below a folder of a commit, by path below it, within
// the limits of checkout.Patches and yamlsize.MaxValues. A folder that does not exist is empty.
// A symbolic link or a submodule in it, or on the path to it, is ErrUnusable.
func (s *Store) Folder(commit Hash, dir string) (map[string][]byte, error) {
	return s.folder(commit, dir, walk{store: s, entries: checkout.Patches().Entries, bytes: int64(checkout.Patches().Bytes), strict: true})
}

func (s *Store) folder(commit Hash, dir string, w walk) (map[string][]byte, error) {
	w.files = map[string][]byte{}
	entry, err := s.lookup(commit, dir)
	if errors.Is(err, ErrNoFile) {
		return w.files, nil
	}
	if err == nil && entry.Mode != filemode.Dir {
		if err = s.regular(entry, path.Clean(dir)); err == nil {
			return w.files, nil // a file of that name is not a folder
		}
	}
	if err == nil {
		err = w.read(dir, "", entry.Hash, 0)
	}
	for name, raw := range w.files {
		if at, found := yamlsize.Excess(name, raw); found && err == nil && path.Ext(name) == ".yaml" {
			err = tooLarge("%s: %s", at, yamlsize.Summary())
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

// root returns the top folder of a commit; the zero hash for none.
func (s *Store) root(commit Hash) (Hash, error) {
	if commit.IsZero() {
		return Hash{}, nil
	}
	c, err := s.commit(commit)
	if err != nil {
		return Hash{}, err
	}
	return c.TreeHash, nil
}

// lookup finds the entry of a path in a commit. It reads only the folders on the way.
func (s *Store) lookup(commit Hash, name string) (object.TreeEntry, error) {
	root, err := s.root(commit)
	if err != nil {
		return object.TreeEntry{}, err
	}
	at := object.TreeEntry{Mode: filemode.Dir, Hash: root}
	if name = path.Clean("/" + name)[1:]; name == "" {
		return at, nil
	}
	parts := strings.Split(name, "/")
	if len(parts) > maxDepth {
		return at, tooLarge("more than %d folders in each other", maxDepth)
	}
	for i, part := range parts {
		above := strings.Join(parts[:i], "/")
		if at.Mode != filemode.Dir {
			if err := s.regular(at, above); err != nil {
				return at, err
			}
			return at, fmt.Errorf("%w: %s is a file", ErrNoFile, above)
		}
		entries, err := s.entries(at.Hash)
		if err != nil {
			return at, err
		}
		var found bool
		if at, found = entries[part]; !found {
			return at, ErrNoFile
		}
	}
	return at, nil
}

// entries reads one folder. A name that it has twice, or that is no name of a file,
// which git does not write, is ErrUnusable: two readers could see different files.
func (s *Store) entries(tree Hash) (map[string]object.TreeEntry, error) {
	if tree.IsZero() {
		return nil, nil
	}
	t, err := object.GetTree(s.objects(), tree)
	if err != nil {
		return nil, s.missing(tree, err)
	}
	out := make(map[string]object.TreeEntry, len(t.Entries))
	for _, e := range t.Entries {
		if e.Name == "." || e.Name == ".." || strings.EqualFold(e.Name, ".git") || strings.Contains(e.Name, "/") {
			return nil, fmt.Errorf("%w: folder %s has the invalid path %q", ErrUnusable, tree, oneLine(e.Name, maxQuoted))
		}
		if _, twice := out[e.Name]; twice {
			return nil, fmt.Errorf("%w: folder %s has the name %q twice", ErrUnusable, tree, oneLine(e.Name, maxQuoted))
		}
		out[e.Name] = e
	}
	return out, nil
}

// maxQuoted is the most characters that an error quotes of a name from a commit.
const maxQuoted = 40

// regular returns an error unless the entry is a regular file.
func (s *Store) regular(entry object.TreeEntry, name string) error {
	switch {
	case entry.Mode == filemode.Symlink:
		target, err := s.blob(entry.Hash, maxSmall)
		if err != nil {
			return err
		}
		return fmt.Errorf("%w: %w", ErrUnusable, checkout.LinkError(name, string(target)))
	case !entry.Mode.IsFile():
		return fmt.Errorf("%w: %w", ErrUnusable, checkout.SubmoduleError(name))
	}
	return nil
}

// blob reads the content of a file of at most limit bytes.
func (s *Store) blob(hash Hash, limit int64) ([]byte, error) {
	blob, err := object.GetBlob(s.objects(), hash)
	if err != nil {
		return nil, s.missing(hash, err)
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

// missing explains why a file or folder of a commit is not here.
func (s *Store) missing(hash Hash, err error) error {
	if !errors.Is(err, plumbing.ErrObjectNotFound) {
		return err
	}
	if b, ok := s.objects().(*bounded); ok && b.partial() {
		return fmt.Errorf("object %s is missing, as this is a partial clone (git clone --filter): "+
			"git fetch --refetch --no-filter fetches all objects", hash)
	}
	return fmt.Errorf("object %s is missing (git fsck lists what the repository lacks): %w", hash, err)
}

// walk reads or compares folders within bounds.
type walk struct {
	store   *Store
	entries int   // that may still be listed
	bytes   int64 // of files that may still be read
	strict  bool  // refuse links and submodules instead of leaving them out
	files   map[string][]byte
	changed []string
}

// read adds the files below a folder to files. dir and below name it in the commit and in
// files.
func (w *walk) read(dir, below string, tree Hash, depth int) error {
	if depth > maxDepth {
		return tooLarge("more than %d folders in each other", maxDepth)
	}
	entries, err := w.store.entries(tree)
	if err != nil {
		return err
	}
	if w.entries -= len(entries); w.entries < 0 {
		return tooLarge("too many files and folders")
	}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		e, at, in := entries[name], path.Join(dir, name), path.Join(below, name)
		switch {
		case e.Mode == filemode.Dir:
			err = w.read(at, in, e.Hash, depth+1)
		case e.Mode == filemode.Regular || e.Mode == filemode.Executable:
			var raw []byte
			if raw, err = w.store.blob(e.Hash, min(w.bytes, maxObject)); err == nil {
				w.bytes -= int64(len(raw))
				w.files[in] = raw
			}
		case w.strict:
			return w.store.regular(e, at)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", oneLine(name, maxQuoted), err)
		}
	}
	return nil
}

// compare adds the paths of the files in which two folders differ to changed. A zero hash
// is a folder without files.
func (w *walk) compare(dir string, before, after Hash) error {
	if before == after {
		return nil
	}
	if strings.Count(dir, "/") > maxDepth {
		return tooLarge("more than %d folders in each other", maxDepth)
	}
	have, err := w.store.entries(before)
	if err != nil {
		return err
	}
	want, err := w.store.entries(after)
	if err != nil {
		return err
	}
	if w.entries += len(have) + len(want); w.entries > maxEntries {
		return tooLarge("more than %d files and folders differ", maxEntries)
	}
	names := maps.Clone(have)
	if names == nil {
		names = map[string]object.TreeEntry{}
	}
	maps.Copy(names, want)
	for name := range names {
		a, b := have[name], want[name]
		if a.Hash == b.Hash && a.Mode == b.Mode {
			continue
		}
		var folders [2]Hash
		for i, e := range []object.TreeEntry{a, b} {
			if e.Mode == filemode.Dir {
				folders[i] = e.Hash
			}
		}
		at := path.Join(dir, name)
		if (a.Mode != filemode.Dir && !a.Hash.IsZero()) || (b.Mode != filemode.Dir && !b.Hash.IsZero()) {
			w.changed = append(w.changed, at)
		}
		if err := w.compare(at, folders[0], folders[1]); err != nil {
			return err
		}
	}
	return nil
}
