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

// UIFile is the file of the web page in a cluster's directory, if the cluster serves it.
const UIFile = "ui.yaml"

// UIName is the name of the web page's Deployment, Service and ServiceAccount.
const UIName = "hawser-ui"

// pageValues contains the values for the template of the web page.
type pageValues struct {
	Cluster, Image, TokenSecret    string
	Hosts, PullSecrets, ConfigMaps []string
}

// addUI writes the web page of each cluster that serves it. maps are the ConfigMaps of the fabric.
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
		raw, err := executeTemplate(UIFile, uiTemplate, pageValues{Cluster: c.Name, Image: image, TokenSecret: ui.TokenSecret, Hosts: sorted(ui.Hosts),
			PullSecrets: top.Spec.Agent.ImagePullSecrets, ConfigMaps: maps})
		if err != nil {
			return renderError("ui", err)
		}
		tree[path.Join(ClusterDir(c.Name), UIFile)] = raw
	}
	return list
}

// Parts of image names from release.sh. The image uiProgram serves the page.
const (
	agentProgram = "hawser-agent"
	uiProgram    = "hawser"
	ipsecVariant = "-ipsec"
)

// uiImage returns the image of the page. It is the topology's image, or the agents' image with
// hawser instead of hawser-agent. A digest identifies one image, so the page's image cannot be
// derived from a digest.
func uiImage(ui *schema.UI, agent string) (string, diag.List) {
	if ui.Image != "" {
		return ui.Image, nil
	}
	tag := Tag(agent)
	repository := strings.TrimSuffix(agent, ":"+tag)
	prefix, name := path.Split(repository)
	if program := strings.TrimSuffix(name, ipsecVariant); tag == "" || program != agentProgram {
		return "", diag.List{{Severity: diag.Error, Code: "no-image", Path: "ui.image",
			Summary: "is missing: which image has hawser does not follow from the agents' image " + agent,
			Hint:    "name it, as images.txt of the release does: registry.example.org/hawser:v1.2.3"}}
	}
	return prefix + uiProgram + ":" + strings.TrimSuffix(tag, ipsecVariant), nil
}
