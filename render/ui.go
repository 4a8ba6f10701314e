package render

import (
	_ "embed"
	"path"
	"strings"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema"
)

//go:embed cluster/ui.yaml
var uiTemplate string

// UIFile is the file of a cluster's folder with the web page, where the cluster serves one.
const UIFile = "ui.yaml"

// UIName is the name of the page's Deployment, Service and ServiceAccount.
const UIName = "hawser-ui"

// page is what the template of the web page is filled in with.
type page struct {
	Cluster, Image, TokenSecret    string
	Hosts, PullSecrets, ConfigMaps []string
}

// addUI writes the web page of each cluster that serves it. maps hold the fabric.
func addUI(tree Tree, top *schema.ClusterSet, agentImage string, maps []string) diag.List {
	ui := top.Spec.UI
	if ui == nil {
		return nil
	}
	image, list := uiImage(ui, agentImage)
	if list.HasErrors() {
		return list
	}
	for _, c := range top.Spec.Clusters {
		if !ui.Serves(c.Name) {
			continue
		}
		raw, err := filled(UIFile, uiTemplate, page{Cluster: c.Name, Image: image, TokenSecret: ui.TokenSecret, Hosts: sorted(ui.Hosts),
			PullSecrets: top.Spec.Agent.ImagePullSecrets, ConfigMaps: maps})
		if err != nil {
			return failed("ui", err)
		}
		tree[path.Join(ClusterDir(c.Name), UIFile)] = raw
	}
	return list
}

// Names that release.sh gives the images: the page is served by the one with hawser in it.
const (
	agentProgram = "hawser-agent"
	uiProgram    = "hawser"
	ipsecVariant = "-ipsec"
)

// uiImage gives the image of the page: the one of the topology, or hawser beside the agents'
// hawser-agent by the same tag. A digest names one image alone, so another one does not follow
// from it.
func uiImage(ui *schema.UI, agent string) (string, diag.List) {
	if ui.Image != "" {
		return ui.Image, nil
	}
	tag := Tag(agent)
	repository := strings.TrimSuffix(agent, ":"+tag)
	folder, name := path.Split(repository)
	if program := strings.TrimSuffix(name, ipsecVariant); tag == "" || program != agentProgram {
		return "", diag.List{{Severity: diag.Error, Code: "no-image", Path: "ui.image",
			Summary: "is missing: which image has hawser does not follow from the agents' image " + agent,
			Hint:    "name it, as images.txt of the release does: registry.example.org/hawser:v1.2.3"}}
	}
	return folder + uiProgram + ":" + strings.TrimSuffix(tag, ipsecVariant), nil
}
