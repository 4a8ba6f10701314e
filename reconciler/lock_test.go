package reconciler

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLockCommitted checks that the lock is committed to the source branch of a bare repository.
func TestLockCommitted(t *testing.T) {
	t.Parallel()
	g := newTestEnv(t, true)
	plain := g.commit(TopologyFile, topologyOf("g1", "g2"))
	out := g.mustPass()
	if out.LockNotCommitted {
		t.Error("the lock is pending")
	}
	if parent := git(t, g.repo, "rev-parse", "main^"); parent != plain {
		t.Errorf("the lock was committed on %s, want %s", parent, plain)
	}
	if have := git(t, g.repo, "show", "--stat", "--format=", "main"); !strings.Contains(have, LockFile) ||
		strings.Contains(have, TopologyFile) {
		t.Errorf("the lock's commit holds\n%s", have)
	}
	if g.file("main", LockFile) != g.file(DefaultPublishBranch, LockFile) {
		t.Error("the two locks differ")
	}
	if out.Source.Commit != git(t, g.repo, "rev-parse", "main") {
		t.Errorf("source %s is not the commit with the lock", out.Source.Commit)
	}
	if have := g.Status().Commits; len(have) != 2 || have[0].Commit != out.Source.Commit || have[1].Commit != plain || have[1].State != StateSuccess {
		t.Errorf("commits in the status: %+v", have)
	}
	if again := g.mustPass(); again.Changed || git(t, g.repo, "rev-list", "--count", "main") != "2" {
		t.Error("the lock was committed again")
	}
}

// TestLockOfWorkTree checks that a checked-out branch does not change. No address moves although
// the source branch never has the lock.
func TestLockOfWorkTree(t *testing.T) {
	t.Parallel()
	g := newTestEnv(t, false)
	head := g.commit(TopologyFile, topologyOf("g1", "g2"))
	if !g.mustPass().LockNotCommitted || !g.Status().LockNotCommitted {
		t.Error("the lock is not pending")
	}
	if have := git(t, g.work, "rev-parse", "main"); have != head {
		t.Errorf("the checked-out branch moved to %s", have)
	}
	if have := git(t, g.work, "status", "--porcelain"); have != "" {
		t.Errorf("the work tree is not clean:\n%s", have)
	}
	if _, err := os.Stat(filepath.Join(g.work, LockFile)); err == nil {
		t.Error("the reconciler wrote a lock into the work tree")
	}
	before := g.file(DefaultPublishBranch, LockFile)
	g.commit(TopologyFile, topologyOf("a0", "g1", "g2"))
	g.mustPass()
	after := g.file(DefaultPublishBranch, LockFile)
	for line := range strings.Lines(before) {
		if strings.TrimSpace(line) != "" && !strings.Contains(after, line) {
			t.Errorf("the lock lost %q; now\n%s", line, after)
		}
	}
}

// TestCommittedLockWins checks that a committed lock has precedence over the published one.
func TestCommittedLockWins(t *testing.T) {
	t.Parallel()
	g := newTestEnv(t, false)
	g.commit(TopologyFile, topologyOf("g1", "g2"))
	g.mustPass()
	lock := g.file(DefaultPublishBranch, LockFile)
	g.commit(LockFile, lock+"\n")
	if out := g.mustPass(); out.Changed || out.LockNotCommitted {
		t.Errorf("committing the published lock changed something: %+v", out)
	}
}

func TestStaleLockRefused(t *testing.T) {
	t.Parallel()
	g := newTestEnv(t, true, func(c *Config) { c.WriteLock = false })
	g.commit(TopologyFile, topologyOf("g1", "g2"))
	f := g.mustFail(ReasonStaleLock)
	if !strings.Contains(f.Error(), "hawser allocate") && !strings.Contains(f.Diagnostics.Err().Error(), "hawser allocate") {
		hint := f.Diagnostics[0].Hint
		if !strings.Contains(hint, "hawser allocate") {
			t.Errorf("message %q, hint %q name no way out", f.Message, hint)
		}
	}
	if g.published() != "" || git(t, g.repo, "rev-list", "--count", "main") != "1" {
		t.Error("something was written")
	}
}
