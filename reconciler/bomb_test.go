//go:build !race

package reconciler

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBombs checks that the reconciler refuses a commit of a few objects that unpacks to more than
// its limits. It accepts the next commit. Directories that it does not read have no effect.
func TestBombs(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		dir  string // directory with the bomb
		bomb func(g *testEnv) (mode, kind, hash string)
		want string // in the error; empty if the commit is accepted
	}{
		{"10^8 files in the patches", "patches", func(g *testEnv) (string, string, string) { return g.putNested(10, 8) }, "files and directories"},
		{"10^8 files in another directory", "other", func(g *testEnv) (string, string, string) { return g.putNested(10, 8) }, ""},
		{"200 directories in each other", "patches", func(g *testEnv) (string, string, string) { return g.putNested(1, 200) }, "directories in each other"},
		{"one large file under many names", "patches", func(g *testEnv) (string, string, string) {
			blob := g.putBlob(bytes.Repeat([]byte("#\n"), 5<<20))
			return "040000", "tree", g.putTree("100644", "blob", blob, 20)
		}, "bytes"},
		{"a large file in the patches", "patches", func(g *testEnv) (string, string, string) {
			return "040000", "tree", g.putTree("100644", "blob", g.putBlob(make([]byte, 120<<20)), 1)
		}, "bytes"},
		{"values in a topology", TopologyFile, func(g *testEnv) (string, string, string) {
			text := append([]byte("spec: ["), bytes.Repeat([]byte("a,"), 10<<20)...)
			return "100644", "blob", g.putBlob(text)
		}, "YAML values"},
		{"values in a patch", "patches", func(g *testEnv) (string, string, string) {
			return "040000", "tree", g.putTree("100644", "blob", g.putBlob(append([]byte("a: ["), bytes.Repeat([]byte("a,"), 10<<20)...)), 1)
		}, "YAML values"},
		{"a large topology", TopologyFile, func(g *testEnv) (string, string, string) {
			return "100644", "blob", g.putBlob(bytes.Repeat([]byte("#\n"), 20<<20))
		}, "bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := newTestEnv(t, false)
			g.commit(TopologyFile, topologyOf("g1", "g2"))
			first := g.mustPass().Published
			mode, kind, hash := test.bomb(g)
			top := []string{fmt.Sprintf("%s %s %s\t%s", mode, kind, hash, test.dir)}
			for _, entry := range strings.Split(git(t, g.work, "ls-tree", "HEAD"), "\n") {
				if !strings.HasSuffix(entry, "\t"+test.dir) {
					top = append(top, entry)
				}
			}
			good := git(t, g.work, "rev-parse", "HEAD^{tree}")
			bomb := git(t, g.work, "commit-tree", "-p", "HEAD", "-m", "bomb", g.mktree(top...))
			git(t, g.work, "update-ref", "refs/heads/main", bomb)
			if test.want == "" {
				g.mustPass()
				return
			}
			if f := g.mustFail(ReasonInvalid); !strings.Contains(f.Message, test.want) || f.Revision != bomb {
				t.Errorf("commit %s: %q, want %q", f.Revision, f.Message, test.want)
			}
			if g.published() != first {
				t.Error("the publish branch has changed")
			}
			git(t, g.work, "update-ref", "refs/heads/main", git(t, g.work, "commit-tree", "-p", bomb, "-m", "repair", good))
			g.mustPass()
		})
	}
}

