package clusterdump

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/kubeclient"
)

// notShown stands where something may be a secret.
const notShown = "(not shown)"

// whole is an object without what says who wrote what, and without the copy of it that
// kubectl keeps.
func whole(o *unstructured.Unstructured) map[string]any {
	o = o.DeepCopy()
	o.SetManagedFields(nil)
	if notes := o.GetAnnotations(); notes != nil {
		delete(notes, corev1.LastAppliedConfigAnnotation)
		o.SetAnnotations(notes)
	}
	return o.Object
}

// workload redacts a pod or its owner. Users may have patched values into the environment, or added
// containers.
func workload(o *unstructured.Unstructured) map[string]any {
	out := whole(o)
	for _, at := range [][]string{{"spec"}, {"spec", "template", "spec"}} {
		spec, _, _ := unstructured.NestedFieldNoCopy(out, at...)
		fields, _ := spec.(map[string]any)
		for _, kind := range []string{"initContainers", "containers", "ephemeralContainers"} {
			list, _ := fields[kind].([]any)
			for _, item := range list {
				if c, ok := item.(map[string]any); ok {
					hideIn(c)
				}
			}
		}
	}
	return out
}

// hideIn leaves of a container that is not the agent's only which it is, and of the
// agent's environment only what Hawser sets.
func hideIn(container map[string]any) {
	if container["name"] != kubeclient.AgentContainer {
		for field := range container {
			if field != "name" && field != "image" {
				delete(container, field)
			}
		}
		return
	}
	env, _ := container["env"].([]any)
	for _, item := range env {
		variable, _ := item.(map[string]any)
		name, _ := variable["name"].(string)
		if _, plain := variable["value"]; plain && !strings.HasPrefix(name, "HAWSER_") {
			variable["value"] = notShown
		}
	}
}

// machine is what matters of a Node.
func machine(o *unstructured.Unstructured) map[string]any {
	out := map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": o.GetName()}}
	for _, at := range [][]string{
		{"spec", "podCIDRs"}, {"spec", "unschedulable"}, {"spec", "taints"},
		{"status", "addresses"}, {"status", "conditions"}, {"status", "nodeInfo"},
	} {
		if value, there, _ := unstructured.NestedFieldCopy(o.Object, at...); there {
			_ = unstructured.SetNestedField(out, value, at...) // parents on the path are maps of this function
		}
	}
	return out
}

// settings redacts a ConfigMap of Hawser's namespace. Foreign ConfigMaps keep only their keys.
func settings(o *unstructured.Unstructured) map[string]any {
	out := whole(o)
	if strings.HasPrefix(o.GetName(), "hawser-") {
		return out
	}
	for _, field := range []string{"data", "binaryData"} {
		data, _ := out[field].(map[string]any)
		for key := range data {
			data[key] = notShown
		}
	}
	return out
}

// nameServer is a ConfigMap of the cluster's own DNS, without the lines of plugins that
// hold credentials.
func nameServer(o *unstructured.Unstructured) map[string]any {
	out := whole(o)
	data, _ := out["data"].(map[string]any)
	for key, value := range data {
		if text, ok := value.(string); ok {
			data[key] = withoutCredentials(text)
		}
	}
	return out
}

// withoutCredentials takes them out of a Corefile. These are the words of the plugins
// that come with CoreDNS (azure, clouddns, etcd, k8s_external, route53, tsig), and of
// others that may be built in.
func withoutCredentials(text string) string {
	words := regexp.MustCompile(`(?mi)^([ \t]*\w*(?:secret|password|passwd|token|credentials?|access_?key|private_?key|api_?key)\w*[ \t]+)\S.*$`)
	return words.ReplaceAllString(text, "${1}"+notShown)
}
