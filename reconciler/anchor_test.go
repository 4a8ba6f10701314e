//go:build !race

package reconciler

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// setBranch sets a branch of the repository to a commit, or deletes the branch if to is empty.
func (g *testEnv) setBranch(name, to string) {
	g.t.Helper()
	if to == "" {
		git(g.t, g.repo, "update-ref", "-d", "refs/heads/"+name)
		return
	}
	git(g.t, g.work, "push", "-q", "-f", g.repo, to+":refs/heads/"+name)
}

// fetch fetches the publish branch into the work tree, so that setBranch can use its commits.
func (g *testEnv) fetch() { git(g.t, g.work, "fetch", "-q", g.repo, DefaultPublishBranch) }

// reset resets the topology branch to a commit.
func (g *testEnv) reset(to string) {
	g.t.Helper()
	git(g.t, g.work, "reset", "-q", "--hard", to)
	g.setBranch("main", "HEAD")
}

func (g *testEnv) head() string {
	g.t.Helper()
	return git(g.t, g.work, "rev-parse", "HEAD")
}

// commitSigned commits files and signs the commit.
func (g *testEnv) commitSigned(author person, files map[string]string) string {
	g.t.Helper()
	for name, text := range files {
		g.write(name, text)
	}
	git(g.t, g.work, "commit", "-q", "-m", "change")
	hash := g.sign(author)
	return hash
}

// attack is a repository after an attack with push access but without a current key.
type attack struct {
	// trusted is the newest legitimate source commit.
	trusted string
	// restore resets the publish branch, as an operator would do.
	restore func()
}

// attacks try to make the reconciler accept other signers, by name.
var attacks = map[string]func(g *testEnv) attack{
	"back to before trust.commits": func(g *testEnv) attack {
		ann := newPerson(g.t, "ann")
		g.commit("allowed_signers", ann.line())
		g.commit(TopologyFile, topologyOf("g1", "g2"))
		old := g.mustPass().Published
		g.pull()
		g.commitSigned(ann, map[string]string{TopologyFile: signedTopology("g1", "g2")})
		published := g.mustPass().Published
		g.pull()
		g.fetch()
		a := attack{g.head(), func() { g.setBranch(DefaultPublishBranch, published) }}
		g.commit(TopologyFile, topologyOf("g1", "g2", "evil"))
		g.setBranch(DefaultPublishBranch, old)
		return a
	},
	"back to a removed signer": func(g *testEnv) attack {
		ann, bob := newPerson(g.t, "ann"), newPerson(g.t, "bob")
		g.commit("allowed_signers", ann.line()+bob.line())
		g.commit(TopologyFile, signedTopology("g1", "g2"))
		old := g.mustPass().Published
		g.pull()
		before := g.head()
		trusted := g.commitSigned(ann, map[string]string{"allowed_signers": ann.line()})
		published := g.mustPass().Published
		g.fetch()
		g.reset(before)
		g.commitSigned(bob, map[string]string{TopologyFile: signedTopology("g1", "g2", "evil")})
		g.setBranch(DefaultPublishBranch, old)
		return attack{trusted, func() { g.setBranch(DefaultPublishBranch, published); g.reset(trusted) }}
	},
	"the publish branch is deleted": func(g *testEnv) attack {
		a := newTrustedTestEnv(g)
		g.commit(TopologyFile, topologyOf("g1", "g2", "evil"))
		g.setBranch(DefaultPublishBranch, "")
		return a
	},
	"the commit of the lock is published": func(g *testEnv) attack {
		a := newTrustedTestEnv(g)
		g.setBranch(DefaultPublishBranch, a.trusted)
		g.commit(TopologyFile, topologyOf("g1", "g2", "evil"))
		return a
	},
	"another history": func(g *testEnv) attack {
		a := newTrustedTestEnv(g)
		git(g.t, g.work, "checkout", "-q", "--orphan", "other")
		git(g.t, g.work, "commit", "-q", "-m", "fresh")
		g.setBranch(DefaultPublishBranch, "other")
		git(g.t, g.work, "checkout", "-q", "main")
		g.commit(TopologyFile, topologyOf("g1", "g2", "evil"))
		return a
	},
}

