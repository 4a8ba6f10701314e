package kube

import (
	"maps"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"hawser.dev/hawser/schema/fabric"
)

// scope identifies one watch: a resource and the selection of its objects.
type scope struct {
	resource  resource
	namespace string // empty = all
	// names has the names of Services, or the label keys of nodes, sorted and joined by commas.
	names string
	// rules has the label selectors of pods, sorted, one per line.
	rules string
}

// maxNames limits the names in a label selector: some proxies reject URLs of more than 4,000 bytes.
const maxNames = 50

// restrict adds selectors, so that the API server sends few objects outside the scope.
//
// Services have no label with their name, and a field selector matches only one name. For several
// names, the watch receives all Services of the namespace and drops the others. EndpointSlices have
// a label with the name of their Service.
func (s scope) restrict(options *metav1.ListOptions) {
	names := strings.Split(s.names, ",")
	switch s.resource {
	case services:
		if len(names) == 1 {
			options.FieldSelector = "metadata.name=" + s.names
		}
	case endpointSlices:
		options.LabelSelector = discoveryv1.LabelServiceName
		if len(names) <= maxNames {
			options.LabelSelector += " in (" + s.names + ")"
		}
	case pods:
		if !strings.Contains(s.rules, "\n") {
			options.LabelSelector = s.rules
		}
	}
}

// watchRequirements describes the objects that a node needs for its facts.
type watchRequirements struct {
	labels     map[string]bool            // label keys in node selectors of gateways
	services   map[string]bool            // namespace/name of declared exports and of Services of gateways
	pods       map[string]map[string]bool // label selectors by namespace
	mcs        bool                       // ServiceExports and ServiceImports
	namespaces bool
}

// needsOf returns the requirements of a node. Only gateways need pods, for egress rules. Without
// dynamic exports, only gateways need namespaces, ServiceExports and ServiceImports, because only
// gateways write to the API.
func needsOf(f *fabric.Fabric, cluster, node string) watchRequirements {
	own := f.Cluster(cluster)
	if own == nil {
		return watchRequirements{}
	}
	gateway := own.GatewayOn(node) != nil
	n := watchRequirements{
		labels: map[string]bool{}, services: map[string]bool{}, pods: map[string]map[string]bool{},
		mcs: gateway || f.DynamicExports != nil, namespaces: gateway || f.DynamicExports != nil,
	}
	for _, g := range own.Gateways {
		for key := range g.NodeSelector {
			n.labels[key] = true
		}
		if g.HasService() {
			n.services[fabric.SystemNamespace+"/"+fabric.ServiceOf(g.Name)] = true
		}
	}
	for _, e := range f.Exports {
		if e.ClusterPart(cluster) != nil {
			n.services[e.Namespace+"/"+e.Name] = true
		}
	}
	if !gateway {
		return n
	}
	for _, rule := range own.EgressRules {
		if n.pods[rule.Namespace] == nil {
			n.pods[rule.Namespace] = map[string]bool{}
		}
		n.pods[rule.Namespace][labels.Set(rule.MatchLabels).String()] = true
	}
	return n
}

// scopes returns the watches for the requirements. exports has namespace/name of each
// ServiceExport, whose Service is also watched.
func (n watchRequirements) scopes(exports []string) map[scope]bool {
	out := map[scope]bool{{resource: nodes, names: strings.Join(slices.Sorted(maps.Keys(n.labels)), ",")}: true, {resource: hawserNodes}: true}
	for namespace, rules := range n.pods {
		all := slices.Sorted(maps.Keys(rules))
		if rules[""] {
			all = []string{""} // every pod of the namespace
		}
		out[scope{resource: pods, namespace: namespace, rules: strings.Join(all, "\n")}] = true
	}
	if n.mcs {
		out[scope{resource: serviceExports}] = true
		out[scope{resource: serviceImports}] = true
	}
	if n.namespaces {
		out[scope{resource: namespaces}] = true
	}
	for namespace, names := range n.names(exports) {
		joined := strings.Join(slices.Sorted(maps.Keys(names)), ",")
		out[scope{resource: services, namespace: namespace, names: joined}] = true
		out[scope{resource: endpointSlices, namespace: namespace, names: joined}] = true
	}
	return out
}

// names returns the names of the required Services by namespace.
func (n watchRequirements) names(exports []string) map[string]map[string]bool {
	out := map[string]map[string]bool{}
	add := func(key string) {
		namespace, name, _ := strings.Cut(key, "/")
		if out[namespace] == nil {
			out[namespace] = map[string]bool{}
		}
		out[namespace][name] = true
	}
	for key := range n.services {
		add(key)
	}
	if n.mcs {
		for _, key := range exports {
			add(key)
		}
	}
	return out
}
