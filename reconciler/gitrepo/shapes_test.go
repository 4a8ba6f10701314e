package gitrepo_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hawser.dev/hawser/reconciler/gitrepo"
)

const topology = "net/clusterset.yaml"

// shape is a kind of repository that git can create.
type shape struct {
	name string
	// build creates the repository in an empty directory, from an origin with two commits on
	// main. It returns the path or URL. It can change path, the file that the test reads.
	build func(t *testing.T, origin, dir string, path *string) string
	// refused is the end of the error; empty if the repository is supported.
	refused string
	named   bool // the path is a value of --repo
}

// TestShapes checks each kind of repository. It reads, publishes to and verifies a supported
// repository with git. For an unsupported one, the error contains the reason and the next step, and
// nothing is written.
func TestShapes(t *testing.T) {
	t.Parallel()
	clone := func(args ...string) func(*testing.T, string, string, *string) string {
		return func(t *testing.T, origin, dir string, _ *string) string {
			t.Helper()
			git(t, origin, "config", "uploadpack.allowFilter", "true")
			git(t, dir, append(append([]string{"clone", "-q"}, args...), "file://"+origin, "clone")...)
			return filepath.Join(dir, "clone")
		}
	}
	then := func(first func(*testing.T, string, string, *string) string, args ...string) func(*testing.T, string, string, *string) string {
		return func(t *testing.T, origin, dir string, path *string) string {
			t.Helper()
			at := first(t, origin, dir, path)
			git(t, at, args...)
			return at
		}
	}
	tests := []shape{
		{name: "clone", build: clone()},
		{name: "sparse checkout", build: then(clone(), "sparse-checkout", "set", "--cone", "net")},
		{name: "sparse checkout, format version 1", build: then(then(clone(), "sparse-checkout", "set", "--cone", "net"), "config", "core.repositoryformatversion", "1")},
		{name: "sparse checkout without the topology", build: then(clone(), "sparse-checkout", "set", "--cone", "apps")},
		{name: "partial clone, its checked out files", build: clone("--filter=blob:none")},
		{name: "partial clone, other files", build: clone("--filter=blob:none", "--no-checkout"),
			refused: " is missing, as this is a partial clone (git clone --filter): git fetch --refetch --no-filter fetches all objects"},
		{name: "partial clone without directories", build: clone("--filter=tree:0", "--no-checkout"),
			refused: " is missing, as this is a partial clone (git clone --filter): git fetch --refetch --no-filter fetches all objects"},
		{name: "partial clone, fetched again", build: then(clone("--filter=blob:none", "--no-checkout"), "fetch", "-q", "--refetch", "--no-filter")},
		{name: "shallow clone", build: clone("--depth=1")},
		{name: "shallow clone of one branch", build: clone("--depth=1", "--single-branch")},
		{name: "shared clone", build: func(t *testing.T, origin, dir string, _ *string) string {
			git(t, dir, "clone", "-q", "--shared", origin, "clone")
			return filepath.Join(dir, "clone")
		}},
		{name: "relative alternates in two steps", build: func(t *testing.T, origin, dir string, _ *string) string {
			git(t, dir, "clone", "-q", "--bare", origin, "first.git")
			git(t, dir, "clone", "-q", "--shared", "first.git", "second")
			put(t, filepath.Join(dir, "second"), ".git/objects/info/alternates", "../../../first.git/objects\n")
			git(t, dir, "clone", "-q", "--shared", "second", "third")
			return filepath.Join(dir, "third")
		}},
		{name: "lost alternates", build: func(t *testing.T, origin, dir string, _ *string) string {
			git(t, dir, "clone", "-q", "--shared", origin, "clone")
			put(t, dir, "clone/.git/objects/info/alternates", "/nowhere/objects\n")
			return filepath.Join(dir, "clone")
		}, refused: "names /nowhere/objects, which is not a directory of objects: git repack -ad in a complete clone makes it independent"},
		{name: "submodule elsewhere", build: func(t *testing.T, origin, dir string, path *string) string {
			at := clone()(t, origin, dir, path)
			addSubmodule(t, at, origin, "vendor/module")
			return at
		}},
		{name: "topology in a submodule", build: func(t *testing.T, origin, dir string, path *string) string {
			at := clone()(t, origin, dir, path)
			addSubmodule(t, at, origin, "vendor/module")
			*path = "vendor/module/" + topology
			return at
		}, refused: "vendor/module is a submodule: Hawser does not read submodules; commit the files themselves"},
		{name: "checked out submodule", build: func(t *testing.T, origin, dir string, path *string) string {
			at := clone()(t, origin, dir, path)
			addSubmodule(t, at, origin, "vendor/module")
			return filepath.Join(at, "vendor/module/net")
		}},
		{name: "linked work tree", build: func(t *testing.T, origin, dir string, path *string) string {
			git(t, clone()(t, origin, dir, path), "worktree", "add", "-q", "-b", "other", "../linked")
			return filepath.Join(dir, "linked")
		}},
		{name: "linked work tree of a bare repository", build: func(t *testing.T, origin, dir string, path *string) string {
			git(t, clone("--bare")(t, origin, dir, path), "worktree", "add", "-q", "-b", "other", "../linked")
			return filepath.Join(dir, "linked")
		}},
		{name: "separate git directory", build: clone("--separate-git-dir=apart")},
		{name: "bare", build: clone("--bare"), named: true},
		{name: "bare, in a work tree, by name", build: func(t *testing.T, origin, dir string, path *string) string {
			git(t, dir, "init", "-q", "-b", "main")
			return clone("--bare")(t, origin, dir, path)
		}, named: true},
		{name: "bare, in a work tree, without a name", build: func(t *testing.T, origin, dir string, path *string) string {
			git(t, dir, "init", "-q", "-b", "main")
			commitFile(t, dir, "f", "x")
			git(t, clone("--bare")(t, origin, dir, path), "branch", "-m", "main", "planted")
			return filepath.Join(dir, "clone")
		}, refused: "no such file"},
		{name: "bare without a name", build: clone("--bare"), refused: "not in a git repository (git init makes one)"},
		{name: "packed refs", build: then(clone(), "pack-refs", "--all", "--prune")},
		{name: "packed, with a multi-pack index and bitmaps", build: then(clone(), "-c", "repack.writeBitmaps=true", "repack", "-adq", "--write-midx")},
		{name: "commit graph", build: then(clone(), "commit-graph", "write", "--reachable")},
		{name: "index of version 1", build: then(clone(), "-c", "pack.indexVersion=1", "repack", "-adFq"),
			refused: "not an index of version 2 (git -c pack.indexVersion=2 repack -ad writes one)"},
		{name: "split index", build: then(clone(), "update-index", "--split-index")},
		{name: "link to the git directory", build: func(t *testing.T, origin, dir string, path *string) string {
			at := clone()(t, origin, dir, path)
			if err := os.Rename(filepath.Join(at, ".git"), filepath.Join(dir, "apart")); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(filepath.Join(dir, "apart"), filepath.Join(at, ".git")); err != nil {
				t.Fatal(err)
			}
			return at
		}},
		{name: "SHA-256", build: func(t *testing.T, _, dir string, _ *string) string {
			git(t, dir, "init", "-q", "-b", "main", "--object-format=sha256")
			commitFile(t, dir, topology, "one")
			return dir
		}, refused: "the repository has SHA-256 objects: Hawser reads SHA-1 only. Make another repository with git init --object-format=sha1, and commit the files there"},
		{name: "SHA-256 over HTTP", build: func(t *testing.T, _, dir string, _ *string) string {
			git(t, dir, "init", "-q", "-b", "main", "--object-format=sha256")
			commitFile(t, dir, topology, "one")
			return serveAt(t, filepath.Join(dir, ".git"))
		}, refused: "the repository has SHA-256 objects: Hawser reads SHA-1 only. Make another repository with git init --object-format=sha1, and commit the files there"},
		{name: "reftable", build: func(t *testing.T, origin, dir string, path *string) string {
			at := clone()(t, origin, dir, path)
			git(t, at, "config", "core.repositoryformatversion", "1")
			put(t, at, ".git/config", "[core]\n\trepositoryformatversion = 1\n[extensions]\n\trefStorage = reftable\n")
			return at
		}, refused: "the repository keeps its branches as reftable: Hawser reads files only. git refs migrate --ref-format=files converts it"},
		{name: "unknown extension", build: func(t *testing.T, origin, dir string, path *string) string {
			at := clone()(t, origin, dir, path)
			put(t, at, ".git/config", "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tnewThing = true\n")
			return at
		}, refused: "the repository has the extension newthing=true, which Hawser does not know"},
		{name: "unknown format", build: then(clone(), "config", "core.repositoryformatversion", "2"),
			refused: "the repository has format version 2: Hawser reads 0 and 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			checkShape(t, tt)
		})
	}
}

