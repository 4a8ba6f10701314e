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

// Commit describes a new commit.
type Commit struct {
	// Parent is the parent commit; zero for a root commit.
	Parent Hash
	// Files contains the file contents by path. Without KeepFiles the commit contains only
	// these files, with mode 0644: the signature covers no other file of Parent. With KeepFiles
	// the other files of Parent and the modes of existing Files do not change.
	Files     map[string][]byte
	KeepFiles bool
	// Name and Email identify author and committer. When is the time of both.
	Name, Email string
	When        time.Time
	Message     string
	// SignTrailer returns a line that Write appends to Message. raw is the commit without that
	// line. SignTrailer is called before Sign; nil = no line.
	SignTrailer func(raw []byte) (string, error)
	// Sign returns the signature of the commit raw for git's header gpgsig; nil = no signature.
	Sign func(raw []byte) (string, error)
}

// Write stores a commit with its trees and blobs, and returns its hash. It moves no branch:
// FastForward does.
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
		if base, err = s.rootTree(c.Parent); err != nil {
			return Hash{}, err
		}
	}
	root, err := s.putTree(base, c.Files)
	if err != nil {
		return Hash{}, err
	}
	author := object.Signature{Name: c.Name, Email: c.Email, When: c.When}
	commit := &object.Commit{Author: author, Committer: author, Message: c.Message, TreeHash: root}
	if !c.Parent.IsZero() {
		commit.ParentHashes = []Hash{c.Parent}
	}
	if c.SignTrailer != nil {
		raw, err := bytesToSign(commit)
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
		raw, err := bytesToSign(commit)
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

// bytesToSign returns the bytes that a commit's signature covers.
func bytesToSign(c *object.Commit) ([]byte, error) {
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

// putTree stores the tree base with some files replaced, and returns its hash. It reads only
// directories that change. An executable file stays executable. A symbolic link becomes a file
// unless files has its target as content.
func (s *Store) putTree(base Hash, files map[string][]byte) (Hash, error) {
	entries, err := s.readEntries(base)
	if err != nil {
		return Hash{}, err
	}
	if entries == nil {
		entries = map[string]object.TreeEntry{}
	}
	subdirs := map[string]map[string][]byte{}
	for name, raw := range files {
		dir, subPath, nested := strings.Cut(name, "/")
		if dir == "" || dir == "." || dir == ".." || strings.EqualFold(dir, ".git") {
			return Hash{}, fmt.Errorf("%q is not a path that git stores", name)
		}
		existing := entries[dir]
		if _, file := files[dir]; nested && file || nested != (existing.Mode == filemode.Dir) && !existing.Hash.IsZero() {
			return Hash{}, fmt.Errorf("%s is both a file and a directory", dir)
		}
		if nested {
			if subdirs[dir] == nil {
				subdirs[dir] = map[string][]byte{}
			}
			subdirs[dir][subPath] = raw
			continue
		}
		hash, err := s.putRaw(plumbing.BlobObject, raw)
		if err != nil {
			return Hash{}, err
		}
		mode := filemode.Regular
		sameLink := existing.Mode == filemode.Symlink && existing.Hash == hash
		if existing.Mode == filemode.Executable || sameLink {
			mode = existing.Mode
		}
		entries[dir] = object.TreeEntry{Name: dir, Mode: mode, Hash: hash}
	}
	for dir, subFiles := range subdirs {
		hash, err := s.putTree(entries[dir].Hash, subFiles)
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

// compareEntries compares entries in git's order. A directory sorts as if its name ended in a
// slash.
func compareEntries(a, b object.TreeEntry) int {
	key := func(e object.TreeEntry) string {
		if e.Mode == filemode.Dir {
			return e.Name + "/"
		}
		return e.Name
	}
	return strings.Compare(key(a), key(b))
}

func (s *Store) putRaw(kind plumbing.ObjectType, raw []byte) (Hash, error) {
	obj := &plumbing.MemoryObject{}
	obj.SetType(kind)
	if _, err := obj.Write(raw); err != nil {
		return Hash{}, err
	}
	return s.putObject(obj)
}

// putObject stores an object if it is absent. Most objects of a tree exist already.
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
