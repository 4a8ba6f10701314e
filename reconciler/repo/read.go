package repo

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage"
)

// maxFile bounds one file, so that a mistaken commit cannot fill the memory.
const maxFile = 256 << 20

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

// Subject gives the first line of a commit's message.
func (s *Store) Subject(commit Hash) (string, error) {
	c, err := s.commit(commit)
	if err != nil {
		return "", err
	}
	subject, _, _ := strings.Cut(strings.TrimSpace(c.Message), "\n")
	return subject, nil
}

// Author gives the name of who made a commit.
func (s *Store) Author(commit Hash) (string, error) {
	c, err := s.commit(commit)
	if err != nil {
		return "", err
	}
	return c.Author.Name, nil
}

// When gives the time at which a commit was made, as its committer says.
func (s *Store) When(commit Hash) (time.Time, error) {
	c, err := s.commit(commit)
	if err != nil {
		return time.Time{}, err
	}
	return c.Committer.When, nil
}

// Trailer gives the value of a trailer (git-interpret-trailers(1)) of a
// commit's message, or "" when it has none of that name.
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

// Descends reports whether to has from among its ancestors (or is from). A
// commit that the repository no longer holds has no descendants.
func (s *Store) Descends(from, to Hash) (bool, error) {
	if from == to {
		return true, nil
	}
	older, err := s.commit(from)
	if errors.Is(err, ErrNoCommit) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	newer, err := s.commit(to)
	if err != nil {
		return false, err
	}
	found, err := older.IsAncestor(newer)
	if err != nil {
		return false, fmt.Errorf("walk history of %s: %w", s.name, err)
	}
	return found, nil
}

// Signature gives the bytes of a commit that its signature is for, the signature (empty
// without one) and the first parent (zero of the first commit); ErrNoCommit when the
// commit is not here.
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

// Changed gives the files in which two commits differ, by path.
func (s *Store) Changed(from, to Hash) ([]string, error) {
	before, err := s.flat(from)
	if err != nil {
		return nil, err
	}
	after, err := s.flat(to)
	if err != nil {
		return nil, err
	}
	var out []string
	for name, entry := range after {
		if before[name].Hash != entry.Hash || before[name].Mode != entry.Mode {
			out = append(out, name)
		}
		delete(before, name)
	}
	out = slices.AppendSeq(out, maps.Keys(before))
	slices.Sort(out)
	return out, nil
}

// File reads one file of a commit, or gives ErrNoFile.
func (s *Store) File(commit Hash, name string) ([]byte, error) {
	entries, err := s.entries(commit)
	if err != nil {
		return nil, err
	}
	raw, err := readEntry(s.objects(), entries, path.Clean(name))
	if err != nil {
		return nil, fmt.Errorf("read %s in commit %s of %s: %w", name, commit, s.name, err)
	}
	return raw, nil
}

func (s *Store) entries(commit Hash) (*object.Tree, error) {
	c, err := s.commit(commit)
	if err != nil {
		return nil, err
	}
	tree, err := c.Tree()
	if err != nil {
		return nil, fmt.Errorf("read tree of commit %s of %s: %w", commit, s.name, err)
	}
	return tree, nil
}

func readEntry(st storage.Storer, tree *object.Tree, name string) ([]byte, error) {
	entry, err := tree.FindEntry(name)
	if errors.Is(err, object.ErrEntryNotFound) || errors.Is(err, object.ErrDirectoryNotFound) {
		return nil, ErrNoFile
	}
	if err != nil {
		return nil, err
	}
	if !entry.Mode.IsFile() {
		return nil, fmt.Errorf("%w: it is a folder", ErrNoFile)
	}
	return readBlob(st, entry.Hash)
}

// Tree reads all files of a commit by path. Submodules are left out. ErrNoCommit says that
// the commit is not here.
func (s *Store) Tree(commit Hash) (map[string][]byte, error) { return s.Folder(commit, "") }

// Folder reads all files below a folder of a commit, by path below it. A folder
// that does not exist is empty; "" is the top.
func (s *Store) Folder(commit Hash, dir string) (map[string][]byte, error) {
	flat, err := s.flat(commit)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for name, entry := range flat {
		below, inside := name, true
		if dir != "" {
			below, inside = strings.CutPrefix(name, dir+"/")
		}
		if !inside || !entry.Mode.IsFile() {
			continue
		}
		if files[below], err = readBlob(s.objects(), entry.Hash); err != nil {
			return nil, fmt.Errorf("read %s in commit %s of %s: %w", name, commit, s.name, err)
		}
	}
	return files, nil
}

// flat lists every entry of a commit that is not a folder, by path. A path that stands
// there twice, which git stores but does not make, is an error: readers could take either.
func (s *Store) flat(commit Hash) (map[string]object.TreeEntry, error) {
	flat := map[string]object.TreeEntry{}
	if commit.IsZero() {
		return flat, nil
	}
	tree, err := s.entries(commit)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	walker := object.NewTreeWalker(tree, true, nil)
	defer walker.Close()
	for {
		name, entry, err := walker.Next()
		if errors.Is(err, io.EOF) {
			return flat, nil
		}
		if err != nil {
			return nil, fmt.Errorf("walk commit %s of %s: %w", commit, s.name, err)
		}
		if seen[name] {
			return nil, fmt.Errorf("walk commit %s of %s: %s stands there twice", commit, s.name, name)
		}
		if seen[name] = true; entry.Mode != filemode.Dir {
			flat[name] = entry
		}
	}
}

func readBlob(st storage.Storer, hash Hash) ([]byte, error) {
	blob, err := object.GetBlob(st, hash)
	if err != nil {
		return nil, err
	}
	if blob.Size > maxFile {
		return nil, fmt.Errorf("larger than %d bytes", int64(maxFile))
	}
	r, err := blob.Reader()
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(r)
	return raw, errors.Join(err, r.Close())
}
