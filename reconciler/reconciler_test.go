package reconciler

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/render"
)

func TestPublishes(t *testing.T) {
	t.Parallel()
	for _, bare := range []bool{false, true} {
		g := newTestEnv(t, bare)
		source := g.commit(TopologyFile, topologyOf("g1", "g2", "g3"))
		out := g.mustPass()
		if !out.Changed || out.Published != g.published() {
			t.Fatalf("bare %v: outcome %+v, published %s", bare, out, g.published())
		}
		for _, name := range []string{"clusters/g1/kustomization.yaml", "base/kustomization.yaml", LockFile, render.MapPicture, render.MapText} {
			if g.file(DefaultPublishBranch, name) == "" {
				t.Errorf("bare %v: %s is empty", bare, name)
			}
		}
		message := git(t, g.repo, "log", "-1", "--format=%B", DefaultPublishBranch)
		for _, want := range []string{"Source-Commit: " + out.Source.Commit, "Fabric-Digest: " + out.Digest, "change " + TopologyFile} {
			if !bare && !strings.Contains(message, want) {
				t.Errorf("message lacks %q:\n%s", want, message)
			}
		}
		if same := g.mustPass(); same.Changed || same.Published != out.Published {
			t.Errorf("bare %v: a second pass: %+v", bare, same)
		}
		if !bare && out.Source.Commit != source {
			t.Errorf("source %s, want %s", out.Source.Commit, source)
		}
		if again := g.newReconciler(); onlyOutcome(t, again).Changed {
			t.Errorf("bare %v: a new process published again", bare)
		}
		git(t, g.repo, "fsck", "--strict")
	}
}

func onlyOutcome(t *testing.T, r *Reconciler) *Outcome {
	t.Helper()
	out, failure := r.Once(t.Context())
	if failure != nil {
		t.Fatal(failure)
	}
	return out
}

func TestCommentChangesNothing(t *testing.T) {
	t.Parallel()
	g := newTestEnv(t, false)
	g.commit(TopologyFile, topologyOf("g1", "g2"))
	first := g.mustPass()
	source := g.commit(TopologyFile, "# a comment\n"+topologyOf("g1", "g2"))
	second := g.mustPass()
	if second.Changed || second.Published != first.Published || second.Source.Commit != source {
		t.Errorf("outcome %+v", second)
	}
	if s := g.Status(); s.Active.Commit != source || s.Commits[0].State != StateSuccess {
		t.Errorf("status %+v", s)
	}
}

func TestTwoReconcilers(t *testing.T) {
	t.Parallel()
	g := newTestEnv(t, true)
	other := g.newReconciler()
	names := []string{"g1", "g2"}
	for range 4 {
		names = append(names, "n"+string(rune('a'+len(names))))
		g.commit(TopologyFile, topologyOf(names...))
		var wg sync.WaitGroup
		for _, r := range []*Reconciler{g.Reconciler, other} {
			wg.Go(func() {
				if _, failure := r.Once(t.Context()); failure != nil {
					t.Errorf("pass: %v", failure)
				}
			})
		}
		wg.Wait()
		g.pull()
	}
	count := git(t, g.repo, "rev-list", "--count", DefaultPublishBranch)
	if count != "4" {
		t.Errorf("%s commits published for 4 changes", count)
	}
	git(t, g.repo, "fsck", "--strict")
}

// TestBranchMovedWhilePublishing moves the publish branch between read and write. The move is in
// the function of the clock, which the pass calls in between.
func TestBranchMovedWhilePublishing(t *testing.T) {
	t.Parallel()
	var g *testEnv
	moved := false
	g = newTestEnv(t, false, func(c *Config) {
		c.Now = func() time.Time {
			if g != nil && !moved && g.Status().Latest != nil && g.Status().Active != nil && g.Status().Latest.Commit != g.Status().Active.Commit {
				moved = true
				userCommit(g, "clusters/g1/patches/mine.yaml")
			}
			return time.Now()
		}
	})
	g.commit(TopologyFile, topologyOf("g1", "g2"))
	g.mustPass()
	g.commit(TopologyFile, topologyOf("g1", "g2", "g3"))
	out := g.mustPass()
	if !moved || !out.Changed {
		t.Fatalf("moved %v, outcome %+v", moved, out)
	}
	if log := git(t, g.repo, "log", "--format=%s", DefaultPublishBranch); !strings.Contains(log, "mine\n") {
		t.Errorf("the other's commit is lost:\n%s", log)
	}
	if g.file(DefaultPublishBranch, "clusters/g3/kustomization.yaml") == "" {
		t.Error("the new cluster is missing")
	}
}

