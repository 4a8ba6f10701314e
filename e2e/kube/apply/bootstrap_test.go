//go:build kube

package apply

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"hawser.dev/hawser/e2e/kube/api"
)

// cluster creates the objects of a cluster with one node and Flannel on a server.
func cluster(t *testing.T, s *api.Server, node, pods, endpoint string) {
	t.Helper()
	s.Apply(t, strings.NewReplacer("fra-1", node, "10.244.", pods+".").Replace(flannelObjects))
	s.K(t, "patch", "node", node, "--subresource=status", "--type=merge", "-p",
		`{"status": {"addresses": [{"type": "ExternalIP", "address": "`+endpoint+`"}], "conditions": [{"type": "Ready", "status": "True"}]}}`)
}

// shell runs a command line in a directory, on a terminal with the given answers, and returns the
// output.
func (r *testClusterset) shell(t *testing.T, dir, answers, line string) (string, error) {
	t.Helper()
	cmd := exec.Command("sh", "-ec", line)
	if answers != "" {
		cmd = exec.Command("script", "-qefc", line, os.DevNull)
		cmd.Stdin = strings.NewReader(answers)
	}
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "KUBECONFIG="+r.config, "HAWSER_ROOT_KEY=", "PATH="+filepath.Dir(hawser)+":"+os.Getenv("PATH"),
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@example.org", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@example.org")
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", line, err, out)
	}
	return string(out), err
}

// mustShell is shell, which must succeed.
func (r *testClusterset) mustShell(t *testing.T, dir, answers, line string) string {
	t.Helper()
	out, err := r.shell(t, dir, answers, line)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// mustFail is shell, which must end with an exit code and print all wants.
func (r *testClusterset) mustFail(t *testing.T, dir, answers, line string, code int, wants ...string) {
	t.Helper()
	out, err := r.shell(t, dir, answers, line)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("exit status %d\n", code)) {
		t.Fatalf("%s: %v, want exit code %d\n%s", line, err, code, out)
	}
	for _, want := range wants {
		if !strings.Contains(out, want) {
			t.Errorf("%s: %q is not in\n%s", line, want, out)
		}
	}
}

// workTree creates a clone with a remote, as from a forge.
func (r *testClusterset) workTree(t *testing.T) (dir, hub string) {
	t.Helper()
	base := t.TempDir()
	hub, dir = filepath.Join(base, "hub.git"), filepath.Join(base, "net")
	r.mustShell(t, base, "", "git init -q --bare -b main hub.git && git clone -q hub.git net 2>/dev/null; cd net && git symbolic-ref HEAD refs/heads/main")
	return dir, hub
}

// versions returns the resource versions of all objects with fields of Hawser.
func versions(t *testing.T, s *api.Server) string {
	t.Helper()
	const what = `jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.resourceVersion}{"\n"}{end}`
	return s.K(t, "-n", "hawser-system", "get", "secrets,configmaps,serviceaccounts,daemonsets", "-o", what) + "\n" +
		s.K(t, "get", "namespaces,customresourcedefinitions,clusterroles,clusterrolebindings", "-l", "app.kubernetes.io/part-of=hawser", "-o", what)
}

