package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const ciTopology = `apiVersion: hawser.dev/v1alpha1
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

// ci is a repository with a published branch, and a clone of a proposal as a CI makes it:
// one commit of one branch.
type ci struct {
	t      *testing.T
	dir    string
	origin string
	clone  string
}

func newCI(t *testing.T, published bool, proposal string) *ci {
	t.Helper()
	c := &ci{t: t, dir: t.TempDir()}
	c.origin, c.clone = filepath.Join(c.dir, "origin.git"), filepath.Join(c.dir, "clone")
	work := filepath.Join(c.dir, "work")
	c.must(c.dir, "git init -q --bare -b main origin.git && git init -q -b main work && hawser keys root root.key")
	c.must(work, "git remote add origin ../origin.git")
	c.write(filepath.Join(work, "clusterset.yaml"), ciTopology)
	c.must(work, "hawser allocate && hawser keys signers --root-key ../root.key >published.signers")
	c.must(work, "git add . && git commit -q -m one && git push -q origin main")
	if published {
		c.must(c.dir, "hawser reconcile --once --repo origin.git --root-key root.key")
	}
	c.write(filepath.Join(work, "clusterset.yaml"), proposal)
	c.must(work, "git checkout -q -b proposal && git commit -q --allow-empty -a -m two && git push -q origin proposal")
	c.must(c.dir, "git clone -q --depth 1 --branch proposal file://"+c.origin+" clone && git -C clone checkout -q --detach")
	return c
}

func (c *ci) write(path, text string) {
	c.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		c.t.Fatal(err)
	}
}

// run runs a script as runners of GitHub and GitLab do, and gives what it printed.
func (c *ci) run(dir, script string, env ...string) (string, error) {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), "bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "HAWSER_ROOT_KEY=",
		"GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@example.org", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@example.org",
		"RUNNER_TEMP="+c.dir, "GITHUB_OUTPUT="+filepath.Join(c.dir, "output"), "GITHUB_REPOSITORY=acme/net",
		"PATH="+filepath.Join(c.dir, "bin")+":"+os.Getenv("PATH"))
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (c *ci) must(dir, script string) {
	c.t.Helper()
	if out, err := c.run(dir, script); err != nil {
		c.t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// step is one step of the action.
type step struct {
	Name string
	If   string
	Run  string
	Env  map[string]string
}

// steps reads the action, with the defaults of its inputs in place of expressions.
func steps(t *testing.T) []step {
	t.Helper()
	raw, err := os.ReadFile("../../examples/ci/github/action.yml")
	if err != nil {
		t.Fatal(err)
	}
	var action struct {
		Inputs map[string]struct{ Default string }
		Runs   struct{ Steps []step }
	}
	if err := yaml.Unmarshal(raw, &action); err != nil {
		t.Fatal(err)
	}
	expression := regexp.MustCompile(`\$\{\{ *([a-z._]+) *\}\}`)
	for i, s := range action.Runs.Steps {
		if strings.Contains(s.Run, "${{") {
			t.Errorf("step %s: an expression in a script is code of whoever sets its value", s.Name)
		}
		for name, value := range s.Env {
			s.Env[name] = expression.ReplaceAllStringFunc(value, func(e string) string {
				path := expression.FindStringSubmatch(e)[1]
				if input, is := strings.CutPrefix(path, "inputs."); is && input != "token" {
					return action.Inputs[input].Default
				}
				return map[string]string{"inputs.token": "token", "github.event.pull_request.number": "7", "github.base_ref": "main"}[path]
			})
			if s.Env[name] == "" {
				t.Errorf("step %s: %s is empty", s.Name, name)
			}
		}
		action.Runs.Steps[i] = s
	}
	if len(action.Runs.Steps) != 4 {
		t.Fatalf("%d steps", len(action.Runs.Steps))
	}
	return action.Runs.Steps
}

// action runs the steps one after the other, the comment always, until one fails.
func (c *ci) action() (string, error) {
	c.t.Helper()
	var all strings.Builder
	var failed error
	for _, s := range steps(c.t) {
		if failed != nil && !strings.HasPrefix(s.If, "always()") {
			continue
		}
		var env []string
		for name, value := range s.Env {
			env = append(env, name+"="+value)
		}
		out, err := c.run(c.clone, s.Run, env...)
		all.WriteString(out)
		if err != nil && failed == nil {
			failed = fmt.Errorf("step %s: %w", s.Name, err)
		}
	}
	return all.String(), failed
}

// fakeGH stands in for GitHub's program: it remembers one comment.
const fakeGH = `#!/bin/bash
set -e
printf '%s\n' "$*" >>"$RUNNER_TEMP/calls"
case "$*" in
*--paginate*)
  [ -n "$MARKER" ] && grep -qF 'contains(env.MARKER)' <<<"$*"
  if [ -e "$RUNNER_TEMP/comment" ] && grep -qF "$MARKER" "$RUNNER_TEMP/comment"; then echo 4711; fi ;;
