//go:build !race

package reconciler

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp"

	"hawser.dev/hawser/reconciler/gitrepo"
	"hawser.dev/hawser/schema/fabric/trust"
)

// publishedKeys returns the keys of published commits, as hawser keys signers prints them.
func (g *testEnv) publishedKeys() (signers, locks []string) {
	g.t.Helper()
	root, err := ReadRootKey(g.cfg.RootKeyFile, "")
	if err != nil {
		g.t.Fatal(err)
	}
	s, err := newPublicKeys(root, "demo")
	if err != nil {
		g.t.Fatal(err)
	}
	return s.signers, s.locks
}

// verifiesCommit reports whether git verify-commit accepts a commit if keys are allowed.
func (g *testEnv) verifiesCommit(keys []string, commit string) bool {
	g.t.Helper()
	var lines strings.Builder
	for _, key := range keys {
		_, _ = fmt.Fprintf(&lines, "demo/* %s\n", key)
	}
	file := filepath.Join(g.t.TempDir(), "allowed")
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		g.t.Fatal(err)
	}
	return gitFails(g.repo, "-c", "gpg.ssh.allowedSignersFile="+file, "verify-commit", commit) == nil
}

// TestKindsOfCommits checks that a lock commit never counts as a published commit. Its signature
// covers all files of the topology branch. Programs that check only the key reject it, and so does
// the reconciler, with and without an OpenPGP key.
func TestKindsOfCommits(t *testing.T) {
	t.Parallel()
	for _, withOpenPGP := range []bool{false, true} {
		var pgp *openpgp.Entity
		g := newTestEnv(t, true, func(c *Config) {
			if withOpenPGP {
				pgp, c.OpenPGPKeyFile = newOpenPGP(t, nil, "")
			}
		})
		g.write(TopologyFile, topologyOf("g1", "g2"))
		// Files that the reconciler does not read have no owner: anyone can commit them.
		if err := os.MkdirAll(filepath.Join(g.work, "clusters/g1"), 0o755); err != nil {
			t.Fatal(err)
		}
		g.commit("clusters/g1/kustomization.yaml", "resources: [evil.yaml]\n")
		published := g.mustPass().Published
		g.pull()
		lock := git(t, g.work, "rev-parse", "HEAD")
		if text := git(t, g.work, "log", "-1", "--format=%B"); !strings.Contains(text, "\nHawser-Kind: lock\nHawser-Revision: ") {
			t.Fatalf("the newest commit is not the lock's:\n%s", text)
		}
		signers, locks := g.publishedKeys()
		if g.verifiesCommit(signers, lock) || !g.verifiesCommit(locks, lock) {
			t.Error("git verify-commit accepts the lock with the keys of published commits, or not with its own")
		}
		if !withOpenPGP && (!g.verifiesCommit(signers, published) || g.verifiesCommit(locks, published)) {
			t.Error("git verify-commit refuses a published commit, or accepts it with the keys of locks")
		}
		if withOpenPGP {
			if signed, err := (&openPGP{key: pgp, now: g.cfg.Now}).signed(g.source, hash(lock)); err != nil || signed {
				t.Errorf("the OpenPGP key signed the lock: %v, %v", signed, err)
			}
		}
		if _, err := VerifyPublished(g.source, "demo", append(signers, locks...), hash(lock)); !errors.Is(err, ErrNotPublished) {
			t.Errorf("the lock counts as published: %v", err)
		}
		have, err := VerifyPublished(g.publish, "demo", signers, hash(published))
		if err != nil || have.Source != lock || have.Revision <= 0 || have.Digest == "" {
			t.Errorf("the published commit: %+v, %v", have, err)
		}

		// The reconciler undoes a lock commit on the publish branch.
		git(t, g.work, "push", "-q", "-f", g.repo, lock+":refs/heads/"+DefaultPublishBranch)
		g.mustPass()
		if tree := git(t, g.repo, "show", DefaultPublishBranch+":clusters/g1/kustomization.yaml"); strings.Contains(tree, "evil") {
			t.Error("the files of the topology branch are published")
		}
	}
}

// TestVerifyPublished checks commits that are not published commits.
func TestVerifyPublished(t *testing.T) {
	t.Parallel()
	eve := newPerson(t, "eve")
	g := newTestEnv(t, false)
	g.commit(TopologyFile, topologyOf("g1", "g2"))
	published := g.mustPass().Published
	signers, _ := g.publishedKeys()
	message := git(t, g.repo, "log", "-1", "--format=%B", published)
	make := func(message string, sign bool) string {
		hash := git(t, g.repo, "commit-tree", "-p", published, "-m", message, published+"^{tree}")
		git(t, g.repo, "checkout", "-q", "--detach", hash)
		if sign {
			hash = withSignature(t, g.repo, func(raw []byte) (string, error) { return signCommit(eve, raw) })
		}
		git(t, g.repo, "checkout", "-q", "main")
		return hash
	}
	other := newTestEnv(t, false)
	for _, c := range []struct{ name, commit, says string }{
		{"no signature", make(message, false), "it has no signature"},
		{"another key", make(message, true), "which is not a signer of clusterset demo"},
		{"another kind", make(strings.Replace(message, "Kind: published", "Kind: lock", 1), true), `its trailer Hawser-Kind is "lock"`},
		{"no revision", make(strings.Replace(message, "Hawser-Revision: ", "Hawser-Revision: x", 1), true), "not a revision"},
		{"two kinds", make(message+"\nHawser-Kind: published", true), "it has two trailers Hawser-Kind"},
	} {
		_, err := VerifyPublished(g.publish, "demo", signers, hash(c.commit))
		if !errors.Is(err, ErrNotPublished) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
		if found, skipped, err := NewestPublished(g.publish, "demo", signers, hash(c.commit), gitrepo.Hash{}); err != nil ||
			found.Commit.String() != published || len(skipped) != 1 || skipped[0].String() != c.commit {
			t.Errorf("%s: the newest published commit: %+v, skipped %v, %v", c.name, found, skipped, err)
		}
	}
	if _, err := VerifyPublished(g.publish, "demo", []string{trust.Line(eve.PublicKey())}, hash(published)); !errors.Is(err, ErrNotPublished) {
		t.Errorf("with another signer: %v", err)
	}
	keys, _ := other.publishedKeys()
	if _, _, err := NewestPublished(g.publish, "demo", keys, hash(published), gitrepo.Hash{}); !errors.Is(err, ErrNotPublished) {
		t.Errorf("with the keys of another clusterset: %v", err)
	}
	if _, _, err := NewestPublished(g.publish, "demo", signers, gitrepo.Hash{}, gitrepo.Hash{}); !errors.Is(err, ErrNotPublished) {
		t.Errorf("without a branch: %v", err)
	}
}

