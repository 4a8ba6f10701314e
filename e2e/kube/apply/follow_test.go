//go:build kube

package apply

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// defined returns the definition of a kind of Flux or Argo CD, without a schema.
func defined(group, kind, plural string) string {
	return fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[3]s.%[1]s}
spec:
  group: %[1]s
  scope: Namespaced
  names: {kind: %[2]s, plural: %[3]s, singular: %[4]s, listKind: %[2]sList}
  versions:
  - name: %[5]s
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
`, group, kind, plural, strings.ToLower(kind), map[bool]string{true: "v1alpha1", false: "v1"}[group == "argoproj.io"])
}

// TestBootstrapFollow tests that bootstrap configures Flux or Argo CD if they run, and then applies only
// the namespace. In a cluster without them it applies the tree. A second bootstrap changes nothing, and
// keeps the users' settings.
func TestBootstrapFollow(t *testing.T) {
	t.Parallel()
	r := newTestClusterset(t, "fra", "ams")
	fra, ams := r.servers["fra"], r.servers["ams"]
	cluster(t, fra, "fra-1", "10.244", "203.0.113.11")
	cluster(t, ams, "ams-1", "10.20", "203.0.113.12")
	fra.Apply(t, defined("source.toolkit.fluxcd.io", "GitRepository", "gitrepositories")+defined("kustomize.toolkit.fluxcd.io", "Kustomization", "kustomizations"))
	fra.Defined(t)
	dir, hub := r.workTree(t)
	r.mustShell(t, dir, "", "hawser init --context fra --context ams")
	r.mustShell(t, dir, "", "git add -A && git commit -q -m 'the clusterset' && git push -q origin main")
	const bootstrap = "hawser bootstrap --image registry.example.org/hawser-agent:v1 --yes"
	const url = "https://git.example.org/net.git"

	r.mustFail(t, dir, "", bootstrap, 2, "cluster fra: no namespace flux-system, although Flux is installed")
	fra.Apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: flux-system, labels: {app.kubernetes.io/version: v2.9.1}}\n")
	r.mustFail(t, dir, "", bootstrap+" --with argocd", 2, "--with argocd: no cluster has Applications and ApplicationSets of Argo CD")
	r.mustFail(t, dir, "", bootstrap+" --with flux --follow "+url, 2, "--with flux: cluster ams has no GitRepositories and Kustomizations of Flux")

	r.mustFail(t, dir, "", bootstrap, 2, "cluster fra: the cluster cannot follow "+hub+": name the URL (https or ssh) at which it reaches the repository with --follow, or choose --with apply")

	out := r.mustShell(t, dir, "", bootstrap+" --follow "+url)
	for _, want := range []string{"cluster fra gets it by Flux", "cluster ams gets it by hawser apply", "+ GitRepository flux-system/hawser",
		"+ Kustomization flux-system/hawser-sync", "+ Secret flux-system/hawser-signers", "hawser apply --repo " + hub} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	for _, what := range []string{"secret/hawser-age-identity", "secret/hawser-trust"} {
		fra.K(t, "-n", "hawser-system", "get", what)
	}
	if out := fra.K(t, "-n", "hawser-system", "get", "daemonsets,configmaps", "-o", "name"); out != "" {
		t.Errorf("of the tree there is %s", out)
	}
	if got := fra.K(t, "-n", "flux-system", "get", "gitrepository", "hawser", "-o", `jsonpath={.spec.url} {.spec.ref.branch} {.spec.verify.secretRef.name}`); got != url+" rendered hawser-signers" {
		t.Errorf("the GitRepository has %s", got)
	}
	if got := fra.K(t, "-n", "flux-system", "get", "kustomization", "hawser-sync", "-o", `jsonpath={.spec.path} {.spec.sourceRef.name}`); got != "./flux/fra hawser" {
		t.Errorf("the Kustomization has %s", got)
	}
	signer := fra.K(t, "-n", "flux-system", "get", "secret", "hawser-signers", "-o", `jsonpath={.data.hawser\.sshpub}`)
	if want := r.mustShell(t, dir, "", "hawser keys signers --root-key keys/root.key | sed 's/^[^ ]* //' | grep ^ssh | base64 -w0"); signer != want {
		t.Errorf("the signers are %s, want %s", signer, want)
	}
	ams.K(t, "-n", "hawser-system", "get", "daemonset", "hawser-gateway")

	// A user's setting stays, unless the command names another address.
	fra.K(t, "-n", "flux-system", "patch", "gitrepository", "hawser", "--type=merge", "-p", `{"spec": {"url": "ssh://git@git.example.org/net.git"}}`)
	if out := r.mustShell(t, dir, "", bootstrap+" --dry-run -o json"); strings.Contains(out, `"op"`) {
		t.Errorf("a second bootstrap would change\n%s", out)
	}
	r.mustFail(t, dir, "", bootstrap+" --dry-run --follow "+url, 1, "spec.url: ssh://git@git.example.org/net.git -> "+url)

	// Argo CD in one cluster serves both clusters, if both are registered with it and its
	// ApplicationSet names the repository.
	ams.Apply(t, defined("argoproj.io", "Application", "applications")+defined("argoproj.io", "ApplicationSet", "applicationsets")+
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: argocd}\n")
	ams.Defined(t)
	argo := bootstrap + " --with argocd --follow " + url
	r.mustFail(t, dir, "", argo, 2, `cluster ams: the ApplicationSet has the repository "", and not `+url, "commit patches/argocd/repo.yaml next to the topology",
		`repoURL: "`+url+`"`)
	patch := "apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: hawser, namespace: argocd}\n" +
		"spec: {template: {spec: {source: {repoURL: \"" + url + "\", targetRevision: \"rendered\"}}}}\n"
	if err := os.MkdirAll(filepath.Join(dir, "patches", "argocd"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "patches", "argocd", "repo.yaml"), []byte(patch), 0o600); err != nil {
		t.Fatal(err)
	}
	r.mustShell(t, dir, "", "git add -A && git commit -q -m 'for Argo CD' && git push -q origin main")
	r.mustFail(t, dir, "", argo, 2, "no cluster is known to Argo CD by the name of ams, fra: argocd cluster add CONTEXT --name ams")
	for _, name := range []string{"fra", "ams"} {
		ams.Apply(t, "apiVersion: v1\nkind: Secret\nmetadata: {name: cluster-"+name+", namespace: argocd, labels: {argocd.argoproj.io/secret-type: cluster}}\nstringData: {name: "+name+"}\n")
	}
	out = r.mustShell(t, dir, "", argo)
	if !strings.Contains(out, "cluster fra gets it by Argo CD") || !strings.Contains(out, "+ Application argocd/hawser") {
		t.Error(out)
	}
	if got := ams.K(t, "-n", "argocd", "get", "application", "hawser", "-o", `jsonpath={.spec.project} {.spec.source.repoURL} {.spec.source.path} {.spec.source.targetRevision}`); got != "default "+url+" argocd rendered" {
		t.Errorf("the Application has %s", got)
	}
	if out := r.mustShell(t, dir, "", argo+" --dry-run -o json"); strings.Contains(out, `"op"`) {
		t.Errorf("a second bootstrap would change\n%s", out)
	}
}
