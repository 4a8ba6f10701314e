package reconciler

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPublishes(t *testing.T) {
	t.Parallel()
	for _, bare := range []bool{false, true} {
		g := newRig(t, bare)
		source := g.commit(TopologyFile, topologyOf("g1", "g2", "g3"))
		out := g.good()
		if !out.Changed || out.Published != g.published() {
			t.Fatalf("bare %v: outcome %+v, published %s", bare, out, g.published())
		}
		for _, name := range []string{"clusters/g1/kustomization.yaml", "base/kustomization.yaml", LockFile} {
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
		if same := g.good(); same.Changed || same.Published != out.Published {
			t.Errorf("bare %v: a second pass: %+v", bare, same)
		}
		if !bare && out.Source.Commit != source {
			t.Errorf("source %s, want %s", out.Source.Commit, source)
		}
		if again := g.another(); onlyOutcome(t, again).Changed {
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
	g := newRig(t, false)
	g.commit(TopologyFile, topologyOf("g1", "g2"))
	first := g.good()
	source := g.commit(TopologyFile, "# a comment\n"+topologyOf("g1", "g2"))
	second := g.good()
	if second.Changed || second.Published != first.Published || second.Source.Commit != source {
		t.Errorf("outcome %+v", second)
	}
	if s := g.Status(); s.Good.Commit != source || s.Commits[0].State != StateSuccess {
		t.Errorf("status %+v", s)
	}
}

func TestBrokenCommitChangesNothing(t *testing.T) {
	t.Parallel()
	g := newRig(t, false)
	g.commit(TopologyFile, topologyOf("g1", "g2"))
	out := g.good()
	broken := g.commit(TopologyFile, strings.Replace(topologyOf("g1", "g2"), "10.7.0.0/16", "10.7.0.1/16", 1))
	f := g.bad(ReasonInvalid)
	if !strings.HasPrefix(f.Message, TopologyFile+":7:") || !strings.Contains(f.Message, "podCIDRs") {
		t.Errorf("message %q", f.Message)
	}
	s := g.Status()
	if g.published() != out.Published || s.Published != out.Published || s.Seen.Commit != broken || s.Good.Commit == broken {
		t.Errorf("status %+v", s)
	}
	if c := s.Commits[0]; c.Commit != broken || c.State != StateFailure || c.Description != f.Message {
		t.Errorf("commit status %+v", c)
	}
	since := s.LastError.Since
	g.bad(ReasonInvalid)
	if s := g.Status(); !s.LastError.Since.Equal(since) || len(s.Commits) != 2 || !s.Ready {
		t.Errorf("status after the same failure %+v", s)
	}
	g.commit(TopologyFile, topologyOf("g1", "g2", "g3"))
	if next := g.good(); !next.Changed || g.Status().LastError != nil {
		t.Errorf("outcome %+v, status %+v", next, g.Status())
	}
}

func TestBadDays(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		// spoil makes the day bad; the pass then fails with want, and heal makes
		// it good again.
		spoil func(g *rig)
		want  Reason
		heal  func(g *rig)
	}{
		{"file gone", func(g *rig) {
			git(g.t, g.work, "rm", "-q", TopologyFile)
			git(g.t, g.work, "commit", "-q", "-m", "gone")
			g.push("main")
		}, ReasonNoFile, func(g *rig) { g.commit(TopologyFile, topologyOf("g1", "g2", "g3")) }},
		{"branch gone", func(g *rig) {
			git(g.t, g.repo, "update-ref", "-d", "refs/heads/main")
		}, ReasonNoBranch, func(g *rig) { g.commit(TopologyFile, topologyOf("g1", "g2", "g3")+"# again\n") }},
		{"repository gone", func(g *rig) { rename(g.t, g.repo, g.repo+".away") }, ReasonFetch,
			func(g *rig) { rename(g.t, g.repo+".away", g.repo) }},
		{"lock unreadable", func(g *rig) { g.commit(LockFile, "clusters: [\n") }, ReasonInvalid,
			func(g *rig) { g.commit(LockFile, "") }},
		{"root key gone", func(g *rig) { rename(g.t, g.cfg.RootKeyFile, g.cfg.RootKeyFile+".away") }, ReasonKeys,
			func(g *rig) { rename(g.t, g.cfg.RootKeyFile+".away", g.cfg.RootKeyFile) }},
		{"most clusters gone", func(g *rig) { g.commit(TopologyFile, topologyOf("g3")) }, ReasonMassDelete,
			func(g *rig) { g.commit(TopologyFile, topologyOf("g2", "g3")) }},
		{"empty file", func(g *rig) { g.commit(TopologyFile, "") }, ReasonInvalid,
			func(g *rig) { g.commit(TopologyFile, topologyOf("g1", "g2", "g3")) }},
	}
	for _, tt := range tests {
		for _, bare := range []bool{false, true} {
			t.Run(tt.name+kind(bare), func(t *testing.T) {
				t.Parallel()
				g := newRig(t, bare)
				g.commit(TopologyFile, topologyOf("g1", "g2", "g3"))
				out := g.good()
				g.pull()
				tt.spoil(g)
				g.bad(tt.want)
				s := g.Status()
				if s.Published != out.Published || s.LastError == nil || !s.Ready {
					t.Errorf("status %+v", s)
				}
				tt.heal(g)
				if g.good(); g.Status().LastError != nil || g.published() == "" {
					t.Errorf("status %+v", g.Status())
				}
			})
		}
	}
}

func kind(bare bool) string {
	if bare {
		return ", bare"
	}
	return ", work tree"
}

func rename(t testing.TB, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func TestEmptyRepository(t *testing.T) {
	t.Parallel()
	g := newRig(t, true)
	f := g.bad(ReasonNoBranch)
	if !strings.Contains(f.Message, "commit a clusterset.yaml there") || g.Status().Ready {
		t.Errorf("message %q, status %+v", f.Message, g.Status())
	}
	g.commit(TopologyFile, topologyOf("g1", "g2"))
	g.good()
}

func TestForcePush(t *testing.T) {
	t.Parallel()
	g := newRig(t, false)
	g.commit("README", "x")
	g.commit(TopologyFile, topologyOf("g1", "g2"))
	first := g.good()
	git(t, g.work, "reset", "-q", "--hard", "HEAD~1")
	want := g.commit(TopologyFile, topologyOf("g1", "g2", "g3"))
	out := g.good()
	if out.Source.Commit != want || !out.Changed {
		t.Errorf("outcome %+v", out)
	}
	if parent := git(t, g.repo, "rev-parse", DefaultPublishBranch+"^"); parent != first.Published {
		t.Errorf("the publish branch was rewritten too: parent %s, want %s", parent, first.Published)
	}
}

func TestMassDelete(t *testing.T) {
	t.Parallel()
	decommission := func(text string) string { return strings.Replace(text, "spec:\n", "spec:\n  decommission: true\n", 1) }
	tests := []struct {
		name          string
		before, after string
		allow         bool
		refused       bool
	}{
		{"half", topologyOf("g1", "g2"), topologyOf("g2"), false, false},
		{"more than half", topologyOf("g1", "g2", "g3"), topologyOf("g2"), false, true},
		{"renamed all", topologyOf("g1", "g2"), topologyOf("h1", "h2"), false, true},
		{"allowed by flag", topologyOf("g1", "g2", "g3"), topologyOf("g2"), true, false},
		{"decommission", topologyOf("g1", "g2", "g3"), decommission(topologyOf("g2")), false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t, false, func(c *Config) { c.AllowMassDelete = tt.allow })
			g.commit(TopologyFile, tt.before)
			g.good()
			g.commit(TopologyFile, tt.after)
			if !tt.refused {
				g.good()
				return
			}
			if f := g.bad(ReasonMassDelete); !strings.Contains(f.Message, "decommission") {
				t.Errorf("message %q names no way out", f.Message)
			}
		})
	}
}

func TestTwoReconcilers(t *testing.T) {
	t.Parallel()
	g := newRig(t, true)
	other := g.another()
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

// TestBranchMovedWhilePublishing moves the publish branch between the look and
// the write: the clock is asked in between.
func TestBranchMovedWhilePublishing(t *testing.T) {
	t.Parallel()
	var g *rig
	moved := false
	g = newRig(t, false, func(c *Config) {
		c.Now = func() time.Time {
			if g != nil && !moved && g.Status().Seen != nil && g.Status().Good != nil && g.Status().Seen.Commit != g.Status().Good.Commit {
				moved = true
				userCommit(g, "clusters/g1/patches/mine.yaml")
			}
			return time.Now()
		}
	})
	g.commit(TopologyFile, topologyOf("g1", "g2"))
	g.good()
	g.commit(TopologyFile, topologyOf("g1", "g2", "g3"))
	out := g.good()
	if !moved || !out.Changed {
		t.Fatalf("moved %v, outcome %+v", moved, out)
	}
	if have := g.file(DefaultPublishBranch, "clusters/g1/patches/mine.yaml"); have == "" {
		t.Error("the other's commit is lost")
	}
	if g.file(DefaultPublishBranch, "clusters/g3/kustomization.yaml") == "" {
		t.Error("the new cluster is missing")
	}
}

// userCommit adds a kustomize patch to the publish branch, as a person does.
func userCommit(g *rig, name string) {
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

func TestOtherRepositoryAndFolder(t *testing.T) {
	t.Parallel()
	target := t.TempDir()
	git(t, target, "init", "-q", "--bare", "-b", "main")
	g := newRig(t, false, func(c *Config) {
		c.Publish.URL, c.PublishBranch, c.Path = target, "main", "net/prod"
	})
	g.commit("net/prod/"+TopologyFile, topologyOf("g1", "g2"))
	out := g.good()
	if have := git(t, target, "rev-parse", "main"); have != out.Published {
		t.Errorf("published %s, want %s", have, out.Published)
	}
	if g.published() != "" {
		t.Error("published to the source repository")
	}
}

func TestRefusesToPublishOnTheSource(t *testing.T) {
	t.Parallel()
	g := newRig(t, false)
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

func TestUserPatchIsKept(t *testing.T) {
	t.Parallel()
	g := newRig(t, false)
	g.commit(TopologyFile, topologyOf("g1", "g2"))
	g.good()
	userCommit(g, "clusters/g2/patches/mine.yaml")
	g.good()
	if g.file(DefaultPublishBranch, "clusters/g2/patches/mine.yaml") == "" {
		t.Error("the patch is gone")
	}
	if !strings.Contains(g.file(DefaultPublishBranch, "clusters/g2/kustomization.yaml"), "mine.yaml") {
		t.Error("the patch is not in force")
	}
}

func TestForeignEditIsUndone(t *testing.T) {
	t.Parallel()
	g := newRig(t, false)
	g.commit(TopologyFile, topologyOf("g1", "g2"))
	want := g.file(g.good().Published, "base/kustomization.yaml")
	clone := filepath.Join(t.TempDir(), "clone")
	git(t, g.work, "clone", "-q", "-b", DefaultPublishBranch, g.repo, clone)
	git(t, clone, "rm", "-q", "base/kustomization.yaml")
	git(t, clone, "commit", "-q", "-m", "oops")
	git(t, clone, "push", "-q")
	if out := g.good(); !out.Changed {
		t.Error("nothing was repaired")
	}
	if diff := cmp.Diff(want, g.file(DefaultPublishBranch, "base/kustomization.yaml")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRunServesAndStops(t *testing.T) {
	t.Parallel()
	g := newRig(t, false)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	base := "http://" + listener.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx, listener) }()
	until(t, "the first failure", func() bool { return strings.Contains(get(t, base+"/readyz", 503), "no such branch") })
	get(t, base+"/healthz", 200)

	g.commit(TopologyFile, topologyOf("g1", "g2"))
	until(t, "the commit published", func() bool { return g.Status().Ready })
	began := time.Now()
	want := g.commit(TopologyFile, topologyOf("g1", "g2", "g3"))
	until(t, "the next commit published", func() bool { s := g.Status(); return s.Good.Commit == want })
	t.Logf("commit to published, git commit included: %s", time.Since(began))

	var s Status
	if err := json.Unmarshal([]byte(get(t, base+"/status", 200)), &s); err != nil {
		t.Fatal(err)
	}
	if s.Good.Commit != want || s.Published != g.published() || s.FabricDigest == "" {
		t.Errorf("status %+v", s)
	}
	metrics := get(t, base+"/metrics", 200)
	for _, line := range []string{`hawser_reconciler_publishes_total 2`, `hawser_reconciler_failures_total{reason="no-branch"}`,
		`published="` + s.Published + `"`, `hawser_reconciler_failing 0`} {
		if !strings.Contains(metrics, line) {
			t.Errorf("metrics lack %s", line)
		}
	}
	g.commit(TopologyFile, "nonsense")
	until(t, "the failure", func() bool { return strings.Contains(get(t, base+"/readyz", 200), "last good revision "+want) })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func get(t *testing.T, url string, code int) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != code {
		return ""
	}
	return string(body)
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestStoppedPassIsNoFailure(t *testing.T) {
	t.Parallel()
	g := newRig(t, false)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, failure := g.Once(ctx); failure == nil || g.Status().LastError != nil {
		t.Errorf("failure %v, status %+v", failure, g.Status())
	}
}

func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	var s Status
	for i := range 3 * maxCommits {
		s.record(CommitStatus{Commit: string(rune('a' + i%40))})
	}
	if len(s.Commits) != maxCommits {
		t.Errorf("%d commits", len(s.Commits))
	}
}

var errSample = errors.New("sample")

func TestFailureUnwraps(t *testing.T) {
	t.Parallel()
	if !errors.Is(fail(ReasonFetch, "", errSample), errSample) {
		t.Error("the cause is lost")
	}
}
