package clusterdump

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/kubeclient"
)

// redacted replaces values that may be secret.
const redacted = "(not shown)"

// withoutManagedFields returns an object without its managed fields and without the
// last-applied-configuration annotation of kubectl, which is a copy of the object.
func withoutManagedFields(o *unstructured.Unstructured) map[string]any {
	o = o.DeepCopy()
	o.SetManagedFields(nil)
	if annotations := o.GetAnnotations(); annotations != nil {
		delete(annotations, corev1.LastAppliedConfigAnnotation)
		o.SetAnnotations(annotations)
	}
	return o.Object
}

// redactWorkload redacts a pod or its owner. Users may have patched values into the environment, or
// added containers.
func redactWorkload(o *unstructured.Unstructured) map[string]any {
	out := withoutManagedFields(o)
	for _, path := range [][]string{{"spec"}, {"spec", "template", "spec"}} {
		spec, _, _ := unstructured.NestedFieldNoCopy(out, path...)
		fields, _ := spec.(map[string]any)
		for _, kind := range []string{"initContainers", "containers", "ephemeralContainers"} {
			list, _ := fields[kind].([]any)
			for _, item := range list {
				if c, ok := item.(map[string]any); ok {
					redactContainer(c)
				}
			}
		}
	}
	return out
}

// redactContainer redacts a container. For the agent's container it hides the environment except
// the variables of Hawser. For other containers it only keeps name and image.
func redactContainer(container map[string]any) {
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
		if _, hasValue := variable["value"]; hasValue && !strings.HasPrefix(name, "HAWSER_") {
			variable["value"] = redacted
		}
	}
}

// redactNode returns the relevant fields of a Node.
func redactNode(o *unstructured.Unstructured) map[string]any {
	out := map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": o.GetName()}}
	for _, path := range [][]string{
		{"spec", "podCIDRs"}, {"spec", "unschedulable"}, {"spec", "taints"},
		{"status", "addresses"}, {"status", "conditions"}, {"status", "nodeInfo"},
	} {
		if value, exists, _ := unstructured.NestedFieldCopy(o.Object, path...); exists {
			_ = unstructured.SetNestedField(out, value, path...) // cannot fail: this function created the parents
		}
	}
	return out
}

// redactConfigMap redacts a ConfigMap of Hawser's namespace. Foreign ConfigMaps keep only their
// keys.
func redactConfigMap(o *unstructured.Unstructured) map[string]any {
	out := withoutManagedFields(o)
	if strings.HasPrefix(o.GetName(), "hawser-") {
		return out
	}
	for _, field := range []string{"data", "binaryData"} {
		data, _ := out[field].(map[string]any)
		for key := range data {
			data[key] = redacted
		}
	}
	return out
}

// redactDNSConfig returns a ConfigMap of the cluster's DNS without the credentials of plugins.
func redactDNSConfig(o *unstructured.Unstructured) map[string]any {
	out := withoutManagedFields(o)
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
	credentials := regexp.MustCompile(`(?mi)^([ \t]*\w*(?:secret|password|passwd|token|credentials?|access_?key|private_?key|api_?key)\w*[ \t]+)\S.*$`)
	return credentials.ReplaceAllString(text, "${1}"+redacted)
}
