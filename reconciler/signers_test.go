//go:build !race

package reconciler

import (
	"bytes"
	"crypto/ed25519"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// person signs commits.
type person struct {
	ssh.Signer
	name string
}

func newPerson(t testing.TB, name string) person {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return person{signer, name}
}

// line returns the person's line of an allowed_signers file.
func (p person) line() string {
	return p.name + `@example.org namespaces="git" ` + string(ssh.MarshalAuthorizedKey(p.PublicKey()))
}

// sign signs the newest commit of the work tree, as git commit -S does.
func (g *testEnv) sign(p person) string {
	g.t.Helper()
	hash := g.signBare(p)
	git(g.t, g.work, "reset", "-q", "--hard", hash)
	return hash
}

// signBare signs the newest commit without a change of the files of the work tree.
func (g *testEnv) signBare(p person) string {
	g.t.Helper()
	hash := withSignature(g.t, g.work, func(raw []byte) (string, error) {
		signature, err := sshsig.Sign(bytes.NewReader(raw), p, sshsig.HashSHA512, gitNamespace)
		if err != nil {
			return "", err
		}
		return string(sshsig.Armor(signature)), nil
	})
	git(g.t, g.work, "update-ref", "HEAD", hash)
	g.push("-f", "main")
	return hash
}

// withSignature returns a signed copy of the newest commit of a work tree. HEAD does not move.
func withSignature(t testing.TB, dir string, sign func(raw []byte) (string, error)) string {
	t.Helper()
	raw, err := exec.Command("git", "-C", dir, "cat-file", "commit", "HEAD").Output()
	if err != nil {
		t.Fatal(err)
	}
	signature, err := sign(raw)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(raw), "\n\n")
	signature = strings.ReplaceAll(strings.TrimSpace(signature), "\n", "\n ")
	file := filepath.Join(t.TempDir(), "commit")
	if err := os.WriteFile(file, []byte(head+"\ngpgsig "+signature+"\n\n"+rest), 0o600); err != nil {
		t.Fatal(err)
	}
	return git(t, dir, "hash-object", "-t", "commit", "-w", file)
}

// write writes a file of the work tree without a commit.
func (g *testEnv) write(name, content string) {
	g.t.Helper()
	if err := os.WriteFile(filepath.Join(g.work, name), []byte(content), 0o600); err != nil {
		g.t.Fatal(err)
	}
	git(g.t, g.work, "add", name)
}

// mustDistrust checks that the next pass refuses the newest commit and publishes nothing.
func (g *testEnv) mustDistrust(message string) {
	g.t.Helper()
	before := git(g.t, g.repo, "rev-parse", DefaultPublishBranch)
	_, failure := g.Once(g.t.Context())
	if failure == nil || failure.Reason != ReasonUntrusted || !strings.Contains(failure.Message, message) {
		g.t.Fatalf("got %v, want %s with %q", failure, ReasonUntrusted, message)
	}
	if after := git(g.t, g.repo, "rev-parse", DefaultPublishBranch); after != before {
		g.t.Errorf("something was published")
	}
}

// signedTopology returns a topology that requires signed commits.
func signedTopology(clusters ...string) string {
	return strings.Replace(topologyOf(clusters...), "spec:\n", "spec:\n  trust: {commits: allowed_signers}\n", 1)
}

// TestRefusedOnce checks that the reconciler logs a refused commit once, and that the commit stays
// refused in the status.
func TestRefusedOnce(t *testing.T) {
	t.Parallel()
	ann, eve := newPerson(t, "ann"), newPerson(t, "eve")
	var log bytes.Buffer
	g := newTestEnv(t, true, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	g.commit("allowed_signers", ann.line())
	g.commit(TopologyFile, signedTopology("g1", "g2"))
	g.mustPass()
	g.pull()
	g.commit(TopologyFile, signedTopology("g1", "g2", "g3"))
	head := g.sign(eve)
	for range 3 {
		g.mustDistrust("who is not in allowed_signers")
	}
	if n := strings.Count(log.String(), "commit not published"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, &log)
	}
	if last := g.Status().LastError; last == nil || last.Revision != head || last.Reason != ReasonUntrusted {
		t.Errorf("status: %+v", last)
	}
}