// TestPublishedTreeIsExact checks that a published commit contains only the rendered files. It has
// no submodule, link or mode of another writer.
func TestPublishedTreeIsExact(t *testing.T) {
	t.Parallel()
	g := newTestEnv(t, true)
	g.commit(TopologyFile, topologyOf("g1", "g2"))
	published := g.mustPass().Published
	clone := filepath.Join(t.TempDir(), "clone")
	git(t, g.work, "clone", "-q", "-b", DefaultPublishBranch, g.repo, clone)
	blob := git(t, clone, "rev-parse", "HEAD:base/agent.yaml")
	git(t, clone, "update-index", "--add", "--cacheinfo", "160000,"+published+",clusters/g1/evil")
	git(t, clone, "update-index", "--cacheinfo", "120000,"+blob+",base/agent.yaml")
	git(t, clone, "update-index", "--cacheinfo", "100755,"+git(t, clone, "rev-parse", "HEAD:base/gateway.yaml")+",base/gateway.yaml")
	git(t, clone, "commit", "-q", "-m", "mine")
	git(t, clone, "push", "-q")
	g.mustPass()
	if diff := git(t, g.repo, "diff", "--raw", published, DefaultPublishBranch); diff != "" {
		t.Errorf("published files that were not rendered:\n%s", diff)
	}
}

// TestLockCommitsAreChecked checks lock commits on the topology branch. A commit with the
// clusterset's key for locks is valid only on the parent for which the reconciler signed it.
func TestLockCommitsAreChecked(t *testing.T) {
	t.Parallel()
	ann := newPerson(t, "ann")
	g := newTestEnv(t, true)
	g.commit("allowed_signers", ann.line())
	g.commit(TopologyFile, signedTopology("g1", "g2"))
	g.mustPass()
	g.pull()
	root, err := ReadRootKey(g.cfg.RootKeyFile, "")
	if err != nil {
		t.Fatal(err)
	}
	s, err := newCommitSigners(root, "demo", []int{1})
	if err != nil {
		t.Fatal(err)
	}
	before := git(t, g.work, "rev-parse", "HEAD")
	trailers := signedTrailers(KindLock, 1, before)
	for _, c := range []struct {
		name, file, message string
		sign                func([]byte) (string, error)
		says                string
	}{
		{"another file", "README", "x\n\n" + trailers, s.signLock, "it changes more than the lock: README"},
		{"no kind", LockFile, "x", s.signLock, `its trailer Hawser-Kind is ""`},
		{"a published commit", LockFile, "x\n\n" + signedTrailers(KindPublished, 1, before), s.signPublished, "who is not in allowed_signers"},
		{"the other key", LockFile, "x\n\n" + trailers, s.signPublished, "who is not in allowed_signers"},
		{"another parent", LockFile, "x\n\n" + signedTrailers(KindLock, 1, strings.Repeat("0", 40)), s.signLock, "not its parent"},
	} {
		git(t, g.work, "reset", "-q", "--hard", before)
		g.write(c.file, git(t, g.work, "show", "HEAD:"+LockFile)+"\n# x\n")
		git(t, g.work, "commit", "-q", "-m", c.message)
		git(t, g.work, "reset", "-q", "--hard", withSignature(t, g.work, c.sign))
		g.push("-f", "main")
		t.Log(c.name)
		g.mustDistrust(c.says)
	}
}

// TestManyUnsignedCommits checks that many unsigned commits take a bounded time, and that the last
// published commit stays valid.
func TestManyUnsignedCommits(t *testing.T) {
	t.Parallel()
	g := newTestEnv(t, true)
	g.commit(TopologyFile, topologyOf("g1", "g2"))
	published := g.mustPass().Published
	tip := hash(published)
	var err error
	for range maxSkippedCommits + 1 {
		tip, err = g.publish.Write(gitrepo.Commit{Parent: tip, Files: map[string][]byte{"x": nil}, Name: "x", Email: "x", When: g.cfg.Now()})
		if err != nil {
			t.Fatal(err)
		}
	}
	git(t, g.repo, "update-ref", "refs/heads/"+DefaultPublishBranch, tip.String())
	signers, _ := g.publishedKeys()
	if _, skipped, err := NewestPublished(g.publish, "demo", signers, tip, gitrepo.Hash{}); !errors.Is(err, ErrNotPublished) || len(skipped) != maxSkippedCommits+1 {
		t.Errorf("%d commits, %v", len(skipped), err)
	}
	g.mustPass()
	if diff := git(t, g.repo, "diff", "--raw", published, DefaultPublishBranch); diff != "" {
		t.Errorf("the branch was not repaired:\n%s", diff)
	}
}
