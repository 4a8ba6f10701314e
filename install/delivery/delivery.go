// Package delivery configures Flux or Argo CD to deliver the publish branch to clusters.
package delivery

import (
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"hawser.dev/hawser/install/apply"
	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/reconciler/gitrepo"
	"hawser.dev/hawser/render"
)

// Delivery tools of the published tree.
const (
	Flux   = "flux"
	ArgoCD = "argocd"
	Direct = "apply" // hawser apply, without Flux or Argo CD
)

// Names in the configuration of Flux, of Argo CD and in the rendered tree (docs/gitops.md).
const (
	fluxNamespace = "flux-system"
	argoNamespace = "argocd"
	objectName    = "hawser"         // name of the GitRepository and of the Application
	FluxSigners   = "hawser-signers" // name of the Secret with which Flux verifies published commits
	// FluxSignersKey is the key in the Secret. By its suffix Flux detects SSH keys.
	FluxSignersKey = "hawser.sshpub"
)

// Source is the publish branch in the configuration of Flux and Argo CD.
type Source struct {
	URL     string
	Branch  string
	UserSet bool // the user named it: it overrides the current delivery of the cluster
}

// checkURL rejects addresses that Flux and Argo CD do not accept: a path, or the scp-like SSH form
// of git.
func (s Source) checkURL() error {
	if slices.ContainsFunc([]string{"https://", "http://", "ssh://"}, func(scheme string) bool { return strings.HasPrefix(s.URL, scheme) }) {
		return nil
	}
	return fmt.Errorf("the cluster cannot follow %s: name the URL (https or ssh) at which it reaches the repository with --follow, or choose --with apply", gitrepo.Redact(s.URL))
}

// Detect returns the delivery tools in a cluster: Flux, Argo CD, both or none.
func Detect(ctx context.Context, c *kubeclient.Client) ([]string, error) {
	if err := c.Ping(ctx); err != nil {
		return nil, fmt.Errorf("cluster %s (context %s): %s", c.Name, c.Context, kubeclient.ErrorText(err))
	}
	var out []string
	for tool, kinds := range map[string][]string{
		Flux:   {"GitRepository.source.toolkit.fluxcd.io", "Kustomization.kustomize.toolkit.fluxcd.io"},
		ArgoCD: {"Application.argoproj.io", "ApplicationSet.argoproj.io"},
	} {
		all := true
		for _, kind := range kinds {
			_, err := c.Mapping(schema.ParseGroupKind(kind))
			if err != nil && !meta.IsNoMatchError(err) {
				return nil, fmt.Errorf("cluster %s (context %s): look for %s: %w", c.Name, c.Context, kind, err)
			}
			all = all && err == nil
		}
		if all {
			out = append(out, tool)
		}
	}
	return out, nil
}

// oldestVerifier is the first minor version of Flux 2 that verifies SSH signatures of commits.
const oldestVerifier = 9

// FluxObjects returns the objects with which Flux applies the publish branch: the GitRepository,
// unless it exists, and the Kustomization of the tree, which includes all others. If Flux can
// verify SSH signatures, it accepts only commits of the signers.
func FluxObjects(ctx context.Context, c *kubeclient.Client, tree render.Tree, from Source, signers []string) ([]*unstructured.Unstructured, error) {
	namespace, err := c.Get(ctx, kubeclient.ID{Version: "v1", Kind: kubeclient.KindNamespace, Name: fluxNamespace})
	if err != nil {
		return nil, err
	}
	if namespace == nil {
		return nil, fmt.Errorf("no namespace %s, although Flux is installed", fluxNamespace)
	}
	name := path.Join("flux", c.Name, "sync.yaml")
	if tree[name] == nil {
		return nil, fmt.Errorf("the tree has no %s", name)
	}
	var body map[string]any
	if err := yaml.Unmarshal(tree[name], &body); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(body) == 0 {
		return nil, errors.New("there is nothing in " + name)
	}
	sync := &unstructured.Unstructured{Object: kubeclient.Normalize(body)}
	have, err := c.Get(ctx, kubeclient.ID{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "GitRepository", Namespace: fluxNamespace, Name: objectName})
	if err != nil || have != nil && !from.UserSet {
		return []*unstructured.Unstructured{sync}, err
	}
	if err := from.checkURL(); err != nil {
		return nil, err
	}
	spec := map[string]any{"url": from.URL, "interval": "1m0s", "ref": map[string]any{"branch": from.Branch}}
	var out []*unstructured.Unstructured
	found := regexp.MustCompile(`^v2\.(\d+)`).FindStringSubmatch(namespace.GetLabels()["app.kubernetes.io/version"])
	if found != nil && len(signers) > 0 {
		if minor, err := strconv.Atoi(found[1]); err == nil && minor >= oldestVerifier {
			spec["verify"] = map[string]any{"mode": "HEAD", "secretRef": map[string]any{"name": FluxSigners}}
			out = append(out, &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": kubeclient.KindSecret, "type": "Opaque",
				"metadata": map[string]any{"name": FluxSigners, "namespace": fluxNamespace},
				"data":     map[string]any{FluxSignersKey: kubeclient.Base64(strings.Join(signers, "\n") + "\n")},
			}})
		}
	}
	out = append(out, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
		"metadata": map[string]any{"name": objectName, "namespace": fluxNamespace}, "spec": spec,
	}})
	return append(out, sync), nil
}

