//go:build kube

package kube

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/e2e/kube/gitops"
)

// TestBootstrapFlux bootstraps clusters with Flux. From then on only Flux applies publications. Its
// kustomize-controller is real; e2e/kube/gitops replaces the source-controller.
func TestBootstrapFlux(t *testing.T) {
	d := newGitOpsBootstrap(t)
	for _, c := range d.clusters {
		d.flux(t, c)
	}
	d.bootstrap(t, "Flux")
	for _, c := range d.clusters {
		d.eventually(t, contains("True"), "kubectl", "--context", c, "-n", gitops.FluxNamespace, "get", "kustomization", "hawser", "hawser-sync",
			"-o", `jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}`)
	}
	d.export(t, func() {})
}

// TestBootstrapArgo is TestBootstrapFlux with Argo CD, which runs in c1 for both clusters: the
// controllers of Applications and ApplicationSets, and the repository server.
func TestBootstrapArgo(t *testing.T) {
	d := newGitOpsBootstrap(t)
	d.defined(t, "c1", "argo", gitops.ArgoNamespace, "applications,applicationsets,appprojects")
	d.apply(t, "c1", gitops.ArgoSettings(gitops.Documented(t, "../../docs/gitops.md", "resource.customizations.health")))
	for _, c := range d.clusters {
		d.apply(t, "c1", d.argoCluster(t, c))
	}
	gitops.StartArgo(t, d.access(t, "c1"))
	d.bootstrap(t, "Argo CD")
	d.export(t, func() { // Argo CD polls only every three minutes
		d.kubectl(t, "c1", "-n", gitops.ArgoNamespace, "annotate", "applications", "--all", "--overwrite", "argocd.argoproj.io/refresh=normal")
	})
	out := d.kubectl(t, "c1", "-n", gitops.ArgoNamespace, "get", "applications", "-o", "name")
	for _, want := range []string{"hawser-c1\n", "hawser-c2\n", "hawser-c2-sample\n"} {
		if !strings.Contains(out, "/"+want) {
			t.Errorf("no Application %s: %s", want, out)
		}
	}
}

// gitOpsBootstrap is a topology of two clusters, applied by Flux or Argo CD.
type gitOpsBootstrap struct {
	*clusterPair
	userShell
	net string // work tree
	url string // URL for Flux and Argo CD
}

// newGitOpsBootstrap creates the topology, without applying it to a cluster.
func newGitOpsBootstrap(t *testing.T) *gitOpsBootstrap {
	t.Helper()
	pair := needClusters(t, samePrefixes)
	if pair.installed != nil {
		pair.installed.uninstall(t)
	}
	pair.workloads(t)
	d := &gitOpsBootstrap{clusterPair: pair, userShell: newUserShell(t, pair, release{bin: os.Getenv("PATH")}, nil)}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		if _, err := d.userShell.try(ctx, "", "", "hawser uninstall c1 c2 --yes --force"); err != nil {
			t.Error(err)
		}
	})
	d.run(t, "", "", "git init -q --bare hub.git && git clone -q hub.git net")
	d.net, d.url = filepath.Join(d.home, "net"), gitops.Serve(t, filepath.Join(d.home, "hub.git"))
	d.run(t, d.net, "", "hawser init --context c1 --context c2")
	patch := strings.ReplaceAll(gitops.Documented(t, "../../docs/gitops.md", "spec: {template:"), "<repository>", d.url)
	d.file(t, "patches/argocd/repo.yaml", patch)
	d.run(t, d.net, "", "git add -A && git commit -q -m 'the clusterset' && git push -q")
	return d
}

func (d *gitOpsBootstrap) file(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(d.net, name)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// bootstrap runs hawser bootstrap, which must leave applying to by, and waits for connected clusters.
func (d *gitOpsBootstrap) bootstrap(t *testing.T, by string) {
	t.Helper()
	start := time.Now()
	out := d.run(t, d.net, "", "hawser bootstrap --context c1 --context c2 --image hawser.dev/hawser-agent:lab --follow "+d.url+" --yes")
	for _, c := range d.clusters {
		if !strings.Contains(out, "cluster "+c+" gets it by "+by) {
			t.Errorf("%s is applied by another tool:\n%s", c, out)
		}
		// Hawser itself applies the keys, and neither definitions nor agents.
		if strings.Contains(out, "daemonset") {
			t.Errorf("bootstrap brings agents to %s:\n%s", c, out)
		}
	}
	// There are no agents to wait for until the tool has started.
	for _, c := range d.clusters {
		d.eventually(t, contains("daemonset"), "kubectl", "--context", c, "-n", "hawser-system", "get", "daemonsets", "-o", "name")
	}
	d.run(t, d.net, "", "hawser status --wait")
	out = d.run(t, d.net, "", "hawser verify || [ $? -eq 2 ]")
	t.Logf("figure: from bootstrap to verify, by way of %s: %.1f s", by, time.Since(start).Seconds())
	for _, node := range []string{"c1/c1n1", "c1/c1n2", "c2/c2n1", "c2/c2n2"} {
		if !strings.Contains(out, node+": 0 of 0 names answered") {
			t.Errorf("verify does not list %s:\n%s", node, out)
		}
	}
}

// export commits an export, publishes it, and waits until it works, without applying it. hurry makes
// the delivery tool poll at once.
func (d *gitOpsBootstrap) export(t *testing.T, hurry func()) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(d.net, "clusterset.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	d.file(t, "clusterset.yaml", string(raw)+"  exports:\n  - name: whereami-cs\n    namespace: sample\n    clusters: [c2]\n    ports: [{name: http, port: 80}]\n")
	start := time.Now()
	d.run(t, d.net, "", "hawser allocate && git commit -q -a -m 'an export' && git push -q && hawser reconcile --once --repo ../hub.git --root-key keys/root.key")
	hurry()
	(&clusterset{clusterPair: d.clusterPair}).awaitAnswer(t, "c1", "client", serviceName, fromCluster("c2"))
	t.Logf("figure: from a commit to an answer: %.1f s", time.Since(start).Seconds())
	hurry()
	d.eventually(t, contains("Ready=True"), "kubectl", "--context", "c2", "-n", "sample", "get", "serviceexport", "whereami-cs",
		"-o", `jsonpath={range .status.conditions[*]}{.type}={.status} {end}`)
}

// argoCluster registers a cluster with Argo CD in c1, with its certificates.
func (d *gitOpsBootstrap) argoCluster(t *testing.T, cluster string) string {
	t.Helper()
	get := func(path string) string {
		return strings.TrimSpace(d.kubectl(t, cluster, "config", "view", "--minify", "--flatten", "--raw", "-o", "jsonpath={"+path+"}"))
	}
	server := get(".clusters[0].cluster.server")
	if cluster == "c1" {
		server = "https://kubernetes.default.svc"
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: cluster-%[1]s, namespace: argocd, labels: {argocd.argoproj.io/secret-type: cluster}}
stringData:
  name: %[1]s
  server: %[2]s
  config: '{"tlsClientConfig": {"caData": %[3]q, "certData": %[4]q, "keyData": %[5]q}}'
`, cluster, server, get(".clusters[0].cluster.certificate-authority-data"), get(".users[0].user.client-certificate-data"), get(".users[0].user.client-key-data"))
}
