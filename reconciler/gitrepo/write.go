package gitrepo

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// Commit is a commit to be made.
type Commit struct {
	// Parent is the commit to build on; zero makes a first commit.
	Parent Hash
	// Files are the contents by path. Without KeepFiles the commit holds these files alone, with
	// mode 0644: nothing else that Parent has gets a signature. With KeepFiles everything else
	// of Parent stays, and so do the modes of Files.
	Files     map[string][]byte
	KeepFiles bool
	// Name and Email are author and committer, When the time of both.
	Name, Email string
	When        time.Time
	Message     string
	// SignTrailer returns a line to append to Message, for the commit's bytes without that
	// line; nil appends nothing. It is called before Sign.
	SignTrailer func(raw []byte) (string, error)
	// Sign returns the signature of a commit's bytes for git's header gpgsig; nil does not
	// sign.
	Sign func(raw []byte) (string, error)
}

// Write stores a commit with its trees and blobs, and returns its hash. It moves no
// branch: Advance does.
func (s *Store) Write(c Commit) (Hash, error) {
	hash, err := s.write(c)
	if err != nil {
		return Hash{}, fmt.Errorf("write commit to %s: %w", s.name, err)
	}
	return hash, nil
}

func (s *Store) write(c Commit) (Hash, error) {
	var base Hash
	if c.KeepFiles {
		var err error
		if base, err = s.root(c.Parent); err != nil {
			return Hash{}, err
		}
	}
	root, err := s.putTree(base, c.Files)
	if err != nil {
		return Hash{}, err
	}
	who := object.Signature{Name: c.Name, Email: c.Email, When: c.When}
	commit := &object.Commit{Author: who, Committer: who, Message: c.Message, TreeHash: root}
	if !c.Parent.IsZero() {
		commit.ParentHashes = []Hash{c.Parent}
	}
	if c.SignTrailer != nil {
		raw, err := unsigned(commit)
		if err != nil {
			return Hash{}, err
		}
		line, err := c.SignTrailer(raw)
		if err != nil {
			return Hash{}, err
		}
		commit.Message += line + "\n"
	}
	if c.Sign != nil {
		raw, err := unsigned(commit)
		if err != nil {
			return Hash{}, err
		}
		if commit.PGPSignature, err = c.Sign(raw); err != nil {
			return Hash{}, err
		}
	}
	obj := s.objects().NewEncodedObject()
	if err := commit.Encode(obj); err != nil {
		return Hash{}, err
	}
	return s.objects().SetEncodedObject(obj)
}

// unsigned returns the bytes that a commit's signature covers.
func unsigned(c *object.Commit) ([]byte, error) {
	var obj plumbing.MemoryObject
	if err := c.EncodeWithoutSignature(&obj); err != nil {
		return nil, err
	}
	r, err := obj.Reader()
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// putTree stores a folder, which is base with some files replaced, and the folders below
// it. It reads only the folders that change. A file keeps the mode that it has in base; a
// symbolic link becomes a file.
func (s *Store) putTree(base Hash, files map[string][]byte) (Hash, error) {
	entries, err := s.entries(base)
	if err != nil {
		return Hash{}, err
	}
	if entries == nil {
		entries = map[string]object.TreeEntry{}
	}
	below := map[string]map[string][]byte{}
	for name, raw := range files {
		dir, rest, nested := strings.Cut(name, "/")
		if dir == "" || dir == "." || dir == ".." || strings.EqualFold(dir, ".git") {
			return Hash{}, fmt.Errorf("%q is not a path that git stores", name)
		}
		have := entries[dir]
		if _, file := files[dir]; nested && file || nested != (have.Mode == filemode.Dir) && !have.Hash.IsZero() {
			return Hash{}, fmt.Errorf("%s is both a file and a folder", dir)
		}
		if nested {
			if below[dir] == nil {
				below[dir] = map[string][]byte{}
			}
			below[dir][rest] = raw
			continue
		}
		hash, err := s.put(plumbing.BlobObject, raw)
		if err != nil {
			return Hash{}, err
		}
		mode := filemode.Regular
		if have.Mode == filemode.Executable || have.Mode == filemode.Symlink && have.Hash == hash {
			mode = have.Mode
		}
		entries[dir] = object.TreeEntry{Name: dir, Mode: mode, Hash: hash}
	}
	for dir, inside := range below {
		hash, err := s.putTree(entries[dir].Hash, inside)
		if err != nil {
			return Hash{}, fmt.Errorf("%s/: %w", dir, err)
		}
		entries[dir] = object.TreeEntry{Name: dir, Mode: filemode.Dir, Hash: hash}
	}
	tree := &object.Tree{Entries: slices.SortedFunc(maps.Values(entries), compareEntries)}
	obj := &plumbing.MemoryObject{}
	if err := tree.Encode(obj); err != nil {
		return Hash{}, err
	}
	return s.putObject(obj)
}

// compareEntries is git's order: a folder sorts as if its name ended in a slash.
func compareEntries(a, b object.TreeEntry) int {
	key := func(e object.TreeEntry) string {
		if e.Mode == filemode.Dir {
			return e.Name + "/"
		}
		return e.Name
	}
	return strings.Compare(key(a), key(b))
}

func (s *Store) put(kind plumbing.ObjectType, raw []byte) (Hash, error) {
	obj := &plumbing.MemoryObject{}
	obj.SetType(kind)
	if _, err := obj.Write(raw); err != nil {
		return Hash{}, err
	}
	return s.putObject(obj)
}

// putObject stores an object if it is absent; most objects of a tree did not change.
func (s *Store) putObject(obj plumbing.EncodedObject) (Hash, error) {
	err := s.objects().HasEncodedObject(obj.Hash())
	if err == nil {
		return obj.Hash(), nil
	}
	if !errors.Is(err, plumbing.ErrObjectNotFound) {
		return Hash{}, err
	}
	return s.objects().SetEncodedObject(obj)
}