// ArgoObjects returns the objects with which Argo CD in this cluster applies the publish branch:
// the Application that manages the ApplicationSet, and the AppProject if the tree has one. It
// returns an error if Argo CD does not know a cluster by its name.
func ArgoObjects(ctx context.Context, c *kubeclient.Client, tree render.Tree, from Source) ([]*unstructured.Unstructured, error) {
	if err := from.checkURL(); err != nil {
		return nil, err
	}
	objects, err := apply.BuildDir(tree, "argocd") // includes the user's patches
	if err != nil {
		return nil, err
	}
	project, out := "default", []*unstructured.Unstructured{}
	for _, o := range objects {
		switch o.GetKind() {
		case "AppProject":
			project, out = o.GetName(), append(out, o)
		case "ApplicationSet":
			if url, _, _ := unstructured.NestedString(o.Object, "spec", "template", "spec", "source", "repoURL"); url != from.URL {
				return nil, fmt.Errorf("the ApplicationSet has the repository %q, and not %s: commit %s/argocd/repo.yaml next to the topology, with "+
					"{apiVersion: argoproj.io/v1alpha1, kind: ApplicationSet, metadata: {name: hawser, namespace: argocd}, "+
					"spec: {template: {spec: {source: {repoURL: %q, targetRevision: %q}}}}}", url, from.URL, render.PatchesDir, from.URL, from.Branch)
			}
		}
	}
	if err := checkArgoClusters(ctx, c, apply.Clusters(tree)); err != nil {
		return nil, err
	}
	return append(out, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
		"metadata": map[string]any{"name": objectName, "namespace": argoNamespace},
		"spec": map[string]any{
			"project":     project,
			"source":      map[string]any{"repoURL": from.URL, "targetRevision": from.Branch, "path": "argocd"},
			"destination": map[string]any{"server": "https://kubernetes.default.svc", "namespace": argoNamespace},
			"syncPolicy": map[string]any{"automated": map[string]any{"prune": true, "selfHeal": true},
				"syncOptions": []any{"ServerSideApply=true"}},
		},
	}}), nil
}

// checkArgoClusters returns an error if Argo CD lacks a cluster with a name of the topology.
func checkArgoClusters(ctx context.Context, c *kubeclient.Client, names []string) error {
	list, err := c.List(ctx, schema.GroupVersionKind{Version: "v1", Kind: kubeclient.KindSecret}, argoNamespace, "argocd.argoproj.io/secret-type=cluster")
	if err != nil {
		return err
	}
	var missing []string
	for _, name := range names {
		if !slices.ContainsFunc(list, func(o unstructured.Unstructured) bool {
			known, _, _ := unstructured.NestedString(o.Object, "data", "name")
			return known == kubeclient.Base64(name)
		}) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("no cluster is known to Argo CD by the name of %s: argocd cluster add CONTEXT --name %s", humanize.FirstN(missing, 3), missing[0])
	}
	return nil
}
