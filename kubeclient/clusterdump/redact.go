package clusterdump

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/kubeclient"
)

// notShown replaces values that may be secret.
const notShown = "(not shown)"

// whole returns an object without its managed fields and without the last-applied-configuration
// annotation of kubectl, which is a copy of the object.
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

// hideIn redacts a container. For the agent's container it hides the environment except the
// variables of Hawser. For other containers it only keeps name and image.
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

// machine returns the relevant fields of a Node.
func machine(o *unstructured.Unstructured) map[string]any {
	out := map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": o.GetName()}}
	for _, at := range [][]string{
		{"spec", "podCIDRs"}, {"spec", "unschedulable"}, {"spec", "taints"},
		{"status", "addresses"}, {"status", "conditions"}, {"status", "nodeInfo"},
	} {
		if value, there, _ := unstructured.NestedFieldCopy(o.Object, at...); there {
			_ = unstructured.SetNestedField(out, value, at...) // cannot fail: this function created the parents
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

// nameServer returns a ConfigMap of the cluster's DNS without the credentials of plugins.
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

// withoutCredentials hides the credentials in a Corefile. It matches the options of CoreDNS's own
// plugins (azure, clouddns, etcd, k8s_external, route53, tsig), and of plugins that may be built
// in.
func withoutCredentials(text string) string {
	words := regexp.MustCompile(`(?mi)^([ \t]*\w*(?:secret|password|passwd|token|credentials?|access_?key|private_?key|api_?key)\w*[ \t]+)\S.*$`)
	return words.ReplaceAllString(text, "${1}"+notShown)
}
