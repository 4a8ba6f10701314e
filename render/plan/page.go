package plan

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"sigs.k8s.io/yaml"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/render"
)

// uiPage contains the settings of a web page that the plan lists by name. otherSettings contains
// the rest of its objects.
type uiPage struct {
	image, hosts, secret, otherSettings string
}

// pageItems returns the web pages that clusters serve.
func pageItems(tree render.Tree) []item {
	var out []item
	for name, raw := range tree {
		cluster := clusterOf(name)
		if cluster == "" || name != path.Join(render.ClusterDir(cluster), render.UIFile) {
			continue
		}
		p := readPage(raw)
		out = append(out, item{kind: kindPage, name: cluster, cluster: cluster, path: "ui", fields: []diff.Field{
			field("image", p.image), field("hosts", p.hosts), field("tokenSecret", p.secret), field("other settings", digest([]byte(p.otherSettings))),
		}})
	}
	return out
}

// readPage parses the objects of a web page. Unreadable objects belong to otherSettings.
func readPage(raw []byte) uiPage {
	out := uiPage{secret: "none: the page generates a token"}
	var rest []string
	for part := range strings.SplitSeq(string(raw), "\n---\n") {
		var top struct {
			Kind string         `json:"kind"`
			Spec map[string]any `json:"spec"`
		}
		if yaml.Unmarshal([]byte(part), &top) == nil && top.Kind == "Deployment" {
			if remaining, err := json.Marshal(out.extractFields(top.Spec)); err == nil {
				part = string(remaining)
			}
		}
		rest = append(rest, part)
	}
	out.otherSettings = strings.Join(rest, "\n---\n")
	return out
}

// extractFields moves the listed settings from a Deployment's spec to the page, and returns the
// spec.
func (p *uiPage) extractFields(spec map[string]any) map[string]any {
	template, _ := spec["template"].(map[string]any)
	pod, _ := template["spec"].(map[string]any)
	containers, _ := pod["containers"].([]any)
	var hosts []string
	for _, c := range containers {
		c, _ := c.(map[string]any)
		p.image = fmt.Sprint(c["image"])
		delete(c, "image")
		hosts = append(hosts, extractArgs(c, "--host=")...)
		extractArgs(c, "--token-file=")
		extractNamed(c, "volumeMounts", "token")
	}
	if token := extractNamed(pod, "volumes", "token"); token != nil {
		secret, _ := token["secret"].(map[string]any)
		p.secret = fmt.Sprint(secret["secretName"])
	}
	p.hosts = strings.Join(hosts, ", ")
	return spec
}
