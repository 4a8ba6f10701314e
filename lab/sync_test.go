package lab

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/google/go-cmp/cmp"
)

const publishedTree = `
-- base/kustomization.yaml --
resources: [fabric.yaml]
-- base/fabric.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: hawser-fabric, namespace: hawser-system}, binaryData: {fabric.json.gz.0: AAEC}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: hawser-fabric-1, namespace: hawser-system}, binaryData: {fabric.json.gz.1: AwQF}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: other}, data: {x: y}}
-- clusters/a/kustomization.yaml --
resources: [../../base, keys.yaml]
-- clusters/a/keys.yaml --
{apiVersion: v1, kind: Secret, metadata: {name: hawser-keys, namespace: hawser-system}, data: {keys.age: c2VhbGVk}}
`

// commitTree commits files ("-- path --" then content) on a branch of the repository.
func commitTree(t *testing.T, repo *git.Repository, text, message string) plumbing.Hash {
	t.Helper()
	tree, err := repo.Worktree()
	if err != nil {
		t.Fatal(err)
	}
	for part := range strings.SplitSeq(text, "\n-- ") {
		name, content, ok := strings.Cut(part, " --\n")
		if !ok {
			continue
		}
		if _, err := writeFile(filepath.Join(tree.Filesystem.Root(), name), []byte(content+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := tree.Add(name); err != nil {
			t.Fatal(err)
		}
	}
	hash, err := tree.Commit(message, &git.CommitOptions{Author: &object.Signature{Name: "t", Email: "t@example.org", When: time.Unix(1, 0)}})
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

// TestReadPublished: the sync builds each cluster's directory, takes the parts of the
// fabric and the keys, and goes by the topology that was published, not by the
// newest one.
func TestReadPublished(t *testing.T) {
	t.Parallel()
	repo, err := git.PlainInit(t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	source := commitTree(t, repo, "\n-- clusterset.yaml --\nspec:\n  clusters:\n  - name: a", "topology")
	hash := commitTree(t, repo, publishedTree, "publish\n\nSource-Commit: "+source.String()+"\nFabric-Digest: 0123456789abcdef\n")
	commitTree(t, repo, "\n-- clusterset.yaml --\nspec:\n  clusters:\n  - name: b", "a newer topology")
	got, top, err := (&reader{}).read(repo, hash)
	if err != nil {
		t.Fatal(err)
	}
	if top.names() != "a" || got.source != source.String() || got.digest != "0123456789abcdef" {
		t.Errorf("clusters %s, source %s, digest %s", top.names(), got.source, got.digest)
	}
	want := &delivery{
		fabric: map[string][]byte{"fabric.json.gz.0": {0, 1, 2}, "fabric.json.gz.1": {3, 4, 5}},
		keys:   map[string][]byte{"keys.age": []byte("sealed")},
	}
	if diff := cmp.Diff(want, got.clusters["a"], cmp.AllowUnexported(delivery{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestReadPublishedAgain: what did not change is not built again, and what did is,
// also where people have patches.
func TestReadPublishedAgain(t *testing.T) {
	t.Parallel()
	repo, err := git.PlainInit(t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	source := commitTree(t, repo, "\n-- clusterset.yaml --\nspec:\n  clusters:\n  - name: a\n  - name: b\n  - name: c", "topology")
	message := "publish\n\nSource-Commit: " + source.String() + "\n"
	secret := "{apiVersion: v1, kind: Secret, metadata: {name: hawser-keys}, stringData: {keys.age: %s}}"
	key := func(text string) string { return strings.ReplaceAll(secret, "%s", text) }
	var r reader
	read := func(tree string) published {
		t.Helper()
		out, _, err := r.read(repo, commitTree(t, repo, tree, message))
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	first := read(publishedTree + "-- clusters/b/kustomization.yaml --\nresources: [../../base, keys.yaml, more.yaml]" +
		"\n-- clusters/b/keys.yaml --\n---\n" + key("one") +
		"\n-- clusters/b/more.yaml --\n{apiVersion: v1, kind: Secret, metadata: {name: other}, data: {x: eA==}}" +
		"\n-- clusters/c/kustomization.yaml --\nresources: [../../base, keys.yaml]\npatches: [{path: p.yaml}]" +
		"\n-- clusters/c/keys.yaml --\n" + key("one") + "\n-- clusters/c/p.yaml --\n" + key("patched"))
	want := map[string]string{"a": "sealed", "b": "one", "c": "patched"}
	for name, text := range want {
		d := first.clusters[name]
		if string(d.keys["keys.age"]) != text || len(d.keys) != 1 || len(d.fabric) != 2 {
			t.Errorf("%s: keys %q, %d files of the fabric", name, d.keys, len(d.fabric))
		}
	}
	second := read("\n-- clusters/b/keys.yaml --\n" + key("two"))
	if second.clusters["a"] != first.clusters["a"] || second.clusters["c"] != first.clusters["c"] {
		t.Error("a cluster that did not change was built again")
	}
	if b := second.clusters["b"]; string(b.keys["keys.age"]) != "two" || string(first.clusters["b"].keys["keys.age"]) != "one" {
		t.Errorf("b: %q after %q", b.keys, first.clusters["b"].keys)
	}
	third := read("\n-- base/fabric.yaml --\n{apiVersion: v1, kind: ConfigMap, metadata: {name: hawser-fabric}, binaryData: {fabric.json.gz: BwcH}}")
	for name := range want {
		if d := third.clusters[name]; len(d.fabric) != 1 || string(d.fabric["fabric.json.gz"]) != "\a\a\a" || len(d.keys) != 1 {
			t.Errorf("%s after a change of the fabric: %v", name, d)
		}
	}
	if len(second.clusters["a"].fabric) != 2 {
		t.Error("the previous publication changed")
	}
}

func TestReadPublishedRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, tree, message, want string }{
		{"no trailer", publishedTree, "publish\n", "find source commit"},
		{"no directory", "\n-- base/x --\ny", "publish\n\nSource-Commit: SOURCE\n", "build clusters/a"},
		{"a base that is fetched", "\n-- clusters/a/kustomization.yaml --\nresources: [\"file:///x?ref=--upload-pack=id;\"]", "publish\n\nSource-Commit: SOURCE\n",
			`clusters/a/kustomization.yaml:1:13: error: resources: "file:///x?ref=--upload-pack=id;" is not a path in this tree`},
		{"no fabric", "\n-- clusters/a/kustomization.yaml --\nconfigMapGenerator: [{name: x, literals: [a=b]}]",
			"publish\n\nSource-Commit: SOURCE\n",
			"holds no ConfigMap hawser-fabric"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			repo, err := git.PlainInit(t.TempDir(), false)
			if err != nil {
				t.Fatal(err)
			}
			source := commitTree(t, repo, "\n-- clusterset.yaml --\nspec:\n  clusters:\n  - name: a", "topology")
			hash := commitTree(t, repo, tt.tree, strings.ReplaceAll(tt.message, "SOURCE", source.String()))
			if _, _, err := (&reader{}).read(repo, hash); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
		})
	}
}

func TestMirror(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, files := range []map[string][]byte{
		{"a": []byte("1"), "b": []byte("2")}, {"b": []byte("3")}, nil,
	} {
		if err := syncDir(dir, files, 0o600); err != nil {
			t.Fatal(err)
		}
		have := map[string][]byte{}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			if have[entry.Name()], err = os.ReadFile(filepath.Join(dir, entry.Name())); err != nil {
				t.Fatal(err)
			}
		}
		if len(files)+len(have) > 0 && !cmp.Equal(files, have) {
			t.Errorf("(-want +got):\n%s", cmp.Diff(files, have))
		}
	}
}

// TestChildRestarts tests that a killed program restarts, and a stopped one does not.
func TestChildRestarts(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	c := startChild(program{name: "sleeper", argv: []string{"sleep", "600"}, env: os.Environ(), log: log}, slog.New(slog.DiscardHandler))
	running := func(not int) int {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if p, _, _ := c.state(); p.PID != 0 && p.PID != not {
				return p.PID
			}
		}
		t.Fatal("the program does not run")
		return 0
	}
	first := running(0)
	if err := c.crash(); err != nil {
		t.Fatal(err)
	}
	running(first)
	if _, restarts, end := c.state(); restarts != 1 || !strings.Contains(end, "killed") {
		t.Errorf("%d restarts, last end %q", restarts, end)
	}
	last, _, _ := c.state()
	c.stop()
	if last.Alive() {
		t.Error("a stopped program runs")
	}
}
