package gitrepo_test

import (
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/reconciler/gitrepo"
)

func TestReadAndPublish(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, work, url string, push func(...string)) {
		s := open(t, url)
		sync(t, s, "main", "rendered")
		if _, err := s.Head("main"); !errors.Is(err, gitrepo.ErrNoBranch) {
			t.Fatalf("head of an empty repository: %v", err)
		}
		want := commitFile(t, work, "net/clusterset.yaml", "one")
		push("main")
		sync(t, s, "main", "rendered")
		if have := head(t, s, "main").String(); have != want {
			t.Fatalf("head %s, want %s", have, want)
		}
		raw, err := s.File(head(t, s, "main"), "net/clusterset.yaml")
		if err != nil || string(raw) != "one" {
			t.Fatalf("file %q, %v", raw, err)
		}
		if _, err := s.File(head(t, s, "main"), "net/missing"); !errors.Is(err, gitrepo.ErrNoFile) {
			t.Fatalf("missing file: %v", err)
		}
		first := publish(t, s, gitrepo.Hash{}, map[string][]byte{"a/x": []byte("1"), "a.b": []byte("2")})
		second := publish(t, s, first, map[string][]byte{"a/x": []byte("1"), "c": []byte("3")})
		checkPublished(t, url, second)
		if err := s.FastForward(t.Context(), "rendered", first, second); !errors.Is(err, gitrepo.ErrRefChanged) {
			t.Fatalf("advance from a stale commit: %v", err)
		}
	})
}

func checkPublished(t *testing.T, url string, head gitrepo.Hash) {
	t.Helper()
	clone := filepath.Join(t.TempDir(), "clone")
	git(t, t.TempDir(), "clone", "-q", "-b", "rendered", url, clone)
	git(t, clone, "fsck", "--strict")
	if have := git(t, clone, "rev-parse", "HEAD"); have != head.String() {
		t.Errorf("published %s, want %s", have, head)
	}
	if have := git(t, clone, "ls-files"); have != "a/x\nc" {
		t.Errorf("published files %q", have)
	}
	if have := git(t, clone, "log", "-1", "--format=%(trailers:key=Source-Commit,valueonly)"); have != "abc" {
		t.Errorf("trailer %q", have)
	}
}

func TestRewrittenHistory(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, work, url string, push func(...string)) {
		s := open(t, url)
		commitFile(t, work, "f", "one")
		commitFile(t, work, "f", "two")
		push("main")
		sync(t, s, "main")
		before := head(t, s, "main")
		git(t, work, "reset", "-q", "--hard", "HEAD~1")
		want := commitFile(t, work, "f", "three")
		push("-f", "main")
		sync(t, s, "main")
		after := head(t, s, "main")
		if after.String() != want {
			t.Fatalf("head %s, want %s", after, want)
		}
		if descends, err := s.IsAncestor(before, after); err != nil || descends {
			t.Errorf("descends %v, %v; want false", descends, err)
		}
	})
}

