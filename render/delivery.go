package render

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"hawser.dev/hawser/schema"
)

// addDelivery writes the objects with which Flux and Argo CD apply the clusters' directories.
func addDelivery(tree Tree, top *schema.ClusterSet, exports map[string]map[string][]*schema.Export) {
	names := sorted(top.ClusterNames())
	var elements strings.Builder
	for _, name := range names {
		element := func(app, dir string) {
			_, _ = fmt.Fprintf(&elements, "      - {app: %s, cluster: %s, path: %s}\n", scalar(app), scalar(name), scalar(dir))
		}
		namespaces := slices.Sorted(maps.Keys(exports[name]))
		addFlux(tree, name, namespaces)
		element("hawser-"+name, ClusterDir(name))
		for _, n := range namespaces {
			element(shorten("hawser-"+name+"-"+n), path.Join(ExportsDir(name), n))
		}
	}
	project := "default"
	if keys := top.Spec.Trust.OpenPGPKeys; len(keys) > 0 {
		project = "hawser"
		tree["argocd/project.yaml"] = appProject(keys, names)
	}
	tree["argocd/applicationset.yaml"] = applicationSet(elements.String(), project)
}

// addFlux writes the Kustomizations of a cluster: hawser-sync applies all of them, hawser applies
// Hawser, and one per namespace applies its exports. Flux applies no new commit while a
// Kustomization waits for health. An unhealthy Kustomization blocks all that depend on it. So
// hawser has no health checks, and a node that is down delays no change. hawser-sync seldom
// changes, so it checks the health of the agents.
func addFlux(tree Tree, cluster string, namespaces []string) {
	dir := path.Join("flux", cluster)
	tree[path.Join(dir, "sync.yaml")] = fluxKustomization("hawser-sync", dir, fluxAgents)
	tree[path.Join(dir, "hawser.yaml")] = fluxKustomization("hawser", ClusterDir(cluster), "  timeout: 5m\n")
	var pieces [][]byte
	for _, n := range namespaces {
		pieces = append(pieces, fluxKustomization(shorten("hawser-"+n), path.Join(ExportsDir(cluster), n), fluxExports))
	}
	if len(pieces) > 0 {
		tree[path.Join(dir, "exports.yaml")] = bytes.Join(pieces, []byte("---\n"))
	}
}

// fluxAgents lets a Kustomization wait for the rollout of the agents.
const fluxAgents = `  timeout: 3m
  healthChecks:
  - {apiVersion: apps/v1, kind: DaemonSet, name: ` + AgentName + `, namespace: ` + Namespace + `}
  - {apiVersion: apps/v1, kind: DaemonSet, name: ` + GatewayName + `, namespace: ` + Namespace + `}
`

// fluxExports lets a Kustomization wait for the status of each export, which takes seconds.
const fluxExports = `  timeout: 1m
  wait: true
  dependsOn:
  - name: hawser
  healthCheckExprs:
  - apiVersion: multicluster.x-k8s.io/v1beta1
    kind: ServiceExport
    failed: status.conditions.exists(c, c.type == 'Valid' && c.status == 'False')
    current: status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')
`

func fluxKustomization(name, dir, extraSpec string) []byte {
	return fmt.Appendf(nil, `apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata:
  name: %s
  namespace: flux-system
  labels: {%s}
spec:
  interval: 10m
  retryInterval: 30s
  path: ./%s
  prune: true
  sourceRef:
    kind: GitRepository
    name: hawser
%s`, name, partOf, dir, extraSpec)
}

// appProject returns the AppProject in which Argo CD accepts only commits signed by one of the
// keys. Argo CD identifies a key by the last 16 digits of its fingerprint. The project permits Argo
// CD's own cluster, because the Application of the ApplicationSet and of this project applies
// objects there.
func appProject(keys, clusters []string) []byte {
	var out strings.Builder
	out.WriteString(`apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata:
  name: hawser
  namespace: argocd
  labels: {` + partOf + `}
spec:
  signatureKeys:
`)
	for _, key := range keys {
		_, _ = fmt.Fprintf(&out, "  - keyID: %s\n", scalar(strings.ToUpper(key[len(key)-16:])))
	}
	out.WriteString("  sourceRepos: ['*']\n  clusterResourceWhitelist:\n  - {group: '*', kind: '*'}\n  destinations:\n" +
		"  - {server: 'https://kubernetes.default.svc', namespace: argocd}\n")
	for _, name := range clusters {
		_, _ = fmt.Fprintf(&out, "  - {name: %s, namespace: '*'}\n", scalar(name))
	}
	return []byte(out.String())
}

func applicationSet(elements, project string) []byte {
	list := "      elements: []\n"
	if elements != "" {
		list = "      elements:\n" + elements
	}
	return []byte(`apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata:
  name: hawser
  namespace: argocd
  labels: {` + partOf + `}
spec:
  goTemplate: true
  goTemplateOptions: [missingkey=error]
  generators:
  - list:
` + list + `  template:
    metadata:
      name: '{{.app}}'
      labels: {` + partOf + `}
    spec:
      project: ` + project + `
      source:
        path: '{{.path}}'
      destination:
        name: '{{.cluster}}'
      syncPolicy:
        automated: {prune: true, selfHeal: true}
        syncOptions: [ServerSideApply=true]
        # Without refresh, a commit that cannot be applied is tried for ever, and none after it.
        retry: {limit: -1, refresh: true, backoff: {duration: 5s, factor: 2, maxDuration: 3m}}
`)
}