// userCommit pushes a kustomize patch to the publish branch.
func userCommit(g *testEnv, name string) {
	g.t.Helper()
	clone := filepath.Join(g.t.TempDir(), "clone")
	git(g.t, g.work, "clone", "-q", "-b", DefaultPublishBranch, g.repo, clone)
	if err := os.MkdirAll(filepath.Dir(filepath.Join(clone, name)), 0o755); err != nil {
		g.t.Fatal(err)
	}
	patch := "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: hawser-system\n  labels: {mine: \"yes\"}\n"
	if err := os.WriteFile(filepath.Join(clone, name), []byte(patch), 0o644); err != nil {
		g.t.Fatal(err)
	}
	git(g.t, clone, "add", ".")
	git(g.t, clone, "commit", "-q", "-m", "mine")
	git(g.t, clone, "push", "-q")
}

func TestOtherRepositoryAndDir(t *testing.T) {
	t.Parallel()
	target := t.TempDir()
	git(t, target, "init", "-q", "--bare", "-b", "main")
	g := newTestEnv(t, false, func(c *Config) {
		c.Publish.URL, c.PublishBranch, c.Path = target, "main", "net/prod"
	})
	g.commit("net/prod/"+TopologyFile, topologyOf("g1", "g2"))
	out := g.mustPass()
	if have := git(t, target, "rev-parse", "main"); have != out.Published {
		t.Errorf("published %s, want %s", have, out.Published)
	}
	if g.published() != "" {
		t.Error("published to the source repository")
	}
}

func TestRefusesToPublishOnTheSource(t *testing.T) {
	t.Parallel()
	g := newTestEnv(t, false)
	g.cfg.PublishBranch = "refs/heads/main"
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(g.repo, link); err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{"", g.repo, g.repo + "/.git", "file://" + g.repo, link} {
		g.cfg.Publish.URL = target
		if _, err := New(g.cfg); err == nil {
			t.Errorf("%q: the source branch would be overwritten", target)
		}
	}
}

// TestPublishedPatch checks that a patch on the publish branch has no effect. The next pass removes
// and reports it.
func TestPublishedPatch(t *testing.T) {
	t.Parallel()
	g := newTestEnv(t, false)
	g.commit(TopologyFile, topologyOf("g1", "g2"))
	g.mustPass()
	userCommit(g, "clusters/g2/patches/mine.yaml")
	g.mustPass()
	if tree := git(t, g.repo, "ls-tree", "-r", "--name-only", DefaultPublishBranch); strings.Contains(tree, "mine.yaml") {
		t.Errorf("the patch is still there:\n%s", tree)
	}
	if text := g.file(DefaultPublishBranch, "clusters/g2/kustomization.yaml"); strings.Contains(text, "mine.yaml") {
		t.Errorf("the patch is published:\n%s", text)
	}
}

func TestForeignEditIsUndone(t *testing.T) {
	t.Parallel()
	g := newTestEnv(t, false)
	g.commit(TopologyFile, topologyOf("g1", "g2"))
	want := g.file(g.mustPass().Published, "base/kustomization.yaml")
	clone := filepath.Join(t.TempDir(), "clone")
	git(t, g.work, "clone", "-q", "-b", DefaultPublishBranch, g.repo, clone)
	git(t, clone, "rm", "-q", "base/kustomization.yaml")
	git(t, clone, "commit", "-q", "-m", "oops")
	git(t, clone, "push", "-q")
	if out := g.mustPass(); !out.Changed {
		t.Error("nothing was repaired")
	}
	if diff := cmp.Diff(want, g.file(DefaultPublishBranch, "base/kustomization.yaml")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
