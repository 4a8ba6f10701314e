package gitrepo

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/storage"
	"github.com/go-git/go-git/v5/storage/filesystem"
	"github.com/go-git/go-git/v5/storage/filesystem/dotgit"
)

// Bounds of one object, in bytes.
const (
	maxObject = 32 << 20
	maxCommit = 1 << 20 // commits and tags, with message and signature
	maxTree   = 8 << 20 // about 200,000 entries of one folder
)

// maxAlternates is the most repositories that lend objects to a repository, with their own
// alternates. git follows five in a row.
const maxAlternates = 16

// bounded is the storage of a repository. It reads no object that is over its bound.
type bounded struct {
	storage.Storer
	alternates []storage.Storer // objects/info/alternates, in order
}

// EncodedObject implements storer.EncodedObjectStorer. An object over its bound is
// ErrUnusable.
func (b *bounded) EncodedObject(kind plumbing.ObjectType, hash Hash) (plumbing.EncodedObject, error) {
	limit := int64(maxObject)
	switch kind {
	case plumbing.CommitObject, plumbing.TagObject:
		limit = maxCommit
	case plumbing.TreeObject:
		limit = maxTree
	}
	for _, store := range b.all() {
		err := boundedSize(store, hash, limit)
		if errors.Is(err, plumbing.ErrObjectNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return store.EncodedObject(kind, hash)
	}
	return nil, plumbing.ErrObjectNotFound
}

func boundedSize(store storage.Storer, hash Hash, limit int64) error {
	if p, onDisk := store.(*packed); onDisk {
		return p.check(hash, limit)
	}
	size, err := store.EncodedObjectSize(hash)
	if err == nil && size > limit {
		err = tooLarge("object %s has %d bytes: at most %d are read", hash, size, limit)
	}
	return err
}

// HasEncodedObject implements storer.EncodedObjectStorer.
func (b *bounded) HasEncodedObject(hash Hash) error {
	for _, store := range b.all() {
		if err := store.HasEncodedObject(hash); !errors.Is(err, plumbing.ErrObjectNotFound) {
			return err
		}
	}
	return plumbing.ErrObjectNotFound
}

func (b *bounded) all() []storage.Storer { return append([]storage.Storer{b.Storer}, b.alternates...) }

// commits returns the commits whose hash begins with prefix.
func (b *bounded) commits(prefix string) ([]Hash, error) {
	seen := map[Hash]bool{}
	for _, store := range b.all() {
		p, onDisk := store.(*packed)
		if !onDisk {
			continue // a mirror in memory has no objects that a user names by hash
		}
		start, err := hex.DecodeString(prefix[:len(prefix)/2*2])
		if err != nil {
			return nil, err
		}
		found, err := p.HashesWithPrefix(start)
		if err != nil {
			return nil, err
		}
		for _, hash := range found {
			if strings.HasPrefix(hash.String(), prefix) {
				seen[hash] = true
			}
		}
	}
	var out []Hash
	for hash := range seen {
		if _, err := b.EncodedObject(plumbing.CommitObject, hash); err == nil {
			out = append(out, hash)
		}
	}
	return out, nil
}

// openStorage opens the objects and refs of a repository on this machine. A format that
// Hawser cannot read is an error that names it.
func openStorage(dirs gitDirs) (*bounded, error) {
	store := newPacked(dirs.git, dirs.common)
	conf, err := store.Config()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", filepath.Join(dirs.common, "config"), err)
	}
	if err := checkFormat(conf); err != nil {
		return nil, err
	}
	alternates, err := openAlternates(filepath.Join(dirs.common, "objects"))
	if err != nil {
		return nil, err
	}
	return &bounded{Storer: store, alternates: alternates}, nil
}

func newPacked(git, common string) *packed {
	folder := dotgit.NewRepositoryFilesystem(osfs.New(git), osfs.New(common))
	return &packed{Storage: filesystem.NewStorageWithOptions(folder, cache.NewObjectLRU(cacheSize), filesystem.Options{}), objects: filepath.Join(common, "objects")}
}

// cacheSize is the memory for objects that were read, per repository.
const cacheSize = 32 * cache.MiByte

var errSHA256 = errors.New("the repository has SHA-256 objects: Hawser reads SHA-1 only. Make another repository with git init --object-format=sha1, " +
	"and commit the files there")

// checkFormat refuses repositories whose format Hawser cannot read
// (gitrepository-layout(5), git-config(1) extensions.*).
func checkFormat(conf *config.Config) error {
	version := conf.Raw.Section("core").Option("repositoryformatversion") // go-git knows 1 alone
	if version != "" && version != "0" && version != "1" {
		return fmt.Errorf("the repository has format version %s: Hawser reads 0 and 1", version)
	}
	for _, o := range conf.Raw.Section("extensions").Options {
		name, value := strings.ToLower(o.Key), strings.ToLower(o.Value)
		switch {
		case name == "noop", name == "noop-v1", name == "preciousobjects", name == "worktreeconfig", name == "partialclone", name == "relativeworktrees":
		case name == "objectformat" && value == "sha1", name == "refstorage" && value == "files":
		case name == "objectformat" || name == "compatobjectformat":
			return errSHA256
		case name == "refstorage":
			return fmt.Errorf("the repository keeps its branches as %s: Hawser reads files only. git refs migrate --ref-format=files converts it", value)
		default:
			return fmt.Errorf("the repository has the extension %s=%s, which Hawser does not know", name, value)
		}
	}
	return nil
}

// openAlternates opens the object folders that a repository names
// (gitrepository-layout(5), objects/info/alternates), and their own alternates.
func openAlternates(objects string) ([]storage.Storer, error) {
	var out []storage.Storer
	seen, next := map[string]bool{objects: true}, []string{objects}
	for len(next) > 0 {
		objects, next = next[0], next[1:]
		raw, err := readSmall(filepath.Join(objects, "info", "alternates"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read alternates: %w", err)
		}
		for lines := bufio.NewScanner(bytes.NewReader(raw)); lines.Scan(); {
			line := lines.Text()
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			dir := absolute(objects, line)
			if seen[dir] {
				continue
			}
			if info, err := os.Stat(dir); err != nil || !info.IsDir() {
				return nil, fmt.Errorf("%s names %s, which is not a folder of objects: git repack -ad in a complete clone makes it independent",
					filepath.Join(objects, "info", "alternates"), line)
			}
			if seen[dir] = true; len(out) == maxAlternates {
				return nil, fmt.Errorf("the repository has more than %d alternates: git repack -ad makes it independent", maxAlternates)
			}
			git := filepath.Dir(dir)
			out, next = append(out, newPacked(git, git)), append(next, dir)
		}
	}
	return out, nil
}

// partial reports whether the repository is a partial clone (git clone --filter), which
// lacks objects that git fetches when it needs them.
func (b *bounded) partial() bool {
	conf, err := b.Config()
	if err != nil {
		return false
	}
	for _, r := range conf.Raw.Section("remote").Subsections {
		if r.Option("promisor") == "true" || r.Option("partialclonefilter") != "" {
			return true
		}
	}
	return conf.Raw.Section("extensions").Option("partialclone") != ""
}
