//go:build !race

package reconciler

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hawser.dev/hawser/reconciler/gitrepo"
)

// TestFsck checks that git can clone the repository after each kind of publication. git fsck finds
// no error in the clone, in the repository and in the reconciler's mirror.
func TestFsck(t *testing.T) {
	t.Parallel()
	for name, build := range map[string]func(t *testing.T) *testEnv{
		"local":          func(t *testing.T) *testEnv { return newTestEnv(t, true) },
		"work tree":      func(t *testing.T) *testEnv { return newTestEnv(t, false) },
		"remote":         func(t *testing.T) *testEnv { return newHost(t).newEnv(t, "set.git") },
		"remote, mirror": func(t *testing.T) *testEnv { return newHost(t).newEnv(t, "set.git", withCache(t)) },
		"another remote": func(t *testing.T) *testEnv {
			h := newHost(t)
			g := h.newEnv(t, "readonly.git", withCache(t), func(c *Config) { c.Publish.URL = h.URL + "/set.git" })
			g.to = filepath.Join(h.root, "set.git") // empty
			return g
		},
		"OpenPGP": func(t *testing.T) *testEnv {
			_, file := newOpenPGP(t, nil, "")
			return newHost(t).newEnv(t, "set.git", withCache(t), func(c *Config) { c.OpenPGPKeyFile = file })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			publishKinds(t, build(t))
		})
	}
}

// withCache sets directories for the mirrors.
func withCache(t *testing.T) func(*Config) {
	dir := t.TempDir()
	return func(c *Config) {
		c.Source.Cache, c.Publish.Cache = filepath.Join(dir, "source"), filepath.Join(dir, "publish")
	}
}

func publishKinds(t *testing.T, g *testEnv) {
	if g.to == "" {
		g.to = g.repo
	}
	step := func(what string, changed bool) {
		t.Helper()
		if out := g.mustPass(); out.Changed != changed {
			t.Errorf("%s: published %v, want %v", what, out.Changed, changed)
		}
		repos := slices.Compact([]string{g.repo, g.to})
		for _, from := range repos {
			clone := filepath.Join(t.TempDir(), "clone")
			git(t, t.TempDir(), "-c", "transfer.fsckObjects=true", "clone", "-q", "--mirror", "file://"+from, clone)
			repos = append(repos, clone)
		}
		for _, c := range []gitrepo.Config{g.cfg.Source, g.cfg.Publish} {
			if c.Cache != "" && c.URL != "" {
				repos = append(repos, c.Cache)
			}
		}
		for _, dir := range repos {
			text := git(t, dir, "fsck", "--strict", "--full", "--no-dangling")
			if text != "" && !strings.HasPrefix(text, "notice: HEAD points to an unborn branch") { // as in a mirror
				t.Errorf("%s: git fsck in %s:\n%s", what, dir, text)
			}
		}
		// A checkout succeeds and has no changes.
		work := filepath.Join(t.TempDir(), "work")
		git(t, t.TempDir(), "clone", "-q", "-b", DefaultPublishBranch, "file://"+g.to, work)
		if text := git(t, work, "status", "--porcelain"); text != "" {
			t.Errorf("%s: git status of the publish branch:\n%s", what, text)
		}
		if g.cfg.Publish.URL == "" {
			g.pull()
		}
	}
	g.commit(TopologyFile, topologyOf("g1", "g2"))
	step("first publish", true)
	g.commit("README", "hello")
	step("unchanged", false)
	g.commit(TopologyFile, topologyOf("g1", "g2", "g3"))
	step("new cluster, with a commit of the lock", true)
	g.commit("patches/clusters/g1/agent.yaml", "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: hawser-agent, namespace: hawser-system, annotations: {a: b}}\n")
	step("patch", true)
	g.commit(TopologyFile, topologyOf("g1", "g3"))
	step("removed cluster", true)
	head := git(t, g.to, "rev-parse", DefaultPublishBranch)
	empty := git(t, g.to, "hash-object", "-w", "-t", "tree", "/dev/null")
	foreign := git(t, g.to, "commit-tree", "-p", head, "-m", "not signed", empty)
	git(t, g.to, "update-ref", "refs/heads/"+DefaultPublishBranch, foreign)
	step("commit without a signature", true)
	if log := git(t, g.to, "log", "--format=%H", DefaultPublishBranch); !strings.Contains(log, foreign) {
		t.Error("the commit without a signature is not in the history")
	}
	git(t, g.to, "update-ref", "-d", "refs/heads/"+DefaultPublishBranch)
	step("deleted publish branch", true)
	git(t, g.to, "update-ref", "refs/heads/"+DefaultPublishBranch, head)
	step("publish branch that was put back", true)
	g.commit(TopologyFile, strings.Replace(topologyOf("g1", "g3"), "spec:\n", "spec:\n  decommission: true\n", 1))
	step("decommission", true)
}
