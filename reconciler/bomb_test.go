package reconciler

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// TestBombs: a commit of a few objects that unpacks to far more than the program can read is
// refused, and the next commit counts. Folders that the reconciler does not read do not matter.
func TestBombs(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		dir  string // folder with the bomb
		bomb func(g *rig) (mode, kind, hash string)
		want string // in the refusal; empty if the commit is accepted
	}{
		{"10^8 files in the patches", "patches", func(g *rig) (string, string, string) { return g.nested(10, 8) }, "files and folders"},
		{"10^8 files in another folder", "other", func(g *rig) (string, string, string) { return g.nested(10, 8) }, ""},
		{"200 folders in each other", "patches", func(g *rig) (string, string, string) { return g.nested(1, 200) }, "folders in each other"},
		{"one large file under many names", "patches", func(g *rig) (string, string, string) {
			return "040000", "tree", g.tree("100644", "blob", g.blob(bytes.Repeat([]byte("#\n"), 5<<20)), 20)
		}, "bytes"},
		{"a large file in the patches", "patches", func(g *rig) (string, string, string) {
			return "040000", "tree", g.tree("100644", "blob", g.blob(make([]byte, 120<<20)), 1)
		}, "bytes"},
		{"a large topology", TopologyFile, func(g *rig) (string, string, string) {
			return "100644", "blob", g.blob(bytes.Repeat([]byte("#\n"), 20<<20))
		}, "bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := newRig(t, false)
			g.commit(TopologyFile, topologyOf("g1", "g2"))
			first := g.good().Published
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
				g.good()
				return
			}
			if f := g.bad(ReasonInvalid); !strings.Contains(f.Message, test.want) || f.Revision != bomb {
				t.Errorf("commit %s: %q, want %q", f.Revision, f.Message, test.want)
			}
			if g.published() != first {
				t.Error("the publish branch has changed")
			}
			git(t, g.work, "update-ref", "refs/heads/main", git(t, g.work, "commit-tree", "-p", bomb, "-m", "repair", good))
			g.good()
		})
	}
}

// blob writes a file into the object database, and returns its hash.
func (g *rig) blob(content []byte) string {
	g.t.Helper()
	cmd := gitCommand(g.work, "hash-object", "-w", "--stdin")
	cmd.Stdin = bytes.NewReader(content)
	out, err := cmd.Output()
	if err != nil {
		g.t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// tree writes a folder with the same entry under several names.
func (g *rig) tree(mode, kind, hash string, names int) string {
	g.t.Helper()
	var entries []string
	for i := range names {
		entries = append(entries, fmt.Sprintf("%s %s %s\t%04d.yaml", mode, kind, hash, i))
	}
	return g.mktree(entries...)
}

// nested writes folders in each other, each with the next one under several names, and a small
// file in the innermost.
func (g *rig) nested(names, depth int) (mode, kind, hash string) {
	g.t.Helper()
	mode, kind, hash = "100644", "blob", g.blob([]byte("x"))
	for range depth {
		mode, kind, hash = "040000", "tree", g.tree(mode, kind, hash, names)
	}
	return mode, kind, hash
}