// TestSignedCommits checks trust.commits. After its publication, a commit requires a signature by a
// key in the file of its parent. Signers add others and remove themselves with commits.
func TestSignedCommits(t *testing.T) {
	t.Parallel()
	ann, bob, eve := newPerson(t, "ann"), newPerson(t, "bob"), newPerson(t, "eve")
	g := newTestEnv(t, true)
	g.commit("allowed_signers", ann.line())
	g.commit(TopologyFile, signedTopology("g1", "g2"))
	g.mustPass() // the reconciler commits the lock
	git(t, g.work, "pull", "-q", "--rebase", g.repo, "main")
	first := git(t, g.work, "rev-parse", "HEAD")
	back := func(to string) {
		t.Helper()
		git(t, g.work, "reset", "-q", "--hard", to)
		g.push("-f", "main")
	}

	g.commit(TopologyFile, signedTopology("g1"))
	g.mustDistrust("it has no signature")
	g.sign(eve)
	g.mustDistrust("who is not in allowed_signers of the commit before")
	g.write("allowed_signers", ann.line()+eve.line())
	git(t, g.work, "commit", "-q", "-m", "let me in")
	g.sign(eve)
	g.mustDistrust("who is not in allowed_signers of the commit before")
	// An unsigned commit stays refused under a signed one.
	back(first)
	g.commit(TopologyFile, signedTopology("g2", "g1"))
	g.commit("README", "text")
	g.sign(ann)
	g.mustDistrust("it has no signature")

	// Ann adds Bob. Bob removes Ann and adds a cluster, whose addresses the reconciler commits.
	// After that, Ann's commits are refused.
	back(first)
	g.write("allowed_signers", ann.line()+bob.line())
	git(t, g.work, "commit", "-q", "-m", "let Bob in")
	second := g.sign(ann)
	g.mustPass()
	g.write("allowed_signers", "# only Bob\n"+bob.line())
	g.write(TopologyFile, signedTopology("g1", "g2", "g3"))
	git(t, g.work, "commit", "-q", "-m", "Bob alone")
	g.sign(bob)
	g.mustPass()
	git(t, g.work, "pull", "-q", "--rebase", g.repo, "main")
	if text := git(t, g.work, "log", "-1", "--format=%s"); text != "allocate addresses" {
		t.Fatalf("the newest commit is %q, want the reconciler's", text)
	}
	third := git(t, g.work, "rev-parse", "HEAD")
	g.commit("README", "text")
	g.sign(ann)
	g.mustDistrust("who is not in allowed_signers of the commit before")

	// The branch is reset to a commit at which Ann could sign, or to another history without
	// trust.
	back(second)
	g.mustDistrust("does not follow from")
	git(t, g.work, "checkout", "-q", "--orphan", "other")
	g.write(TopologyFile, topologyOf("g1"))
	git(t, g.work, "commit", "-q", "-m", "fresh")
	g.push("-f", "other:main")
	g.mustDistrust("does not follow from")
	git(t, g.work, "checkout", "-q", "main")

	// The clusterset's own key signs only locks. The reconciler refuses a file without a usable
	// key.
	back(third)
	g.write("allowed_signers", "ann@example.org valid-before=\"20300101\" "+strings.SplitN(bob.line(), " ", 3)[2])
	git(t, g.work, "commit", "-q", "-m", "an option")
	g.sign(bob)
	if _, failure := g.Once(t.Context()); failure == nil || !strings.Contains(failure.Message, "line 1: option valid-before is not used here") {
		t.Fatalf("got %v", failure)
	}

	// Bob removes trust.commits.
	back(third)
	g.write(TopologyFile, topologyOf("g1", "g2", "g3"))
	git(t, g.work, "commit", "-q", "-m", "no more")
	g.sign(bob)
	g.mustPass()
	git(t, g.work, "pull", "-q", "--rebase", g.repo, "main")
	g.commit(TopologyFile, topologyOf("g1", "g2"))
	g.mustPass()
}

// TestAcceptCommit checks that an operator can accept a refused commit.
func TestAcceptCommit(t *testing.T) {
	t.Parallel()
	ann := newPerson(t, "ann")
	g := newTestEnv(t, false)
	g.commit("allowed_signers", ann.line())
	g.commit(TopologyFile, signedTopology("g1", "g2"))
	g.mustPass()
	lost := g.commit(TopologyFile, signedTopology("g2", "g1"))
	g.mustDistrust("--accept-commit " + lost)
	g.cfg.AcceptCommit = lost
	g.Reconciler = g.newReconciler()
	g.mustPass()
}

// TestSignaturesFirst checks that the reconciler verifies the signature of a commit before it reads
// a file of the commit.
func TestSignaturesFirst(t *testing.T) {
	t.Parallel()
	ann := newPerson(t, "ann")
	g := newTestEnv(t, true)
	g.commit("allowed_signers", ann.line())
	g.commit(TopologyFile, signedTopology("g1", "g2"))
	g.mustPass()
	g.pull()
	for what, text := range map[string]string{
		"a new cluster":      signedTopology("g1", "g2", "g3"),
		"an invalid file":    "clusters: [",
		"a large file":       "#" + strings.Repeat("x", 33<<20) + "\n",
		"another clusterset": strings.Replace(signedTopology("g1", "g2"), "name: demo", "name: other", 1),
	} {
		good := git(t, g.work, "rev-parse", "HEAD")
		g.commit(TopologyFile, text)
		blob := git(t, g.repo, "rev-parse", "main:"+TopologyFile)
		file := filepath.Join(g.repo, "objects", blob[:2], blob[2:])
		moveFile(t, file, file+".away") // a read of the file is an error
		t.Log(what)
		g.mustDistrust("it has no signature")
		moveFile(t, file+".away", file)
		git(t, g.work, "reset", "-q", "--hard", good)
		g.push("-f", "main")
		g.mustPass()
	}
	g.commit(TopologyFile, "clusters: [")
	g.sign(ann)
	g.mustFail(ReasonInvalid)
}
