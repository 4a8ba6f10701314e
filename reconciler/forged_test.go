//go:build !race

package reconciler

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestForgedBranch replaces the publish branch, as an attacker with push access can. The new branch
// is signed with another root key and has other addresses, or has no history. The next pass
// restores the last commit that this reconciler signed, without an operator. No address moves.
func TestForgedBranch(t *testing.T) {
	t.Parallel()
	forger := newTestEnv(t, false)
	forger.commit(TopologyFile, topologyOf("g2", "g1"))
	forger.mustPass()

	g := newTestEnv(t, false)
	g.commit(TopologyFile, topologyOf("g1", "g2"))
	good := g.mustPass().Published
	want := map[string]string{}
	for _, name := range []string{LockFile, "base/fabric.yaml", "clusters/g1/keys.yaml"} {
		want[name] = g.file(good, name)
	}
	check := func(what string) {
		t.Helper()
		g.mustPass()
		for name, text := range want {
			if have := g.file(DefaultPublishBranch, name); have != text {
				t.Errorf("%s: %s changed", what, name)
			}
		}
	}
	clone := filepath.Join(t.TempDir(), "clone")
	git(t, g.work, "clone", "-q", "-b", DefaultPublishBranch, g.repo, clone)
	forge := func() {
		t.Helper()
		for name := range want {
			if err := os.WriteFile(filepath.Join(clone, name), []byte(forger.file(DefaultPublishBranch, name)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		git(t, clone, "add", "-A")
		git(t, clone, "commit", "-q", "-m", "forged")
	}
	forge()
	git(t, clone, "push", "-q")
	check("a commit on top")

	// The branch loses its history while the reconciler runs.
	git(t, clone, "checkout", "-q", "--orphan", "fresh")
	forge()
	git(t, clone, "push", "-q", "-f", "origin", "fresh:"+DefaultPublishBranch)
	check("another history")

	// The branch is reset to an older signed commit, and the topology has changed since.
	git(t, g.repo, "update-ref", "refs/heads/"+DefaultPublishBranch, good)
	g.commit(TopologyFile, topologyOf("g1", "g2", "g3"))
	g.mustPass()
	if !strings.Contains(g.file(DefaultPublishBranch, LockFile), "g3") {
		t.Error("the new cluster is missing")
	}
	if text := git(t, g.repo, "cat-file", "commit", DefaultPublishBranch); !strings.Contains(text, "gpgsig -----BEGIN SSH SIGNATURE-----") {
		t.Errorf("the commit is not signed:\n%s", text)
	}
}

// TestForgedImage checks that an attacker with push access cannot change the image of the nodes.
// The attacker writes another image where the reconciler reads the published image.
func TestForgedImage(t *testing.T) {
	t.Parallel()
	g := newTestEnv(t, false, func(c *Config) { c.Image = "example.org/agent:v1" })
	g.commit(TopologyFile, topologyOf("g1", "g2"))
	g.mustPass()
	g.cfg.Image = "" // the published image stays
	g.Reconciler = g.newReconciler()
	clone := filepath.Join(t.TempDir(), "clone")
	git(t, g.work, "clone", "-q", "-b", DefaultPublishBranch, g.repo, clone)
	for _, name := range []string{"base/agent.yaml", "base/gateway.yaml"} {
		raw, err := os.ReadFile(filepath.Join(clone, name))
		if err != nil {
			t.Fatal(err)
		}
		forged := strings.ReplaceAll(string(raw), "example.org/agent:v1", "evil.example.org/agent:v1")
		if err := os.WriteFile(filepath.Join(clone, name), []byte(forged), 0o600); err != nil || forged == string(raw) {
			t.Fatalf("nothing was forged in %s: %v", name, err)
		}
	}
	git(t, clone, "commit", "-q", "-a", "-m", "forged")
	git(t, clone, "push", "-q")
	for _, fresh := range []bool{false, true} {
		if fresh {
			g.Reconciler = g.newReconciler()
		}
		g.mustPass()
		for _, name := range []string{"base/agent.yaml", "base/gateway.yaml"} {
			if text := g.file(DefaultPublishBranch, name); !strings.Contains(text, `"example.org/agent:v1"`) || strings.Contains(text, "evil") {
				t.Errorf("%s: the forged image is published", name)
			}
		}
	}
}