// putBlob writes a file into the object database, and returns its hash.
func (g *testEnv) putBlob(content []byte) string {
	g.t.Helper()
	cmd := gitCommand(g.work, "hash-object", "-w", "--stdin")
	cmd.Stdin = bytes.NewReader(content)
	out, err := cmd.Output()
	if err != nil {
		g.t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// putTree writes a directory with one entry under several names, and returns its hash.
func (g *testEnv) putTree(mode, kind, hash string, names int) string {
	g.t.Helper()
	var entries []string
	for i := range names {
		entries = append(entries, fmt.Sprintf("%s %s %s\t%04d.yaml", mode, kind, hash, i))
	}
	return g.mktree(entries...)
}

// putNested writes nested directories. Each contains the next one under several names. The
// innermost one contains a small file.
func (g *testEnv) putNested(names, depth int) (mode, kind, hash string) {
	g.t.Helper()
	mode, kind, hash = "100644", "blob", g.putBlob([]byte("x"))
	for range depth {
		mode, kind, hash = "040000", "tree", g.putTree(mode, kind, hash, names)
	}
	return mode, kind, hash
}

// TestUnusableCommits checks that the reconciler refuses a commit over a limit, on the topology
// branch and on the publish branch. It reports the last good state, also after a restart, and
// publishes the next commit.
func TestUnusableCommits(t *testing.T) {
	t.Parallel()
	message := func(g *testEnv, parent, tree string) string {
		file := filepath.Join(t.TempDir(), "message")
		if err := os.WriteFile(file, bytes.Repeat([]byte("long "), 1<<19), 0o600); err != nil {
			t.Fatal(err)
		}
		return git(t, g.work, "commit-tree", "-p", parent, "-F", file, tree)
	}
	object := func(g *testEnv, parent, tree string) string {
		blob := g.putBlob(make([]byte, 101<<20))
		return git(t, g.work, "commit-tree", "-p", parent, "-m", "large", g.mktree(strings.Split(git(t, g.work, "ls-tree", tree)+"\n100644 blob "+blob+"\tz", "\n")...))
	}
	for _, test := range []struct {
		name   string
		remote bool
		branch string
		bomb   func(g *testEnv, parent, tree string) string
		reason Reason
		want   []string // in the message
	}{
		{"message on main", false, "main", message, ReasonInvalid, []string{"bytes: at most 1048576 are read"}},
		{"message on main, remote", true, "main", message, ReasonInvalid, []string{"bytes: at most 1048576 are read"}},
		{"object on main, remote", true, "main", object, ReasonInvalid, []string{"object of 105906176 bytes", "git filter-repo"}},
		{"message on the publish branch", false, DefaultPublishBranch, message, ReasonPublish, []string{"at most 1048576 are read: have branch rendered of ", " put back to "}},
		{"message on the publish branch, remote", true, DefaultPublishBranch, message, ReasonPublish, []string{"at most 1048576 are read: have branch rendered of ", " put back to "}},
		{"object on the publish branch, remote", true, DefaultPublishBranch, object, ReasonPublish, []string{"object of 105906176 bytes", ": have branch rendered of ", " put back to "}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			g := newTestEnv(t, true)
			if test.remote {
				g = newHost(t).newEnv(t, "set.git")
			}
			g.commit(TopologyFile, topologyOf("g1", "g2"))
			first := g.mustPass()
			git(t, g.work, "fetch", "-q", g.repo, "main", DefaultPublishBranch)
			before := git(t, g.repo, "rev-parse", test.branch)
			bomb := test.bomb(g, before, before+"^{tree}")
			git(t, g.work, "push", "-q", g.repo, bomb+":refs/heads/"+test.branch)
			source := ""
			if test.branch == "main" {
				source = bomb
			}
			check := func() {
				t.Helper()
				f := g.mustFail(test.reason)
				for _, text := range test.want {
					if !strings.Contains(f.Message, text) {
						t.Errorf("message %q, want %q", f.Message, text)
					}
				}
				if test.reason == ReasonPublish && !strings.HasSuffix(f.Message, "put back to "+first.Published) {
					t.Errorf("message %q does not end with the last published commit %s", f.Message, first.Published)
				}
				s := g.Status()
				if !s.Ready || s.Published != first.Published || s.LastError == nil || s.LastError.Reason != test.reason {
					t.Errorf("status %+v", s)
				}
				if source != "" && (f.Revision != bomb || len(s.Commits) == 0 || s.Commits[0].Commit != bomb || s.Commits[0].State != StateFailure || s.Latest.Commit != bomb) {
					t.Errorf("failure at %q, status %+v", f.Revision, s)
				}
				scrape := httptest.NewRecorder()
				g.metrics.handler().ServeHTTP(scrape, httptest.NewRequest(http.MethodGet, "/metrics", nil))
				if !strings.Contains(scrape.Body.String(), "\nhawser_reconciler_failing 1\n") {
					t.Error("the metrics do not report the failure")
				}
			}
			check()
			check() // the next pass has the same result
			g.Reconciler = g.newReconciler()
			check()
			git(t, g.repo, "update-ref", "refs/heads/"+test.branch, before)
			if out := g.mustPass(); out.Published != first.Published {
				t.Errorf("published %s, want %s", out.Published, first.Published)
			}
		})
	}
}
