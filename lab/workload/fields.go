package workload

import (
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"hawser.dev/hawser/internal/diag"
)

// podFields returns the fields of a pod's spec that the lab honours, and the fields of containers,
// which the lab does not run. See fields for the format.
func podFields() []string {
	return []string{
		"nodeName", "nodeSelector", "hostNetwork", "hostname", "subdomain", "readinessGates", "dnsPolicy=ClusterFirst,ClusterFirstWithHostNet",
		"containers[].ports[].name", "containers[].ports[].containerPort", "containers[].ports[].protocol=TCP,UDP", "containers[].*",
		"initContainers[].ports[].name", "initContainers[].ports[].containerPort", "initContainers[].ports[].protocol=TCP,UDP", "initContainers[].*",
		// Nodes of the lab have no taints, and the lab itself does all restarts.
		"tolerations", "restartPolicy=Always", "schedulerName=default-scheduler", "enableServiceLinks", "terminationGracePeriodSeconds",
		"volumes", "serviceAccount", "serviceAccountName", "automountServiceAccountToken", "imagePullSecrets", "securityContext",
		"priority", "priorityClassName", "preemptionPolicy", "runtimeClassName", "overhead", "os", "resources", "resourceClaims",
		"hostIPC", "hostPID", "hostUsers", "shareProcessNamespace",
	}
}

// fields returns the fields of a kind's spec that need no warning. "a.b[].c" is a field of each
// item of a list, "*" matches every field without an entry of its own, and "type=A,B" only allows
// these values. The lab does not read the specs of Namespaces and ServiceExports.
func fields(kind string) []string {
	withPrefix := func(prefix string, names []string) []string {
		var out []string
		for _, name := range names {
			out = append(out, prefix+name)
		}
		return out
	}
	template := append([]string{"template.metadata", "selector", "replicas", "revisionHistoryLimit", "minReadySeconds"}, withPrefix("template.spec.", podFields())...)
	switch kind {
	case "Pod":
		return podFields()
	case "Deployment":
		return append(template, "strategy", "progressDeadlineSeconds")
	case "StatefulSet":
		return append(template, "serviceName", "ordinals.start", "podManagementPolicy=Parallel", "updateStrategy", "volumeClaimTemplates", "persistentVolumeClaimRetentionPolicy")
	case "Service":
		return []string{
			"type=ClusterIP,ExternalName", "externalName", "selector", "clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy",
			"publishNotReadyAddresses", "sessionAffinity", "sessionAffinityConfig", "internalTrafficPolicy",
			"trafficDistribution", // only a preference: any endpoint is valid
			"ports[].name", "ports[].port", "ports[].protocol=TCP,UDP", "ports[].targetPort", "ports[].appProtocol",
		}
	}
	return nil
}

// unusedFields returns a warning for each field of a manifest's spec that has no effect in the lab.
func unusedFields(file string, manifest *yaml.Node, key Key) diag.List {
	known := fields(key.Kind)
	spec := child(manifest, "spec")
	if known == nil || spec == nil {
		return nil
	}
	var out diag.List
	var walk func(path string, n *yaml.Node)
	walk = func(path string, n *yaml.Node) {
		if n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		switch n.Kind {
		case yaml.SequenceNode:
			for _, item := range n.Content {
				walk(path+"[]", item)
			}
		case yaml.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				name, value := n.Content[i], n.Content[i+1]
				at := strings.TrimPrefix(path+"."+name.Value, ".")
				switch {
				case isHarmless(known, path, at, value.Value):
				case slices.ContainsFunc(known, func(k string) bool { return strings.HasPrefix(k, at+".") || strings.HasPrefix(k, at+"[]") }):
					walk(at, value)
				default:
					text := "spec." + strings.ReplaceAll(at, "[]", "")
					if value.Kind == yaml.ScalarNode {
						text += ": " + diag.Line(value.Value)
					}
					out = append(out, diag.Diagnostic{
						Severity: diag.Warning, Code: "manifest-unused", Pos: diag.Pos{File: file, Line: name.Line, Column: name.Column},
						Summary: fmt.Sprintf("%s %s: %s has no effect in the lab", key.Kind, key.Name, text),
					})
				}
			}
		}
	}
	walk("", spec)
	return out
}

// isHarmless reports whether a field needs no warning. If known has no entry for the field, it
// decides by the entry PARENT.*.
func isHarmless(known []string, parent, at, value string) bool {
	for _, k := range known {
		name, values, limited := strings.Cut(k, "=")
		if name == at {
			return !limited || slices.Contains(strings.Split(values, ","), value)
		}
	}
	return slices.Contains(known, parent+".*") && !slices.ContainsFunc(known, func(k string) bool { return strings.HasPrefix(k, at+"[]") })
}

func child(n *yaml.Node, name string) *yaml.Node {
	if n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == name {
				return n.Content[i+1]
			}
		}
	}
	return nil
}