func checkShape(t *testing.T, tt shape) {
	origin := workTree(t)
	commitFile(t, origin, "apps/other.yaml", "other")
	commitFile(t, origin, topology, "zero")
	commitFile(t, origin, topology, "one")
	path := topology
	url := tt.build(t, origin, t.TempDir(), &path)
	s, err := gitrepo.Open(gitrepo.Config{URL: url, ExplicitURL: tt.named})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := readMain(t, s, path)
	if tt.refused != "" {
		if err == nil || !strings.HasSuffix(err.Error(), tt.refused) {
			t.Errorf("have %q, %v; want ...%s", raw, err, tt.refused)
		}
		return
	}
	if err != nil || string(raw) != "one" {
		t.Fatalf("%s has %q: %v", path, raw, err)
	}
	w, here, err := s.WorkTree()
	if err != nil {
		t.Fatal(err)
	}
	if here && tt.name != "partial clone, fetched again" {
		if changed, err := s.Uncommitted(w, w.Head, path); err != nil || len(changed) > 0 {
			t.Errorf("uncommitted %q: %v", changed, err)
		}
	}
	publish(t, s, gitrepo.Hash{}, map[string][]byte{"a/x": []byte("1"), "c": []byte("2")})
	last := publish(t, s, head(t, s, "rendered"), map[string][]byte{"a/x": []byte("1"), "c": []byte("3")})
	git(t, url, "fsck", "--strict")
	if have := git(t, url, "rev-parse", "refs/heads/rendered"); have != last.String() {
		t.Errorf("git sees %s, want %s", have, last)
	}
	if have := git(t, url, "show", "rendered:c"); have != "3" {
		t.Errorf("git reads %q", have)
	}
}

// readMain reads a file of branch main.
func readMain(t *testing.T, s *gitrepo.Store, path string) ([]byte, error) {
	t.Helper()
	if err := s.Fetch(t.Context(), "main", "rendered"); err != nil {
		return nil, err
	}
	commit, err := s.Head("main")
	if err != nil {
		return nil, err
	}
	return s.File(commit, path)
}

// addSubmodule commits a submodule on main.
func addSubmodule(t *testing.T, work, origin, name string) {
	t.Helper()
	git(t, work, "-c", "protocol.file.allow=always", "submodule", "add", "-q", origin, name)
	git(t, work, "commit", "-q", "-m", "submodule")
}
