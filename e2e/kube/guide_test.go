//go:build kube

package kube

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/e2e/kube/gitops"
)

// guideTimeLimit bounds the guide's commands from bootstrap to verify on an idle machine.
const guideTimeLimit = 60 * time.Second

// TestGuide runs the commands of docs/guide.md, read from the page, as a user with a release, git and a
// kubeconfig, and without the source tree. They connect two clusters without any typed prefix, address
// or node name. It is the first test on these clusters, which must be new.
func TestGuide(t *testing.T) {
	rel := needRelease(t)
	pair := needClusters(t, samePrefixes)
	if pair.installed != nil {
		pair.installed.uninstall(t)
	}
	pair.workloads(t)
	before := pair.snapshots(t)
	pair.must(t, "", "kubelab", "--dir", pair.dir, "import", rel.file("hawser-agent_"+rel.version+".oci.tar"))
	u := newUserShell(t, pair, rel, map[string]string{"c1": "fra", "c2": "ams"})
	if out := u.run(t, "", "", "hawser --version"); !strings.Contains(out, rel.version) {
		t.Fatalf("the archive's hawser is %s, want %s", out, rel.version)
	}
	for _, absent := range []string{"go", "kubectl", "kubelab", "hawser-agent"} {
		if out, err := u.try(t.Context(), "", "", "command -v "+absent); err == nil {
			t.Fatalf("%s is on the user's PATH: %s", absent, out)
		}
	}
	commands := strings.Split(strings.TrimSpace(gitops.Documented(t, "../../docs/guide.md", "hawser init --context")), "\n")
	if len(commands) > 5 || !strings.HasPrefix(commands[len(commands)-1], "hawser verify") {
		t.Fatalf("the guide has other commands:\n%s", strings.Join(commands, "\n"))
	}
	dir := filepath.Join(u.home, "net")
	u.run(t, "", "", "git init -q --bare hub.git && git clone -q hub.git net")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		if _, err := u.try(ctx, "", "", "hawser uninstall fra ams --yes --force"); err != nil {
			t.Error(err)
		}
	})

	var bootstrap time.Time
	output := map[string]string{}
	start := time.Now()
	for _, line := range commands {
		if regexp.MustCompile(`\d+\.\d+|[0-9a-f]*::|/\d`).MatchString(line) {
			t.Errorf("the guide has an address typed: %s", line)
		}
		verb := strings.Join(strings.Fields(line)[:2], " ")
		if verb == "hawser bootstrap" {
			bootstrap = time.Now()
		}
		if verb == "hawser verify" {
			line += " || [ $? -eq 2 ]" // nothing to verify yet
		}
		output[verb] = u.run(t, dir, "y\n", line)
		if verb == "hawser init" {
			u.correctGuess(t, dir)
		}
	}
	took := time.Since(bootstrap)
	t.Logf("figure: two clusters connected by the guide's %d commands: %.1f s, of it %.1f s from bootstrap to the end of verify", len(commands), time.Since(start).Seconds(), took.Seconds())
	if bootstrap.IsZero() || os.Getenv("QUIET") == "1" && took > guideTimeLimit {
		t.Errorf("from bootstrap to verify: %s, at most %s on a quiet machine", took, guideTimeLimit)
	}
	if out := output["hawser bootstrap"]; !strings.Contains(out, "Do this?") || !strings.Contains(out, "published as ") {
		t.Errorf("bootstrap does not ask, or does not publish:\n%s", out)
	}
	if out := output["hawser status"]; !strings.Contains(out, "no problems: ") {
		t.Error(out)
	}
	for _, node := range []string{"fra/c1n1", "fra/c1n2", "ams/c2n1", "ams/c2n2"} {
		if out := output["hawser verify"]; !strings.Contains(out, node+": 0 of 0 names answered") {
			t.Errorf("verify does not list %s:\n%s", node, out)
		}
	}
	// All pods run the image of the release.
	image, _, _ := strings.Cut(rel.image(t, "hawser-agent"), "@")
	for _, c := range pair.clusters {
		if out := pair.kubectl(t, c, "-n", "hawser-system", "get", "pods", "-o", "jsonpath={.items[*].spec.containers[*].image}"); strings.TrimSpace(strings.ReplaceAll(out, image, "")) != "" {
			t.Errorf("%s runs %s, want %s alone", c, out, image)
		}
	}
	if out := u.run(t, dir, "", "hawser status -o json"); strings.Count(out, `"version": "`+rel.version+`"`) < 4 {
		t.Errorf("the agents are not all of %s:\n%s", rel.version, out)
	}
	// An older version of hawser reports that it is older.
	older := filepath.Join(u.home, "older")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -X main.version=v0.1.0", "-o", older, "../../cmd/hawser")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build an older hawser: %v\n%s", err, out)
	}
	want := "warning: agents run " + rel.version + " and this is hawser v0.1.0, which may not show all that they report"
	if out := u.run(t, dir, "", older+" status"); !strings.Contains(out, want) {
		t.Errorf("status of an older version does not say %q:\n%s", want, out)
	}

	// An export, published by the reconciler and delivered by hawser apply, as without Flux and Argo CD.
	deliver := "hawser reconcile --once --repo ../hub.git --root-key keys/root.key && hawser apply --yes --repo ../hub.git"
	if out := u.run(t, dir, "", "hawser export sample/whereami-cs --cluster ams && git commit -q -a -m 'an export' && git push -q"); !strings.Contains(out, "sample/whereami-cs") {
		t.Errorf("hawser export does not print the plan:\n%s", out)
	}
	u.run(t, dir, "", deliver)
	u.run(t, dir, "", "hawser status --wait")
	(&clusterset{clusterPair: pair}).awaitAnswer(t, "c1", "client", serviceName, fromCluster("c2"))
	if out := u.run(t, dir, "", "hawser verify"); !strings.Contains(out, "pod on fra/c1n2: 2 of 2 names answered") {
		t.Errorf("verify:\n%s", out)
	}

	// A second bootstrap changes nothing.
	if out := u.run(t, dir, "", "hawser bootstrap --dry-run -o json"); !strings.Contains(out, `"publish": false`) || strings.Contains(out, `"op"`) {
		t.Errorf("a second bootstrap would change\n%s", out)
	}

	// A cluster leaves: the other cluster removes its links first.
	u.run(t, dir, "", "hawser leave ams && hawser diff || [ $? -eq 1 ]; git commit -q -a -m 'remove ams' && git push -q")
	u.run(t, dir, "", deliver+" --cluster fra && hawser status --wait --cluster fra && hawser uninstall ams --yes")
	u.run(t, dir, "", "hawser uninstall fra --yes --force")
	for _, c := range pair.clusters {
		if out := pair.kubectl(t, c, "get", "namespaces", "-o", "name"); strings.Contains(out, "hawser-system") {
			t.Errorf("%s still has Hawser's namespace: %s", c, out)
		}
	}
	pair.workloads(t)
	if text := differences(before, pair.snapshots(t)); text != "" {
		t.Errorf("the nodes are not as before the installation:\n%s", text)
	}
}

// correctGuess writes a wrong prefix into the topology before its first publication, and corrects it. The
// lock must then be the same as before.
func (u userShell) correctGuess(t *testing.T, dir string) {
	t.Helper()
	file, lock := filepath.Join(dir, "clusterset.yaml"), filepath.Join(dir, "clusterset.lock.yaml")
	read := func(name string) string {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	allocate := func(topology string) {
		if err := os.WriteFile(file, []byte(topology), 0o600); err != nil {
			t.Fatal(err)
		}
		u.run(t, dir, "", "hawser allocate")
	}
	right, want := read(file), read(lock)
	wrong := strings.Replace(right, "podCIDRs: [10.7.0.0/22]", "podCIDRs: [10.8.0.0/14]", 1)
	if wrong == right {
		t.Fatalf("the topology lacks the prefix of pods:\n%s", right)
	}
	allocate(wrong)
	if read(lock) == want {
		t.Errorf("a wider prefix does not change the lock:\n%s", want)
	}
	allocate(right)
	if have := read(lock); have != want {
		t.Errorf("the lock has a trace of the wrong prefix:\n%s\nwant\n%s", have, want)
	}
}
