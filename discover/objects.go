package discover

import (
	"encoding/json"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// Objects are the objects read from one cluster.
type Objects struct {
	Version    string // as the API server reports it
	Items      []unstructured.Unstructured
	Unreadable []Unreadable
	// ServiceRanges are the prefixes that the API server named when it refused a
	// Service's address.
	ServiceRanges []netip.Prefix
}

// Unreadable is a resource or object that could not be read, usually for lack of rights.
type Unreadable struct {
	What   string // such as "nodes" and "configmaps kube-system/coredns"
	Reason string
}

// Query is one request for objects.
type Query struct {
	Resource  schema.GroupVersionResource
	Namespace string // empty for cluster-scoped objects and for all namespaces
	Name      string // empty for all objects
	Selector  string // label selector
}

// String returns the resource and, if set, the object's namespace and name.
func (q Query) String() string {
	out := q.Resource.GroupResource().String()
	switch {
	case q.Name != "" && q.Namespace != "":
		out += " " + q.Namespace + "/" + q.Name
	case q.Name != "":
		out += " " + q.Name
	case q.Namespace != "":
		out += " in " + q.Namespace
	}
	return out
}

// Queries returns the queries for the objects that Analyze reads. It is no error if a
// cluster lacks a resource or object.
func Queries() []Query {
	query := func(group, version, resource string) Query {
		return Query{Resource: schema.GroupVersionResource{Group: group, Version: version, Resource: resource}}
	}
	inNamespace := func(namespace string, q Query) Query {
		q.Namespace = namespace
		return q
	}
	withName := func(name string, q Query) Query {
		q.Name = name
		return q
	}
	out := []Query{
		query("", "v1", "nodes"),
		query("apps", "v1", "daemonsets"),
		inNamespace(kubeSystem, query("apps", "v1", "deployments")),
		query("networking.k8s.io", "v1", "servicecidrs"),
		query("crd.projectcalico.org", "v1", "ippools"),
		query("crd.projectcalico.org", "v1", "felixconfigurations"),
		query("cilium.io", "v2", "ciliumnodes"),
		query("cilium.io", "v2alpha1", "ciliumpodippools"),
		query("kubeovn.io", "v1", "subnets"),
		withName("cluster", query("config.openshift.io", "v1", "networks")),
		withName("cluster", query("operator.openshift.io", "v1", "networks")),
		withName("kubernetes", inNamespace("default", query("", "v1", "services"))),
	}
	staticPods := inNamespace(kubeSystem, query("", "v1", "pods"))
	staticPods.Selector = "component in (kube-apiserver,kube-controller-manager)"
	out = append(out, staticPods)
	for _, name := range []string{"kubeadm-config", "kube-proxy", "coredns", "coredns-custom", "node-local-dns",
		"kube-dns",
		"cilium-config", "antrea-config", "kube-flannel-cfg", "canal-config"} {
		out = append(out, withName(name, inNamespace(kubeSystem, query("", "v1", "configmaps"))))
	}
	return append(out, withName("kube-flannel-cfg", inNamespace("kube-flannel",
		query("", "v1", "configmaps"))),
		withName("ovn-config", inNamespace("ovn-kubernetes", query("", "v1", "configmaps"))))
}

const kubeSystem = "kube-system"

// all returns the objects of a kind, such as "Node" or "IPPool.crd.projectcalico.org".
func (o Objects) all(kind string) []unstructured.Unstructured {
	var out []unstructured.Unstructured
	want := schema.ParseGroupKind(kind)
	for _, item := range o.Items {
		if item.GroupVersionKind().GroupKind() == want {
			out = append(out, item)
		}
	}
	return out
}

// object returns the object with a name, nil if absent.
func (o Objects) object(kind, namespace, name string) *unstructured.Unstructured {
	for _, item := range o.all(kind) {
		if item.GetNamespace() == namespace && item.GetName() == name {
			return &item
		}
	}
	return nil
}

// daemonSet returns the first DaemonSet with one of the names in any namespace, nil if absent.
func (o Objects) daemonSet(names ...string) *unstructured.Unstructured {
	for _, item := range o.all("DaemonSet.apps") {
		for _, name := range names {
			if item.GetName() == name {
				return &item
			}
		}
	}
	return nil
}

// configMapValue returns the value of a ConfigMap's key, empty if absent.
func (o Objects) configMapValue(namespace, name, key string) string {
	config := o.object("ConfigMap", namespace, name)
	if config == nil {
		return ""
	}
	return stringAt(config, "data", key)
}

// staticPodFlag returns the value of a flag in the static pods of the control plane, and the pod's
// name. An example is --cluster-cidr of kube-controller-manager.
func (o Objects) staticPodFlag(component, flag string) (value, pod string) {
	for _, p := range o.all("Pod") {
		if p.GetLabels()["component"] != component {
			continue
		}
		containers, _, _ := unstructured.NestedSlice(p.Object, "spec", "containers")
		for _, c := range containers {
			container, _ := c.(map[string]any)
			command, _, _ := unstructured.NestedStringSlice(container, "command")
			args, _, _ := unstructured.NestedStringSlice(container, "args")
			if found := flagValue(append(command, args...), flag); found != "" {
				return found, p.GetName()
			}
		}
	}
	return "", ""
}

// flagValue returns the value of a flag in a command line, written as "--flag=value" or
// as two arguments.
func flagValue(args []string, flag string) string {
	for i, arg := range args {
		if value, ok := strings.CutPrefix(arg, flag+"="); ok {
			return value
		}
		if arg == flag && i+1 < len(args) {
			return args[i+1]
		}
	}
	return ""
}

// nodeFlag returns the value of a flag of a node's k3s or RKE2 server, and its source.
func (o Objects) nodeFlag(flag string) (value, from string) {
	for _, n := range o.all("Node") {
		for _, annotation := range []string{"k3s.io/node-args", "rke2.io/node-args"} {
			var args []string
			if json.Unmarshal([]byte(n.GetAnnotations()[annotation]), &args) != nil {
				continue // the annotation is missing or invalid
			}
			if found := flagValue(args, flag); found != "" {
				return found, flag + " in " + annotation + " of Node " + n.GetName()
			}
		}
	}
	return "", ""
}

// parseYAML decodes a YAML or JSON file that a ConfigMap contains. The result is empty if
// the text is invalid.
func parseYAML(text string) *unstructured.Unstructured {
	out := &unstructured.Unstructured{}
	if yaml.Unmarshal([]byte(text), &out.Object) != nil {
		out.Object = nil
	}
	return out
}

func stringAt(o *unstructured.Unstructured, fields ...string) string {
	out, _, _ := unstructured.NestedString(o.Object, fields...)
	return out
}

func stringList(o *unstructured.Unstructured, fields ...string) []string {
	out, _, _ := unstructured.NestedStringSlice(o.Object, fields...)
	return out
}

func isTrue(o *unstructured.Unstructured, fields ...string) bool {
	out, _, _ := unstructured.NestedBool(o.Object, fields...)
	return out
}
