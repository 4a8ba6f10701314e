package render

import (
	"fmt"
	"strings"

	"hawser.dev/hawser/schema"
)

// addDelivery writes how Flux and Argo CD apply the clusters' folders.
func addDelivery(tree Tree, top *schema.ClusterSet) {
	names := make([]string, 0, len(top.Spec.Clusters))
	for _, c := range top.Spec.Clusters {
		names = append(names, c.Name)
	}
	names = sorted(names)
	for _, name := range names {
		tree["flux/"+name+".yaml"] = fluxKustomization(name)
	}
	tree["argocd/applicationset.yaml"] = applicationSet(names)
}

func fluxKustomization(cluster string) []byte {
	return fmt.Appendf(nil, `apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata:
  name: hawser
  namespace: flux-system
spec:
  interval: 10m
  retryInterval: 30s
  timeout: 5m
  path: ./%s
  prune: true
  wait: true
  sourceRef:
    kind: GitRepository
    name: hawser
`, ClusterDir(cluster))
}

func applicationSet(clusters []string) []byte {
	var elements strings.Builder
	for _, c := range clusters {
		_, _ = fmt.Fprintf(&elements, "      - cluster: %s\n", scalar(c))
	}
	list := "      elements: []\n"
	if len(clusters) > 0 {
		list = "      elements:\n" + elements.String()
	}
	return []byte(`apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata:
  name: hawser
  namespace: argocd
spec:
  goTemplate: true
  goTemplateOptions: [missingkey=error]
  generators:
  - list:
` + list + `  template:
    metadata:
      name: hawser-{{.cluster}}
    spec:
      project: default
      source:
        path: clusters/{{.cluster}}
      destination:
        name: '{{.cluster}}'
        namespace: ` + Namespace + `
      syncPolicy:
        automated: {prune: true, selfHeal: true}
        syncOptions: [ServerSideApply=true, RespectIgnoreDifferences=true]
        retry: {limit: -1, backoff: {duration: 5s, factor: 2, maxDuration: 3m}}
`)
}