func TestModesAndKeep(t *testing.T) {
	t.Parallel()
	work := workTree(t)
	put(t, work, "run.sh", "#!/bin/sh")
	if err := os.Chmod(filepath.Join(work, "run.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("run.sh", filepath.Join(work, "link")); err != nil {
		t.Fatal(err)
	}
	commitFile(t, work, "plain", "p")
	git(t, work, "add", ".")
	git(t, work, "commit", "-q", "-m", "all")
	s := open(t, work)
	sync(t, s)
	parent := head(t, s, "main")
	files, err := s.Tree(parent)
	if err != nil {
		t.Fatal(err)
	}
	same, err := s.Write(gitrepo.Commit{Parent: parent, Files: files, KeepFiles: true, Name: "n", Email: "e", When: when, Message: "m"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := git(t, work, "diff", "--stat", parent.String(), same.String()); diff != "" {
		t.Errorf("rewriting the same files changed\n%s", diff)
	}
	edit := map[string][]byte{"run.sh": []byte("new")}
	kept, err := s.Write(gitrepo.Commit{Parent: parent, Files: edit, KeepFiles: true, Name: "n", Email: "e", When: when, Message: "m"})
	if err != nil {
		t.Fatal(err)
	}
	want := "120000 link\n100644 plain\n100755 run.sh"
	if have := git(t, work, "ls-tree", "--format=%(objectmode) %(path)", kept.String()); have != want {
		t.Errorf("modes (-want +got):\n%s", cmp.Diff(want, have))
	}
	alone, err := s.Write(gitrepo.Commit{Parent: parent, Files: map[string][]byte{"run.sh": nil, "link": nil}, Name: "n", Email: "e", When: when, Message: "m"})
	if err != nil {
		t.Fatal(err)
	}
	if have := git(t, work, "ls-tree", "--format=%(objectmode) %(path)", alone.String()); have != "100644 link\n100644 run.sh" {
		t.Errorf("without Keep: %s", have)
	}
}

func TestWriteRefusesBadPaths(t *testing.T) {
	t.Parallel()
	work := workTree(t)
	s := open(t, work)
	sync(t, s)
	tests := []struct {
		name  string
		files []string
	}{
		{"leaves the tree", []string{"../x"}},
		{"git directory", []string{"a/.git/config"}},
		{"absolute", []string{"/etc/passwd"}},
		{"file and directory", []string{"a", "a/b"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			files := map[string][]byte{}
			for _, f := range tt.files {
				files[f] = nil
			}
			if hash, err := s.Write(gitrepo.Commit{Files: files, When: when}); err == nil {
				t.Errorf("wrote %s with %v", hash, tt.files)
			}
		})
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(nil)
	srv.Close()
	for _, url := range []string{filepath.Join(t.TempDir(), "none"), srv.URL + "/x.git"} {
		s := open(t, url)
		if err := s.Fetch(t.Context(), "main"); err == nil {
			t.Errorf("sync of %s gave no error", url)
		}
		if _, err := s.Head("main"); !errors.Is(err, gitrepo.ErrNoBranch) {
			t.Errorf("head of %s: %v", url, err)
		}
	}
}

func TestMirrorOnDiskSurvives(t *testing.T) {
	t.Parallel()
	work := workTree(t)
	dir, url := serve(t)
	want := commitFile(t, work, "f", "one")
	git(t, work, "push", "-q", dir, "main")
	cfg := gitrepo.Config{URL: url, Cache: filepath.Join(t.TempDir(), "cache")}
	for range 2 {
		s, err := gitrepo.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		sync(t, s, "main")
		if have := head(t, s, "main").String(); have != want {
			t.Errorf("head %s, want %s", have, want)
		}
	}
}

func TestBranchNames(t *testing.T) {
	t.Parallel()
	tests := []struct {
		text, want string
		bad        bool
	}{
		{text: "main", want: "main"},
		{text: "refs/heads/a/b", want: "a/b"},
		{text: "", bad: true},
		{text: "../../x", bad: true},
		{text: "a..b", bad: true},
		{text: "x.lock", bad: true},
		{text: "a b", bad: true},
	}
	for _, tt := range tests {
		have, err := gitrepo.ParseBranch(tt.text)
		if (err != nil) != tt.bad || (err == nil && have != tt.want) {
			t.Errorf("%q: got %q, %v", tt.text, have, err)
		}
	}
}

func TestRedact(t *testing.T) {
	t.Parallel()
	if have := gitrepo.Redact("https://me:secret@example.com/r.git"); strings.Contains(have, "secret") {
		t.Errorf("password shows: %s", have)
	}
}

// TestShallow checks that Config.Depth limits the fetched commits, and that all files of the newest
// commit can be read.
func TestShallow(t *testing.T) {
	t.Parallel()
	work := workTree(t)
	dir, url := serve(t)
	first := commitFile(t, work, "f", "one")
	last := commitFile(t, work, "deep/f", "two")
	git(t, work, "push", "-q", dir, "main:rendered", "main")
	s, err := gitrepo.Open(gitrepo.Config{URL: url, Depth: 1})
	if err != nil {
		t.Fatal(err)
	}
	if at, err := s.RemoteHead(t.Context(), "rendered"); err != nil || at.String() != last {
		t.Errorf("head of rendered: %s, %v", at, err)
	}
	if at, err := s.RemoteHead(t.Context(), "nothing"); err != nil || !at.IsZero() {
		t.Errorf("head of nothing: %s, %v", at, err)
	}
	sync(t, s, "rendered")
	tree, err := s.Tree(head(t, s, "rendered"))
	if err != nil || string(tree["f"]) != "one" || string(tree["deep/f"]) != "two" {
		t.Errorf("tree %q: %v", tree, err)
	}
	if _, err := s.Subject(plumbing.NewHash(first)); err == nil {
		t.Error("the commit before was fetched, too")
	}
	names, err := s.Names()
	if diff := cmp.Diff([]string{"main", "rendered"}, names); err != nil || diff != "" {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
}

// TestResolve checks that branches, remote branches, tags of both kinds and hashes resolve to
// commits. A branch has precedence over a tag of the same name.
func TestResolve(t *testing.T) {
	t.Parallel()
	work, clone := workTree(t), filepath.Join(t.TempDir(), "clone")
	first := commitFile(t, work, "f", "one")
	git(t, work, "tag", "light")
	git(t, work, "tag", "main2")
	git(t, work, "tag", "-a", "-m", "x", "heavy")
	last := commitFile(t, work, "f", "two")
	git(t, work, "branch", "main2")
	git(t, filepath.Dir(clone), "clone", "-q", work, clone)
	git(t, clone, "remote", "add", "alpha", "../elsewhere.git")
	s := open(t, clone)
	sync(t, s)
	for name, want := range map[string]gitrepo.Resolved{
		"main": {Ref: "refs/heads/main"}, "origin/main": {Ref: "refs/remotes/origin/main"}, "main2": {Ref: "refs/remotes/origin/main2"},
		"light": {Ref: "refs/tags/light"}, "heavy": {Ref: "refs/tags/heavy"}, first: {}, last[:7]: {},
	} {
		hash := map[string]string{"light": first, "heavy": first, first: first}[name]
		if hash == "" {
			hash = last
		}
		want.Commit = plumbing.NewHash(hash)
		if found, err := s.Resolve(name); err != nil || found != want {
			t.Errorf("%s: %v, %v; want %v", name, found, err, want)
		}
	}
	for _, name := range []string{"nothing", "0000000", "mai", last[:6]} {
		if _, err := s.Resolve(name); !errors.Is(err, gitrepo.ErrNoBranch) {
			t.Errorf("%s: %v", name, err)
		}
	}
	remotes, err := s.Remotes()
	want := []gitrepo.Remote{{Name: "origin", URL: work}, {Name: "alpha", URL: filepath.Join(filepath.Dir(clone), "elsewhere.git")}}
	if diff := cmp.Diff(want, remotes); err != nil || diff != "" {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	names, err := s.Names()
	if diff := cmp.Diff([]string{"main", "origin/main", "origin/main2"}, names); err != nil || diff != "" {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	if at, err := s.When(plumbing.NewHash(last)); err != nil || at.IsZero() {
		t.Errorf("made at %s: %v", at, err)
	}
}

// TestBranchInTheWay checks that CheckNew rejects a branch whose name is a directory of another
// branch, and the reverse.
func TestBranchInTheWay(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, work, url string, push func(...string)) {
		commitFile(t, work, "f", "one")
		for _, name := range []string{"rendered/old", "team", "gone/a/b"} {
			git(t, work, "branch", name)
		}
		push("main", "rendered/old", "team", "gone/a/b")
		s := open(t, url)
		for range 2 { // loose and packed refs
			sync(t, s, "main")
			for branch, want := range map[string]string{
				"rendered": "rendered/old", "rendered/old/x": "rendered/old", "team/main": "team", "gone/a": "gone/a/b",
				"rendered/other": "", "rendere": "", "teams": "", "new": "",
			} {
				err := s.CheckNew(branch)
				if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), "because it has branch "+want+": name another branch, or delete")) {
					t.Errorf("%s: %v, want %q", branch, err, want)
				}
			}
			git(t, work, "pack-refs", "--all")
			if url != work && !s.Remote() {
				git(t, url, "pack-refs", "--all")
			}
		}
		git(t, work, "branch", "-D", "gone/a/b", "rendered/old")
		push("--delete", "gone/a/b", "rendered/old")
		sync(t, s, "rendered")
		if err := s.CheckNew("rendered"); err != nil {
			t.Error(err)
		}
		publish(t, s, gitrepo.Hash{}, map[string][]byte{"x": nil})
		sync(t, s, "rendered")
		git(t, work, "ls-remote", "--exit-code", url, "refs/heads/rendered")
	})
}

// TestDirsOfDeletedBranches checks that empty ref directories do not block a new branch.
func TestDirsOfDeletedBranches(t *testing.T) {
	t.Parallel()
	work := workTree(t)
	commitFile(t, work, "f", "one")
	if err := os.MkdirAll(filepath.Join(work, ".git/refs/heads/rendered/a/b"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := open(t, work)
	sync(t, s)
	publish(t, s, gitrepo.Hash{}, map[string][]byte{"x": nil})
	git(t, work, "rev-parse", "--verify", "refs/heads/rendered")
}

// TestMirrorFollowsNames checks that a mirror on disk fetches a branch whose name is a directory of
// an earlier one, and the reverse.
func TestMirrorFollowsNames(t *testing.T) {
	t.Parallel()
	work := workTree(t)
	dir, url := serve(t)
	want := commitFile(t, work, "f", "one")
	cfg := gitrepo.Config{URL: url, Cache: filepath.Join(t.TempDir(), "cache")}
	last := ""
	for _, name := range []string{"team", "team/main", "team/main/x", "team"} {
		if last != "" {
			git(t, dir, "branch", "-D", last)
		}
		last = name
		git(t, work, "push", "-q", dir, "main:refs/heads/"+name)
		s, err := gitrepo.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		sync(t, s, name)
		if have := head(t, s, name).String(); have != want {
			t.Errorf("%s is at %s, want %s", name, have, want)
		}
	}
}
