//go:build kube

package kube

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/e2e/kube/gitops"
)

// TestGitOps tests Flux as the only tool that applies publications: each cluster has its own
// controller. Flux adopts the objects applied by kubectl without an interruption, and a commit takes
// effect.
func TestGitOps(t *testing.T) {
	s := needSet(t, same)
	t.Cleanup(func() { s.reset(t) })
	s.ask(t, "c1", "client", service, from("c2"))
	url := gitops.Serve(t, s.path("repo"))
	for _, c := range s.clusters {
		s.startFlux(t, c, url)
	}
	for _, c := range s.clusters {
		s.arrived(t, c)
	}
	s.ask(t, "c1", "client", service, from("c2"))

	begun := time.Now()
	s.edit(t, "  - name: whereami-cs\n    namespace: sample\n    clusters: [c2]\n", "  - name: whereami-cs\n    namespace: sample\n    clusters: [c1, c2]\n")
	s.release(t)
	s.ask(t, "c1", "client", service, from("c1")) // the nearer one is preferred
	t.Logf("figure: from a commit to another answer by way of Flux: %.1f s", time.Since(begun).Seconds())
	for _, c := range s.clusters {
		s.arrived(t, c)
	}

	s.edit(t, "    clusters: [c1, c2]\n", "    clusters: [c2]\n")
	s.release(t)
	s.ask(t, "c1", "client", service, from("c2"))
	s.eventually(t, func(out string) bool { return out == "" },
		"kubectl", "--context", "c1", "-n", "sample", "get", "serviceexport", "whereami-cs", "--ignore-not-found", "-o", "name")
	s.ready(t)
}

// release commits and publishes, without applying.
func (s *set) release(t *testing.T) {
	t.Helper()
	s.commit(t)
	if _, err := s.publish(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// startFlux makes Flux apply the branch in a cluster, with the objects of the documentation, for the
// time of the test. Applied objects stay.
func (s *set) startFlux(t *testing.T, cluster, url string) {
	t.Helper()
	s.flux(t, cluster)
	s.apply(t, cluster, strings.ReplaceAll(gitops.Documented(t, "../../docs/gitops.md", "kind: GitRepository"), "<repository>", url))
	s.kubectl(t, cluster, "apply", "-f", s.path("tree/flux/"+cluster+"/sync.yaml"))
}

// access writes a kubeconfig of one cluster.
func (r *rig) access(t *testing.T, cluster string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), cluster+".kubeconfig")
	config := r.kubectl(t, cluster, "config", "view", "--minify", "--flatten", "--raw")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// defined makes the definitions of flux or argo in a cluster, and its namespace, until the
// test ends. Nothing is pruned then: the controllers, which start later, end before.
func (r *rig) defined(t *testing.T, cluster, of, namespace, finalized string) {
	t.Helper()
	var definitions []string
	for _, name := range gitops.Definitions(t, of) {
		definitions = append(definitions, "-f", name)
	}
	r.apply(t, cluster, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+namespace+"}\n")
	r.kubectl(t, cluster, append([]string{"apply", "--server-side"}, definitions...)...)
	// kubectl wait fails for a definition without conditions.
	r.eventually(t, has("condition met"), append([]string{"kubectl", "--context", cluster, "wait", "--for=condition=Established", "--timeout=" + limit.String()}, definitions...)...)
	t.Cleanup(func() {
		for name := range strings.FieldsSeq(r.kubectl(t, cluster, "-n", namespace, "get", finalized, "-o", "name")) {
			r.kubectl(t, cluster, "-n", namespace, "patch", name, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
		}
		r.kubectl(t, cluster, append([]string{"delete", "--ignore-not-found"}, definitions...)...)
		r.kubectl(t, cluster, "delete", "namespace", namespace)
	})
}

// flux starts Flux on a cluster, until the test ends.
func (r *rig) flux(t *testing.T, cluster string) {
	t.Helper()
	r.defined(t, cluster, "flux", gitops.FluxNamespace, "kustomizations")
	gitops.StartFlux(t, r.access(t, cluster))
}

// arrived waits until Flux reports that a cluster has the publication and that all objects are healthy.
func (s *set) arrived(t *testing.T, cluster string) {
	t.Helper()
	want := strings.TrimSpace(s.must(t, "", "git", "-C", s.path("repo"), "rev-parse", "rendered"))
	for _, name := range []string{"hawser", "hawser-sync"} {
		s.eventually(t, has("rendered@sha1:"+want+" True"), "kubectl", "--context", cluster, "-n", gitops.FluxNamespace, "get", "kustomization", name,
			"-o", `jsonpath={.status.lastAppliedRevision} {.status.conditions[?(@.type=="Ready")].status}`)
	}
}
