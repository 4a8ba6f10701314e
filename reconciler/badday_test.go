//go:build !race

package reconciler

import (
	"os"
	"strings"
	"testing"
)

func TestBrokenCommitChangesNothing(t *testing.T) {
	t.Parallel()
	g := newTestEnv(t, false)
	g.commit(TopologyFile, topologyOf("g1", "g2"))
	out := g.mustPass()
	broken := g.commit(TopologyFile, strings.Replace(topologyOf("g1", "g2"), "10.7.0.0/16", "10.7.0.1/16", 1))
	f := g.mustFail(ReasonInvalid)
	if !strings.HasPrefix(f.Message, TopologyFile+":7:") || !strings.Contains(f.Message, "podCIDRs") {
		t.Errorf("message %q", f.Message)
	}
	s := g.Status()
	if g.published() != out.Published || s.Published != out.Published || s.Latest.Commit != broken || s.Active.Commit == broken {
		t.Errorf("status %+v", s)
	}
	if c := s.Commits[0]; c.Commit != broken || c.State != StateFailure || c.Description != f.Message {
		t.Errorf("commit status %+v", c)
	}
	since := s.LastError.Since
	g.mustFail(ReasonInvalid)
	if s := g.Status(); !s.LastError.Since.Equal(since) || len(s.Commits) != 2 || !s.Ready {
		t.Errorf("status after the same failure %+v", s)
	}
	g.commit(TopologyFile, topologyOf("g1", "g2", "g3"))
	if next := g.mustPass(); !next.Changed || g.Status().LastError != nil {
		t.Errorf("outcome %+v, status %+v", next, g.Status())
	}
}

func TestBadDays(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		// spoil causes the failure want, and heal repairs it.
		spoil func(g *testEnv)
		want  Reason
		heal  func(g *testEnv)
	}{
		{"file gone", func(g *testEnv) {
			git(g.t, g.work, "rm", "-q", TopologyFile)
			git(g.t, g.work, "commit", "-q", "-m", "gone")
			g.push("main")
		}, ReasonNoFile, func(g *testEnv) { g.commit(TopologyFile, topologyOf("g1", "g2", "g3")) }},
		{"branch gone", func(g *testEnv) {
			git(g.t, g.repo, "update-ref", "-d", "refs/heads/main")
		}, ReasonNoBranch, func(g *testEnv) { g.commit(TopologyFile, topologyOf("g1", "g2", "g3")+"# again\n") }},
		{"repository gone", func(g *testEnv) { moveFile(g.t, g.repo, g.repo+".away") }, ReasonFetch,
			func(g *testEnv) { moveFile(g.t, g.repo+".away", g.repo) }},
		{"lock unreadable", func(g *testEnv) { g.commit(LockFile, "clusters: [\n") }, ReasonInvalid,
			func(g *testEnv) { g.commit(LockFile, "") }},
		{"root key gone", func(g *testEnv) { moveFile(g.t, g.cfg.RootKeyFile, g.cfg.RootKeyFile+".away") }, ReasonKeys,
			func(g *testEnv) { moveFile(g.t, g.cfg.RootKeyFile+".away", g.cfg.RootKeyFile) }},
		{"another root key", func(g *testEnv) {
			moveFile(g.t, g.cfg.RootKeyFile, g.cfg.RootKeyFile+".away")
			writeRootKey(g.t, g.cfg.RootKeyFile)
		}, ReasonKeys, func(g *testEnv) { moveFile(g.t, g.cfg.RootKeyFile+".away", g.cfg.RootKeyFile) }},
		{"most clusters gone", func(g *testEnv) { g.commit(TopologyFile, topologyOf("g3")) }, ReasonMassDelete,
			func(g *testEnv) { g.commit(TopologyFile, topologyOf("g2", "g3")) }},
		{"empty file", func(g *testEnv) { g.commit(TopologyFile, "") }, ReasonInvalid,
			func(g *testEnv) { g.commit(TopologyFile, topologyOf("g1", "g2", "g3")) }},
	}
	for _, tt := range tests {
		for _, bare := range []bool{false, true} {
			t.Run(tt.name+repoKind(bare), func(t *testing.T) {
				t.Parallel()
				g := newTestEnv(t, bare)
				g.commit(TopologyFile, topologyOf("g1", "g2", "g3"))
				out := g.mustPass()
				g.pull()
				tt.spoil(g)
				g.mustFail(tt.want)
				s := g.Status()
				if s.Published != out.Published || s.LastError == nil || !s.Ready {
					t.Errorf("status %+v", s)
				}
				tt.heal(g)
				if g.mustPass(); g.Status().LastError != nil || g.published() == "" {
					t.Errorf("status %+v", g.Status())
				}
			})
		}
	}
}