// newTrustedTestEnv publishes a topology that requires signed commits.
func newTrustedTestEnv(g *testEnv) attack {
	ann := newPerson(g.t, "ann")
	g.commit("allowed_signers", ann.line())
	g.commit(TopologyFile, signedTopology("g1", "g2"))
	published := g.mustPass().Published
	g.pull()
	g.fetch()
	return attack{g.head(), func() { g.setBranch(DefaultPublishBranch, published) }}
}

// mustRefuse checks that a pass refuses the branches and does not move the publish branch. It
// returns the error message.
func (g *testEnv) mustRefuse(reason Reason) string {
	g.t.Helper()
	before := g.published()
	failure := g.mustFail(reason)
	if after := g.published(); after != before {
		g.t.Errorf("the publish branch moved from %q to %q", before, after)
	}
	return failure.Message
}

// TestForgottenTrust tries each attack on a running reconciler, with and without a state file. It
// also tries the attack after a restart with the state file, and after a restart with only
// --accept-commit.
func TestForgottenTrust(t *testing.T) {
	t.Parallel()
	for name, make := range attacks {
		for _, start := range []string{"running", "running without a state file", "restarted", "pinned"} {
			t.Run(name+"/"+start, func(t *testing.T) {
				t.Parallel()
				g := newTestEnv(t, true)
				if start == "running without a state file" {
					g.cfg.StateFile = ""
					g.Reconciler = g.newReconciler()
				}
				a := make(g)
				switch start {
				case "restarted":
					g.Reconciler = g.newReconciler()
				case "pinned":
					g.cfg.StateFile, g.cfg.AcceptCommit = "", a.trusted
					g.Reconciler = g.newReconciler()
				}
				t.Log(g.mustRefuse(ReasonUntrusted))
				g.mustRefuse(ReasonUntrusted)
				a.restore()
				g.reset(a.trusted)
				if start == "running" {
					g.mustPass()
				}
				g.Reconciler = g.newReconciler()
				g.mustPass()
			})
		}
	}
}

var acceptFlag = regexp.MustCompile(`--accept-commit ([0-9a-f]{40})`)

// accept restarts the reconciler with the flag --accept-commit from a message.
func (g *testEnv) accept(message string) {
	g.t.Helper()
	flag := acceptFlag.FindStringSubmatch(message)
	if flag == nil {
		g.t.Fatalf("the message names no flag: %s", message)
	}
	g.cfg.AcceptCommit = flag[1]
	g.Reconciler = g.newReconciler()
}

// TestLostPublishBranch checks that the reconciler refuses a publish branch without the last
// published commit. The error contains the flag that accepts the branch. The flag works only once.
func TestLostPublishBranch(t *testing.T) {
	t.Parallel()
	ann := newPerson(t, "ann")
	g := newTestEnv(t, true)
	g.commit("allowed_signers", ann.line())
	g.commit(TopologyFile, signedTopology("g1", "g2"))
	first := g.mustPass().Published
	g.pull()
	g.commitSigned(ann, map[string]string{"README": "text"})
	last := g.mustPass().Published
	g.fetch()
	lost := func(to, says string) string {
		t.Helper()
		g.setBranch(DefaultPublishBranch, to)
		var message string
		for range 2 { // before and after a restart
			message = g.mustRefuse(ReasonUntrusted)
			if !strings.Contains(message, says) || !strings.Contains(message, "have the branch put back to "+last) {
				t.Errorf("got %q, want %q and the commit to restore", message, says)
			}
			g.Reconciler = g.newReconciler()
		}
		return message
	}
	lost(first, "was put back to "+short(first))
	unsigned := git(t, g.work, "commit-tree", "-p", first, "-m", "x", last+"^{tree}")
	lost(unsigned, "was put back to "+short(first))
	lost(g.head(), "was replaced")
	message := lost("", "was deleted")

	// After a reset of the branch, no flag is needed.
	g.setBranch(DefaultPublishBranch, last)
	if out := g.mustPass(); out.Changed {
		t.Error("the restored branch was published again")
	}

	// With the flag the reconciler publishes once again, from the trusted source commit. It
	// still checks later commits.
	g.setBranch(DefaultPublishBranch, "")
	trusted := g.head()
	g.commit(TopologyFile, topologyOf("g1", "g2", "evil"))
	g.accept(message)
	if g.cfg.AcceptCommit != trusted {
		t.Errorf("the flag names %s, want the trusted commit %s", g.cfg.AcceptCommit, trusted)
	}
	g.mustRefuse(ReasonUntrusted)
	g.reset(trusted)
	out := g.mustPass()
	if !out.Changed || g.file(DefaultPublishBranch, LockFile) != git(t, g.work, "show", last+":"+LockFile) {
		t.Error("the branch was not published as before")
	}
	last = out.Published
	g.fetch()
	g.Reconciler = g.newReconciler()
	g.mustPass()
	lost(first, "was put back to "+short(first))
	lost("", "was deleted")
}

