// Package clitest creates repositories for tests that run hawser as a program.
package clitest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Topology is a topology with one cluster.
const Topology = `apiVersion: hawser.dev/v1alpha1
kind: ClusterSet
metadata: {name: demo}
spec:
  clusters:
  - name: g1
    podCIDRs: [10.7.0.0/16]
    serviceCIDRs: [10.77.0.0/16]
    recipient: age1n4s70tp2m67uhryhg8ax4fzrt32nvcy5undwsrsvmcu2t0p7tvyqtjxy2n
    gateways:
    - {name: a, node: n1, endpoints: [203.0.113.1]}
`

// Repo is a repository with a published branch, and a clone of a proposal as CI makes it: one
// commit of one branch.
type Repo struct {
	T      *testing.T
	Dir    string
	Origin string
	Clone  string
}

// New creates a repository, published or not, with a proposed topology on a branch.
func New(t *testing.T, published bool, proposal string) *Repo {
	t.Helper()
	c := &Repo{T: t, Dir: t.TempDir()}
	c.Origin, c.Clone = filepath.Join(c.Dir, "origin.git"), filepath.Join(c.Dir, "clone")
	work := filepath.Join(c.Dir, "work")
	c.Must(c.Dir, "git init -q --bare -b main origin.git && git init -q -b main work && hawser keys root root.key")
	c.Must(work, "git remote add origin ../origin.git")
	c.Write(filepath.Join(work, "clusterset.yaml"), Topology)
	c.Must(work, "hawser allocate && hawser keys signers --root-key ../root.key >published.signers")
	c.Must(work, "git add . && git commit -q -m one && git push -q origin main")
	if published {
		c.Must(c.Dir, "hawser reconcile --once --repo origin.git --root-key root.key")
	}
	c.Write(filepath.Join(work, "clusterset.yaml"), proposal)
	c.Must(work, "git checkout -q -b proposal && git commit -q --allow-empty -a -m two && git push -q origin proposal")
	c.Must(c.Dir, "git clone -q --depth 1 --branch proposal file://"+c.Origin+" clone && git -C clone checkout -q --detach")
	return c
}

// Write writes a file.
func (c *Repo) Write(path, text string) {
	c.T.Helper()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		c.T.Fatal(err)
	}
}

// Run runs a script like the runners of GitHub and GitLab, and returns its output.
func (c *Repo) Run(dir, script string, env ...string) (string, error) {
	c.T.Helper()
	cmd := exec.CommandContext(c.T.Context(), "bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "HAWSER_ROOT_KEY=",
		"GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@example.org", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@example.org",
		"RUNNER_TEMP="+c.Dir, "GITHUB_OUTPUT="+filepath.Join(c.Dir, "output"), "GITHUB_REPOSITORY=acme/net",
		"PATH="+filepath.Join(c.Dir, "bin")+":"+os.Getenv("PATH"))
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Must runs a script and fails the test on an error.
func (c *Repo) Must(dir, script string) {
	c.T.Helper()
	if out, err := c.Run(dir, script); err != nil {
		c.T.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// Read reads a file of the directory.
func (c *Repo) Read(name string) string {
	c.T.Helper()
	raw, err := os.ReadFile(filepath.Join(c.Dir, name))
	if err != nil {
		c.T.Fatal(err)
	}
	return string(raw)
}
