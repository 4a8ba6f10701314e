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

// TestGitOps tests Flux as the only tool that applies publications, with a controller in each cluster.
// Flux adopts the objects applied by kubectl without an interruption, and a commit takes effect.
func TestGitOps(t *testing.T) {
	s := needClusterset(t, samePrefixes)
	t.Cleanup(func() { s.reset(t) })
	s.awaitAnswer(t, "c1", "client", serviceName, fromCluster("c2"))
	url := gitops.Serve(t, s.path("repo"))
	for _, c := range s.clusters {
		s.startFlux(t, c, url)
	}
	for _, c := range s.clusters {
		s.awaitRevision(t, c)
	}
	s.awaitAnswer(t, "c1", "client", serviceName, fromCluster("c2"))

	start := time.Now()
	s.edit(t, "  - name: whereami-cs\n    namespace: sample\n    clusters: [c2]\n", "  - name: whereami-cs\n    namespace: sample\n    clusters: [c1, c2]\n")
	s.release(t)
	s.awaitAnswer(t, "c1", "client", serviceName, fromCluster("c1")) // the local cluster wins
	t.Logf("figure: from a commit to another answer by way of Flux: %.1f s", time.Since(start).Seconds())
	for _, c := range s.clusters {
		s.awaitRevision(t, c)
	}

	s.edit(t, "    clusters: [c1, c2]\n", "    clusters: [c2]\n")
	s.release(t)
	s.awaitAnswer(t, "c1", "client", serviceName, fromCluster("c2"))
	s.eventually(t, func(out string) bool { return out == "" },
		"kubectl", "--context", "c1", "-n", "sample", "get", "serviceexport", "whereami-cs", "--ignore-not-found", "-o", "name")
	s.awaitReady(t)
}

// release commits and publishes, without applying.
func (s *clusterset) release(t *testing.T) {
	t.Helper()
	s.commit(t)
	if _, err := s.publish(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// startFlux makes Flux apply the branch in a cluster until the test ends, with the objects of the
// documentation. Applied objects stay.
func (s *clusterset) startFlux(t *testing.T, cluster, url string) {
	t.Helper()
	s.flux(t, cluster)
	s.apply(t, cluster, strings.ReplaceAll(gitops.Documented(t, "../../docs/gitops.md", "kind: GitRepository"), "<repository>", url))
	s.kubectl(t, cluster, "apply", "-f", s.path("tree/flux/"+cluster+"/sync.yaml"))
}

// access writes a kubeconfig of one cluster.
func (pair *clusterPair) access(t *testing.T, cluster string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), cluster+".kubeconfig")
	config := pair.kubectl(t, cluster, "config", "view", "--minify", "--flatten", "--raw")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// defined creates the definitions of flux or argo in a cluster, and its namespace, until the test ends.
// Nothing is pruned then, as the controllers start later and end earlier.
func (pair *clusterPair) defined(t *testing.T, cluster, of, namespace, finalized string) {
	t.Helper()
	var definitions []string
	for _, name := range gitops.Definitions(t, of) {
		definitions = append(definitions, "-f", name)
	}
	pair.apply(t, cluster, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+namespace+"}\n")
	pair.kubectl(t, cluster, append([]string{"apply", "--server-side"}, definitions...)...)
	// kubectl wait fails for a definition without conditions.
	pair.eventually(t, contains("condition met"), append([]string{"kubectl", "--context", cluster, "wait", "--for=condition=Established", "--timeout=" + conditionTimeout.String()}, definitions...)...)
	t.Cleanup(func() {
		for name := range strings.FieldsSeq(pair.kubectl(t, cluster, "-n", namespace, "get", finalized, "-o", "name")) {
			pair.kubectl(t, cluster, "-n", namespace, "patch", name, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
		}
		pair.kubectl(t, cluster, append([]string{"delete", "--ignore-not-found"}, definitions...)...)
		pair.kubectl(t, cluster, "delete", "namespace", namespace)
	})
}

// flux starts Flux on a cluster, until the test ends.
func (pair *clusterPair) flux(t *testing.T, cluster string) {
	t.Helper()
	pair.defined(t, cluster, "flux", gitops.FluxNamespace, "kustomizations")
	gitops.StartFlux(t, pair.access(t, cluster))
}

// awaitRevision waits until Flux reports that a cluster has the publication and that all objects are healthy.
func (s *clusterset) awaitRevision(t *testing.T, cluster string) {
	t.Helper()
	want := strings.TrimSpace(s.must(t, "", "git", "-C", s.path("repo"), "rev-parse", "rendered"))
	for _, name := range []string{"hawser", "hawser-sync"} {
		s.eventually(t, contains("rendered@sha1:"+want+" True"), "kubectl", "--context", cluster, "-n", gitops.FluxNamespace, "get", "kustomization", name,
			"-o", `jsonpath={.status.lastAppliedRevision} {.status.conditions[?(@.type=="Ready")].status}`)
	}
}