// TestUnsignedTipIsUndone checks that the reconciler undoes unsigned commits on top of the last
// published one. No operator is needed, even with trust.commits, because their content is never
// used.
func TestUnsignedTipIsUndone(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		g := newTestEnv(t, true)
		newTrustedTestEnv(g)
		want := git(t, g.repo, "rev-parse", DefaultPublishBranch+"^{tree}")
		userCommit(g, "clusters/g1/evil.yaml")
		if restart {
			g.Reconciler = g.newReconciler()
		}
		g.mustPass()
		if have := git(t, g.repo, "rev-parse", DefaultPublishBranch+"^{tree}"); have != want {
			t.Errorf("restarted %v: the tree differs", restart)
		}
	}
}

// TestSourceGoesBack checks that the topology branch must descend from the trusted commit, in every
// state of the publish branch.
func TestSourceGoesBack(t *testing.T) {
	t.Parallel()
	ann := newPerson(t, "ann")
	g := newTestEnv(t, true)
	g.commit("allowed_signers", ann.line())
	g.commit(TopologyFile, signedTopology("g1", "g2"))
	old := g.mustPass().Published
	g.pull()
	before := g.head()
	g.commitSigned(ann, map[string]string{TopologyFile: strings.Replace(signedTopology("g1", "g2"), "clusters: [g1]", "clusters: [g2]", 1)})
	g.mustPass()
	g.fetch()
	g.reset(before)
	for _, branch := range []string{"", old, DefaultPublishBranch} {
		if branch != DefaultPublishBranch {
			g.setBranch(DefaultPublishBranch, branch)
		}
		g.Reconciler = g.newReconciler()
		if message := g.mustRefuse(ReasonUntrusted); !strings.Contains(message, "does not follow from") {
			t.Error(message)
		}
	}

	// An operator accepts the branch with the flag from the message.
	g.accept(g.mustRefuse(ReasonUntrusted))
	g.mustPass()
}

// TestLegitimateChanges checks changes that require no flag: a revert, the removal of a signer, a
// new host with the same history, and restarts.
func TestLegitimateChanges(t *testing.T) {
	t.Parallel()
	ann, bob := newPerson(t, "ann"), newPerson(t, "bob")
	g := newTestEnv(t, true)
	g.commit("allowed_signers", ann.line()+bob.line())
	g.commit(TopologyFile, signedTopology("g1", "g2"))
	g.mustPass()
	g.pull()
	restart := func() {
		t.Helper()
		g.mustPass()
		g.Reconciler = g.newReconciler()
		g.mustPass()
		g.pull()
	}
	g.commitSigned(ann, map[string]string{TopologyFile: strings.Replace(signedTopology("g1", "g2"), "clusters: [g1]", "clusters: [g2]", 1)})
	restart()
	g.commitSigned(bob, map[string]string{TopologyFile: signedTopology("g1", "g2")})
	restart()
	g.commitSigned(bob, map[string]string{"allowed_signers": bob.line()})
	restart()
	g.commitSigned(ann, map[string]string{"README": "x"})
	g.mustRefuse(ReasonUntrusted)
	g.reset("HEAD^")
	restart()

	moved := t.TempDir()
	git(t, g.work, "clone", "-q", "--mirror", g.repo, moved)
	g.repo, g.cfg.Source.URL = moved, moved
	g.Reconciler = g.newReconciler()
	g.mustPass()
	g.commitSigned(bob, map[string]string{"README": "y"})
	restart()
}

