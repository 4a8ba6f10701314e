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

// scope is what one watch asks for; two that are equal are one watch.
type scope struct {
	resource  resource
	namespace string // empty = all
	// names are those of the Services that count, or the keys of the labels of nodes that do,
	// sorted and joined by commas.
	names string
	// rules are the label selectors of the pods that count, sorted, one a line.
	rules string
}

// maxNames is how many names a label selector may hold: a longer address than
// about 4 000 bytes does not get through every proxy.
const maxNames = 50

// restrict has the server leave out what does not count, as far as it can.
//
// Services have no label that names them, and a field selector takes a single
// name. So one name is one field, and for several the namespace is watched whole
// (one watch, however many exports it has); what comes for other names is
// dropped unread. Slices have the label, so that only what is exported comes.
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

// watchRequirements is what a node's facts must hold.
type watchRequirements struct {
	labels     map[string]bool            // keys of labels that pick the nodes of gateways
	services   map[string]bool            // namespace/name of declared exports, and those that lead to gateways
	pods       map[string]map[string]bool // label selectors by namespace
	mcs        bool                       // ServiceExports and ServiceImports
	namespaces bool
}

// needsOf says what matters on a node. Only gateways choose egress addresses, so
// only they look at pods; only they write into the cluster, so only they need to
// know its namespaces and, without dynamic exports, its ServiceExports.
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
			n.services[SystemNamespace+"/"+fabric.ServiceOf(g.Name)] = true
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

// scopes gives the watches that fill the needs, where the cluster has these
// ServiceExports (namespace/name).
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

// names gives the Services that count by namespace.
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