// TestFiveCommands runs the commands of the guide, from two clusters without any typed-in facts to
// agents with the published topology.
func TestFiveCommands(t *testing.T) {
	t.Parallel()
	r := newTestClusterset(t, "fra", "ams")
	cluster(t, r.servers["fra"], "fra-1", "10.244", "203.0.113.11")
	cluster(t, r.servers["ams"], "ams-1", "10.20", "203.0.113.12")
	dir, hub := r.workTree(t)

	r.mustShell(t, dir, "", "hawser init --context fra --context ams")
	r.mustShell(t, dir, "", "git add -A && git commit -q -m 'the clusterset' && git push -q origin main")
	if tracked := r.mustShell(t, dir, "", "git ls-files"); strings.Contains(tracked, "key") || strings.Contains(tracked, "identity") {
		t.Fatalf("keys are committed: %s", tracked)
	}
	root, err := os.ReadFile(filepath.Join(dir, "keys", "root.key"))
	if err != nil {
		t.Fatal(err)
	}
	identity, err := os.ReadFile(filepath.Join(dir, "keys", "fra.identity"))
	if err != nil {
		t.Fatal(err)
	}
	secret := regexp.MustCompile(`AGE-SECRET-KEY-\S+`).FindString(string(identity))
	quiet := func(out string) string {
		if strings.Contains(out, secret) || strings.Contains(out, strings.TrimSpace(string(root))) {
			t.Errorf("a secret is printed:\n%s", out)
		}
		return out
	}

	// Without consent bootstrap changes nothing. It refuses a context of another cluster.
	const bootstrap = "hawser bootstrap --image registry.example.org/hawser-agent:v1 --context fra --context ams"
	empty := versions(t, r.servers["fra"])
	r.mustFail(t, dir, "", bootstrap+" --dry-run", 1, "to be published", "+ Secret hawser-system/hawser-age-identity", "+ Secret hawser-system/hawser-trust",
		"cluster ams gets it by hawser apply", "+ DaemonSet hawser-system/hawser-gateway")
	r.mustFail(t, dir, "", bootstrap+" </dev/null", 2, "there is no terminal to ask on: --yes does what --dry-run shows")
	r.mustFail(t, dir, "n\n", bootstrap, 1, "nothing was done")
	r.mustFail(t, dir, "", "hawser bootstrap --yes --context fra=ams --context ams=fra", 1, "clusters[fra].podCIDRs: the cluster has 10.20.0.0/16",
		"clusters[ams].gateways[ams-a].node: the cluster has no node ams-1, only fra-1", "nothing was done")
	r.mustFail(t, dir, "", "hawser bootstrap --yes --context fra=ams --context ams=fra --ignore pod-cidrs-differ,gateway-node-missing", 1,
		"does not look like cluster fra of the topology", "nothing was done")
	if now := versions(t, r.servers["fra"]); now != empty {
		t.Errorf("something was done:\n%s\nafter\n%s", now, empty)
	}
	if out, err := r.shell(t, hub, "", "git rev-parse rendered"); err == nil {
		t.Errorf("something was published: %s", out)
	}

	out := quiet(r.mustShell(t, dir, "y\n", bootstrap))
	for _, want := range []string{"Do this? [y/N]", "published as ", "hawser reconcile --repo " + hub + " --root-key keys/root.key", "hawser status --wait"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	for name, s := range r.servers {
		text := s.K(t, "-n", "hawser-system", "get", "secret", "hawser-age-identity", "-o", `jsonpath={.data.identity\.txt}`)
		if want := r.mustShell(t, dir, "", "base64 -w0 keys/"+name+".identity"); text != want {
			t.Errorf("%s has another identity", name)
		}
		if pins := s.K(t, "-n", "hawser-system", "get", "secret", "hawser-trust", "-o", `jsonpath={.data.signers}`); pins == "" {
			t.Errorf("%s has no pinned signers", name)
		}
		s.Defined(t)
		startAgent(t, s, name, name+"-1", "gateway")
	}

	out = r.mustShell(t, dir, "", "hawser status --wait --timeout 2m")
	published := r.mustShell(t, hub, "", "git show rendered:fabric.json | grep -c .") // exists
	if !strings.Contains(out, "fra-1") || !strings.Contains(out, "no problems: ") || published == "0\n" {
		t.Errorf("status:\n%s", out)
	}

	// A second run, by a user without the identities, changes nothing.
	before := versions(t, r.servers["fra"]) + versions(t, r.servers["ams"]) + r.mustShell(t, hub, "", "git rev-parse rendered main")
	quiet(r.mustShell(t, dir, "", bootstrap))
	if got := r.mustShell(t, dir, "", bootstrap+" --dry-run -o json"); !strings.Contains(quiet(got), `"publish": false`) || strings.Contains(got, `"op"`) {
		t.Errorf("a second bootstrap would change\n%s", got)
	}
	r.mustShell(t, dir, "", "mkdir away && mv keys/*.identity away && "+bootstrap+" --yes && mv away/* keys && rmdir away")
	after := versions(t, r.servers["fra"]) + versions(t, r.servers["ams"]) + r.mustShell(t, hub, "", "git rev-parse rendered main")
	if after != before {
		t.Errorf("a second bootstrap changed\n%s\nafter\n%s", after, before)
	}

	// A deleted object is restored; an identity that decrypts nothing is refused.
	r.servers["fra"].K(t, "-n", "hawser-system", "delete", "secret", "hawser-age-identity")
	r.servers["ams"].K(t, "-n", "hawser-system", "delete", "configmap", "hawser-identity")
	out = r.mustShell(t, dir, "", bootstrap+" --yes")
	if lines := regexp.MustCompile(`(?m)^  [+~-] .*$`).FindAllString(out, -1); !slices.Equal(lines, []string{
		"  + Secret hawser-system/hawser-age-identity", "  + ConfigMap hawser-system/hawser-identity"}) {
		t.Errorf("it did not create exactly the missing objects: %q", lines)
	}
	r.mustShell(t, dir, "", "hawser keys identity other.identity")
	r.servers["fra"].K(t, "-n", "hawser-system", "delete", "secret", "hawser-age-identity")
	r.servers["fra"].K(t, "-n", "hawser-system", "create", "secret", "generic", "hawser-age-identity", "--from-file=identity.txt="+filepath.Join(dir, "other.identity"))
	r.mustFail(t, dir, "", bootstrap+" --yes", 1, "Secret hawser-system/hawser-age-identity is the identity of age1", "nothing was done")
}