// TestRepairWithoutTrust replaces the publish branch without trust.commits. The reconciler repairs
// the branch from the last published commit, unless the repository lost that commit.
func TestRepairWithoutTrust(t *testing.T) {
	t.Parallel()
	g := newTestEnv(t, true, func(c *Config) { c.WriteLock = true })
	g.commit(TopologyFile, topologyOf("g1", "g2"))
	first := g.mustPass().Published
	g.pull()
	g.commit(TopologyFile, topologyOf("g1", "g2", "g3"))
	last := g.mustPass().Published
	g.pull()
	g.fetch()
	want := git(t, g.work, "rev-parse", last+"^{tree}")
	for _, branch := range []string{"", first, g.head()} {
		for _, restart := range []bool{false, true} {
			g.setBranch(DefaultPublishBranch, branch)
			if restart {
				g.Reconciler = g.newReconciler()
			}
			out := g.mustPass()
			if have := git(t, g.repo, "rev-parse", DefaultPublishBranch+"^{tree}"); have != want || !out.Changed {
				t.Errorf("branch at %q, restarted %v: it was not repaired", branch, restart)
			}
		}
	}
	g.setBranch(DefaultPublishBranch, "")
	git(t, g.repo, "gc", "-q", "--prune=now")
	g.Reconciler = g.newReconciler()
	message := g.mustRefuse(ReasonUntrusted)
	if !strings.Contains(message, "was deleted") {
		t.Error(message)
	}
	g.accept(message)
	g.mustPass()
	if have := git(t, g.repo, "rev-parse", DefaultPublishBranch+":"+LockFile); have != git(t, g.work, "rev-parse", last+":"+LockFile) {
		t.Error("addresses moved")
	}
}

// TestUnknownPublishBranch checks a first start with a publish branch that has foreign commits.
func TestUnknownPublishBranch(t *testing.T) {
	t.Parallel()
	g := newTestEnv(t, true)
	g.commit(TopologyFile, topologyOf("g1", "g2"))
	g.setBranch(DefaultPublishBranch, g.head())
	message := g.mustRefuse(ReasonUntrusted)
	if !strings.Contains(message, "has no commit of this reconciler") {
		t.Error(message)
	}
	g.accept(message)
	g.mustPass()
}

// TestPinnedStart checks a start with --accept-commit and no state. The topology branch must
// contain that commit, and the reconciler checks later commits.
func TestPinnedStart(t *testing.T) {
	t.Parallel()
	ann := newPerson(t, "ann")
	g := newTestEnv(t, true)
	g.commit("allowed_signers", ann.line())
	pin := g.commit(TopologyFile, signedTopology("g1", "g2"))
	g.commit(TopologyFile, signedTopology("g1", "g2", "evil"))
	g.cfg.AcceptCommit = pin
	g.Reconciler = g.newReconciler()
	if message := g.mustRefuse(ReasonUntrusted); !strings.Contains(message, "it has no signature") {
		t.Error(message)
	}
	g.reset(pin)
	g.commitSigned(ann, map[string]string{"README": "x"})
	g.mustPass()

	g = newTestEnv(t, true)
	g.commit(TopologyFile, topologyOf("g1", "g2"))
	g.cfg.AcceptCommit = pin
	g.Reconciler = g.newReconciler()
	if message := g.mustRefuse(ReasonUntrusted); !strings.Contains(message, "does not follow from commit "+pin) {
		t.Error(message)
	}
	g.cfg.AcceptCommit = pin[:12]
	if _, err := New(g.cfg); err == nil || !strings.Contains(err.Error(), "whole hash") {
		t.Errorf("a short hash: %v", err)
	}
}

