//go:build kube

package kube

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// types runs a line as somebody types it in a folder, with the clusters' kubeconfig. It
// needs no terminal: git is told who commits.
func (r *rig) types(t *testing.T, dir, line string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*limit)
	defer cancel()
	who := `export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@example.org GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@example.org; unset HAWSER_ROOT_KEY; `
	out, err := r.try(ctx, dir, "", "sh", "-ec", who+line)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestFiveCommands goes the way of the guide: two clusters, of which nobody typed a prefix,
// an address or a name of a node, are connected by five commands. The image is named, as
// the lab has no registry, and nobody is asked, as there is no terminal (e2e/kube/apply
// has one).
func TestFiveCommands(t *testing.T) {
	r := needRig(t, same)
	if r.set != nil {
		r.set.uninstall(t)
	}
	r.workloads(t)
	base := t.TempDir()
	dir := filepath.Join(base, "net")
	r.types(t, base, "git init -q --bare -b main hub.git && git init -q -b main net && git -C net remote add origin ../hub.git && git -C net config push.autoSetupRemote true")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		if _, err := r.try(ctx, base, "", "hawser", "uninstall", "c1", "c2", "--yes", "--force"); err != nil {
			t.Error(err)
		}
	})

	begun := time.Now()
	r.types(t, dir, "hawser init --context c1 --context c2")
	r.types(t, dir, "git add -A && git commit -q -m 'the clusterset' && git push -q")
	out := r.types(t, dir, "hawser bootstrap --context c1 --context c2 --image hawser.dev/hawser-agent:lab --yes")
	if !strings.Contains(out, "published as ") || !strings.Contains(out, "hawser status --wait") {
		t.Error(out)
	}
	out = r.types(t, dir, "hawser status --wait")
	if strings.Contains(out, "Trouble") {
		t.Error(out)
	}
	t.Logf("figure: two clusters connected by init, git push, bootstrap and status --wait: %.1f s", time.Since(begun).Seconds())
	out = r.types(t, dir, "hawser verify")
	for _, node := range []string{"c1/c1n1", "c1/c1n2", "c2/c2n1", "c2/c2n2"} {
		if !strings.Contains(out, node+": 0 of 0 names answered") {
			t.Errorf("verify does not tell of %s:\n%s", node, out)
		}
	}

	// An export, as the end of the file shows it: one commit, and pods reach it.
	file := filepath.Join(dir, "clusterset.yaml")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	raw = append(raw, "  exports:\n  - name: whereami-cs\n    namespace: sample\n    clusters: [c2]\n    ports: [{name: http, port: 80}]\n"...)
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	r.types(t, dir, "hawser allocate && git commit -q -a -m 'an export' && git push -q")
	r.types(t, dir, "hawser bootstrap --yes")
	r.types(t, dir, "hawser status --wait")
	(&set{rig: r}).ask(t, "c1", "client", service, from("c2"))
	out = r.types(t, dir, "hawser verify")
	if !strings.Contains(out, "c1/c1n2: 2 of 2 names answered") {
		t.Errorf("verify:\n%s", out)
	}

	// Nothing is left to be done.
	if out := r.types(t, dir, "hawser bootstrap --dry-run -o json"); !strings.Contains(out, `"publish": false`) || strings.Contains(out, `"op"`) {
		t.Errorf("a second bootstrap would change\n%s", out)
	}

	// A cluster leaves again, and the other one lets go of it first.
	r.types(t, dir, "hawser leave c2 && hawser diff || [ $? -eq 1 ]; git commit -q -a -m 'c2 leaves' && git push -q")
	r.types(t, dir, "hawser bootstrap --yes && hawser status --wait && hawser uninstall c2")
	if out := r.kubectl(t, "c2", "get", "namespaces", "-o", "name"); strings.Contains(out, "hawser-system") {
		t.Errorf("c2 still has Hawser's namespace: %s", out)
	}
}