*PATCH*issues/comments/4711*|*POST*issues/7/comments*) body=${!#}; cp "${body#body=@}" "$RUNNER_TEMP/comment" ;;
*) exit 64 ;;
esac
`

func (c *ci) gh() {
	c.t.Helper()
	if err := os.MkdirAll(filepath.Join(c.dir, "bin"), 0o755); err != nil {
		c.t.Fatal(err)
	}
	c.write(filepath.Join(c.dir, "bin", "gh"), fakeGH)
}

func (c *ci) read(name string) string {
	c.t.Helper()
	raw, err := os.ReadFile(filepath.Join(c.dir, name))
	if err != nil {
		c.t.Fatal(err)
	}
	return string(raw)
}

// TestAction runs the steps of the GitHub Action in a clone as actions/checkout makes it.
func TestAction(t *testing.T) {
	t.Parallel()
	c := newCI(t, true, strings.Replace(ciTopology, "203.0.113.1", "203.0.113.9", 1))
	c.gh()
	out, err := c.action()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"::notice file=clusterset.yaml,line=11,title=hawser%3A change gateway g1/a::",
		"Plan: 0 to add, 1 to change, 0 to destroy, 0 disruptive.",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if have := c.read("output"); have != "changes=true\n" {
		t.Errorf("outputs %q", have)
	}
	first := c.read("comment")
	if !strings.Contains(first, "`203.0.113.1` → `203.0.113.9`") {
		t.Errorf("the comment says\n%s", first)
	}
	// The next push updates the comment.
	c.write(filepath.Join(c.clone, "clusterset.yaml"), ciTopology)
	if out, err := c.action(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if have := c.read("comment"); !strings.Contains(have, "no changes") {
		t.Errorf("the comment says\n%s", have)
	}
	if have := c.read("output"); have != "changes=true\nchanges=false\n" {
		t.Errorf("outputs %q", have)
	}
	if calls := c.read("calls"); strings.Count(calls, "POST") != 1 || strings.Count(calls, "PATCH") != 1 {
		t.Errorf("want one comment that is updated, have\n%s", calls)
	}
}

// TestActionFails: what cannot be compared is never told as something that is all new, or
// as nothing.
func TestActionFails(t *testing.T) {
	t.Parallel()
	bad := newCI(t, true, strings.Replace(ciTopology, "10.7.0.0/16", "10.7.0.1/16", 1))
	bad.gh()
	out, err := bad.action()
	if err == nil || !strings.Contains(out, "::error file=clusterset.yaml,line=7,col=16,") {
		t.Errorf("errors in the topology: %v\n%s", err, out)
	}
	if have := bad.read("comment"); !strings.Contains(have, "The topology has errors") {
		t.Errorf("the comment says\n%s", have)
	}
	gone := newCI(t, true, ciTopology)
	gone.gh()
	if err := os.RemoveAll(gone.origin); err != nil {
		t.Fatal(err)
	}
	fetch := steps(t)[0]
	if out, err := gone.run(gone.clone, fetch.Run, "BRANCH=rendered", "BASE=main", "FILE=clusterset.yaml"); err == nil {
		t.Errorf("the repository is gone, and that is no failure:\n%s", out)
	}
	stale := newCI(t, true, ciTopology+"    - {name: b, node: n2, endpoints: [203.0.113.2]}\n")
	stale.gh()
	if out, err := stale.action(); err == nil || !strings.Contains(err.Error(), "step lock") || !strings.Contains(out, "hawser allocate") {
		t.Errorf("a stale lock: %v\n%s", err, out)
	}
}

// TestUnsignedBaseline: an unsigned commit hides a change of the topology, and the pull
// request trusts another root key. The signers of the base branch count.
func TestUnsignedBaseline(t *testing.T) {
	t.Parallel()
	c := newCI(t, true, strings.Replace(ciTopology, "203.0.113.1", "203.0.113.9", 1))
	c.gh()
	work := filepath.Join(c.dir, "work")
	c.must(work, "git checkout -q proposal && hawser render --root-key ../root.key --out ../forged && hawser keys root ../other.key")
	c.must(work, "git fetch -q origin rendered && git worktree add -q ../rendered FETCH_HEAD && cp -r ../forged/. ../rendered")
	c.must(filepath.Join(c.dir, "rendered"), "git add . && git commit -q -m forged && git push -q origin HEAD:rendered")
	c.must(c.clone, "hawser keys signers --root-key ../other.key >published.signers")
	for name, job := range map[string]func() (string, error){"GitHub": c.action, "GitLab": func() (string, error) { return c.gitLab(t) }} {
		// hawser allocate reads the signers of the pull request, and fails.
		out, err := job()
		if err == nil || !strings.Contains(out, "Plan: 0 to add, 1 to change, 0 to destroy") || !strings.Contains(out, "is skipped: it has no signature") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// TestActionBeforePublishing: in a repository from which nothing was published all is new.
func TestActionBeforePublishing(t *testing.T) {
	t.Parallel()
	c := newCI(t, false, ciTopology)
	c.gh()
	out, err := c.action()
	if err != nil || !strings.Contains(out, "nothing is published on branch rendered yet") || !strings.Contains(out, "add cluster g1") {
		t.Errorf("%v\n%s", err, out)
	}
}

// gitLab runs the scripts of the GitLab template, and returns their output.
func (c *ci) gitLab(t *testing.T) (string, error) {
	t.Helper()
	raw, err := os.ReadFile("../../examples/ci/gitlab.yml")
	if err != nil {
		t.Fatal(err)
	}
	jobs := map[string]struct {
		Variables map[string]any
		Script    []string
	}{}
	if err := yaml.Unmarshal(raw, &jobs); err != nil {
		t.Fatal(err)
	}
	job := jobs["hawser diff"]
	if len(job.Script) != 3 {
		t.Fatalf("%d scripts", len(job.Script))
	}
	env := []string{"CI_MERGE_REQUEST_TARGET_BRANCH_NAME=main"}
	for name, value := range job.Variables {
		env = append(env, fmt.Sprintf("%s=%v", name, value))
	}
	return c.run(c.clone, strings.Join(job.Script, "\n"), env...)
}

func TestGitLab(t *testing.T) {
	t.Parallel()
	c := newCI(t, true, strings.Replace(ciTopology, "203.0.113.1", "203.0.113.9", 1))
	out, err := c.gitLab(t)
	if err != nil || !strings.Contains(out, "Plan: 0 to add, 1 to change, 0 to destroy.") {
		t.Errorf("%v\n%s", err, out)
	}
	if have := c.read("clone/hawser.md"); !strings.Contains(have, "`203.0.113.1` → `203.0.113.9`") {
		t.Errorf("the note says\n%s", have)
	}
	if err := os.RemoveAll(c.origin); err != nil {
		t.Fatal(err)
	}
	if out, err := c.gitLab(t); err == nil {
		t.Errorf("the repository is gone, and that is no failure:\n%s", out)
	}
}

// TestPreCommit runs the hooks of pre-commit.
func TestPreCommit(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../examples/ci/pre-commit-config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Repos []struct {
			Hooks []struct{ ID, Entry, Files string }
		}
	}
	if err := yaml.Unmarshal(raw, &config); err != nil || len(config.Repos) != 1 || len(config.Repos[0].Hooks) != 2 {
		t.Fatalf("hooks %v, %v", config, err)
	}
	good := newCI(t, false, ciTopology)
	bad := map[string]*ci{
		"hawser-validate": newCI(t, false, strings.Replace(ciTopology, "10.7.0.0/16", "10.7.0.1/16", 1)),
		"hawser-lock":     newCI(t, false, ciTopology+"    - {name: b, node: n2, endpoints: [203.0.113.2]}\n"),
	}
	for _, hook := range config.Repos[0].Hooks {
		if files := regexp.MustCompile(hook.Files); !files.MatchString("clusterset.yaml") || !files.MatchString("clusterset.lock.yaml") {
			t.Errorf("%s runs for %s", hook.ID, hook.Files)
		}
		if out, err := good.run(good.clone, hook.Entry); err != nil {
			t.Errorf("%s: %v\n%s", hook.ID, err, out)
		}
		if out, err := bad[hook.ID].run(bad[hook.ID].clone, hook.Entry); err == nil {
			t.Errorf("%s lets pass what is wrong:\n%s", hook.ID, out)
		}
	}
}
