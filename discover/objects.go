package discover

import (
	"encoding/json"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// Objects are what was read of one cluster.
type Objects struct {
	Version string // what the API server says that it is
	Items   []unstructured.Unstructured
	Refused []Unreadable
	// ServiceRanges are what the API server named when it refused a Service's address.
	ServiceRanges []netip.Prefix
}

// Unreadable is what could not be read, for lack of rights as a rule.
type Unreadable struct {
	What string // such as "nodes" and "configmaps kube-system/coredns"
	Why  string
}

// Query is one request for objects.
type Query struct {
	Resource  schema.GroupVersionResource
	Namespace string // empty: of the cluster, or in all namespaces
	Name      string // empty: all
	Selector  string // by labels
}

// String names what is asked for.
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

// Queries are all that Decide looks at. What a cluster does not have is no error.
func Queries() []Query {
	of := func(group, version, resource string) Query {
		return Query{Resource: schema.GroupVersionResource{Group: group, Version: version, Resource: resource}}
	}
	in := func(namespace string, q Query) Query {
		q.Namespace = namespace
		return q
	}
	named := func(name string, q Query) Query {
		q.Name = name
		return q
	}
	out := []Query{
		of("", "v1", "nodes"),
		of("apps", "v1", "daemonsets"),
		in(kubeSystem, of("apps", "v1", "deployments")),
		of("networking.k8s.io", "v1", "servicecidrs"),
		of("crd.projectcalico.org", "v1", "ippools"),
		of("crd.projectcalico.org", "v1", "felixconfigurations"),
		of("cilium.io", "v2", "ciliumnodes"),
		of("cilium.io", "v2alpha1", "ciliumpodippools"),
		of("kubeovn.io", "v1", "subnets"),
		named("cluster", of("config.openshift.io", "v1", "networks")),
		named("cluster", of("operator.openshift.io", "v1", "networks")),
		named("kubernetes", in("default", of("", "v1", "services"))),
	}
	static := in(kubeSystem, of("", "v1", "pods"))
	static.Selector = "component in (kube-apiserver,kube-controller-manager)"
	out = append(out, static)
	for _, name := range []string{"kubeadm-config", "kube-proxy", "coredns", "coredns-custom", "node-local-dns",
		"kube-dns",
		"cilium-config", "antrea-config", "kube-flannel-cfg", "canal-config"} {
		out = append(out, named(name, in(kubeSystem, of("", "v1", "configmaps"))))
	}
	return append(out, named("kube-flannel-cfg", in("kube-flannel", of("", "v1", "configmaps"))),
		named("ovn-config", in("ovn-kubernetes", of("", "v1", "configmaps"))))
}

const kubeSystem = "kube-system"

// all gives the objects of a kind ("Node", "IPPool.crd.projectcalico.org").
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

// one gives an object by its name; nil = there is none.
func (o Objects) one(kind, namespace, name string) *unstructured.Unstructured {
	for _, item := range o.all(kind) {
		if item.GetNamespace() == namespace && item.GetName() == name {
			return &item
		}
	}
	return nil
}

// daemon gives the DaemonSet of a name in any namespace; nil = there is none.
func (o Objects) daemon(names ...string) *unstructured.Unstructured {
	for _, item := range o.all("DaemonSet.apps") {
		for _, name := range names {
			if item.GetName() == name {
				return &item
			}
		}
	}
	return nil
}

// setting gives a key of a ConfigMap; empty = there is none.
func (o Objects) setting(namespace, name, key string) string {
	config := o.one("ConfigMap", namespace, name)
	if config == nil {
		return ""
	}
	return word(config, "data", key)
}

// flag gives a flag of a control plane's static pods, such as --cluster-cidr of
// kube-controller-manager, and the pod's name.
func (o Objects) flag(component, flag string) (value, pod string) {
	for _, p := range o.all("Pod") {
		if p.GetLabels()["component"] != component {
			continue
		}
		containers, _, _ := unstructured.NestedSlice(p.Object, "spec", "containers")
		for _, c := range containers {
			container, _ := c.(map[string]any)
			command, _, _ := unstructured.NestedStringSlice(container, "command")
			args, _, _ := unstructured.NestedStringSlice(container, "args")
			if found := argument(append(command, args...), flag); found != "" {
				return found, p.GetName()
			}
		}
	}
	return "", ""
}

// argument gives the value of a flag in a command line, written in either way.
func argument(args []string, flag string) string {
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

// nodeArgument gives a flag of the k3s or RKE2 server that runs on a node.
func (o Objects) nodeArgument(flag string) (value, from string) {
	for _, n := range o.all("Node") {
		for _, annotation := range []string{"k3s.io/node-args", "rke2.io/node-args"} {
			var args []string
			if json.Unmarshal([]byte(n.GetAnnotations()[annotation]), &args) != nil {
				continue // it has none
			}
			if found := argument(args, flag); found != "" {
				return found, flag + " in " + annotation + " of Node " + n.GetName()
			}
		}
	}
	return "", ""
}

// parsed reads the text of a file of YAML or JSON that is kept in a ConfigMap; one that
// cannot be read has nothing in it.
func parsed(text string) *unstructured.Unstructured {
	out := &unstructured.Unstructured{}
	if yaml.Unmarshal([]byte(text), &out.Object) != nil {
		out.Object = nil
	}
	return out
}

func word(o *unstructured.Unstructured, fields ...string) string {
	out, _, _ := unstructured.NestedString(o.Object, fields...)
	return out
}

func words(o *unstructured.Unstructured, fields ...string) []string {
	out, _, _ := unstructured.NestedStringSlice(o.Object, fields...)
	return out
}

func isTrue(o *unstructured.Unstructured, fields ...string) bool {
	out, _, _ := unstructured.NestedBool(o.Object, fields...)
	return out
}
