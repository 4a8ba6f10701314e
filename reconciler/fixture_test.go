package reconciler

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/reconciler/gitrepo"
	"hawser.dev/hawser/render/keys"
)

// recipient is an age recipient without a stored identity.
const recipient = "age1n4s70tp2m67uhryhg8ax4fzrt32nvcy5undwsrsvmcu2t0p7tvyqtjxy2n"

// git runs the program git and returns its output.
func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := gitCommand(dir, args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// gitFails runs the program git and returns its error.
func gitFails(dir string, args ...string) error { return gitCommand(dir, args...).Run() }

func gitCommand(dir string, args ...string) *exec.Cmd {
	cmd := exec.Command("git", append([]string{"-C", dir}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@t", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@t")
	return cmd
}

// topologyOf returns a topology with the given clusters and one export.
func topologyOf(clusters ...string) string {
	var out strings.Builder
	out.WriteString("apiVersion: hawser.dev/v1alpha1\nkind: ClusterSet\nmetadata: {name: demo}\nspec:\n  clusters:\n")
	for i, c := range clusters {
		_, _ = fmt.Fprintf(&out, `  - name: %s
    podCIDRs: [10.7.0.0/16]
    serviceCIDRs: [10.77.0.0/16]
    recipient: %s
    gateways:
    - {name: %s-a, node: %s-gw, endpoints: [203.0.113.%d]}
`, c, recipient, c, c, 10+i)
	}
	_, _ = fmt.Fprintf(&out, `  exports:
  - name: web
    namespace: shop
    clusters: [%s]
    ports: [{name: http, port: 80}]
`, clusters[0])
	return out.String()
}

// testEnv is a source repository with its reconciler.
type testEnv struct {
	t    testing.TB
	work string // work tree that the test commits to
	repo string // what the reconciler reads: work, or a bare repository
	to   string // repository of the publish branch; empty = repo
	cfg  Config
	*Reconciler
}

// newTestEnv returns a reconciler for a work tree or a bare repository.
func newTestEnv(t testing.TB, bare bool, alter ...func(*Config)) *testEnv {
	t.Helper()
	g := &testEnv{t: t, work: t.TempDir()}
	git(t, g.work, "init", "-q", "-b", "main")
	g.repo = g.work
	if bare {
		g.repo = t.TempDir()
		git(t, g.repo, "init", "-q", "--bare", "-b", "main")
	}
	root := filepath.Join(t.TempDir(), "root.key")
	writeRootKey(t, root)
	g.cfg = Config{
		Source: gitrepo.Config{URL: g.repo}, SourceBranch: "main", PublishBranch: DefaultPublishBranch,
		RootKeyFile: root, StateFile: filepath.Join(t.TempDir(), "state.json"), Interval: time.Hour, WriteLock: true,
		AuthorName: "hawser", AuthorEmail: "h@h", Now: time.Now, Log: slog.New(slog.DiscardHandler),
	}
	for _, a := range alter {
		a(&g.cfg)
	}
	g.Reconciler = g.newReconciler()
	return g
}

// newReconciler returns a second reconciler of the same repositories.
func (g *testEnv) newReconciler() *Reconciler {
	g.t.Helper()
	r, err := New(g.cfg)
	if err != nil {
		g.t.Fatal(err)
	}
	return r
}

// commit commits a file and pushes the commit to the reconciler's repository.
func (g *testEnv) commit(name, content string) string {
	g.t.Helper()
	path := filepath.Join(g.work, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		g.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		g.t.Fatal(err)
	}
	git(g.t, g.work, "add", name)
	git(g.t, g.work, "commit", "-q", "-m", "change "+name)
	g.push("main")
	return git(g.t, g.work, "rev-parse", "HEAD")
}

func (g *testEnv) push(args ...string) {
	g.t.Helper()
	if g.repo != g.work {
		git(g.t, g.work, append([]string{"push", "-q", g.repo}, args...)...)
	}
}

// pull fetches the reconciler's commits of the source branch into the work tree.
func (g *testEnv) pull() {
	g.t.Helper()
	if g.repo != g.work {
		git(g.t, g.work, "pull", "-q", "--ff-only", g.repo, "main")
	}
}

func (g *testEnv) mustPass() *Outcome {
	g.t.Helper()
	out, failure := g.Once(g.t.Context())
	if failure != nil {
		g.t.Fatalf("pass failed: %s: %v", failure.Reason, failure)
	}
	return out
}

func (g *testEnv) mustFail(want Reason) *Failure {
	g.t.Helper()
	_, failure := g.Once(g.t.Context())
	if failure == nil || failure.Reason != want {
		g.t.Fatalf("failure %v, want %s", failure, want)
	}
	return failure
}

// published returns the head of the publish branch, or "" if it does not exist.
func (g *testEnv) published() string {
	g.t.Helper()
	return git(g.t, g.repo, "for-each-ref", "--format=%(objectname)", "refs/heads/"+DefaultPublishBranch)
}

func (g *testEnv) file(ref, name string) string {
	g.t.Helper()
	return git(g.t, g.repo, "show", ref+":"+name)
}

func writeRootKey(t testing.TB, path string) {
	t.Helper()
	root, err := keys.NewRoot()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, root.Encode(), 0o600); err != nil {
		t.Fatal(err)
	}
}
