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

// Maximum sizes of one object, in bytes.
const (
	maxObject = 32 << 20
	maxCommit = 1 << 20 // commits and tags, with message and signature
	maxTree   = 8 << 20 // a directory with about 200,000 entries
)

// maxAlternates is the maximum number of alternates of a repository, including alternates of
// alternates. git follows a chain of five.
const maxAlternates = 16

// boundedStorage is the storage of a repository. It reads no object over the size limit.
type boundedStorage struct {
	storage.Storer
	alternates []storage.Storer // objects/info/alternates, in order
}

// EncodedObject implements storer.EncodedObjectStorer. It returns ErrUnusable for an object over
// its size limit.
func (b *boundedStorage) EncodedObject(kind plumbing.ObjectType, hash Hash) (plumbing.EncodedObject, error) {
	limit := int64(maxObject)
	switch kind {
	case plumbing.CommitObject, plumbing.TagObject:
		limit = maxCommit
	case plumbing.TreeObject:
		limit = maxTree
	}
	for _, store := range b.stores() {
		err := checkObjectSize(store, hash, limit)
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

func checkObjectSize(store storage.Storer, hash Hash, limit int64) error {
	if p, onDisk := store.(*packedStorage); onDisk {
		return p.checkSize(hash, limit)
	}
	size, err := store.EncodedObjectSize(hash)
	if err == nil && size > limit {
		err = tooLarge("object %s has %d bytes: at most %d are read", hash, size, limit)
	}
	return err
}

// HasEncodedObject implements storer.EncodedObjectStorer.
func (b *boundedStorage) HasEncodedObject(hash Hash) error {
	for _, store := range b.stores() {
		if err := store.HasEncodedObject(hash); !errors.Is(err, plumbing.ErrObjectNotFound) {
			return err
		}
	}
	return plumbing.ErrObjectNotFound
}

func (b *boundedStorage) stores() []storage.Storer {
	return append([]storage.Storer{b.Storer}, b.alternates...)
}

// commitsWithPrefix returns the commits whose hash begins with prefix.
func (b *boundedStorage) commitsWithPrefix(prefix string) ([]Hash, error) {
	seen := map[Hash]bool{}
	for _, store := range b.stores() {
		p, onDisk := store.(*packedStorage)
		if !onDisk {
			continue // users do not refer to objects in a memory mirror by hash
		}
		prefixBytes, err := hex.DecodeString(prefix[:len(prefix)/2*2])
		if err != nil {
			return nil, err
		}
		found, err := p.HashesWithPrefix(prefixBytes)
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

// openStorage opens the objects and refs of a repository on this machine. The error about an
// unsupported format contains the format.
func openStorage(dirs gitDirs) (*boundedStorage, error) {
	store := newPackedStorage(dirs.git, dirs.common)
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
	return &boundedStorage{Storer: store, alternates: alternates}, nil
}

func newPackedStorage(git, common string) *packedStorage {
	gitFS := dotgit.NewRepositoryFilesystem(osfs.New(git), osfs.New(common))
	return &packedStorage{Storage: filesystem.NewStorageWithOptions(gitFS, cache.NewObjectLRU(cacheSize), filesystem.Options{}), objectsDir: filepath.Join(common, "objects")}
}

// cacheSize is the size of the object cache of one repository.
const cacheSize = 32 * cache.MiByte

var errSHA256 = errors.New("the repository has SHA-256 objects: Hawser reads SHA-1 only. Make another repository with git init --object-format=sha1, " +
	"and commit the files there")

// checkFormat returns an error if Hawser cannot read the repository's format
// (gitrepository-layout(5), git-config(1) extensions.*).
func checkFormat(conf *config.Config) error {
	version := conf.Raw.Section("core").Option("repositoryformatversion") // go-git supports only 1
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

// openAlternates opens the alternates of a repository (gitrepository-layout(5),
// objects/info/alternates), and the alternates of these.
func openAlternates(objects string) ([]storage.Storer, error) {
	var out []storage.Storer
	seen, queue := map[string]bool{objects: true}, []string{objects}
	for len(queue) > 0 {
		objects, queue = queue[0], queue[1:]
		raw, err := readSmallFile(filepath.Join(objects, "info", "alternates"))
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
			dir := absolutePath(objects, line)
			if seen[dir] {
				continue
			}
			if info, err := os.Stat(dir); err != nil || !info.IsDir() {
				return nil, fmt.Errorf("%s names %s, which is not a directory of objects: git repack -ad in a complete clone makes it independent",
					filepath.Join(objects, "info", "alternates"), line)
			}
			if seen[dir] = true; len(out) == maxAlternates {
				return nil, fmt.Errorf("the repository has more than %d alternates: git repack -ad makes it independent", maxAlternates)
			}
			git := filepath.Dir(dir)
			out, queue = append(out, newPackedStorage(git, git)), append(queue, dir)
		}
	}
	return out, nil
}

// isPartialClone reports whether the repository is a partial clone (git clone --filter). git
// fetches missing objects of a partial clone on demand.
func (b *boundedStorage) isPartialClone() bool {
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