// TestStateFile checks that a bad state file is an error, and that the publish branch stays.
func TestStateFile(t *testing.T) {
	t.Parallel()
	g := newTestEnv(t, true)
	g.commit(TopologyFile, topologyOf("g1", "g2"))
	g.mustPass()
	good, err := os.ReadFile(g.cfg.StateFile)
	if err != nil {
		t.Fatal(err)
	}
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(g.cfg.StateFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		g.Reconciler = g.newReconciler()
	}
	for name, c := range map[string]struct{ text, says string }{
		"empty":              {"", "read state " + g.cfg.StateFile},
		"truncated":          {string(good[:len(good)/2]), "restore the file from a backup"},
		"no hash":            {strings.Replace(string(good), `"published": "`, `"published": "x`, 1), "is not the hash of a commit"},
		"no revision":        {regexp.MustCompile(`"revision": \d+`).ReplaceAllString(string(good), `"revision": 0`), "no clusterset or revision"},
		"another clusterset": {strings.Replace(string(good), `"demo"`, `"prod"`, 1), "of clusterset prod"},
	} {
		put(c.text)
		if message := g.mustRefuse(ReasonState); !strings.Contains(message, c.says) {
			t.Errorf("%s: %s", name, message)
		}
		if have, err := os.ReadFile(g.cfg.StateFile); err != nil || string(have) != c.text {
			t.Errorf("%s: the file was changed", name)
		}
	}
	put(string(good))
	g.mustPass()

	// A running reconciler writes a deleted file again from memory.
	if err := os.Remove(g.cfg.StateFile); err != nil {
		t.Fatal(err)
	}
	g.mustPass()
	if have, err := os.ReadFile(g.cfg.StateFile); err != nil || string(have) != string(good) {
		t.Errorf("the file was not written again: %v", err)
	}

	// The reconciler publishes nothing if it cannot write the state file.
	g.pull()
	g.commit(TopologyFile, topologyOf("g1", "g2", "g3"))
	dir := filepath.Dir(g.cfg.StateFile)
	g.cfg.StateFile = filepath.Join(dir, "none", "state.json")
	g.Reconciler = g.newReconciler()
	if message := g.mustRefuse(ReasonState); !strings.Contains(message, "(--state)") {
		t.Error(message)
	}
	if err := os.Mkdir(filepath.Join(dir, "none"), 0o700); err != nil {
		t.Fatal(err)
	}
	g.mustPass()
}

// TestStateIsMonotone checks that an outdated state file catches up with the branch. The file is
// outdated if another reconciler published, or the process ended between push and write. Revisions
// increase even if the clock goes back.
func TestStateIsMonotone(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ann := newPerson(t, "ann")
	g := newTestEnv(t, true, func(c *Config) { c.Now = func() time.Time { return now } })
	g.commit("allowed_signers", ann.line())
	g.commit(TopologyFile, signedTopology("g1", "g2"))
	g.mustPass()
	g.pull()
	other := *g
	other.cfg.StateFile = filepath.Join(t.TempDir(), "other.json")
	other.Reconciler = other.newReconciler()
	revision := func(r *Reconciler) int64 {
		t.Helper()
		if err := r.restoreAnchor(); err != nil {
			t.Fatal(err)
		}
		return r.anchor.Revision
	}
	last := revision(g.newReconciler())
	for i, text := range []string{"a", "b", "c", "d"} {
		old, err := os.ReadFile(g.cfg.StateFile)
		if err != nil {
			t.Fatal(err)
		}
		now = now.Add(-time.Hour)
		g.commitSigned(ann, map[string]string{"README": text})
		by, then := g, &other
		if i%2 == 1 {
			by, then = &other, g
		}
		if out := by.mustPass(); !out.Changed {
			t.Error("nothing was published")
		}
		if i == 2 { // as if the process ended before the write
			if err := os.WriteFile(g.cfg.StateFile, old, 0o600); err != nil {
				t.Fatal(err)
			}
			g.Reconciler = g.newReconciler()
			g.mustPass()
		}
		then.mustPass()
		if a, b := revision(g.newReconciler()), revision(other.newReconciler()); a <= last || a != b {
			t.Errorf("step %d: revisions %d and %d after %d", i, a, b, last)
		}
		last = revision(g.newReconciler())
	}
}