func repoKind(bare bool) string {
	if bare {
		return ", bare"
	}
	return ", work tree"
}

func moveFile(t testing.TB, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func TestEmptyRepository(t *testing.T) {
	t.Parallel()
	g := newTestEnv(t, true)
	f := g.mustFail(ReasonNoBranch)
	if !strings.Contains(f.Message, "commit a clusterset.yaml there, or name the branch that has it with --ref") || g.Status().Ready {
		t.Errorf("message %q, status %+v", f.Message, g.Status())
	}
	g.commit(TopologyFile, topologyOf("g1", "g2"))
	g.mustPass()
}

func TestForcePush(t *testing.T) {
	t.Parallel()
	g := newTestEnv(t, false)
	g.commit("README", "x")
	g.commit(TopologyFile, topologyOf("g1", "g2"))
	first := g.mustPass()
	git(t, g.work, "reset", "-q", "--hard", "HEAD~1")
	want := g.commit(TopologyFile, topologyOf("g1", "g2", "g3"))
	out := g.mustPass()
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
			g := newTestEnv(t, false, func(c *Config) { c.AllowMassDelete = tt.allow })
			g.commit(TopologyFile, tt.before)
			g.mustPass()
			g.commit(TopologyFile, tt.after)
			if !tt.refused {
				g.mustPass()
				return
			}
			if f := g.mustFail(ReasonMassDelete); !strings.Contains(f.Message, "decommission") {
				t.Errorf("message %q names no way out", f.Message)
			}
		})
	}
}

// TestPublishBranchInTheWay checks that a pass writes nothing, not even the lock, if an existing
// branch prevents the publish branch.
func TestPublishBranchInTheWay(t *testing.T) {
	t.Parallel()
	for name, testEnv := range map[string]func(...func(*Config)) *testEnv{
		"local":  func(alter ...func(*Config)) *testEnv { return newTestEnv(t, true, alter...) },
		"remote": func(alter ...func(*Config)) *testEnv { return newHost(t).newEnv(t, "set.git", alter...) },
	} {
		for _, branches := range [][2]string{{"rendered", "rendered/old"}, {"rendered/new", "rendered"}} {
			g := testEnv(func(c *Config) { c.PublishBranch = branches[0] })
			g.commit(TopologyFile, topologyOf("g1", "g2"))
			git(t, g.work, "branch", branches[1])
			g.push(branches[1])
			git(t, g.repo, "pack-refs", "--all")
			before := git(t, g.repo, "for-each-ref")
			f := g.mustFail(ReasonPublish)
			if !strings.Contains(f.Message, "cannot hold branch "+branches[0]+", because it has branch "+branches[1]+": name another branch, or delete") {
				t.Errorf("%s: %s", name, f.Message)
			}
			if after := git(t, g.repo, "for-each-ref"); after != before {
				t.Errorf("%s: refs before\n%s\nand after\n%s", name, before, after)
			}
			if _, err := os.Stat(g.cfg.StateFile); err == nil {
				t.Errorf("%s: the state was written", name)
			}
			git(t, g.repo, "branch", "-D", branches[1])
			g.mustPass()
		}
	}
}
