package plan

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/render"
)

// daemonSet contains the settings of a DaemonSet that the plan lists by name. pods contains all
// other settings.
type daemonSet struct {
	image, secrets, priority, tolerations, requests, limits, metrics, pods string
}

// agentsItem returns the settings of all agents. It returns false if the tree lacks them.
func agentsItem(tree render.Tree) (item, bool) {
	node, err := readDaemonSet(tree[render.AgentFile])
	gateway, err2 := readDaemonSet(tree[render.GatewayFile])
	if err != nil || err2 != nil {
		return item{}, false // then the plan lists the changed files
	}
	return item{kind: kindAgents, name: "of all clusters", fields: []diff.Field{
		field("image", gateway.image),
		field("imagePullSecrets", gateway.secrets),
		field("priorityClassName", gateway.priority),
		field("tolerations", gateway.tolerations),
		field("requests", gateway.requests),
		field("limits", node.limits),
		field("gatewayLimits", gateway.limits),
		field("metrics.port", gateway.metrics),
		field("other settings", digest([]byte(node.pods+gateway.pods))),
	}}, true
}

func readDaemonSet(raw []byte) (d daemonSet, err error) {
	var top struct {
		Spec struct {
			Template map[string]any `json:"template"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(raw, &top); err != nil {
		return d, err
	}
	pod, _ := top.Spec.Template["spec"].(map[string]any)
	containers, _ := pod["containers"].([]any)
	if len(containers) == 0 {
		return d, fmt.Errorf("read DaemonSet: it has no containers")
	}
	agent, _ := containers[0].(map[string]any)
	extract := func(from map[string]any, key string) any {
		value := from[key]
		delete(from, key)
		return value
	}
	resources, _ := extract(agent, "resources").(map[string]any)
	d.image, _ = extract(agent, "image").(string)
	d.priority, _ = extract(pod, "priorityClassName").(string)
	d.secrets, d.tolerations = formatValue(extract(pod, "imagePullSecrets")), formatValue(extract(pod, "tolerations"))
	d.requests, d.limits = formatValue(resources["requests"]), formatValue(resources["limits"])
	d.metrics = strings.Join(extractArgs(agent, "--metrics=[$(HOST_IP)]:"), ", ")
	if d.metrics != "" { // --metrics adds ports
		delete(agent, "ports")
		extractNamed(agent, "env", "HOST_IP")
	} else if ports, _ := agent["ports"].([]any); len(ports) == 1 {
		delete(agent, "ports")
	}
	otherSettings, err := json.Marshal(top.Spec.Template)
	d.pods = string(otherSettings)
	return d, err
}

// extractArgs removes the arguments of a container that begin with a prefix, and returns them
// without the prefix.
func extractArgs(container map[string]any, prefix string) (values []string) {
	args, _ := container["args"].([]any)
	container["args"] = slices.DeleteFunc(args, func(a any) bool {
		value, matches := strings.CutPrefix(fmt.Sprint(a), prefix)
		if matches {
			values = append(values, value)
		}
		return matches
	})
	return values
}

// extractNamed removes the element with a name from a list, and returns that element.
func extractNamed(from map[string]any, list, name string) (found map[string]any) {
	items, _ := from[list].([]any)
	from[list] = slices.DeleteFunc(items, func(v any) bool {
		m, _ := v.(map[string]any)
		matches := m["name"] == name
		if matches {
			found = m
		}
		return matches
	})
	return found
}

// formatValue returns a YAML value as short text with sorted keys.
func formatValue(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case []any:
		texts := make([]string, len(v))
		for i, e := range v {
			texts[i] = formatValue(e)
		}
		return strings.Join(texts, ", ")
	case map[string]any:
		if name, ok := v["name"].(string); ok && len(v) == 1 {
			return name
		}
		return strings.ReplaceAll(joinPairs(v), ", ", " ")
	}
	return fmt.Sprint(v)
}

func digest(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:6])
}

// restartEffect describes how a restart of the agents affects the remaining clusters
// (docs/gateways.md, "Replacing agents").
func restartEffect(e *Entry, want, have *snapshot) string {
	var clusters, single []string
	for _, c := range want.fabric.Clusters {
		if have.fabric.Cluster(c.Name) == nil {
			continue
		}
		clusters = append(clusters, c.Name)
		if len(c.Gateways) == 1 {
			single = append(single, c.Name)
		}
	}
	if e.Op != diff.Update || len(clusters) == 0 {
		return ""
	}
	what := "agents restart"
	for _, f := range e.Fields {
		if f.Name == "image" {
			what = "agent " + imageChange(f)
		}
	}
	text := fmt.Sprintf("%s on %s: gateways restart one by one, other nodes a tenth at a time; connections stay, "+
		"datagrams of pods on a gateway's node stop for up to 0.2 s", what, humanize.Plural(len(clusters), "cluster"))
	if len(single) > 0 {
		text += "; with one gateway (" + humanize.FirstN(single, maxNames) + ") tunnels of WireGuard in userspace and of IPsec are down until it is back"
	}
	return text
}

// imageChange describes a change of an image. If only the tag changes, it contains only the tags.
func imageChange(f Field) string {
	have, haveTag := splitTag(f.Have)
	want, wantTag := splitTag(f.Want)
	if have == want && haveTag != "" && wantTag != "" {
		return haveTag + " -> " + wantTag
	}
	return f.Have + " -> " + f.Want
}

func splitTag(image string) (name, tag string) {
	at := strings.LastIndexByte(image, ':')
	if at < strings.LastIndexByte(image, '/') || strings.Contains(image, "@") {
		return image, ""
	}
	return image[:at], image[at+1:]
}

// maxNames is the maximum number of names in a text.
const maxNames = 8

// sameFile reports whether a file has the same bytes in both trees.
func sameFile(want, have render.Tree, name string) bool { return bytes.Equal(want[name], have[name]) }