// TestSharedStateFile checks that several reconcilers can share a state file: an older state never
// replaces a newer one.
func TestSharedStateFile(t *testing.T) {
	t.Parallel()
	g := newTestEnv(t, true)
	g.commit(TopologyFile, topologyOf("g1", "g2"))
	g.mustPass()
	g.pull()
	other := g.newReconciler()
	onlyOutcome(t, other)
	old := other.anchor
	g.commit(TopologyFile, topologyOf("g1", "g2", "g3"))
	g.mustPass()
	newest := g.anchor
	if err := other.saveAnchor(old); err != nil {
		t.Fatal(err)
	}
	if saved, _, err := g.readStateFile(); err != nil || !saved.equal(newest) || !other.anchor.equal(newest) || newest.Revision <= old.Revision {
		t.Errorf("saved %+v (%v), in memory %+v, want %+v", saved, err, other.anchor, newest)
	}
	if onlyOutcome(t, other).Changed {
		t.Error("the other reconciler published again")
	}
}

// TestPublishedMeanwhile publishes from another reconciler after this one read the branches. The
// pass starts again. It does not report that the publish branch was reset.
func TestPublishedMeanwhile(t *testing.T) {
	t.Parallel()
	g := newTestEnv(t, true)
	g.commit(TopologyFile, topologyOf("g1", "g2"))
	g.mustPass()
	g.pull()
	other := g.newReconciler()
	if err := other.restoreAnchor(); err != nil {
		t.Fatal(err)
	}
	if _, failure := other.readInputs(t.Context()); failure != nil {
		t.Fatal(failure)
	}
	g.commit(TopologyFile, topologyOf("g1", "g2", "g3"))
	g.mustPass()
	before := other.anchor
	if err := other.storeAnchor(); !errors.Is(err, errBranchMoved) || !other.anchor.equal(before) {
		t.Errorf("got %v and anchor %+v, want the pass to start again", err, other.anchor)
	}
	if onlyOutcome(t, other).Changed {
		t.Error("the other reconciler published again")
	}
}

// TestLostRootKey checks how an operator replaces a lost root key. With a state --allow-other-root
// is enough; without a state --accept-commit is needed, too. No address moves.
func TestLostRootKey(t *testing.T) {
	t.Parallel()
	for _, state := range []bool{true, false} {
		g := newTestEnv(t, true)
		g.commit(TopologyFile, topologyOf("g1", "g2"))
		first := g.mustPass().Published
		g.pull()
		g.cfg.RootKeyFile = filepath.Join(t.TempDir(), "root.key")
		writeRootKey(t, g.cfg.RootKeyFile)
		if !state {
			g.cfg.StateFile = filepath.Join(t.TempDir(), "state.json")
		}
		g.Reconciler = g.newReconciler()
		reason := ReasonUntrusted
		if state {
			reason = ReasonKeys
		}
		if message := g.mustRefuse(reason); !state && !strings.Contains(message, "--allow-other-root") {
			t.Error(message)
		}
		g.cfg.AllowOtherRoot = true
		g.Reconciler = g.newReconciler()
		if !state {
			g.accept(g.mustRefuse(ReasonUntrusted))
		}
		if out := g.mustPass(); !out.Changed || g.file(first, LockFile) != g.file(DefaultPublishBranch, LockFile) {
			t.Errorf("with a state %v: not published, or an address moved", state)
		}
		signers, _ := g.publishedKeys()
		if _, err := VerifyPublished(g.publish, "demo", signers, hash(g.published())); err != nil {
			t.Error(err)
		}
	}
}

// TestReadyAfterRestart checks that a restarted reconciler is ready even if it refuses the
// branches, so that its Service still serves /status.
func TestReadyAfterRestart(t *testing.T) {
	t.Parallel()
	g := newTestEnv(t, true)
	a := newTrustedTestEnv(g)
	published := g.published()
	g.setBranch(DefaultPublishBranch, "")
	for _, state := range []bool{true, false} {
		if !state {
			g.cfg.StateFile, g.cfg.AcceptCommit = "", strings.Repeat("1", len(a.trusted))
		}
		g.Reconciler = g.newReconciler()
		g.mustRefuse(ReasonUntrusted)
		answer := httptest.NewRecorder()
		g.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		if ready := answer.Code == http.StatusOK && strings.Contains(answer.Body.String(), published); ready != state {
			t.Errorf("with a state %v: %d %s", state, answer.Code, answer.Body)
		}
	}
}
