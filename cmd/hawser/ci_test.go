package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"hawser.dev/hawser/internal/cli/clitest"
)

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
			t.Errorf("step %s: the script contains an expression, whose value could inject code", s.Name)
		}
		for name, value := range s.Env {
			s.Env[name] = expression.ReplaceAllStringFunc(value, func(e string) string {
				path := expression.FindStringSubmatch(e)[1]
				if input, ok := strings.CutPrefix(path, "inputs."); ok && input != "token" {
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

// action runs the steps in order until one fails. It always runs the comment step.
func action(c *clitest.Repo) (string, error) {
	c.T.Helper()
	var all strings.Builder
	var failed error
	for _, s := range steps(c.T) {
		if failed != nil && !strings.HasPrefix(s.If, "always()") {
			continue
		}
		var env []string
		for name, value := range s.Env {
			env = append(env, name+"="+value)
		}
		out, err := c.Run(c.Clone, s.Run, env...)
		all.WriteString(out)
		if err != nil && failed == nil {
			failed = fmt.Errorf("step %s: %w", s.Name, err)
		}
	}
	return all.String(), failed
}

// fakeGH replaces gh, the GitHub CLI. It stores one comment.
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

func gh(c *clitest.Repo) {
	c.T.Helper()
	if err := os.MkdirAll(filepath.Join(c.Dir, "bin"), 0o755); err != nil {
		c.T.Fatal(err)
	}
	c.Write(filepath.Join(c.Dir, "bin", "gh"), fakeGH)
}

// TestAction runs the steps of the GitHub Action in a clone as actions/checkout makes it.
func TestAction(t *testing.T) {
	t.Parallel()
	c := clitest.New(t, true, strings.Replace(clitest.Topology, "203.0.113.1", "203.0.113.9", 1))
	gh(c)
	out, err := action(c)
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
	if have := c.Read("output"); have != "changes=true\n" {
		t.Errorf("outputs %q", have)
	}
	first := c.Read("comment")
	if !strings.Contains(first, "`203.0.113.1` → `203.0.113.9`") {
		t.Errorf("the comment says\n%s", first)
	}
	// The next push updates the comment.
	c.Write(filepath.Join(c.Clone, "clusterset.yaml"), clitest.Topology)
	if out, err := action(c); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if have := c.Read("comment"); !strings.Contains(have, "no changes") {
		t.Errorf("the comment says\n%s", have)
	}
	if have := c.Read("output"); have != "changes=true\nchanges=false\n" {
		t.Errorf("outputs %q", have)
	}
	if calls := c.Read("calls"); strings.Count(calls, "POST") != 1 || strings.Count(calls, "PATCH") != 1 {
		t.Errorf("want one comment that is updated, have\n%s", calls)
	}
}

// TestActionFails tests that a failed comparison is never reported as all new, or as no change.
func TestActionFails(t *testing.T) {
	t.Parallel()
	repo := clitest.New(t, true, strings.Replace(clitest.Topology, "10.7.0.0/16", "10.7.0.1/16", 1))
	gh(repo)
	out, err := action(repo)
	if err == nil || !strings.Contains(out, "::error file=clusterset.yaml,line=7,col=16,") {
		t.Errorf("errors in the topology: %v\n%s", err, out)
	}
	if have := repo.Read("comment"); !strings.Contains(have, "The topology has errors") {
		t.Errorf("the comment says\n%s", have)
	}
	withoutOrigin := clitest.New(t, true, clitest.Topology)
	gh(withoutOrigin)
	if err := os.RemoveAll(withoutOrigin.Origin); err != nil {
		t.Fatal(err)
	}
	fetch := steps(t)[0]
	if out, err := withoutOrigin.Run(withoutOrigin.Clone, fetch.Run, "BRANCH=rendered", "BASE=main", "FILE=clusterset.yaml"); err == nil {
		t.Errorf("the repository is gone, and that is no failure:\n%s", out)
	}
	stale := clitest.New(t, true, clitest.Topology+"    - {name: b, node: n2, endpoints: [203.0.113.2]}\n")
	gh(stale)
	if out, err := action(stale); err == nil || !strings.Contains(err.Error(), "step lock") || !strings.Contains(out, "hawser allocate") {
		t.Errorf("a stale lock: %v\n%s", err, out)
	}
}

// TestUnsignedBaseline tests an unsigned commit that hides a change of the topology, in a pull
// request that trusts another root key. Only the signers of the base branch count.
func TestUnsignedBaseline(t *testing.T) {
	t.Parallel()
	c := clitest.New(t, true, strings.Replace(clitest.Topology, "203.0.113.1", "203.0.113.9", 1))
	gh(c)
	work := filepath.Join(c.Dir, "work")
	c.Must(work, "git checkout -q proposal && hawser render --root-key ../root.key --out ../forged && hawser keys root ../other.key")
	c.Must(work, "git fetch -q origin rendered && git worktree add -q ../rendered FETCH_HEAD && cp -r ../forged/. ../rendered")
	c.Must(filepath.Join(c.Dir, "rendered"), "git add . && git commit -q -m forged && git push -q origin HEAD:rendered")
	c.Must(c.Clone, "hawser keys signers --root-key ../other.key >published.signers")
	for name, job := range map[string]func() (string, error){"GitHub": func() (string, error) { return action(c) }, "GitLab": func() (string, error) { return gitLab(c, t) }} {
		// hawser allocate reads the signers of the pull request, and fails.
		out, err := job()
		if err == nil || !strings.Contains(out, "Plan: 0 to add, 1 to change, 0 to destroy") || !strings.Contains(out, "is skipped: it has no signature") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// TestActionBeforePublishing tests that everything is new in a repository without a publication.
func TestActionBeforePublishing(t *testing.T) {
	t.Parallel()
	c := clitest.New(t, false, clitest.Topology)
	gh(c)
	out, err := action(c)
	if err != nil || !strings.Contains(out, "nothing is published on branch rendered yet") || !strings.Contains(out, "add cluster g1") {
		t.Errorf("%v\n%s", err, out)
	}
}

// gitLab runs the scripts of the GitLab template, and returns their output.
func gitLab(c *clitest.Repo, t *testing.T) (string, error) {
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
	return c.Run(c.Clone, strings.Join(job.Script, "\n"), env...)
}

func TestGitLab(t *testing.T) {
	t.Parallel()
	c := clitest.New(t, true, strings.Replace(clitest.Topology, "203.0.113.1", "203.0.113.9", 1))
	out, err := gitLab(c, t)
	if err != nil || !strings.Contains(out, "Plan: 0 to add, 1 to change, 0 to destroy.") {
		t.Errorf("%v\n%s", err, out)
	}
	if have := c.Read("clone/hawser.md"); !strings.Contains(have, "`203.0.113.1` → `203.0.113.9`") {
		t.Errorf("the note says\n%s", have)
	}
	if err := os.RemoveAll(c.Origin); err != nil {
		t.Fatal(err)
	}
	if out, err := gitLab(c, t); err == nil {
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
	valid := clitest.New(t, false, clitest.Topology)
	invalid := map[string]*clitest.Repo{
		"hawser-validate": clitest.New(t, false, strings.Replace(clitest.Topology, "10.7.0.0/16", "10.7.0.1/16", 1)),
		"hawser-lock":     clitest.New(t, false, clitest.Topology+"    - {name: b, node: n2, endpoints: [203.0.113.2]}\n"),
	}
	for _, hook := range config.Repos[0].Hooks {
		if files := regexp.MustCompile(hook.Files); !files.MatchString("clusterset.yaml") || !files.MatchString("clusterset.lock.yaml") {
			t.Errorf("%s runs for %s", hook.ID, hook.Files)
		}
		if out, err := valid.Run(valid.Clone, hook.Entry); err != nil {
			t.Errorf("%s: %v\n%s", hook.ID, err, out)
		}
		if out, err := invalid[hook.ID].Run(invalid[hook.ID].Clone, hook.Entry); err == nil {
			t.Errorf("%s accepts wrong input:\n%s", hook.ID, out)
		}
	}
}
